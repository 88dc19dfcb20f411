"""DescribeQuorum (key 55): how far each voter and observer of the metadata log is."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.errors import ErrorCode
from ottla.model import METADATA_TOPIC, ZERO_UUID
from ottla.raft.machine import ReplicaStatus
from ottla.wire.messages.describe_quorum_request import DescribeQuorumRequest
from ottla.wire.messages.describe_quorum_response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)


def handle(context: Context, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    partitions = [(topic.topic_name, entry.partition_index) for topic in request.topics for entry in topic.partitions]
    if partitions != [(METADATA_TOPIC, 0)]:
        return DescribeQuorumResponse(
            topics=[
                TopicData(
                    topic_name=topic.topic_name,
                    partitions=[
                        PartitionData(
                            partition_index=entry.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        )
                        for entry in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
    status = context.services.control.quorum_status()
    if status is None:
        return DescribeQuorumResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    partition = PartitionData(
        partition_index=0,
        leader_id=status.leader_id,
        leader_epoch=status.leader_epoch,
        high_watermark=status.high_watermark,
        current_voters=[_state(replica, context.api_version) for replica in status.voters],
        observers=[_state(replica, context.api_version) for replica in status.observers],
    )
    return DescribeQuorumResponse(
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        nodes=[
            Node(
                node_id=voter.key.id,
                listeners=[Listener(name=each.name, host=each.host, port=each.port) for each in voter.endpoints],
            )
            for voter in (status.nodes if context.api_version >= 2 else ())
        ],
    )


def _state(replica: ReplicaStatus, version: int) -> ReplicaState:
    return ReplicaState(
        replica_id=replica.replica.id,
        # Older versions cannot say which directory it is (KIP-853).
        replica_directory_id=replica.replica.directory_id if version >= 2 else ZERO_UUID,
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.last_fetch_ms,
        last_caught_up_timestamp=replica.last_caught_up_ms,
    )
