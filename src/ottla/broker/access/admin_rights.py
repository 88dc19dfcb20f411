"""What clients may change, resource by resource, asked on the active controller before it decides.

`take_forbidden` makes a request of what its client has a right to, which is all that the controller sees, and of the
rest what the answer is to say besides. Requests that need one right to the whole cluster never come here with less
(`security/rights`). Driven by `api/on_controller`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, cast

from ottla.broker.context import Context
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.acls import Operation
from ottla.metadata.images import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from ottla.model import METADATA_TOPIC, ZERO_UUID
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.wire.messages.alter_configs_request import AlterConfigsRequest
    from ottla.wire.messages.create_partitions_request import CreatePartitionsRequest
    from ottla.wire.messages.create_topics_request import CreateTopicsRequest
    from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
    from ottla.wire.messages.delete_topics_response import DeletableTopicResult
    from ottla.wire.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest

Refused = tuple[str, Sequence[Message]]
"""A list of the response, and what is to be added to it."""

_OF_CLUSTER = frozenset({RESOURCE_BROKER, RESOURCE_BROKER_LOGGER, RESOURCE_CLIENT_METRICS})


def take_forbidden(context: Context, request: Message) -> tuple[Message, Refused | None]:
    """The request itself, and None, where the client may do all that it asks for."""
    take = _BY_REQUEST.get(type(request).__name__)
    if take is None or context.services.authorizer is None:
        return request, None
    # The request may be tried again, and then by rights that have changed.
    allowed = copy(request)
    refused = take(context, allowed)
    return (allowed, refused) if refused[1] else (request, None)


def add(response: Message, refused: Refused) -> Message:
    field, parts = refused
    getattr(response, field).extend(parts)
    return response


def check_configs(context: Context, operation: Operation, kind: int, name: str) -> None:
    """May the client do `operation` to the configs of a resource? Kinds that nobody knows are refused elsewhere."""
    if kind in _OF_CLUSTER:
        if not context.may_cluster(operation):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    elif kind == RESOURCE_TOPIC:
        if not context.may_topic(operation, name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    elif kind == RESOURCE_GROUP and not context.may_group(operation, name):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")


def _create_topics(context: Context, request: CreateTopicsRequest) -> Refused:
    from ottla.wire.messages.create_topics_response import CreatableTopicResult

    if context.silently.may_cluster(Operation.CREATE):
        return "topics", []
    # What is wrong with a request whoever sends it is told to everybody.
    mentions = Counter(topic.name for topic in request.topics)
    forbidden = {
        name
        for name, count in mentions.items()
        if count == 1 and name != METADATA_TOPIC and not context.may_topic(Operation.CREATE, name)
    }
    request.topics = [topic for topic in request.topics if topic.name not in forbidden]
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return "topics", [
        CreatableTopicResult(name=name, error_code=code, error_message="Authorization failed.") for name in forbidden
    ]


def _create_partitions(context: Context, request: CreatePartitionsRequest) -> Refused:
    from ottla.wire.messages.create_partitions_response import CreatePartitionsTopicResult

    mentions = Counter(topic.name for topic in request.topics)
    forbidden = {
        name for name, count in mentions.items() if count == 1 and not context.may_topic(Operation.ALTER, name)
    }
    request.topics = [topic for topic in request.topics if topic.name not in forbidden]
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return "results", [CreatePartitionsTopicResult(name=name, error_code=code) for name in forbidden]


def _delete_topics(context: Context, request: DeleteTopicsRequest) -> Refused:
    if context.silently.may_cluster(Operation.DELETE):
        return "responses", []
    from ottla.wire.messages.delete_topics_response import DeletableTopicResult

    mentions = Counter([*request.topic_names, *((topic.name, topic.topic_id) for topic in request.topics)])
    refused: list[Message] = []
    names: list[str] = []
    for name in request.topic_names:
        if mentions[name] > 1 or _may_delete(context, name):
            names.append(name)
        else:
            refused.append(DeletableTopicResult(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    topics: list[DeleteTopicState] = []
    for topic in request.topics:
        result = None if mentions[topic.name, topic.topic_id] > 1 else _refuse_deletion(context, topic)
        if result is None:
            topics.append(topic)
        else:
            refused.append(result)
    request.topic_names, request.topics = names, topics
    return "responses", refused


def _refuse_deletion(context: Context, topic: DeleteTopicState) -> DeletableTopicResult | None:
    from ottla.wire.messages.delete_topics_response import DeletableTopicResult

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if (topic.name is None) == (topic.topic_id == ZERO_UUID):
        return None  # Named in no way, or in two, which is refused whoever asks.
    if topic.name is not None:
        return None if _may_delete(context, topic.name) else DeletableTopicResult(name=topic.name, error_code=code)
    known = context.services.image.topic_by_id(topic.topic_id)
    if known is None:
        # Not left to the controller, which may know the topic a moment earlier, and asks nobody's rights.
        return DeletableTopicResult(name=None, topic_id=topic.topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    if context.may_topic(Operation.DELETE, known.name):
        return None
    told = known.name if context.silently.may_topic(Operation.DESCRIBE, known.name) else None
    return DeletableTopicResult(name=told, topic_id=topic.topic_id, error_code=code)


def _may_delete(context: Context, name: str) -> bool:
    return context.may_topic(Operation.DESCRIBE, name) and context.may_topic(Operation.DELETE, name)


def _alter_configs(context: Context, request: AlterConfigsRequest) -> Refused:
    from ottla.wire.messages.alter_configs_response import AlterConfigsResourceResponse

    forbidden = _forbidden_configs(context, [(each.resource_type, each.resource_name) for each in request.resources])
    request.resources = [
        each for each in request.resources if (each.resource_type, each.resource_name) not in forbidden
    ]
    return "responses", [
        AlterConfigsResourceResponse(error.code, error.message, kind, name) for (kind, name), error in forbidden.items()
    ]


def _incremental_alter_configs(context: Context, request: IncrementalAlterConfigsRequest) -> Refused:
    from ottla.wire.messages.incremental_alter_configs_response import AlterConfigsResourceResponse

    forbidden = _forbidden_configs(context, [(each.resource_type, each.resource_name) for each in request.resources])
    request.resources = [
        each for each in request.resources if (each.resource_type, each.resource_name) not in forbidden
    ]
    return "responses", [
        AlterConfigsResourceResponse(error.code, error.message, kind, name) for (kind, name), error in forbidden.items()
    ]


def _forbidden_configs(context: Context, resources: list[tuple[int, str]]) -> dict[tuple[int, str], KafkaError]:
    forbidden: dict[tuple[int, str], KafkaError] = {}
    for kind, name in resources:
        try:
            check_configs(context, Operation.ALTER_CONFIGS, kind, name)
        except KafkaError as error:
            forbidden[kind, name] = error
    return forbidden


_BY_REQUEST = cast(
    "dict[str, Callable[[Context, Message], Refused]]",
    {
        "AlterConfigsRequest": _alter_configs,
        "CreatePartitionsRequest": _create_partitions,
        "CreateTopicsRequest": _create_topics,
        "DeleteTopicsRequest": _delete_topics,
        "IncrementalAlterConfigsRequest": _incremental_alter_configs,
    },
)
