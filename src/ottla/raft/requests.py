"""The requests that a replica sends to others of its quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.model import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.raft.checkpoint import SnapshotId
from ottla.raft.roles import Resigned
from ottla.raft.voters import ReplicaKey

if TYPE_CHECKING:
    from ottla.raft.quorum import Quorum
    from ottla.wire.message import Message


def vote(quorum: Quorum, voter: ReplicaKey, *, pre_vote: bool) -> Message:
    from ottla.wire.messages.vote_request import PartitionData, TopicData, VoteRequest

    last_epoch, end_offset = quorum.log_end
    partition = PartitionData(
        replica_epoch=quorum.epoch,
        replica_id=quorum.local.id,
        replica_directory_id=quorum.local.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=last_epoch,
        last_offset=end_offset,
        pre_vote=pre_vote,
    )
    return VoteRequest(
        cluster_id=quorum.cluster_id,
        voter_id=voter.id,
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
    )


def begin_quorum_epoch(quorum: Quorum, voter: ReplicaKey) -> Message:
    from ottla.wire.messages.begin_quorum_epoch_request import (
        BeginQuorumEpochRequest,
        LeaderEndpoint,
        PartitionData,
        TopicData,
    )

    partition = PartitionData(
        voter_directory_id=voter.directory_id, leader_id=quorum.local.id, leader_epoch=quorum.epoch
    )
    return BeginQuorumEpochRequest(
        cluster_id=quorum.cluster_id,
        voter_id=voter.id,
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[LeaderEndpoint(name=e.name, host=e.host, port=e.port) for e in quorum.leader_endpoints],
    )


def end_quorum_epoch(quorum: Quorum, role: Resigned) -> Message:
    from ottla.wire.messages.end_quorum_epoch_request import (
        EndQuorumEpochRequest,
        LeaderEndpoint,
        PartitionData,
        ReplicaInfo,
        TopicData,
    )

    partition = PartitionData(
        leader_id=quorum.local.id,
        leader_epoch=role.epoch,
        preferred_successors=[key.id for key in role.successors],
        preferred_candidates=[
            ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id) for key in role.successors
        ],
    )
    return EndQuorumEpochRequest(
        cluster_id=quorum.cluster_id,
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[LeaderEndpoint(name=e.name, host=e.host, port=e.port) for e in quorum.leader_endpoints],
    )


def fetch(quorum: Quorum) -> Message:
    from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ReplicaState

    last_epoch, end_offset = quorum.log_end
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=quorum.epoch,
        fetch_offset=end_offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=-1,
        partition_max_bytes=quorum.config.fetch_max_bytes,
        replica_directory_id=quorum.local.directory_id,
        high_watermark=-1 if quorum.high_watermark is None else quorum.high_watermark,
    )
    return FetchRequest(
        cluster_id=quorum.cluster_id,
        replica_state=ReplicaState(replica_id=quorum.local.id),
        max_wait_ms=quorum.config.fetch_max_wait_ms,
        min_bytes=0,
        max_bytes=quorum.config.fetch_max_bytes,
        topics=[FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def fetch_snapshot(quorum: Quorum, snapshot: SnapshotId, position: int) -> Message:
    from ottla.wire.messages.fetch_snapshot_request import FetchSnapshotRequest, PartitionSnapshot, TopicSnapshot
    from ottla.wire.messages.fetch_snapshot_request import SnapshotId as SnapshotIdData

    partition = PartitionSnapshot(
        current_leader_epoch=quorum.epoch,
        snapshot_id=SnapshotIdData(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
        position=position,
        replica_directory_id=quorum.local.directory_id,
    )
    return FetchSnapshotRequest(
        cluster_id=quorum.cluster_id,
        replica_id=quorum.local.id,
        max_bytes=quorum.config.snapshot_max_bytes,
        topics=[TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
    )


def update_voter(quorum: Quorum) -> Message:
    from ottla.wire.messages.update_raft_voter_request import KRaftVersionFeature, Listener, UpdateRaftVoterRequest

    voter = quorum.local_voter
    return UpdateRaftVoterRequest(
        cluster_id=quorum.cluster_id,
        current_leader_epoch=quorum.epoch,
        voter_id=voter.key.id,
        voter_directory_id=voter.key.directory_id,
        listeners=[Listener(name=e.name, host=e.host, port=e.port) for e in voter.endpoints],
        kraft_version_feature=KRaftVersionFeature(
            min_supported_version=voter.kraft_version_min, max_supported_version=voter.kraft_version_max
        ),
    )


def add_voter(quorum: Quorum) -> Message:
    from ottla.wire.messages.add_raft_voter_request import AddRaftVoterRequest, Listener

    voter = quorum.local_voter
    return AddRaftVoterRequest(
        cluster_id=quorum.cluster_id,
        timeout_ms=quorum.config.request_timeout_ms,
        voter_id=voter.key.id,
        voter_directory_id=voter.key.directory_id,
        listeners=[Listener(name=e.name, host=e.host, port=e.port) for e in voter.endpoints],
        ack_when_committed=False,
    )


def remove_voter(quorum: Quorum, voter: ReplicaKey) -> Message:
    from ottla.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest

    return RemoveRaftVoterRequest(
        cluster_id=quorum.cluster_id, voter_id=voter.id, voter_directory_id=voter.directory_id
    )


def api_versions() -> Message:
    from ottla.wire.messages.api_versions_request import ApiVersionsRequest

    return ApiVersionsRequest(client_software_name="ottla", client_software_version="raft")


def response_class(request: Message) -> type[Message]:
    from ottla.wire.messages import message_class

    return message_class(type(request).__name__.removesuffix("Request") + "Response")
