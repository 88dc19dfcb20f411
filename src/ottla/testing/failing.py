"""What a client is told when a test has scripted that its request fails: the error, in the response's own form.

Nothing of the request is carried out. Some responses have one place for an error, others one for each topic, partition
or group that was named: then each of them is told. Used by `faults`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ottla.broker.api import refusals
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.apis import Api
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.broker.services import Services

MESSAGE = "A test has scripted this failure."


def can_fail(api: Api) -> bool:
    """Is it known here where the API's response says an error?"""
    return api.name in _PER_PARTITION or api.name in _OTHERS or api.name == "Metadata" or refusals.has_form(api)


def failed(services: Services, listener: str, api: Api, request: Any, code: ErrorCode, version: int) -> Message:
    """The response to `request` that says `code`."""
    if api.name == "Metadata":
        return _metadata(services, listener, request, code, version)
    if api.name in _OTHERS:
        return _OTHERS[api.name](request, code, version)
    row = _PER_PARTITION.get(api.name)
    if row is None:
        return refusals.refusal(request, KafkaError(code, MESSAGE), version)
    response: Any = row.response_to(api.response, request, code)
    if api.name == "Produce" and version >= 10:
        services.tell_new_leaders(response, listener)
    if api.name == "Fetch" and (not response.responses or request.session_epoch > 0):
        # A request of a session (KIP-227) need not name what it asks for.
        response = api.response()
        response.error_code = code
    found: Message = response
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """How a request names partitions, and how its response does."""

    asked: tuple[str, str, str]
    """The fields with the topics, with their partitions, and with a partition's number."""
    answered: tuple[str, str, str, str, str]
    """The field with the topics, their class, the field with the partitions, their class, and the number's field."""
    names: tuple[str, ...] = ("name",)
    told: dict[str, Any] = field(default_factory=dict)
    """What a refused partition's answer says beside the error."""

    def response_to(self, response: type[Message], request: Any, code: ErrorCode) -> Message:
        wire = import_module(response.__module__)
        topics, partitions, number = self.asked
        topics_told, topic_class, partitions_told, partition_class, number_told = self.answered
        answers = []
        for topic in getattr(request, topics):
            refused = [
                getattr(wire, partition_class)(**{number_told: getattr(each, number), "error_code": code, **self.told})
                for each in getattr(topic, partitions)
            ]
            named = {name: getattr(topic, name) for name in self.names}
            answers.append(getattr(wire, topic_class)(**named, **{partitions_told: refused}))
        return response(**{topics_told: answers})


_PER_PARTITION = {
    "Produce": _Row(
        asked=("topic_data", "partition_data", "index"),
        answered=(
            "responses",
            "TopicProduceResponse",
            "partition_responses",
            "PartitionProduceResponse",
            "index",
        ),
        names=("name", "topic_id"),
        told={"base_offset": -1},
    ),
    "Fetch": _Row(
        asked=("topics", "partitions", "partition"),
        answered=("responses", "FetchableTopicResponse", "partitions", "PartitionData", "partition_index"),
        names=("topic", "topic_id"),
        told={"high_watermark": -1, "records": b""},
    ),
    "ListOffsets": _Row(
        asked=("topics", "partitions", "partition_index"),
        answered=(
            "topics",
            "ListOffsetsTopicResponse",
            "partitions",
            "ListOffsetsPartitionResponse",
            "partition_index",
        ),
    ),
    "OffsetCommit": _Row(
        asked=("topics", "partitions", "partition_index"),
        answered=(
            "topics",
            "OffsetCommitResponseTopic",
            "partitions",
            "OffsetCommitResponsePartition",
            "partition_index",
        ),
        names=("name", "topic_id"),
    ),
    "TxnOffsetCommit": _Row(
        asked=("topics", "partitions", "partition_index"),
        answered=(
            "topics",
            "TxnOffsetCommitResponseTopic",
            "partitions",
            "TxnOffsetCommitResponsePartition",
            "partition_index",
        ),
    ),
    "DeleteRecords": _Row(
        asked=("topics", "partitions", "partition_index"),
        answered=(
            "topics",
            "DeleteRecordsTopicResult",
            "partitions",
            "DeleteRecordsPartitionResult",
            "partition_index",
        ),
        told={"low_watermark": -1},
    ),
}


def _metadata(services: Services, listener: str, request: Any, code: ErrorCode, version: int) -> Message:
    """The brokers are told as they are; of the topics nothing but the error."""
    from ottla.wire.messages import metadata_response as wire

    image = services.image
    if request.topics is None:
        named = [(topic.name, topic.topic_id) for topic in image.topics.by_name.values()]
    else:
        named = [(topic.name, topic.topic_id) for topic in request.topics]
    brokers = services.endpoints_of([broker.broker_id for broker in image.alive_brokers()], listener)
    return wire.MetadataResponse(
        brokers=[
            wire.MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in brokers
        ],
        cluster_id=services.cluster_id,
        controller_id=services.any_controller_id(),
        topics=[wire.MetadataResponseTopic(error_code=code, name=name, topic_id=key) for name, key in named],
    )


def _find_coordinator(request: Any, code: ErrorCode, version: int) -> Message:
    from ottla.wire.messages import find_coordinator_response as wire

    if version < 4:
        return wire.FindCoordinatorResponse(error_code=code, error_message=MESSAGE, node_id=-1, port=-1)
    return wire.FindCoordinatorResponse(
        coordinators=[
            wire.Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=MESSAGE)
            for key in request.coordinator_keys
        ]
    )


_OF_PARTITIONS = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""What Kafka says of a partition whose offset is fetched, and never of the group as a whole."""


def _offset_fetch(request: Any, code: ErrorCode, version: int) -> Message:
    from ottla.wire.messages import offset_fetch_response as wire

    by_partition = code in _OF_PARTITIONS
    if version >= 8:
        return wire.OffsetFetchResponse(
            groups=[
                wire.OffsetFetchResponseGroup(
                    group_id=group.group_id,
                    error_code=0 if by_partition and group.topics else code,
                    topics=[
                        wire.OffsetFetchResponseTopics(
                            name=topic.name,
                            topic_id=topic.topic_id,
                            partitions=[
                                wire.OffsetFetchResponsePartitions(
                                    partition_index=index, committed_offset=-1, error_code=code
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in (group.topics or () if by_partition else ())
                    ],
                )
                for group in request.groups
            ]
        )
    if version >= 2 and not (by_partition and request.topics):
        return wire.OffsetFetchResponse(error_code=code)
    return wire.OffsetFetchResponse(
        topics=[
            wire.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    wire.OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )


def _describe_groups(request: Any, code: ErrorCode, version: int) -> Message:
    from ottla.wire.messages import describe_groups_response as wire

    return wire.DescribeGroupsResponse(
        groups=[wire.DescribedGroup(group_id=group_id, error_code=code) for group_id in request.groups]
    )


def _delete_groups(request: Any, code: ErrorCode, version: int) -> Message:
    from ottla.wire.messages import delete_groups_response as wire

    return wire.DeleteGroupsResponse(
        results=[wire.DeletableGroupResult(group_id=name, error_code=code) for name in request.groups_names]
    )


def _add_partitions_to_txn(request: Any, code: ErrorCode, version: int) -> Message:
    from ottla.wire.messages import add_partitions_to_txn_response as wire

    if version >= 4:
        return wire.AddPartitionsToTxnResponse(error_code=code)
    return wire.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            wire.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    wire.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


_OTHERS: dict[str, Callable[[Any, ErrorCode, int], Message]] = {
    "AddPartitionsToTxn": _add_partitions_to_txn,
    "DeleteGroups": _delete_groups,
    "DescribeGroups": _describe_groups,
    "FindCoordinator": _find_coordinator,
    "OffsetFetch": _offset_fetch,
}
