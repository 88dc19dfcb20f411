"""DescribeLogDirs (key 35): what lies in each data directory, and how much room its volume has."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.broker.hosted import HostedPartition
from ottla.errors import ErrorCode
from ottla.log import Log
from ottla.runtime import DiskError
from ottla.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest
from ottla.wire.messages.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    services = context.services
    wanted = (
        None
        if request.topics is None
        else {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    )
    response = DescribeLogDirsResponse()
    for directory in services.log_dirs:
        result = DescribeLogDirsResult(log_dir=directory, is_cordoned=directory in services.logs.cordoned)
        response.results.append(result)
        if services.logs.directories[directory].offline:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            continue
        try:
            result.total_bytes, result.usable_bytes = services.disk.space(directory)
        except DiskError:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            continue
        topics: dict[str, DescribeLogDirsTopic] = {}
        for hosted in services.replicas.partitions():
            if wanted is not None and hosted.topic_partition not in wanted:
                continue
            for log in (hosted.log, services.logs.futures.get(hosted.topic_partition)):
                if log is None or services.parent_dir(log) != directory:
                    continue
                topic = topics.get(hosted.topic)
                if topic is None:
                    topic = topics[hosted.topic] = DescribeLogDirsTopic(name=hosted.topic)
                    result.topics.append(topic)
                topic.partitions.append(
                    DescribeLogDirsPartition(
                        partition_index=hosted.index,
                        partition_size=log.size_bytes(),
                        offset_lag=_lag(hosted, log),
                        is_future_key=log is not hosted.log,
                    )
                )
    return response


def _lag(hosted: HostedPartition, log: Log) -> int:
    """How far a replica is behind what is committed; one that is on its way here, behind the one in use."""
    if log is not hosted.log:
        return hosted.log.log_end_offset - log.log_end_offset
    return 0 if hosted.leader is not None else max(log.high_watermark - log.log_end_offset, 0)
