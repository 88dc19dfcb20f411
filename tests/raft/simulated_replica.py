"""One replica for the simulation: a raft machine, its log and its disk, and a driver that carries out effects in order.

The disk keeps what was written and what was synced apart, and a crash takes a part of the difference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Protocol, cast

from ottla.raft.checkpoint import SnapshotId
from ottla.raft.config import RaftConfig
from ottla.raft.control_records import KRAFT_VERSION, KRAFT_VOTERS
from ottla.raft.effects import (
    AppendControlRecords,
    AppendFetched,
    Effect,
    HighWatermarkAdvanced,
    InstallSnapshot,
    LeadershipEstablished,
    PersistQuorumState,
    Resigned,
    Respond,
    RespondWithRecords,
    RespondWithSnapshot,
    SendRequest,
    TruncateTo,
    WriteSnapshotChunk,
)
from ottla.raft.election import ElectionState
from ottla.raft.machine import RaftMachine
from ottla.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterHistory, VoterSet

if TYPE_CHECKING:
    from ottla.wire.message import Message
    from ottla.wire.messages.kraft_version_record import KRaftVersionRecord
    from ottla.wire.messages.voters_record import VotersRecord

CONFIG = RaftConfig()
LISTENER = "CONTROLLER"


def endpoint(node: int) -> VoterEndpoint:
    return VoterEndpoint(LISTENER, "host", 9000 + node)


def voter(key: ReplicaKey) -> Voter:
    return Voter(key, (endpoint(key.id),))


@dataclass(frozen=True, slots=True)
class Entry:
    """One record: who wrote it when, or a voter set."""

    epoch: int
    value: str
    voters: VoterSet | None = None
    kraft_version: int | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entry) and (self.epoch, self.value) == (other.epoch, other.value)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Stands for everything before its end; its bytes are only counted."""

    id: SnapshotId
    entries: tuple[Entry, ...]
    size: int = 3

    def voters(self) -> VoterSet | None:
        return next((entry.voters for entry in reversed(self.entries) if entry.voters is not None), None)

    def kraft_version(self) -> int:
        return next((e.kraft_version for e in reversed(self.entries) if e.kraft_version is not None), 0)


class SimulatedLog:
    """A `RaftLog` in memory. `synced` is what a crash leaves at least."""

    def __init__(self) -> None:
        self.start = 0
        self.entries: list[Entry] = []
        self.synced = 0
        self.snapshots: dict[SnapshotId, Snapshot] = {}

    @property
    def log_start_offset(self) -> int:
        return self.start

    @property
    def log_end_offset(self) -> int:
        return self.start + len(self.entries)

    @property
    def last_epoch(self) -> int:
        if self.entries:
            return self.entries[-1].epoch
        latest = self.latest_snapshot
        return latest.epoch if latest is not None else 0

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        return min(self.snapshots, default=None)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return max(self.snapshots, default=None)

    def snapshot_size(self, snapshot: SnapshotId) -> int | None:
        found = self.snapshots.get(snapshot)
        return None if found is None else found.size

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        if epoch >= self.last_epoch:
            return self.last_epoch, self.log_end_offset
        for offset in range(self.log_end_offset, self.start, -1):
            if self.at(offset - 1).epoch <= epoch:
                return self.at(offset - 1).epoch, offset
        first = next((snapshot for snapshot in self.snapshots if snapshot.end_offset == self.start), None)
        return (0, self.start) if first is None else (first.epoch, self.start)

    def at(self, offset: int) -> Entry:
        return self.entries[offset - self.start]

    def read(self, offset: int) -> tuple[Entry, ...]:
        return tuple(self.entries[offset - self.start :])

    def truncate(self, offset: int) -> None:
        del self.entries[offset - self.start :]
        self.synced = min(self.synced, offset)

    def prefix(self, end_offset: int) -> tuple[Entry, ...]:
        """Everything before `end_offset`, from the snapshot and the log together."""
        if self.start == 0:
            return tuple(self.entries[:end_offset])
        base = self.snapshots[max(snapshot for snapshot in self.snapshots if snapshot.end_offset == self.start)]
        return (*base.entries, *self.entries[: end_offset - self.start])

    def take_snapshot(self, end_offset: int) -> Snapshot | None:
        """Of everything before `end_offset`; then the log is cut at the snapshot before it."""
        latest = self.latest_snapshot
        if end_offset <= max(self.start, 0 if latest is None else latest.end_offset):
            return None
        entries = self.prefix(end_offset)
        snapshot = Snapshot(SnapshotId(end_offset, entries[-1].epoch), entries)
        self.snapshots[snapshot.id] = snapshot
        return snapshot

    def cut(self) -> None:
        """Begin at the latest snapshot that does not lie beyond the log's end."""
        target = max((s for s in self.snapshots if s.end_offset <= self.log_end_offset), default=None)
        if target is not None and target.end_offset > self.start:
            del self.entries[: target.end_offset - self.start]
            self.start = target.end_offset
            self.snapshots = {id: found for id, found in self.snapshots.items() if id >= target}

    def restart(self, snapshot: Snapshot) -> None:
        self.entries, self.start, self.synced = [], snapshot.id.end_offset, snapshot.id.end_offset
        self.snapshots = {snapshot.id: snapshot}

    def crash(self, random: Random) -> None:
        unsynced = self.log_end_offset - self.synced
        if unsynced > 0:
            self.truncate(self.synced + random.randrange(unsynced + 1))
        self.synced = self.log_end_offset
        latest = self.latest_snapshot
        if latest is not None and latest.end_offset > self.log_end_offset:
            self.restart(self.snapshots[latest])


class World(Protocol):
    """What a replica needs of what is around it."""

    now_ms: int
    random: Random
    committed: list[Entry]

    def after(self, delay_ms: int, replica: Replica, action: Callable[[], None]) -> None: ...

    def sync_delay_ms(self) -> int: ...

    def send(self, replica: Replica, effect: SendRequest) -> None: ...

    def answer(self, replica: Replica, token: object, response: Message) -> None: ...

    def on_persisted(self, replica: Replica) -> None: ...

    def on_high_watermark(self, replica: Replica, offset: int) -> None: ...

    def on_truncate(self, replica: Replica, offset: int) -> None: ...

    def on_established(self, replica: Replica, epoch: int) -> None: ...

    def on_voters_appended(self, replica: Replica) -> None: ...

    def on_installed(self, replica: Replica, snapshot: Snapshot) -> None: ...


@dataclass(slots=True, eq=False)
class Replica:
    """What survives a crash is `log`, `persisted` and the key; the rest is made anew by `start`."""

    world: World
    key: ReplicaKey
    voters: VoterSet
    """What `format` wrote; empty for an observer."""

    all_nodes: tuple[int, ...]
    kraft_version: int = 1
    log: SimulatedLog = field(default_factory=SimulatedLog)
    persisted: ElectionState | None = None
    machine: RaftMachine | None = None
    incarnation: int = 0
    high_watermark: int = -1
    established: int | None = None
    paused_until_ms: int = 0
    queue: deque[Effect] = field(default_factory=deque)
    pending: Effect | None = None
    """What the rest of the queue waits for."""

    pumping: bool = False
    flushing: bool = False
    part: tuple[SnapshotId, int] | None = None
    timer_ms: int | None = None

    @property
    def running(self) -> RaftMachine:
        assert self.machine is not None
        return self.machine

    # Life.

    def start(self) -> None:
        log = self.log
        voters, version = VoterHistory(self.voters), self.kraft_version if len(self.voters) else 0
        latest = log.latest_snapshot
        if latest is not None and (found := log.snapshots[latest]).voters() is not None:
            voters = VoterHistory(cast(VoterSet, found.voters()))
            voters.add(latest.end_offset - 1, cast(VoterSet, found.voters()))
            version = found.kraft_version()
        self.incarnation += 1
        self.queue.clear()
        self.pending, self.pumping, self.flushing = None, False, False
        self.part, self.timer_ms, self.established, self.high_watermark = None, None, None, -1
        self.machine = RaftMachine(
            local=self.key,
            cluster_id="cluster",
            voters=voters,
            kraft_version=version,
            log=log,
            random=Random(self.world.random.random()),
            config=CONFIG,
            endpoints=(endpoint(self.key.id),),
            bootstrap=tuple(("host", 9000 + node) for node in self.all_nodes),
        )
        for offset in range(log.start if latest is None else max(log.start, latest.end_offset), log.log_end_offset):
            self._tell_control(offset)
        self.feed(self.machine.on_start(stored=self.persisted, now_ms=self.world.now_ms))

    def crash(self) -> None:
        self.log.crash(self.world.random)
        if isinstance(self.pending, PersistQuorumState) and self.world.random.random() < 0.5:
            # The write was under way: it is there or it is not.
            self._persist(self.pending.election)
        self.machine = None
        self.incarnation += 1

    def lose_disk(self, key: ReplicaKey) -> None:
        """Everything is gone, and `format` has written a new directory, which knows no voters."""
        assert self.machine is None
        self.key, self.log, self.persisted, self.voters = key, SimulatedLog(), None, VoterSet()

    # Effects.

    def feed(self, effects: list[Effect]) -> None:
        self.queue.extend(effects)
        self.pump()

    def pump(self) -> None:
        if self.pumping:
            return
        self.pumping = True
        while self.queue and self.pending is None and self.machine is not None:
            effect = self.queue.popleft()
            if not self._carry_out(effect):
                self.pending = effect
        self.pumping = False

    def unblock(self, effects: list[Effect]) -> None:
        """The effect that the rest waits for is done."""
        self.pending = None
        self.feed(effects)

    def _later(self, action: Callable[[], None]) -> None:
        self.world.after(self.world.sync_delay_ms(), self, action)

    def _carry_out(self, effect: Effect) -> bool:
        """True if it is done, False if the rest has to wait for it."""
        world, machine, log = self.world, self.running, self.log
        match effect:
            case PersistQuorumState():
                self._later(lambda: self._on_persisted(effect.election))
                return False
            case SendRequest():
                world.send(self, effect)
            case Respond():
                world.answer(self, effect.token, effect.response)
            case RespondWithRecords():
                records = log.read(effect.offset)[: world.random.randint(1, 5)]
                effect.response.responses[0].partitions[0].records = cast(bytes, records)
                world.answer(self, effect.token, effect.response)
            case RespondWithSnapshot():
                effect.response.topics[0].partitions[0].unaligned_records = b"x"
                world.answer(self, effect.token, effect.response)
            case AppendControlRecords():
                if machine.leads(effect.epoch):
                    self._append_control(effect)
            case AppendFetched():
                for entry in cast("tuple[Entry, ...]", effect.records):
                    log.entries.append(entry)
                    self._tell_control(log.log_end_offset - 1)
                self._later(self._on_fetched_synced)
                return False
            case TruncateTo():
                world.on_truncate(self, effect.offset)
                log.truncate(effect.offset)
                self.flushing = False
                self.queue.extend(machine.on_truncated(effect.offset, world.now_ms))
            case WriteSnapshotChunk():
                assert effect.position == 0 or self.part == (effect.snapshot_id, effect.position)
                self.part = (effect.snapshot_id, effect.position + len(effect.data))
            case InstallSnapshot():
                self._install(effect.snapshot_id)
            case HighWatermarkAdvanced():
                assert effect.offset > self.high_watermark, "a high watermark never falls (B7)"
                self.high_watermark = effect.offset
                world.on_high_watermark(self, effect.offset)
            case LeadershipEstablished():
                self.established = effect.epoch
                world.on_established(self, effect.epoch)
            case Resigned():
                self.established = None
        return True

    def _persist(self, election: ElectionState) -> None:
        self.persisted = election
        self.world.on_persisted(self)

    def _on_persisted(self, election: ElectionState) -> None:
        self._persist(election)
        self.unblock([])

    def _on_fetched_synced(self) -> None:
        self.log.synced = self.log.log_end_offset
        self.unblock(self.running.on_fetched_appended(self.log.log_end_offset, self.world.now_ms))

    def _install(self, snapshot_id: SnapshotId) -> None:
        found = self.log.snapshots.get(snapshot_id) or self.world_snapshot(snapshot_id)
        self.world.on_installed(self, found)
        self.log.restart(found)
        self.part, self.flushing = None, False
        self.queue.extend(
            self.running.on_snapshot_installed(
                snapshot_id, voters=found.voters(), kraft_version=found.kraft_version(), now_ms=self.world.now_ms
            )
        )

    def world_snapshot(self, snapshot_id: SnapshotId) -> Snapshot:
        """The bytes are not carried: the snapshot is what was committed before its end."""
        committed = self.world.committed[: snapshot_id.end_offset]
        assert len(committed) == snapshot_id.end_offset, "a snapshot holds only what is committed"
        return Snapshot(snapshot_id, tuple(committed))

    # The log.

    def _tell_control(self, offset: int) -> None:
        entry = self.log.at(offset)
        if entry.kraft_version is not None:
            self.running.on_kraft_version(offset, entry.kraft_version)
        if entry.voters is not None:
            self.running.on_voters(offset, entry.voters)

    def _append_control(self, effect: AppendControlRecords) -> None:
        entries: list[Entry] = []
        for record in effect.records:
            name = f"control-{self.key.id}-{effect.epoch}-{self.log.log_end_offset + len(entries)}"
            voters = version = None
            if record.type == KRAFT_VOTERS:
                voters = VoterSet.from_record(cast("VotersRecord", record.message))
            if record.type == KRAFT_VERSION:
                version = cast("KRaftVersionRecord", record.message).kraft_version
            entries.append(Entry(effect.epoch, name, voters, version))
        self._append(entries)
        if any(entry.voters is not None for entry in entries):
            self.world.on_voters_appended(self)

    def append(self, value: str) -> None:
        """The state machine's record."""
        assert self.established is not None
        self._append([Entry(self.established, value)])

    def _append(self, entries: list[Entry]) -> None:
        log, machine = self.log, self.running
        base = log.log_end_offset
        log.entries.extend(entries)
        for offset in range(base, log.log_end_offset):
            self._tell_control(offset)
        self.queue.extend(
            machine.on_appended(
                epoch=entries[0].epoch,
                base_offset=base,
                end_offset=log.log_end_offset,
                now_ms=self.world.now_ms,
            )
        )
        if not self.flushing:
            self.flushing = True
            self._later(self._on_synced)
        self.pump()

    def _on_synced(self) -> None:
        if not self.flushing:
            return
        # What was written after the sync began may be left for the next one.
        end = self.log.log_end_offset
        self.log.synced = end
        self.flushing = False
        self.feed(self.running.on_flushed(end, self.world.now_ms))
