"""What a replica does of itself: it runs out of patience, and asks. After every fact, and when a deadline comes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.raft import requests, voter_changes
from ottla.raft.answering import Answers
from ottla.raft.connections import Destination
from ottla.raft.leader import Leader
from ottla.raft.quorum import Quorum
from ottla.raft.roles import Candidate, Follower, Prospective, Resigned, Unattached

if TYPE_CHECKING:
    from ottla.wire.message import Message

BOOTSTRAP_ID_MAX = -2
"""Bootstrap servers are known by -2, -3, …: whose ids they have is not known."""


class Polling:
    def __init__(self, quorum: Quorum, answers: Answers, bootstrap: tuple[tuple[str, int], ...]) -> None:
        self._quorum = quorum
        self._answers = answers
        self._bootstrap = bootstrap
        self._deadline_ms: int | None = None

    @property
    def deadline_ms(self) -> int | None:
        """When `poll` has something to do even if nothing happens before."""
        return self._deadline_ms

    def poll(self, now_ms: int) -> None:
        self._deadline_ms = None
        role = None
        while role is not self._quorum.role:
            # A change of role is followed at once by what the new one does first.
            role = self._quorum.role
            self._deadline_ms = None
            match role:
                case Leader():
                    self._poll_leader(role, now_ms)
                case Resigned():
                    self._poll_resigned(role, now_ms)
                case _ if self._quorum.failed:
                    pass
                case Candidate():
                    self._poll_candidate(role, now_ms)
                case Prospective():
                    self._poll_prospective(role, now_ms)
                case Follower():
                    self._poll_follower(role, now_ms)
                case Unattached():
                    self._poll_unattached(role, now_ms)

    def _wake_at(self, *deadlines_ms: int | None) -> None:
        for deadline in deadlines_ms:
            if deadline is not None and (self._deadline_ms is None or deadline < self._deadline_ms):
                self._deadline_ms = deadline

    # Leading.

    def _poll_leader(self, role: Leader, now_ms: int) -> None:
        quorum = self._quorum
        check = role.check_deadline_ms()
        if quorum.stopping or quorum.failed or role.resign_requested or (check is not None and check <= now_ms):
            quorum.to_resigned(now_ms)
            return
        voter_changes.expire(quorum, role, now_ms)
        voter_changes.update_own_endpoints(quorum, role)
        self._answers.expire_parked(now_ms)
        if role.begin_quorum_epoch_ms <= now_ms:
            interval = quorum.config.begin_quorum_epoch_interval_ms
            for key in role.unheard(interval, now_ms):
                to = self._voter(key.id)
                if to is not None and quorum.connections.is_ready(key.id, now_ms):
                    quorum.send(to, requests.begin_quorum_epoch(quorum, key), now_ms)
            role.begin_quorum_epoch_ms = now_ms + max(interval, 1)
        self._wake_at(
            check,
            None if check is None else role.begin_quorum_epoch_ms,
            quorum.parked.deadline_ms(),
            None if role.change is None else role.change.deadline_ms,
        )

    def _poll_resigned(self, role: Resigned, now_ms: int) -> None:
        quorum = self._quorum
        if not quorum.stopping and not quorum.failed:
            if role.election_deadline_ms <= now_ms:
                # The next epoch, so that nobody is told any more that this one is led from here.
                quorum.to_unattached(role.epoch + 1, now_ms)
                return
            self._wake_at(role.election_deadline_ms)
        for voter in role.unacknowledged:
            self._send_when_ready(self._voter(voter), partial(requests.end_quorum_epoch, quorum, role), now_ms)

    # Running.

    def _poll_candidate(self, role: Candidate, now_ms: int) -> None:
        quorum = self._quorum
        if role.votes.won and not quorum.log_busy:
            quorum.to_leader(now_ms)
        elif role.election_deadline_ms <= now_ms:
            quorum.to_prospective(now_ms)
        else:
            self._ask_for_votes(role, now_ms)

    def _poll_prospective(self, role: Prospective, now_ms: int) -> None:
        quorum = self._quorum
        if quorum.stopping or not quorum.may_run:
            self._give_up(role, now_ms)
        elif role.votes.won:
            quorum.to_candidate(now_ms)
        elif role.votes.lost or role.election_deadline_ms <= now_ms:
            self._give_up(role, now_ms)
        else:
            self._ask_for_votes(role, now_ms)

    def _give_up(self, role: Prospective, now_ms: int) -> None:
        if role.leader_id is not None and role.leader_id != self._quorum.local.id and role.leader_endpoints:
            self._quorum.to_follower(role.epoch, role.leader_id, role.leader_endpoints, now_ms)
        else:
            self._quorum.to_unattached(role.epoch, now_ms, role.leader_id)

    def _ask_for_votes(self, role: Prospective | Candidate, now_ms: int) -> None:
        quorum = self._quorum
        if not role.votes.lost:
            pre_vote = isinstance(role, Prospective)
            for key in role.votes.unrecorded:
                request = partial(requests.vote, quorum, key, pre_vote=pre_vote)
                self._send_when_ready(self._voter(key.id), request, now_ms)
        self._wake_at(role.election_deadline_ms)

    # Following.

    def _poll_unattached(self, role: Unattached, now_ms: int) -> None:
        quorum = self._quorum
        if quorum.log_busy:
            # The driver will tell when it is done.
            return
        if quorum.may_run and not quorum.stopping:
            if role.election_deadline_ms is None:
                # It has learned that it is a voter.
                role.election_deadline_ms = quorum.election_deadline_from(now_ms)
            if role.election_deadline_ms <= now_ms:
                quorum.to_prospective(now_ms)
                return
            self._wake_at(role.election_deadline_ms)
        self._fetch_from_anybody(now_ms)

    def _poll_follower(self, role: Follower, now_ms: int) -> None:
        quorum = self._quorum
        if quorum.log_busy:
            # The driver will tell when it is done; until then the fetch that brought the work is not over.
            return
        if role.fetch_deadline_ms <= now_ms and not quorum.stopping:
            if quorum.may_run:
                quorum.to_prospective(now_ms)
            else:
                quorum.to_unattached(role.epoch, now_ms, role.leader_id)
            return
        if not quorum.stopping:
            self._wake_at(role.fetch_deadline_ms)
            if self._tell_leader_of_us(role, now_ms):
                return
        leader = self._leader(role)
        connections = quorum.connections
        if connections.has_timed_out(leader.node_id, now_ms):
            connections.forget(leader.node_id)
            self._fetch_from_anybody(now_ms)
        elif connections.is_backing_off(leader.node_id, now_ms):
            self._wake_at(connections.ready_ms(leader.node_id, now_ms))
            self._fetch_from_anybody(now_ms)
        elif (until := connections.in_flight_until_ms(now_ms)) is not None:
            self._wake_at(until)
        else:
            self._fetch_from_leader(role, leader, now_ms)

    def _fetch_from_leader(self, role: Follower, leader: Destination, now_ms: int) -> None:
        quorum = self._quorum
        if role.snapshot is None:
            request = partial(requests.fetch, quorum)
        else:
            request = partial(requests.fetch_snapshot, quorum, role.snapshot.snapshot_id, role.snapshot.position)
        self._send_when_ready(leader, request, now_ms)

    def _fetch_from_anybody(self, now_ms: int) -> None:
        """Somebody may know who leads."""
        quorum = self._quorum
        connections = quorum.connections
        if (until := connections.in_flight_until_ms(now_ms)) is not None:
            self._wake_at(until)
            return
        candidates = self._bootstrap_servers()
        to = connections.choose(candidates, now_ms)
        if to is not None:
            quorum.send(to, requests.fetch(quorum), now_ms)
            candidates = [to]
        self._wake_at(*(connections.ready_ms(candidate.node_id, now_ms) for candidate in candidates))

    def _tell_leader_of_us(self, role: Follower, now_ms: int) -> bool:
        """Now and then a follower looks whether the voters know it as it is (KIP-853). True if it has asked."""
        quorum = self._quorum
        if role.update_voter_ms > now_ms or not quorum.endpoints:
            self._wake_at(role.update_voter_ms if quorum.endpoints else None)
            return False
        request = None
        voters = quorum.voters.latest
        if quorum.is_voter:
            known = voters.get(quorum.local.id)
            if quorum.kraft_version == 0:
                request = None if role.has_updated_leader else requests.update_voter(quorum)
            elif known is not None and known != quorum.local_voter:
                request = requests.update_voter(quorum)
        elif quorum.kraft_version > 0 and quorum.can_become_voter and quorum.config.auto_join:
            stale = voters.get(quorum.local.id)
            request = requests.add_voter(quorum) if stale is None else requests.remove_voter(quorum, stale.key)
        leader = self._leader(role)
        if request is not None:
            if not quorum.connections.is_ready(leader.node_id, now_ms):
                return False
            quorum.send(leader, request, now_ms)
        role.update_voter_ms = now_ms + quorum.config.fetch_timeout_ms
        self._wake_at(role.update_voter_ms)
        return request is not None

    # Whom to ask.

    def _send_when_ready(self, to: Destination | None, request: Callable[[], Message], now_ms: int) -> None:
        if to is None:
            return
        connections = self._quorum.connections
        if connections.is_ready(to.node_id, now_ms):
            self._quorum.send(to, request(), now_ms)
        self._wake_at(connections.ready_ms(to.node_id, now_ms))

    def _voter(self, voter_id: int) -> Destination | None:
        endpoint = self._quorum.endpoint_among(self._quorum.voters.latest.endpoints(voter_id))
        return None if endpoint is None else Destination(node_id=voter_id, host=endpoint.host, port=endpoint.port)

    def _leader(self, role: Follower) -> Destination:
        endpoint = self._quorum.endpoint_among(role.leader_endpoints)
        assert endpoint is not None, "a follower can reach its leader"
        return Destination(node_id=role.leader_id, host=endpoint.host, port=endpoint.port)

    def _bootstrap_servers(self) -> list[Destination]:
        """Those of the configuration; without any, the voters."""
        quorum = self._quorum
        own = {(endpoint.host, endpoint.port) for endpoint in quorum.endpoints}
        found = [
            Destination(node_id=BOOTSTRAP_ID_MAX - index, host=host, port=port)
            for index, (host, port) in enumerate(self._bootstrap)
            if (host, port) not in own
        ]
        if found:
            return found
        voters = (self._voter(voter) for voter in quorum.voters.latest.ids if voter != quorum.local.id)
        return [voter for voter in voters if voter is not None]
