"""AlterReplicaLogDirs (key 34): a replica of this broker is to be in another of its log directories (KIP-113).

Answered at once: the move itself takes its time (`broker/upkeep/directory_moves`), and DescribeLogDirs tells how far it
is.
"""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.broker.services import Services
from ottla.errors import ErrorCode, KafkaError
from ottla.log.files import has_room_for_future
from ottla.model import TopicPartition
from ottla.wire.messages.alter_replica_log_dirs_request import AlterReplicaLogDirsRequest
from ottla.wire.messages.alter_replica_log_dirs_response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(context: Context, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    wanted: dict[TopicPartition, str] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                wanted[TopicPartition(topic.name, index)] = directory.path
    response = AlterReplicaLogDirsResponse()
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for partition, path in wanted.items():
        answered = topics.get(partition.topic)
        if answered is None:
            answered = topics[partition.topic] = AlterReplicaLogDirTopicResult(topic_name=partition.topic)
            response.results.append(answered)
        code = _move(context.services, partition, path)
        answered.partitions.append(
            AlterReplicaLogDirPartitionResult(partition_index=partition.partition, error_code=code)
        )
    return response


def _move(services: Services, partition: TopicPartition, path: str) -> ErrorCode:
    if not has_room_for_future(partition):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if path not in services.log_dirs:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if services.logs.directories[path].offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if path in services.logs.cordoned:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    try:
        services.moves.move(partition, path)
    except KafkaError as error:
        # What this API has always said of a partition that is elsewhere.
        return ErrorCode.REPLICA_NOT_AVAILABLE if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER else error.code
    return ErrorCode.NONE
