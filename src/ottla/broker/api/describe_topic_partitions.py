"""DescribeTopicPartitions (key 75): metadata in pages (KIP-966), with the eligible leader replicas."""

from __future__ import annotations

from ottla.broker.access import authorized_operations
from ottla.broker.api.partition_metadata import offline_replicas, reachable_leader
from ottla.broker.context import Context
from ottla.errors import ErrorCode
from ottla.metadata.acls import Operation
from ottla.model import INTERNAL_TOPICS
from ottla.wire.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from ottla.wire.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def handle(context: Context, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    services = context.services
    image = services.image
    asked = sorted({topic.name for topic in request.topics})
    client = context if asked else context.silently
    hidden = {name for name in asked or image.topics.by_name if not client.may_topic(Operation.DESCRIBE, name)}
    names = [name for name in asked or sorted(image.topics.by_name) if name not in hidden]
    first_partition = 0
    if (cursor := request.cursor) is not None:
        if cursor.partition_index < 0 or (asked and cursor.topic_name not in asked):
            return _refuse(asked)
        names = [name for name in names if name >= cursor.topic_name]
        if names and names[0] == cursor.topic_name:
            first_partition = cursor.partition_index
    left = max(1, min(request.response_partition_limit, services.partitions_per_describe_max))
    response = DescribeTopicPartitionsResponse()
    for name in asked:
        if name in hidden and (cursor is None or name >= cursor.topic_name):
            response.topics.append(
                DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
            )
    for name in names:
        if left <= 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=first_partition)
            break
        topic = image.topic(name)
        if topic is None:
            legal = services.is_legal_topic_name(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
            response.topics.append(
                DescribeTopicPartitionsResponseTopic(
                    error_code=code,
                    name=name,
                    topic_authorized_operations=authorized_operations.on_topic(context, name),
                )
            )
            continue
        described = DescribeTopicPartitionsResponseTopic(
            name=name,
            topic_id=topic.topic_id,
            is_internal=name in INTERNAL_TOPICS,
            topic_authorized_operations=authorized_operations.on_topic(context, name),
        )
        response.topics.append(described)
        for index, partition in sorted(topic.partitions.items()):
            if index < first_partition:
                continue
            if left == 0:
                response.next_cursor = Cursor(topic_name=name, partition_index=index)
                break
            left -= 1
            leader, _ = reachable_leader(image, partition, context.listener)
            described.partitions.append(
                DescribeTopicPartitionsResponsePartition(
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=partition.leader_epoch,
                    replica_nodes=list(partition.replicas),
                    isr_nodes=list(partition.isr),
                    eligible_leader_replicas=list(partition.elr),
                    last_known_elr=list(partition.last_known_elr),
                    offline_replicas=offline_replicas(image, partition, context.listener),
                )
            )
        first_partition = 0
        if response.next_cursor is not None:
            break
    return response


def _refuse(names: list[str]) -> DescribeTopicPartitionsResponse:
    """A cursor that none of our answers can have held."""
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=name) for name in names]
    )
