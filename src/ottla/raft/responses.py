"""The answers to the quorum's requests. Each names the epoch and its leader as this replica knows them; a version that
can also says where the leader is, so that a requester that knows no voters finds it (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.model import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.raft.checkpoint import SnapshotId
from ottla.raft.log_view import Diverging

if TYPE_CHECKING:
    from ottla.raft.quorum import Quorum
    from ottla.wire.messages.begin_quorum_epoch_response import BeginQuorumEpochResponse
    from ottla.wire.messages.end_quorum_epoch_response import EndQuorumEpochResponse
    from ottla.wire.messages.fetch_response import FetchResponse
    from ottla.wire.messages.fetch_snapshot_response import FetchSnapshotResponse
    from ottla.wire.messages.update_raft_voter_response import UpdateRaftVoterResponse
    from ottla.wire.messages.vote_response import VoteResponse

FETCH_ENDPOINTS_FROM = 16


def _leader(quorum: Quorum) -> int:
    return -1 if quorum.leader_id is None else quorum.leader_id


def _endpoints(quorum: Quorum, version: int, since: int = 1) -> list[tuple[int, str, int]]:
    leader, endpoint = quorum.leader_id, quorum.leader_endpoint
    if version < since or leader is None or endpoint is None:
        return []
    return [(leader, endpoint.host, endpoint.port)]


def vote(quorum: Quorum, version: int, error: ErrorCode, *, granted: bool = False) -> VoteResponse:
    from ottla.wire.messages.vote_response import NodeEndpoint, PartitionData, TopicData, VoteResponse

    partition = PartitionData(
        error_code=error, leader_id=_leader(quorum), leader_epoch=quorum.epoch, vote_granted=granted
    )
    return VoteResponse(
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[NodeEndpoint(node_id=n, host=h, port=p) for n, h, p in _endpoints(quorum, version)],
    )


def begin_quorum_epoch(quorum: Quorum, version: int, error: ErrorCode) -> BeginQuorumEpochResponse:
    from ottla.wire.messages.begin_quorum_epoch_response import (
        BeginQuorumEpochResponse,
        NodeEndpoint,
        PartitionData,
        TopicData,
    )

    partition = PartitionData(error_code=error, leader_id=_leader(quorum), leader_epoch=quorum.epoch)
    return BeginQuorumEpochResponse(
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[NodeEndpoint(node_id=n, host=h, port=p) for n, h, p in _endpoints(quorum, version)],
    )


def end_quorum_epoch(quorum: Quorum, version: int, error: ErrorCode) -> EndQuorumEpochResponse:
    from ottla.wire.messages.end_quorum_epoch_response import (
        EndQuorumEpochResponse,
        NodeEndpoint,
        PartitionData,
        TopicData,
    )

    partition = PartitionData(error_code=error, leader_id=_leader(quorum), leader_epoch=quorum.epoch)
    return EndQuorumEpochResponse(
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[NodeEndpoint(node_id=n, host=h, port=p) for n, h, p in _endpoints(quorum, version)],
    )


def fetch(
    quorum: Quorum,
    version: int,
    error: ErrorCode = ErrorCode.NONE,
    *,
    high_watermark: int | None = None,
    other: Diverging | SnapshotId | None = None,
) -> FetchResponse:
    """`other` is what the fetcher has to do before it can get records."""
    from ottla.wire.messages.fetch_response import (
        EpochEndOffset,
        FetchableTopicResponse,
        FetchResponse,
        LeaderIdAndEpoch,
        NodeEndpoint,
        PartitionData,
    )
    from ottla.wire.messages.fetch_response import SnapshotId as SnapshotIdData

    partition = PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=-1 if high_watermark is None else high_watermark,
        log_start_offset=quorum.log.log_start_offset,
        current_leader=LeaderIdAndEpoch(leader_id=_leader(quorum), leader_epoch=quorum.epoch),
        records=b"",
    )
    if isinstance(other, Diverging):
        partition.diverging_epoch = EpochEndOffset(epoch=other.epoch, end_offset=other.end_offset)
    elif other is not None:
        partition.snapshot_id = SnapshotIdData(end_offset=other.end_offset, epoch=other.epoch)
    return FetchResponse(
        responses=[FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
        node_endpoints=[
            NodeEndpoint(node_id=n, host=h, port=p) for n, h, p in _endpoints(quorum, version, FETCH_ENDPOINTS_FROM)
        ],
    )


def fetch_snapshot(
    quorum: Quorum,
    version: int,
    error: ErrorCode = ErrorCode.NONE,
    *,
    snapshot: SnapshotId | None = None,
    size: int = 0,
    position: int = 0,
) -> FetchSnapshotResponse:
    from ottla.wire.messages.fetch_snapshot_response import (
        FetchSnapshotResponse,
        LeaderIdAndEpoch,
        NodeEndpoint,
        PartitionSnapshot,
        TopicSnapshot,
    )
    from ottla.wire.messages.fetch_snapshot_response import SnapshotId as SnapshotIdData

    partition = PartitionSnapshot(
        error_code=error,
        current_leader=LeaderIdAndEpoch(leader_id=_leader(quorum), leader_epoch=quorum.epoch),
        size=size,
        position=position,
        unaligned_records=b"",
    )
    if snapshot is not None:
        partition.snapshot_id = SnapshotIdData(end_offset=snapshot.end_offset, epoch=snapshot.epoch)
    return FetchSnapshotResponse(
        topics=[TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[NodeEndpoint(node_id=n, host=h, port=p) for n, h, p in _endpoints(quorum, version)],
    )


def update_voter(quorum: Quorum, error: ErrorCode) -> UpdateRaftVoterResponse:
    from ottla.wire.messages.update_raft_voter_response import CurrentLeader, UpdateRaftVoterResponse

    leader = CurrentLeader(leader_id=_leader(quorum), leader_epoch=quorum.epoch)
    endpoint = quorum.leader_endpoint
    if quorum.leader_id is not None and endpoint is not None:
        leader.host, leader.port = endpoint.host, endpoint.port
    return UpdateRaftVoterResponse(error_code=error, current_leader=leader)
