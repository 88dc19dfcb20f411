"""A quorum in one process on virtual time: seeded chance delays, drops, doubles and reorders messages, crashes, pauses
and cuts off replicas, and changes the voters; after every step the invariants of KRaft are checked.

A failure names the seed; `Simulation(seed).run()` replays it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING, cast

from ottla.errors import ErrorCode
from ottla.model import Uuid
from ottla.raft.effects import SendRequest
from ottla.raft.leader import Leader
from ottla.raft.roles import Candidate, Follower, Prospective, Unattached
from ottla.raft.voters import ReplicaKey, VoterSet
from tests.raft.simulated_replica import LISTENER, Entry, Replica, Snapshot, endpoint, voter

if TYPE_CHECKING:
    from ottla.wire.message import Message
    from ottla.wire.messages.vote_request import VoteRequest
    from ottla.wire.messages.vote_response import VoteResponse

STEP_MS_MAX = 400


class Violated(AssertionError):
    """An invariant does not hold."""


class Simulation:
    """`nodes` replicas, of which the first `quorum` are the voters that `format` wrote."""

    def __init__(
        self,
        seed: int,
        *,
        quorum: int = 3,
        observers: int = 2,
        faults_ms: int = 10_000,
        kraft_version: int = 1,
        disk_loss: bool = False,
    ) -> None:
        """With `disk_loss` one voter loses its disk, and the voters change only to take it out and in again."""
        self.seed = seed
        self.random = Random(seed)
        self.now_ms = 1_000
        self.faults_until_ms = self.now_ms + faults_ms
        self.committed: list[Entry] = []
        self._committed_in: list[int] = []
        """By offset, the epoch whose leader committed it."""
        self.counts: Counter[str] = Counter()
        self._events: list[tuple[int, int, Replica | None, int, Callable[[], None]]] = []
        self._sequence = 0
        self._leaders: dict[int, int] = {}
        self._votes: dict[tuple[Uuid, int], ReplicaKey] = {}
        self._promises: dict[tuple[Uuid, int], tuple[ReplicaKey | None, int | None]] = {}
        self._epochs: dict[Uuid, int] = {}
        self._tokens: dict[object, tuple[Replica, int, int, Message]] = {}
        self._values = 0
        self._cut: set[tuple[int, int]] = set()
        self._removals: dict[ReplicaKey, int] = {}
        self._disk_loss = disk_loss
        self._lost: ReplicaKey | None = None
        keys = [ReplicaKey(node, Uuid(bytes([node]) * 16)) for node in range(1, quorum + observers + 1)]
        if kraft_version == 0:
            voters = VoterSet(voter(ReplicaKey(key.id)) for key in keys[:quorum])
        else:
            voters = VoterSet(voter(key) for key in keys[:quorum])
        nodes = tuple(key.id for key in keys)
        self.replicas = {
            key.id: Replica(
                self, key, voters if key.id <= quorum or kraft_version == 0 else VoterSet(), nodes, kraft_version
            )
            for key in keys
        }

    # Time.

    def after(self, delay_ms: int, replica: Replica | None, action: Callable[[], None]) -> None:
        self._sequence += 1
        life = 0 if replica is None else replica.incarnation
        heappush(self._events, (self.now_ms + delay_ms, self._sequence, replica, life, action))

    def run(self, *, settle_ms: int = 20_000) -> None:
        """Faults for a while, then peace, in which the quorum must find itself again."""
        try:
            for replica in self.replicas.values():
                replica.start()
                self._watch(replica)
            self.after(200, None, self._chaos)
            self.after(50, None, self._client)
            self._run_until(self.faults_until_ms)
            self._heal()
            for _ in range(settle_ms // 500):
                self._run_until(self.now_ms + 500)
                if self._unsettled() is None:
                    break
            unsettled = self._unsettled()
            assert unsettled is None, unsettled
        except AssertionError as error:
            raise Violated(f"seed {self.seed} at {self.now_ms} ms: {error}") from error

    def _run_until(self, end_ms: int) -> None:
        while self._events and self._events[0][0] <= end_ms:
            at_ms, _, replica, life, action = heappop(self._events)
            self.now_ms = max(self.now_ms, at_ms)
            if replica is not None:
                if replica.incarnation != life or replica.machine is None:
                    continue
                if replica.paused_until_ms > self.now_ms:
                    # It is stopped; all that was under way for it happens when it goes on.
                    self._sequence += 1
                    heappush(self._events, (replica.paused_until_ms, self._sequence, replica, life, action))
                    continue
            action()
            if replica is not None and replica.machine is not None:
                self._watch(replica)
                self._check(replica)
        self.now_ms = max(self.now_ms, end_ms)

    def _watch(self, replica: Replica) -> None:
        """Call the machine when it wants to be called."""
        deadline = replica.running.next_deadline_ms
        if deadline is not None and (replica.timer_ms is None or deadline < replica.timer_ms):
            replica.timer_ms = max(deadline, self.now_ms)

            def fire(at_ms: int = replica.timer_ms) -> None:
                if replica.timer_ms == at_ms:
                    replica.timer_ms = None
                    due = replica.running.next_deadline_ms
                    if due is not None and due <= self.now_ms:
                        replica.feed(replica.running.on_timer(self.now_ms))
                        again = replica.running.next_deadline_ms
                        assert again is None or again > self.now_ms, f"{replica.running.role} does not rest"

            self.after(replica.timer_ms - self.now_ms, replica, fire)

    def sync_delay_ms(self) -> int:
        """A disk is quick, until it is not."""
        if self.now_ms < self.faults_until_ms and self.random.random() < 0.05:
            return self.random.randint(100, 4_000)
        return self.random.randint(1, 30)

    # The network.

    def _delay_ms(self) -> int:
        return self.random.randint(1, 20) if self.random.random() < 0.8 else self.random.randint(20, STEP_MS_MAX)

    def _is_lost(self, source: int, target: int) -> bool:
        if (source, target) in self._cut:
            return True
        return self.now_ms < self.faults_until_ms and self.random.random() < 0.03

    def send(self, replica: Replica, effect: SendRequest) -> None:
        target = self.replicas.get(effect.port - 9000)
        source, life = replica.key.id, replica.incarnation

        def fail() -> None:
            replica.feed(replica.running.on_send_failed(effect.correlation_id, self.now_ms))

        if target is None or target.machine is None:
            self.after(self._delay_ms(), replica, fail)
            return
        if self._is_lost(source, target.key.id):
            self.after(effect.timeout_ms, replica, fail)
            return
        copies = 2 if self.now_ms < self.faults_until_ms and self.random.random() < 0.03 else 1
        for _ in range(copies):
            self.after(self._delay_ms(), target, lambda: self._deliver(replica, life, target, effect))

    def _deliver(self, source: Replica, life: int, target: Replica, effect: SendRequest) -> None:
        token = object()
        self._tokens[token] = (source, life, effect.correlation_id, effect.request)
        if type(effect.request).__name__ == "ApiVersionsRequest":
            self.answer(target, token, _versions())
            return
        self._request(target, token, effect.request)

    def _request(self, target: Replica, token: object, request: Message) -> None:
        machine = target.running
        before = (machine.epoch, machine.role.election.voted)
        effects = machine.on_request(token, request, self.now_ms, version=18)
        if type(request).__name__ == "VoteRequest":
            asked = cast("VoteRequest", request).topics[0].partitions[0]
            if asked.pre_vote and asked.replica_epoch <= before[0] and machine.epoch == before[0]:
                assert (machine.epoch, machine.role.election.voted) == before, "a pre-vote has no side effects (B16)"
        target.feed(effects)

    def answer(self, replica: Replica, token: object, response: Message) -> None:
        source, life, correlation_id, request = self._tokens.pop(token)
        if type(request).__name__ == "VoteRequest":
            self._on_vote_left(replica, cast("VoteRequest", request), cast("VoteResponse", response))
        if source.machine is None or source.incarnation != life:
            return
        if self._is_lost(replica.key.id, source.key.id):
            self.after(2_000, source, lambda: source.feed(source.running.on_send_failed(correlation_id, self.now_ms)))
            return
        self.after(
            self._delay_ms(),
            source,
            lambda: source.feed(source.running.on_response(correlation_id, response, self.now_ms)),
        )

    # What happens to a quorum.

    def _client(self) -> None:
        """Appends at whoever leads."""
        for replica in self.replicas.values():
            machine = replica.machine
            if machine is None or replica.established is None or replica.paused_until_ms > self.now_ms:
                continue
            if machine.leads(replica.established):
                self._values += 1
                late = "late" if self.now_ms > self.faults_until_ms else "value"
                replica.append(f"{late}-{self._values}")
                self._watch(replica)
                self._check(replica)
        self.after(self.random.randint(20, 300), None, self._client)

    def _chaos(self) -> None:
        if self.now_ms >= self.faults_until_ms:
            return
        replica = self.random.choice(list(self.replicas.values()))
        match self.random.randrange(12):
            case 0 | 1:
                self._crash(replica)
            case 2:
                replica.paused_until_ms = self.now_ms + self.random.randint(100, 5_000)
                self.counts["pause"] += 1
            case 3 | 4:
                self._partition()
            case 5:
                self._cut.clear()
            case 6:
                self._snapshot(replica)
            case 7 | 8:
                self._change_voters()
            case 9:
                self._lose_disk(replica)
            case 10:
                self._stop(replica)
            case _:
                if replica.machine is not None and isinstance(replica.machine.role, Leader):
                    replica.feed(replica.machine.on_resign(replica.machine.epoch, self.now_ms))
                    self._watch(replica)
                    self.counts["resign"] += 1
        self.after(self.random.randint(50, 800), None, self._chaos)

    def _crash(self, replica: Replica) -> None:
        if replica.machine is not None:
            replica.crash()
            self.counts["crash"] += 1
            self._start_later(replica)

    def _start_later(self, replica: Replica) -> None:
        def restart() -> None:
            if replica.machine is None:
                replica.paused_until_ms = 0
                replica.start()
                self._watch(replica)
                self._check(replica)

        self.after(self.random.randint(10, 3_000), None, restart)

    def _stop(self, replica: Replica) -> None:
        """In good order: a leader hands over, if anybody is there to take over in time."""
        machine = replica.machine
        if machine is None or replica.paused_until_ms > self.now_ms:
            return
        self.counts["stop"] += 1
        replica.feed(machine.on_stop(self.now_ms))
        self._watch(replica)

        def end() -> None:
            replica.crash()
            self._start_later(replica)

        self.after(self.random.randint(10, 1_500), replica, end)

    def _lose_disk(self, replica: Replica) -> None:
        """The node comes back with an empty one, in another directory, and so as nobody's voter (B12)."""
        if replica.machine is None or not self._disk_loss or self._lost is not None or not replica.machine.is_voter:
            return
        self._lost = replica.key
        self.counts["disk lost"] += 1
        replica.crash()
        replica.lose_disk(ReplicaKey(replica.key.id, Uuid(bytes([100 + replica.key.id]) * 16)))
        self._start_later(replica)

    def _partition(self) -> None:
        """One replica, or a link in one direction, is cut off."""
        self.counts["partition"] += 1
        nodes = list(self.replicas)
        one = self.random.choice(nodes)
        if self.random.random() < 0.5:
            for other in nodes:
                self._cut.add((one, other))
                self._cut.add((other, one))
        else:
            self._cut.add((one, self.random.choice(nodes)))

    def _snapshot(self, replica: Replica) -> None:
        if replica.machine is None or replica.high_watermark <= 0:
            return
        snapshot = replica.log.take_snapshot(min(replica.high_watermark, replica.log.log_end_offset))
        if snapshot is not None:
            self.counts["snapshot"] += 1
            if self.random.random() < 0.7:
                replica.log.cut()
            replica.machine.on_snapshot_taken(snapshot.id)

    def _change_voters(self) -> None:
        leaders = [r for r in self.replicas.values() if r.machine is not None and isinstance(r.machine.role, Leader)]
        if not leaders:
            return
        leader = self.random.choice(leaders)
        voters = leader.running.voters.latest
        target = self.random.choice(list(self.replicas.values()))
        if self._disk_loss:
            if self._lost is None:
                return
            target = self.replicas[self._lost.id]
        known = voters.get(target.key.id)
        if self._disk_loss and known is not None and known.key == target.key:
            return
        request = _add(target.key) if known is None else _remove(known.key)
        token = object()
        nobody = Replica(self, ReplicaKey(0), VoterSet(), ())
        self._tokens[token] = (nobody, 0, 0, request)
        self._request(leader, token, request)
        self._watch(leader)
        self._check(leader)

    def _heal(self) -> None:
        self._cut.clear()
        for replica in self.replicas.values():
            replica.paused_until_ms = 0
            if replica.machine is None:
                replica.start()
                self._watch(replica)

    # Invariants.

    def on_persisted(self, replica: Replica) -> None:
        election = replica.persisted
        assert election is not None
        directory = replica.key.directory_id
        assert election.epoch >= self._epochs.get(directory, 0), "a persisted epoch never falls (B3)"
        self._epochs[directory] = election.epoch
        voted, leader = self._promises.get((directory, election.epoch), (None, None))
        assert leader is not None or voted is None or election.voted == voted or election.leader_id is not None, (
            "one vote an epoch (B2)"
        )
        assert leader is None or election.leader_id == leader, "one leader an epoch (B1)"
        self._promises[directory, election.epoch] = (election.voted or voted, election.leader_id)
        if election.leader_id is not None:
            known = self._leaders.setdefault(election.epoch, election.leader_id)
            assert known == election.leader_id, f"epoch {election.epoch} is led by {known} (B1)"

    def _on_vote_left(self, replica: Replica, request: VoteRequest, response: VoteResponse) -> None:
        asked = request.topics[0].partitions[0]
        if asked.pre_vote or not response.topics or not response.topics[0].partitions[0].vote_granted:
            return
        candidate = ReplicaKey(asked.replica_id, asked.replica_directory_id)
        given = self._votes.setdefault((replica.key.directory_id, asked.replica_epoch), candidate)
        assert given == candidate, f"{replica.key.id} voted for {given.id} in epoch {asked.replica_epoch} (B2)"
        stored = replica.persisted
        assert stored is not None, "a vote is durable before it leaves (B2)"
        assert stored.epoch >= asked.replica_epoch, "a vote is durable before it leaves (B2)"
        if stored.epoch == asked.replica_epoch:
            assert stored.voted == candidate, "a vote is durable before it leaves (B2)"

    def on_high_watermark(self, replica: Replica, offset: int) -> None:
        log, machine = replica.log, replica.running
        assert offset <= log.log_end_offset, "only what is in the log is committed"
        for at in range(max(log.start, min(offset, len(self.committed)) - 5), min(offset, len(self.committed))):
            assert log.at(at) == self.committed[at], f"committed logs differ at {at} (B5)"
        if offset > len(self.committed):
            epoch, voters = log.at(offset - 1).epoch, machine.voters.latest
            assert self._leaders.get(epoch) == replica.key.id, "older epochs are not committed by counting (B8)"
            assert epoch == machine.epoch or not isinstance(machine.role, Leader), "only its own epoch (B8)"
            # A voter whose disk is gone had it, when it said so.
            keys = [found.key for found in voters.voters]
            reached = [key.id for key in keys if self.replicas[key.id].log.synced >= offset or key == self._lost]
            assert len(reached) >= voters.majority, f"{reached} of {voters} have {offset} durably (B6)"
            self.committed.extend(log.read(len(self.committed))[: offset - len(self.committed)])
            self._committed_in.extend([epoch] * (offset - len(self._committed_in)))

    def on_truncate(self, replica: Replica, offset: int) -> None:
        self.counts["truncation"] += 1
        assert offset >= replica.high_watermark, "nothing below the high watermark is truncated (B9)"
        assert offset >= replica.log.start, "a log is not cut below its start"
        # A leader that is outdated and does not know it may still have what a later one commits given up elsewhere.
        end = bisect_left(self._committed_in, replica.running.epoch)
        for at in range(offset, min(replica.log.log_end_offset, end)):
            assert replica.log.at(at) != self.committed[at], f"the committed record at {at} is given up (B9)"

    def on_installed(self, replica: Replica, snapshot: Snapshot) -> None:
        self.counts["install"] += 1
        assert not isinstance(replica.running.role, Leader), "a leader never loads a snapshot (B11)"
        assert snapshot.id.end_offset >= replica.high_watermark, "a snapshot does not take the log back (B9)"

    def on_established(self, replica: Replica, epoch: int) -> None:
        self.counts["election"] += 1
        assert self._leaders.get(epoch) == replica.key.id, "a leadership is durable before it is used"
        assert replica.high_watermark > 0

    def on_voters_appended(self, replica: Replica) -> None:
        self.counts["voters"] += 1
        role = replica.running.role
        if not isinstance(role, Leader):
            return  # It noticed as it appended that its quorum is lost.
        offsets = [
            at for at in range(replica.log.start, replica.log.log_end_offset) if replica.log.at(at).voters is not None
        ]
        if len(offsets) > 1 or replica.log.start > 0:
            assert role.high_watermark is not None, "no voters before the epoch has committed something (B13)"
            uncommitted = [at for at in offsets if at >= role.high_watermark]
            assert len(uncommitted) == 1, f"voter sets at {uncommitted} are not committed (B13)"

    def _check(self, replica: Replica) -> None:
        """After every step of `replica`."""
        machine, log = replica.running, replica.log
        role = machine.role
        if not replica.queue and replica.pending is None:
            stored = replica.persisted
            assert (0 if stored is None else stored.epoch) == machine.epoch, "the epoch is durable (B3)"
        if replica.pending is None:
            latest = next((entry.voters for entry in reversed(log.entries) if entry.voters is not None), None)
            if latest is not None:
                assert machine.voters.latest == latest, "the last voter set in the log is in force (B14)"
        match role:
            case Leader():
                known = self._leaders.setdefault(role.epoch, replica.key.id)
                assert known == replica.key.id, f"epoch {role.epoch} is led by {known} too (B1)"
                if role.high_watermark is None:
                    self._check_complete(replica, role)
                committed = role.high_watermark is not None and machine.voters.latest_offset < role.high_watermark
                if machine.voters.in_log and committed:
                    assert machine.is_voter or replica.queue, "a leader that was voted out goes (B15)"
            case Candidate() | Prospective():
                assert machine.may_run, "only voters run (B17)"
            case Unattached() | Follower():
                assert not len(machine._quorum.parked), "only a leader keeps fetches (B18)"

    def _check_complete(self, replica: Replica, role: Leader) -> None:
        """What was committed before this leader was elected is in its log (B4)."""
        log = replica.log
        end = bisect_left(self._committed_in, role.epoch)
        assert log.log_end_offset >= end, f"leader of {role.epoch} lacks committed records (B4)"
        for at in range(max(log.start, end - 20), end):
            assert log.at(at) == self.committed[at], f"leader of {role.epoch} has another record at {at} (B4)"

    def _unsettled(self) -> str | None:
        """L7, L8: there is one leader, it commits what is new, and everybody who votes follows."""
        leaders = [r for r in self.replicas.values() if r.machine is not None and isinstance(r.machine.role, Leader)]
        if len(leaders) != 1 or leaders[0].established is None:
            return f"nobody leads: {self.roles()}"
        role = leaders[0].running.role
        assert isinstance(role, Leader)
        if not any(entry.value.startswith("late") for entry in self.committed):
            return f"the leader does not commit: {self.roles()}"
        for key in (found.key for found in role.voters.voters):
            id, other = key.id, self.replicas[key.id].machine
            if key == self._lost:
                continue
            if other is None:
                return f"{id} is down: {self.roles()}"
            if other.epoch != role.epoch or other.leader_id != role.local_id:
                return f"{id} does not know who leads: {self.roles()}"
            lag = (role.high_watermark or 0) - (other.high_watermark or 0)
            if lag > 20:
                return f"{id} lags by {lag}: {self.roles()}"
        return None

    def roles(self) -> str:
        return ", ".join(
            f"{id}:{'down' if r.machine is None else f'{type(r.machine.role).__name__}@{r.machine.epoch}'}"
            for id, r in self.replicas.items()
        )


def _versions() -> Message:
    from ottla.wire.messages.api_versions_response import ApiVersionsResponse, SupportedFeatureKey

    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        supported_features=[SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)],
    )


def _add(key: ReplicaKey) -> Message:
    from ottla.wire.messages.add_raft_voter_request import AddRaftVoterRequest, Listener

    where = endpoint(key.id)
    return AddRaftVoterRequest(
        cluster_id="cluster",
        voter_id=key.id,
        voter_directory_id=key.directory_id,
        listeners=[Listener(name=LISTENER, host=where.host, port=where.port)],
    )


def _remove(key: ReplicaKey) -> Message:
    from ottla.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest

    return RemoveRaftVoterRequest(cluster_id="cluster", voter_id=key.id, voter_directory_id=key.directory_id)
