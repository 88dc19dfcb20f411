"""What a replica makes of the answers to its requests. Answers to what was asked in an earlier role do not get here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from ottla.errors import ErrorCode
from ottla.model import METADATA_TOPIC
from ottla.raft import voter_changes
from ottla.raft.answering import hear_of_leader
from ottla.raft.checkpoint import SnapshotId
from ottla.raft.effects import AppendFetched, InstallSnapshot, TruncateTo, WriteSnapshotChunk
from ottla.raft.leader import Leader
from ottla.raft.log_view import Diverging, truncation_offset
from ottla.raft.quorum import Quorum
from ottla.raft.roles import Candidate, Follower, Prospective, Resigned, SnapshotFetch
from ottla.raft.voters import VoterEndpoint

if TYPE_CHECKING:
    from ottla.wire.message import Message
    from ottla.wire.messages.add_raft_voter_response import AddRaftVoterResponse
    from ottla.wire.messages.api_versions_response import ApiVersionsResponse
    from ottla.wire.messages.begin_quorum_epoch_response import BeginQuorumEpochResponse
    from ottla.wire.messages.end_quorum_epoch_response import EndQuorumEpochResponse
    from ottla.wire.messages.fetch_response import FetchResponse, PartitionData
    from ottla.wire.messages.fetch_snapshot_response import FetchSnapshotResponse, PartitionSnapshot
    from ottla.wire.messages.remove_raft_voter_response import RemoveRaftVoterResponse
    from ottla.wire.messages.update_raft_voter_response import UpdateRaftVoterResponse
    from ottla.wire.messages.vote_response import VoteResponse

UNANSWERED_MAX = 2
"""So many fetches without an answer, one after the other, and a leader counts as dead."""


class Hearing:
    """Each handler says whether the node may be asked again at once; if not, it is left alone for a while."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self._handlers: dict[str, Callable[[int, Message, int], bool]] = {
            "VoteResponse": self._vote,
            "BeginQuorumEpochResponse": self._begin_quorum_epoch,
            "EndQuorumEpochResponse": self._end_quorum_epoch,
            "FetchResponse": self._fetch,
            "FetchSnapshotResponse": self._fetch_snapshot,
            "UpdateRaftVoterResponse": self._update_voter,
            "AddRaftVoterResponse": self._change_voter,
            "RemoveRaftVoterResponse": self._change_voter,
            "ApiVersionsResponse": self._api_versions,
        }

    def on_response(self, correlation_id: int, response: Message, now_ms: int) -> None:
        awaited = self._quorum.connections.awaited(correlation_id)
        if awaited is None or self._quorum.failed:
            return
        node_id, _ = awaited
        ready = self._handlers[type(response).__name__](node_id, response, now_ms)
        self._quorum.connections.on_done(node_id, correlation_id, failed=not ready, now_ms=now_ms)

    def on_failed(self, correlation_id: int, error: ErrorCode | None, now_ms: int) -> None:
        """No answer came."""
        quorum = self._quorum
        awaited = quorum.connections.awaited(correlation_id)
        if awaited is None:
            return
        node_id, request = awaited
        name = type(request).__name__
        if name == "VoteRequest" and error == ErrorCode.UNSUPPORTED_VERSION and isinstance(quorum.role, Prospective):
            # A voter that is older than the asking in advance: then it is done without (KIP-996).
            quorum.to_candidate(now_ms)
            return
        if name == "ApiVersionsRequest" and isinstance(quorum.role, Leader):
            voter_changes.on_api_versions(quorum, node_id, None, now_ms)
        if name == "FetchRequest":
            self._on_fetch_failed(node_id, now_ms)
            self._on_no_answer(node_id, now_ms)
        quorum.connections.on_done(node_id, correlation_id, failed=True, now_ms=now_ms)

    # What all answers have in common.

    def _common(
        self,
        error: int,
        leader_id: int,
        epoch: int,
        endpoints: tuple[VoterEndpoint, ...],
        now_ms: int,
    ) -> bool | None:
        """None if the answer is for the role that this replica has; else it is dealt with."""
        quorum = self._quorum
        leader = leader_id if leader_id >= 0 else None
        if epoch < quorum.epoch or error == ErrorCode.UNKNOWN_LEADER_EPOCH:
            return error == ErrorCode.NONE
        before = quorum.role
        if (
            epoch > quorum.epoch
            or error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            or (leader is not None and quorum.leader_id is None)
            or not quorum.leader_endpoints
        ) and not hear_of_leader(quorum, leader, epoch, endpoints, now_ms):
            return False
        if error == ErrorCode.NONE and epoch == before.epoch:
            # Who finds its leader by a fetch makes use of what the fetch brought.
            return None
        return quorum.role is not before

    def _endpoints(self, leader_id: int, found: list[tuple[int, str, int]]) -> tuple[VoterEndpoint, ...]:
        listener = self._quorum.listener
        return tuple(VoterEndpoint(listener, host, port) for node, host, port in found if node == leader_id)

    # Elections.

    def _vote(self, node_id: int, message: Message, now_ms: int) -> bool:
        response = cast("VoteResponse", message)
        quorum = self._quorum
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and isinstance(quorum.role, Prospective):
            quorum.to_candidate(now_ms)
            return True
        if response.error_code != ErrorCode.NONE or [len(topic.partitions) for topic in response.topics] != [1]:
            return False
        answer = response.topics[0].partitions[0]
        found = [(e.node_id, e.host, e.port) for e in response.node_endpoints]
        handled = self._common(
            answer.error_code,
            answer.leader_id,
            answer.leader_epoch,
            self._endpoints(answer.leader_id, found),
            now_ms,
        )
        if handled is not None:
            return handled
        role = quorum.role
        if isinstance(role, Prospective | Candidate):
            role.votes.record(node_id, answer.vote_granted)
        return True

    def _begin_quorum_epoch(self, node_id: int, message: Message, now_ms: int) -> bool:
        response = cast("BeginQuorumEpochResponse", message)
        if response.error_code != ErrorCode.NONE or [len(topic.partitions) for topic in response.topics] != [1]:
            return False
        answer = response.topics[0].partitions[0]
        found = [(e.node_id, e.host, e.port) for e in response.node_endpoints]
        endpoints = self._endpoints(answer.leader_id, found)
        handled = self._common(answer.error_code, answer.leader_id, answer.leader_epoch, endpoints, now_ms)
        return True if handled is None else handled

    def _end_quorum_epoch(self, node_id: int, message: Message, now_ms: int) -> bool:
        response = cast("EndQuorumEpochResponse", message)
        if response.error_code != ErrorCode.NONE or [len(topic.partitions) for topic in response.topics] != [1]:
            return False
        answer = response.topics[0].partitions[0]
        found = [(e.node_id, e.host, e.port) for e in response.node_endpoints]
        endpoints = self._endpoints(answer.leader_id, found)
        handled = self._common(answer.error_code, answer.leader_id, answer.leader_epoch, endpoints, now_ms)
        if handled is not None:
            return handled
        if isinstance(self._quorum.role, Resigned):
            self._quorum.role.unacknowledged.pop(node_id, None)
        return True

    # Replication.

    def _fetch(self, node_id: int, message: Message, now_ms: int) -> bool:
        response = cast("FetchResponse", message)
        if response.error_code != ErrorCode.NONE:
            return False
        if [len(topic.partitions) for topic in response.responses] != [1]:
            return False
        answer = response.responses[0].partitions[0]
        leader = answer.current_leader
        found = [(e.node_id, e.host, e.port) for e in response.node_endpoints]
        endpoints = self._endpoints(leader.leader_id, found)
        handled = self._common(answer.error_code, leader.leader_id, leader.leader_epoch, endpoints, now_ms)
        if handled is not None:
            if not handled:
                self._on_fetch_failed(node_id, now_ms)
            return handled
        role = self._quorum.role
        if not isinstance(role, Follower) or self._quorum.log_busy:
            return True
        if not self._take_in(role, answer):
            return False
        self._on_fetched(role, now_ms)
        return True

    def _on_fetch_failed(self, node_id: int, now_ms: int) -> None:
        """The whole quorum may have been restarted: then its last leader leads no more, and nobody else does yet."""
        role = self._quorum.role
        if isinstance(role, Follower) and role.from_disk and node_id == role.leader_id:
            role.from_disk = False
            role.fetch_deadline_ms = min(role.fetch_deadline_ms, now_ms + self._quorum.soon_ms())

    def _on_no_answer(self, node_id: int, now_ms: int) -> None:
        """A connection may break. But a leader that was there, and cannot be asked again a moment later either, is
        most likely dead: then it is asked soon whether this replica could be elected, and others may ask likewise."""
        role = self._quorum.role
        if not isinstance(role, Follower) or node_id != role.leader_id:
            return
        role.unanswered += 1
        if role.has_fetched and role.unanswered >= UNANSWERED_MAX:
            role.has_fetched = False
            role.fetch_deadline_ms = min(role.fetch_deadline_ms, now_ms + self._quorum.soon_ms())

    def _on_fetched(self, role: Follower, now_ms: int) -> None:
        role.from_disk = False
        role.unanswered = 0
        role.fetch_deadline_ms = self._quorum.fetch_deadline_from(now_ms)
        role.has_fetched = True

    def _take_in(self, role: Follower, answer: PartitionData) -> bool:
        quorum = self._quorum
        diverging, snapshot = answer.diverging_epoch, answer.snapshot_id
        if diverging.epoch >= 0:
            offset = truncation_offset(quorum.log, Diverging(epoch=diverging.epoch, end_offset=diverging.end_offset))
            self._check_is_uncommitted(offset, role)
            quorum.log_busy = True
            quorum.emit(TruncateTo(offset=offset))
            return True
        if snapshot.epoch >= 0 or snapshot.end_offset >= 0:
            if snapshot.epoch < 0 or snapshot.end_offset < 0:
                return False
            self._begin_snapshot(role, SnapshotId(snapshot.end_offset, snapshot.epoch))
            return True
        role.leader_high_watermark = max(role.leader_high_watermark, answer.high_watermark)
        if answer.records:
            quorum.log_busy = True
            role.fetched_from = quorum.log.log_end_offset
            quorum.emit(AppendFetched(records=answer.records, leader_epoch=role.epoch))
        else:
            self.advance_follower(role)
        return True

    def _check_is_uncommitted(self, offset: int, role: Follower) -> None:
        """What is committed is never given up (B9): a leader that asks for it is none, or somebody lost a disk."""
        committed = self._quorum.high_watermark or 0
        assert offset >= committed, (
            f"leader {role.leader_id} of epoch {role.epoch} would have the log end at {offset}, below the high "
            f"watermark {committed}"
        )

    def advance_follower(self, role: Follower) -> None:
        """What the leader has committed is committed here, as far as it is here."""
        committed = min(role.leader_high_watermark, self._quorum.log.log_end_offset)
        if committed >= 0:
            self._quorum.advance_high_watermark(committed)

    def _begin_snapshot(self, role: Follower, snapshot: SnapshotId) -> None:
        quorum = self._quorum
        self._check_is_uncommitted(snapshot.end_offset, role)
        if quorum.log.snapshot_size(snapshot) is not None:
            self._install(snapshot)
        else:
            role.snapshot = SnapshotFetch(snapshot_id=snapshot)

    def _install(self, snapshot: SnapshotId) -> None:
        self._quorum.log_busy = True
        self._quorum.emit(InstallSnapshot(snapshot_id=snapshot))

    def _fetch_snapshot(self, node_id: int, message: Message, now_ms: int) -> bool:
        response = cast("FetchSnapshotResponse", message)
        if response.error_code != ErrorCode.NONE or len(response.topics) != 1:
            return False
        if response.topics[0].name != METADATA_TOPIC or len(response.topics[0].partitions) != 1:
            return False
        answer = response.topics[0].partitions[0]
        leader = answer.current_leader
        found = [(e.node_id, e.host, e.port) for e in response.node_endpoints]
        endpoints = self._endpoints(leader.leader_id, found)
        gone = answer.error_code in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE)
        error = ErrorCode.NONE if gone else answer.error_code
        handled = self._common(error, leader.leader_id, leader.leader_epoch, endpoints, now_ms)
        if handled is not None:
            return handled
        role = self._quorum.role
        if not isinstance(role, Follower) or role.snapshot is None:
            return True
        if gone or answer.snapshot_id.end_offset < 0 or answer.snapshot_id.epoch < 0:
            # The leader has a newer one. The next fetch will tell.
            role.snapshot = None
            self._on_fetched(role, now_ms)
            return True
        return self._take_chunk(role, role.snapshot, answer, now_ms)

    def _take_chunk(self, role: Follower, fetch: SnapshotFetch, answer: PartitionSnapshot, now_ms: int) -> bool:
        snapshot = SnapshotId(answer.snapshot_id.end_offset, answer.snapshot_id.epoch)
        data = answer.unaligned_records
        if snapshot != fetch.snapshot_id or answer.position != fetch.position or not data:
            return False
        self._quorum.emit(WriteSnapshotChunk(snapshot_id=snapshot, position=fetch.position, data=data))
        fetch.position += len(data)
        if fetch.position >= answer.size:
            role.snapshot = None
            self._install(snapshot)
        self._on_fetched(role, now_ms)
        return True

    # Voters.

    def _update_voter(self, node_id: int, message: Message, now_ms: int) -> bool:
        response = cast("UpdateRaftVoterResponse", message)
        leader = response.current_leader
        found = [(leader.leader_id, leader.host, leader.port)] if leader.host else []
        accepted = response.error_code in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION)
        error = ErrorCode.NONE if accepted else response.error_code
        handled = self._common(
            error, leader.leader_id, leader.leader_epoch, self._endpoints(leader.leader_id, found), now_ms
        )
        if handled is not None:
            return handled
        role = self._quorum.role
        if isinstance(role, Follower):
            role.has_updated_leader = True
            self._on_fetched(role, now_ms)
        return True

    def _change_voter(self, node_id: int, message: Message, now_ms: int) -> bool:
        response = cast("AddRaftVoterResponse | RemoveRaftVoterResponse", message)
        return response.error_code in (
            ErrorCode.NONE,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.DUPLICATE_VOTER,
            ErrorCode.VOTER_NOT_FOUND,
        )

    def _api_versions(self, node_id: int, message: Message, now_ms: int) -> bool:
        if not isinstance(self._quorum.role, Leader):
            return True
        return voter_changes.on_api_versions(self._quorum, node_id, cast("ApiVersionsResponse", message), now_ms)
