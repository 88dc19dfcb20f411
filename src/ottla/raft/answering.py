"""How a replica answers the requests of its quorum. Every answer is an effect, behind the promises that it depends on.

A request of another cluster, for another replica, or of an epoch that is over changes nothing (B20).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from ottla.errors import ErrorCode
from ottla.model import METADATA_TOPIC, METADATA_TOPIC_ID, ZERO_UUID, Uuid
from ottla.raft import responses, voter_changes
from ottla.raft.checkpoint import BOOTSTRAP_SNAPSHOT, SnapshotId
from ottla.raft.effects import Respond, RespondWithRecords, RespondWithSnapshot, Token
from ottla.raft.leader import Leader
from ottla.raft.log_view import compare
from ottla.raft.parked import ParkedFetch
from ottla.raft.quorum import Quorum
from ottla.raft.roles import Follower, Prospective, Unattached
from ottla.raft.voters import ReplicaKey, VoterEndpoint

if TYPE_CHECKING:
    from ottla.wire.message import Message
    from ottla.wire.messages.begin_quorum_epoch_request import BeginQuorumEpochRequest
    from ottla.wire.messages.begin_quorum_epoch_response import BeginQuorumEpochResponse
    from ottla.wire.messages.end_quorum_epoch_request import EndQuorumEpochRequest
    from ottla.wire.messages.end_quorum_epoch_response import EndQuorumEpochResponse
    from ottla.wire.messages.fetch_request import FetchRequest
    from ottla.wire.messages.fetch_snapshot_request import FetchSnapshotRequest
    from ottla.wire.messages.vote_request import VoteRequest
    from ottla.wire.messages.vote_response import VoteResponse

_MAX_WAIT_MS_MAX = 60_000
"""Nobody needs to wait longer, and what waits is kept in memory."""


class Answers:
    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self._handlers: dict[str, Callable[[Token, Message, int, int], None]] = {
            "VoteRequest": self._vote,
            "BeginQuorumEpochRequest": self._begin_quorum_epoch,
            "EndQuorumEpochRequest": self._end_quorum_epoch,
            "FetchRequest": self._fetch,
            "FetchSnapshotRequest": self._fetch_snapshot,
            "AddRaftVoterRequest": self._add_voter,
            "RemoveRaftVoterRequest": self._remove_voter,
            "UpdateRaftVoterRequest": self._update_voter,
        }

    def on_request(self, token: Token, request: Message, version: int, now_ms: int) -> None:
        if self._quorum.failed or not self._quorum.started:
            # Without its promises, or without a place to keep them, a replica can promise nothing.
            self._respond(token, _top_level(request, ErrorCode.BROKER_NOT_AVAILABLE))
            return
        self._handlers[type(request).__name__](token, request, version, now_ms)

    def _respond(self, token: Token, response: Message) -> None:
        self._quorum.emit(Respond(token=token, response=response))

    # Checks.

    def _is_our_cluster(self, cluster_id: str | None) -> bool:
        return cluster_id is None or cluster_id == self._quorum.cluster_id

    def _is_us(self, voter_id: int, directory_id: Uuid) -> bool:
        """Is the request for this replica? One that does not say is for whoever gets it."""
        local = self._quorum.local
        if voter_id < 0:
            return True
        return voter_id == local.id and directory_id in (ZERO_UUID, local.directory_id)

    def _leader_only(self, epoch: int) -> ErrorCode:
        quorum = self._quorum
        if epoch < quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > quorum.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not isinstance(quorum.role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.BROKER_NOT_AVAILABLE if quorum.stopping else ErrorCode.NONE

    def _from_voter(self, sender: int, epoch: int) -> ErrorCode:
        if epoch < self._quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.INVALID_REQUEST if sender < 0 else ErrorCode.NONE

    # Elections.

    def _vote(self, token: Token, message: Message, version: int, now_ms: int) -> None:
        self._respond(token, self._answer_vote(cast("VoteRequest", message), version, now_ms))

    def _answer_vote(self, request: VoteRequest, version: int, now_ms: int) -> VoteResponse:
        from ottla.wire.messages.vote_response import VoteResponse

        quorum = self._quorum
        if not self._is_our_cluster(request.cluster_id):
            return VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        if not _is_metadata([(t.topic_name, [p.partition_index for p in t.partitions]) for t in request.topics]):
            return VoteResponse(error_code=ErrorCode.INVALID_REQUEST)
        asked = request.topics[0].partitions[0]
        epoch, last_epoch = asked.replica_epoch, asked.last_offset_epoch
        # Who is only asking (KIP-996) has not raised its epoch, and its log may hold records of it.
        illegal = last_epoch > epoch if asked.pre_vote else last_epoch >= epoch
        if asked.last_offset < 0 or last_epoch < 0 or illegal:
            return responses.vote(quorum, version, ErrorCode.INVALID_REQUEST)
        if (error := self._from_voter(asked.replica_id, epoch)) != ErrorCode.NONE:
            return responses.vote(quorum, version, error)
        if not self._is_us(request.voter_id, asked.voter_directory_id):
            return responses.vote(quorum, version, ErrorCode.INVALID_VOTER_KEY)
        if epoch > quorum.epoch:
            quorum.to_unattached(epoch, now_ms)
        candidate = ReplicaKey(asked.replica_id, asked.replica_directory_id)
        if asked.pre_vote and isinstance(quorum.role, Prospective):
            # It has given up its leader as well: if it refused us before, it may think otherwise now.
            quorum.role.votes.forget_refusal(candidate.id)
        up_to_date = (last_epoch, asked.last_offset) >= quorum.log_end
        granted = candidate.id != quorum.local.id and quorum.role.may_grant(
            candidate, up_to_date=up_to_date, pre_vote=asked.pre_vote
        )
        if granted and not asked.pre_vote:
            quorum.add_vote(candidate, now_ms)
        return responses.vote(quorum, version, ErrorCode.NONE, granted=granted)

    def _begin_quorum_epoch(self, token: Token, message: Message, version: int, now_ms: int) -> None:
        self._respond(token, self._answer_begin(cast("BeginQuorumEpochRequest", message), version, now_ms))

    def _answer_begin(self, request: BeginQuorumEpochRequest, version: int, now_ms: int) -> BeginQuorumEpochResponse:
        from ottla.wire.messages.begin_quorum_epoch_response import BeginQuorumEpochResponse

        quorum = self._quorum
        if not self._is_our_cluster(request.cluster_id):
            return BeginQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        if not _is_metadata([(t.topic_name, [p.partition_index for p in t.partitions]) for t in request.topics]):
            return BeginQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
        asked = request.topics[0].partitions[0]
        if (error := self._from_voter(asked.leader_id, asked.leader_epoch)) != ErrorCode.NONE:
            return responses.begin_quorum_epoch(quorum, version, error)
        if not self._is_us(request.voter_id, asked.voter_directory_id):
            return responses.begin_quorum_epoch(quorum, version, ErrorCode.INVALID_VOTER_KEY)
        endpoints = tuple(VoterEndpoint(e.name, e.host, e.port) for e in request.leader_endpoints)
        if not hear_of_leader(quorum, asked.leader_id, asked.leader_epoch, endpoints, now_ms):
            return responses.begin_quorum_epoch(quorum, version, ErrorCode.INVALID_REQUEST)
        role = quorum.role
        if isinstance(role, Prospective) and role.leader_id == asked.leader_id and role.leader_endpoints:
            # The leader that was given up is there after all.
            quorum.to_follower(role.epoch, asked.leader_id, role.leader_endpoints, now_ms)
        return responses.begin_quorum_epoch(quorum, version, ErrorCode.NONE)

    def _end_quorum_epoch(self, token: Token, message: Message, version: int, now_ms: int) -> None:
        self._respond(token, self._answer_end(cast("EndQuorumEpochRequest", message), version, now_ms))

    def _answer_end(self, request: EndQuorumEpochRequest, version: int, now_ms: int) -> EndQuorumEpochResponse:
        from ottla.wire.messages.end_quorum_epoch_response import EndQuorumEpochResponse

        quorum = self._quorum
        if not self._is_our_cluster(request.cluster_id):
            return EndQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        if not _is_metadata([(t.topic_name, [p.partition_index for p in t.partitions]) for t in request.topics]):
            return EndQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
        asked = request.topics[0].partitions[0]
        if (error := self._from_voter(asked.leader_id, asked.leader_epoch)) != ErrorCode.NONE:
            return responses.end_quorum_epoch(quorum, version, error)
        endpoints = tuple(VoterEndpoint(e.name, e.host, e.port) for e in request.leader_endpoints)
        if not hear_of_leader(quorum, asked.leader_id, asked.leader_epoch, endpoints, now_ms):
            return responses.end_quorum_epoch(quorum, version, ErrorCode.INVALID_REQUEST)
        role = quorum.role
        if isinstance(role, Follower) and role.leader_id == asked.leader_id:
            preferred = [ReplicaKey(c.candidate_id, c.candidate_directory_id) for c in asked.preferred_candidates]
            preferred = preferred or [ReplicaKey(successor) for successor in asked.preferred_successors]
            role.fetch_deadline_ms = now_ms + self._successor_backoff_ms(preferred)
        return responses.end_quorum_epoch(quorum, version, ErrorCode.NONE)

    def _successor_backoff_ms(self, preferred: list[ReplicaKey]) -> int:
        """The first of the successors runs at once, each further one later, and who is none of them last."""
        local, longest = self._quorum.local, self._quorum.config.election_backoff_max_ms
        if not preferred:
            # A leader that was just started knows nobody's progress.
            return 0
        for position, key in enumerate(preferred):
            if key.id == local.id and (key.has_no_directory or key == local):
                if position == 0:
                    return 0
                return min(longest, (longest >> (len(preferred) - 1)) << (position - 1))
        return longest

    # Replication.

    def _fetch(self, token: Token, message: Message, version: int, now_ms: int) -> None:
        from ottla.wire.messages.fetch_response import FetchResponse

        request = cast("FetchRequest", message)
        if not self._is_our_cluster(request.cluster_id):
            self._respond(token, FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
            return
        topics = [(t.topic or t.topic_id, [p.partition for p in t.partitions]) for t in request.topics]
        if topics not in ([(METADATA_TOPIC, [0])], [(METADATA_TOPIC_ID, [0])]):
            self._respond(token, FetchResponse(error_code=ErrorCode.INVALID_REQUEST))
            return
        asked = request.topics[0].partitions[0]
        if (
            request.max_wait_ms < 0
            or asked.fetch_offset < 0
            or asked.last_fetched_epoch < 0
            or asked.last_fetched_epoch > asked.current_leader_epoch
        ):
            self._respond(token, responses.fetch(self._quorum, version, ErrorCode.INVALID_REQUEST))
            return
        self.fetch(token, request, version, now_ms, arrived=True)

    def fetch(self, token: Token, request: FetchRequest, version: int, now_ms: int, *, arrived: bool) -> None:
        """Answer a fetch, or keep it if there is nothing to answer and it has just `arrived`."""
        quorum = self._quorum
        asked = request.topics[0].partitions[0]
        if (error := self._leader_only(asked.current_leader_epoch)) != ErrorCode.NONE:
            self._respond(token, responses.fetch(quorum, version, error))
            return
        role = quorum.role
        assert isinstance(role, Leader)
        replica = request.replica_state.replica_id if request.replica_state.replica_id >= 0 else request.replica_id
        if replica == quorum.local.id:
            # Another node with this one's id. What it has must not be taken for what is here.
            self._respond(token, responses.fetch(quorum, version, ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        other = compare(quorum.log, asked.fetch_offset, asked.last_fetched_epoch)
        if other is not None:
            response = responses.fetch(quorum, version, high_watermark=role.high_watermark, other=other)
            self._respond(token, response)
            return
        if arrived and replica >= 0:
            role.on_fetch(ReplicaKey(replica, asked.replica_directory_id), asked.fetch_offset, now_ms)
            self.on_progress(now_ms)
        response = responses.fetch(quorum, version, high_watermark=role.high_watermark)
        if asked.fetch_offset < quorum.log.log_end_offset:
            quorum.emit(
                RespondWithRecords(
                    token=token, response=response, offset=asked.fetch_offset, max_bytes=request.max_bytes
                )
            )
        elif not arrived or request.max_wait_ms == 0 or role.has_news_for(asked.high_watermark):
            self._respond(token, response)
        else:
            deadline = now_ms + min(request.max_wait_ms, _MAX_WAIT_MS_MAX)
            quorum.parked.add(ParkedFetch(token=token, request=request, version=version, deadline_ms=deadline))

    def on_progress(self, now_ms: int) -> None:
        """A replica of the leader got further: perhaps more is committed, and whoever waits for that is told."""
        quorum = self._quorum
        role = quorum.role
        assert isinstance(role, Leader)
        advanced = role.advance()
        if advanced is not None:
            quorum.advance_high_watermark(advanced)
            voter_changes.on_high_watermark(quorum, role)
            self.answer_parked(now_ms)

    def answer_parked(self, now_ms: int) -> None:
        """The log or the high watermark moved: some who wait may get something."""
        quorum = self._quorum
        role = quorum.role
        assert isinstance(role, Leader)
        end = quorum.log.log_end_offset
        for parked in quorum.parked.take_all():
            asked = parked.request.topics[0].partitions[0]
            if asked.fetch_offset < end or role.has_news_for(asked.high_watermark):
                self.fetch(parked.token, parked.request, parked.version, now_ms, arrived=False)
            else:
                quorum.parked.add(parked)

    def expire_parked(self, now_ms: int) -> None:
        for parked in self._quorum.parked.take_expired(now_ms):
            self.fetch(parked.token, parked.request, parked.version, now_ms, arrived=False)

    def _fetch_snapshot(self, token: Token, message: Message, version: int, now_ms: int) -> None:
        from ottla.wire.messages.fetch_snapshot_response import FetchSnapshotResponse

        request = cast("FetchSnapshotRequest", message)
        quorum = self._quorum
        if not self._is_our_cluster(request.cluster_id):
            self._respond(token, FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
            return
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            self._respond(token, FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST))
            return
        asked = request.topics[0].partitions[0]
        if request.topics[0].name != METADATA_TOPIC or asked.partition != 0:
            refusal = responses.fetch_snapshot(quorum, version, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            refusal.topics[0].name, refusal.topics[0].partitions[0].index = request.topics[0].name, asked.partition
            self._respond(token, refusal)
            return
        if (error := self._leader_only(asked.current_leader_epoch)) != ErrorCode.NONE:
            self._respond(token, responses.fetch_snapshot(quorum, version, error))
            return
        role = quorum.role
        assert isinstance(role, Leader)
        snapshot = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        size = None if snapshot == BOOTSTRAP_SNAPSHOT else quorum.log.snapshot_size(snapshot)
        if size is None:
            # What `format` wrote is no snapshot of the log: the first leader puts it into the log itself.
            self._respond(token, responses.fetch_snapshot(quorum, version, ErrorCode.SNAPSHOT_NOT_FOUND))
            return
        if not 0 <= asked.position < size:
            self._respond(token, responses.fetch_snapshot(quorum, version, ErrorCode.POSITION_OUT_OF_RANGE))
            return
        if request.replica_id != quorum.local.id:
            role.on_heard(ReplicaKey(request.replica_id, asked.replica_directory_id), now_ms)
        quorum.emit(
            RespondWithSnapshot(
                token=token,
                response=responses.fetch_snapshot(
                    quorum, version, snapshot=snapshot, size=size, position=asked.position
                ),
                snapshot_id=snapshot,
                position=asked.position,
                max_bytes=max(0, min(request.max_bytes, size - asked.position)),
            )
        )

    # Voters.

    def _add_voter(self, token: Token, message: Message, version: int, now_ms: int) -> None:
        error = self._leader_only(self._quorum.epoch)
        voter_changes.on_add_voter(self._quorum, token, message, error, now_ms)

    def _remove_voter(self, token: Token, message: Message, version: int, now_ms: int) -> None:
        error = self._leader_only(self._quorum.epoch)
        voter_changes.on_remove_voter(self._quorum, token, message, error, now_ms)

    def _update_voter(self, token: Token, message: Message, version: int, now_ms: int) -> None:
        epoch: int = getattr(message, "current_leader_epoch", -1)
        voter_changes.on_update_voter(self._quorum, token, message, self._leader_only(epoch), now_ms)


def is_consistent(quorum: Quorum, leader_id: int | None, epoch: int) -> bool:
    """Could `leader_id` be the leader of `epoch`, given what this replica knows?"""
    if leader_id == quorum.local.id:
        return isinstance(quorum.role, Leader) and quorum.epoch == epoch
    return epoch != quorum.epoch or leader_id is None or quorum.leader_id in (None, leader_id)


def hear_of_leader(
    quorum: Quorum, leader_id: int | None, epoch: int, endpoints: tuple[VoterEndpoint, ...], now_ms: int
) -> bool:
    """Somebody says who leads `epoch`, which is not below ours. False if that cannot be."""
    if not is_consistent(quorum, leader_id, epoch):
        if epoch > quorum.epoch:
            # This node's id led that epoch from another directory (B12). The epoch is over all the same.
            quorum.to_unattached(epoch, now_ms)
        return False
    if leader_id is None or leader_id == quorum.local.id:
        if epoch > quorum.epoch:
            quorum.to_unattached(epoch, now_ms)
        return True
    endpoints = endpoints or quorum.voters.latest.endpoints(leader_id)
    if epoch > quorum.epoch:
        if endpoints:
            quorum.to_follower(epoch, leader_id, endpoints, now_ms)
        else:
            quorum.to_unattached(epoch, now_ms, leader_id)
    elif endpoints and (
        quorum.leader_id is None or isinstance(quorum.role, Unattached) or len(endpoints) > len(quorum.leader_endpoints)
    ):
        quorum.to_follower(epoch, leader_id, endpoints, now_ms)
    return True


def _is_metadata(topics: list[tuple[str, list[int]]]) -> bool:
    return topics == [(METADATA_TOPIC, [0])]


def _top_level(request: Message, error: ErrorCode) -> Message:
    from ottla.raft.requests import response_class

    response = response_class(request)()
    response.error_code = error  # type: ignore[attr-defined]
    return response
