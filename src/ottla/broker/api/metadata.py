"""Metadata (key 3): brokers, topics, leaders. Creates a topic on first use where that is allowed."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.access import authorized_operations
from ottla.broker.api.partition_metadata import offline_replicas, reachable, reachable_leader
from ottla.broker.bounds.limits import AUTO_CREATED_MAX
from ottla.broker.context import Context
from ottla.errors import ErrorCode
from ottla.metadata.acls import Operation
from ottla.metadata.images import MetadataImage, TopicImage
from ottla.model import INTERNAL_TOPICS, ZERO_UUID
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def handle(context: Context, request: MetadataRequest) -> MetadataResponse | Awaitable[MetadataResponse]:
    topics = request.topics
    if topics and request.allow_auto_topic_creation and context.services.auto_create_topics:
        image = context.services.image
        missing = [
            topic.name
            for topic in topics
            if topic.name is not None
            and image.topic(topic.name) is None
            and context.silently.may_topic(Operation.DESCRIBE, topic.name)
        ]
        if missing:
            return _create_where_allowed(context, request, list(dict.fromkeys(missing))[:AUTO_CREATED_MAX])
    return _answer(context, request, {})


def _create_where_allowed(
    context: Context, request: MetadataRequest, missing: list[str]
) -> MetadataResponse | Awaitable[MetadataResponse]:
    anywhere = context.silently.may_cluster(Operation.CREATE)
    allowed = [name for name in missing if anywhere or context.may_topic(Operation.CREATE, name)]
    errors = dict.fromkeys((name for name in missing if name not in allowed), ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if not allowed:
        return _answer(context, request, errors)
    return _create_then_answer(context, request, allowed, errors)


async def _create_then_answer(
    context: Context, request: MetadataRequest, missing: list[str], errors: dict[str, ErrorCode]
) -> MetadataResponse:
    """Kafka answers at once and lets the client ask again; waiting for the creation saves it that round."""
    return _answer(context, request, errors | await context.services.create_on_first_use(missing, context))


def _answer(context: Context, request: MetadataRequest, errors: dict[str, ErrorCode]) -> MetadataResponse:
    services = context.services
    image = services.image
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker in image.alive_brokers()
            if (endpoint := broker.endpoint(context.listener)) is not None
        ],
        cluster_id=services.cluster_id,
        controller_id=services.any_controller_id(),
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = authorized_operations.on_cluster(context)
    if request.topics is None or (context.api_version == 0 and not request.topics):
        client = context.silently
        response.topics = [
            _describe(context, image, topic)
            for topic in image.topics.by_name.values()
            if client.may_topic(Operation.DESCRIBE, topic.name)
        ]
    else:
        # Each topic once, however often it is asked for: its description may be a thousand times the question.
        asked = {(wanted.name, wanted.topic_id): wanted for wanted in request.topics}
        response.topics = [_one(context, image, wanted, errors) for wanted in asked.values()]
    if request.include_topic_authorized_operations:
        for topic in response.topics:
            if topic.name is not None and topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                topic.topic_authorized_operations = authorized_operations.on_topic(context, topic.name)
    return response


def _one(
    context: Context, image: MetadataImage, wanted: MetadataRequestTopic, errors: dict[str, ErrorCode]
) -> MetadataResponseTopic:
    services = context.services
    if wanted.topic_id != ZERO_UUID:
        if context.api_version < 12:
            # Versions 10 and 11 have the field, and cannot answer to it: their topics must have names (KAFKA-12701).
            return MetadataResponseTopic(
                error_code=ErrorCode.INVALID_REQUEST, name=wanted.name or "", topic_id=wanted.topic_id
            )
        topic = image.topic_by_id(wanted.topic_id)
        if topic is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=wanted.topic_id)
        if not context.may_topic(Operation.DESCRIBE, topic.name):
            return MetadataResponseTopic(
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=wanted.topic_id
            )
        return _describe(context, image, topic)
    name = wanted.name
    if name is None:
        return MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name="")
    if not context.may_topic(Operation.DESCRIBE, name):
        # Whether there is such a topic is nobody's business who may not describe it.
        return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
    topic = image.topic(name)
    if topic is not None:
        return _describe(context, image, topic)
    code = errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if name not in errors and not services.is_legal_topic_name(name):
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)


def _describe(context: Context, image: MetadataImage, topic: TopicImage) -> MetadataResponseTopic:
    listener, version = context.listener, context.api_version
    partitions = []
    for index, partition in sorted(topic.partitions.items()):
        leader, error = reachable_leader(image, partition, listener)
        if error is ErrorCode.LISTENER_NOT_FOUND and version < 6:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        replicas, isr = list(partition.replicas), list(partition.isr)
        if version == 0:
            # It has no field for those that are out of reach, and names them not at all.
            replicas, isr = reachable(image, partition.replicas, listener), reachable(image, partition.isr, listener)
            if error is ErrorCode.NONE and len(replicas) + len(isr) < len(partition.replicas) + len(partition.isr):
                error = ErrorCode.REPLICA_NOT_AVAILABLE
        partitions.append(
            MetadataResponsePartition(
                error_code=error,
                partition_index=index,
                leader_id=leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=replicas,
                isr_nodes=isr,
                offline_replicas=offline_replicas(image, partition, listener),
            )
        )
    return MetadataResponseTopic(
        name=topic.name, topic_id=topic.topic_id, is_internal=topic.name in INTERNAL_TOPICS, partitions=partitions
    )
