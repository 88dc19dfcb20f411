"""Drives the raft machine of the metadata log: reads the log at the start, appends, flushes, persists promises.

Appends are written at once and flushed together: everything that was appended in one turn of the loop, and everything
that came while a flush was under way, shares the next one. The high watermark moves only past what is flushed.

A disk that fails ends the node's part in the quorum, and so does a listener that cannot take in what is committed: the
machine resigns, and the listener is told once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from ottla.broker.control.stores import QuorumStore, SnapshotStore
from ottla.errors import Malformed, StartupError
from ottla.log.append import AppendOrigin
from ottla.log.log import Log
from ottla.metadata.records import MetadataRecord, decode_record, encode_record
from ottla.metadata.state import MetadataBatch
from ottla.raft.checkpoint import BOOTSTRAP_SNAPSHOT, SnapshotId
from ottla.raft.control_records import KRAFT_VERSION, KRAFT_VOTERS, control_batch, read_control_batch
from ottla.raft.effects import (
    AppendControlRecords,
    Effect,
    HighWatermarkAdvanced,
    LeaderChanged,
    LeadershipEstablished,
    PersistQuorumState,
    Resigned,
)
from ottla.raft.machine import RaftMachine
from ottla.raft.voters import ReplicaKey, VoterEndpoint, VoterHistory, VoterSet
from ottla.records import BatchBuilder, BatchHeader, batches, iterate, read_header
from ottla.runtime.seams import DiskError, Runtime

if TYPE_CHECKING:
    from ottla.wire.messages.kraft_version_record import KRaftVersionRecord
    from ottla.wire.messages.voters_record import VotersRecord

_READ_BYTES = 1 << 20


class RaftListener(Protocol):
    """The state machine above the log."""

    def on_high_watermark(self, offset: int) -> None:
        """Everything before `offset` is committed."""
        ...

    def on_control_batch(self, batch: MetadataBatch) -> None:
        """The raft layer has appended a batch of its own; there is nothing in it for the state machine."""
        ...

    def on_leadership(self, epoch: int) -> None:
        """This node leads; `on_high_watermark` has told of all that was there before."""
        ...

    def on_resigned(self, epoch: int, error: Exception | None) -> None:
        """This node leads no more; `error` is why, unless it was asked to stop."""
        ...


class Loaded(NamedTuple):
    """What the disk held: the records of the latest snapshot, and the batches after it."""

    snapshot: SnapshotId | None
    snapshot_timestamp_ms: int
    snapshot_records: list[MetadataRecord]
    batches: list[MetadataBatch]


class _LogView:
    """The log as the machine sees it (`raft.log_view.RaftLog`)."""

    def __init__(self, log: Log, snapshots: SnapshotStore) -> None:
        self._log = log
        self._snapshots = snapshots

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def last_epoch(self) -> int:
        latest = self._log.epochs.latest_epoch
        if latest is not None:
            return latest
        snapshot = self.latest_snapshot
        return 0 if snapshot is None else snapshot.epoch

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        return next(iter(self._snapshots.list()), None)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        found = self._snapshots.list()
        return found[-1] if found else None

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self._log.epochs.end_offset_for(epoch, self._log.log_end_offset)

    def snapshot_size(self, snapshot: SnapshotId) -> int | None:
        return self._snapshots.size(snapshot) if snapshot in self._snapshots.list() else None


class RaftDriver:
    def __init__(
        self,
        *,
        runtime: Runtime,
        log: Log,
        local: ReplicaKey,
        configured_voters: VoterSet,
        listener: RaftListener,
    ) -> None:
        """`configured_voters` is from `controller.quorum.voters`, and empty where the quorum is dynamic (KIP-853)."""
        self._runtime = runtime
        self.log = log
        self.snapshots = SnapshotStore(runtime.disk, log.directory)
        self._store = QuorumStore(runtime.disk, log.directory)
        self._local = local
        self._configured_voters = configured_voters
        self._listener = listener
        self._machine = self._make_machine(VoterHistory(configured_voters), kraft_version=0)
        self._flush_scheduled = False
        self._flush_task: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._stopped = False

    def _make_machine(self, voters: VoterHistory, kraft_version: int) -> RaftMachine:
        return RaftMachine(
            local=self._local,
            cluster_id="",
            voters=voters,
            kraft_version=kraft_version,
            log=_LogView(self.log, self.snapshots),
            random=self._runtime.random,
        )

    def _now_ms(self) -> int:
        return int(self._runtime.clock.monotonic() * 1000)

    @property
    def machine(self) -> RaftMachine:
        return self._machine

    @property
    def epoch(self) -> int:
        return self._machine.epoch

    # Starting.

    def load(self) -> Loaded:
        """Read snapshot and log. Blocks; raises `StartupError` where they cannot be trusted."""
        self.snapshots.remove_parts()
        loaded = self._load_snapshot()
        found: list[MetadataBatch] = []
        start = self.log.log_start_offset if loaded.snapshot is None else loaded.snapshot.end_offset
        try:
            for header, batch in self._read_batches(start):
                records: list[MetadataRecord] = []
                if header.is_control:
                    self._on_control_batch(batch)
                else:
                    records = [decode_record(record.value or b"") for record in iterate(batch)]
                found.append(
                    MetadataBatch(
                        header.base_offset, header.last_offset, header.leader_epoch, header.max_timestamp, records
                    )
                )
        except Malformed as error:
            raise StartupError(f"the metadata log in {self.log.directory} cannot be read: {error}") from error
        return loaded._replace(batches=found)

    def _load_snapshot(self) -> Loaded:
        log = self.log
        found = self.snapshots.list()
        latest = found[-1] if found else None
        if log.log_start_offset > 0 and (latest is None or latest.end_offset < log.log_start_offset):
            raise StartupError(
                f"the metadata log in {log.directory} begins at offset {log.log_start_offset}, but no snapshot holds "
                f"what was before"
            )
        if latest is None:
            return Loaded(None, -1, [], [])
        if log.log_start_offset > 0:
            # Segments go whole, so the first may begin before the snapshot that the log is to begin with.
            oldest = next(snapshot for snapshot in found if snapshot.end_offset >= log.log_start_offset)
            log.update_high_watermark(latest.end_offset)
            log.advance_log_start(min(oldest.end_offset, log.log_end_offset))
        try:
            checkpoint = self.snapshots.read(latest)
            records = [decode_record(value) for value in checkpoint.values]
        except Malformed as error:
            raise StartupError(str(error)) from error
        if checkpoint.voters is not None:
            voters = VoterHistory(checkpoint.voters)
            if latest != BOOTSTRAP_SNAPSHOT:
                voters.add(latest.end_offset - 1, checkpoint.voters)
            self._machine = self._make_machine(voters, checkpoint.kraft_version)
        if latest.end_offset > log.log_end_offset:
            # The snapshot was fetched when the log was far behind, and the crash came before the log moved up.
            log.truncate_fully_and_start_at(latest.end_offset)
        return Loaded(latest, checkpoint.last_contained_log_timestamp, records, [])

    def _read_batches(self, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        log = self.log
        while offset < log.log_end_offset:
            span = log.read(offset, max_bytes=_READ_BYTES, upper_bound=log.log_end_offset)
            if span is None:
                break
            for header, batch in batches(memoryview(span.file.read(span.position, span.size))):
                offset = header.next_offset
                yield header, batch

    def _on_control_batch(self, batch: memoryview | bytearray) -> None:
        for fact in read_control_batch(batch):
            if fact.type == KRAFT_VOTERS:
                self._machine.on_voters(fact.offset, VoterSet.from_record(cast("VotersRecord", fact.message)))
            elif fact.type == KRAFT_VERSION:
                self._machine.on_kraft_version(fact.offset, cast("KRaftVersionRecord", fact.message).kraft_version)

    async def start(self) -> None:
        """Take part in the quorum. Returns when the first promise is durable; leadership comes by the listener."""
        voters = self._machine.voters.latest
        if not voters.is_only_voter(self._local):
            if not len(voters):
                raise StartupError(
                    "no voters are known: format the directory with --standalone, or set controller.quorum.voters"
                )
            if not voters.is_voter(self._local):
                raise StartupError(
                    f"node {self._local} is not among the voters of its metadata log, {voters}: format a fresh "
                    f"directory, or start the node that this one belongs to"
                )
            raise StartupError(f"a quorum of {len(voters)} voters is not supported; this release runs a quorum of one")
        stored = await self._runtime.offload.run(self._store.read)
        await self._carry_out_durably(self._machine.on_start(stored=stored, now_ms=self._now_ms()))

    async def _carry_out_durably(self, effects: list[Effect]) -> None:
        """As `_carry_out`, for effects among which are promises."""
        for effect in effects:
            if isinstance(effect, PersistQuorumState):
                write = partial(
                    self._store.write,
                    effect.election,
                    kraft_version=self._machine.kraft_version,
                    voter_ids=self._machine.voters.latest.ids,
                )
                await self._runtime.offload.run(write)
            else:
                self._carry_out([effect])

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case AppendControlRecords():
                    now_ms = self._runtime.clock.wall_ms()
                    base = self.log.log_end_offset
                    batch = control_batch(effect.records, base_offset=base, epoch=effect.epoch, now_ms=now_ms)
                    first, last = self._append(batch, now_ms)
                    self._on_control_batch(batch)
                    self._listener.on_control_batch(MetadataBatch(first, last, effect.epoch, now_ms, ()))
                case HighWatermarkAdvanced():
                    self.log.update_high_watermark(effect.offset)
                    self._listener.on_high_watermark(effect.offset)
                case LeadershipEstablished():
                    self._listener.on_leadership(effect.epoch)
                case Resigned():
                    self._listener.on_resigned(effect.epoch, self._failure)
                case LeaderChanged():
                    pass
                case _:
                    raise AssertionError(f"a quorum of one has no use for {effect}")

    def update_endpoints(self, endpoints: tuple[VoterEndpoint, ...]) -> None:
        """Let the quorum know where this node's controller listens now."""
        self._carry_out(self._machine.on_endpoints(endpoints, self._now_ms()))

    # Appending.

    def append(self, records: Sequence[MetadataRecord]) -> MetadataBatch:
        """Append `records` as one batch of this leader's epoch. Raises `KafkaError`; then nothing was appended."""
        now_ms = self._runtime.clock.wall_ms()
        builder = BatchBuilder(base_offset=self.log.log_end_offset, leader_epoch=self.epoch)
        for record in records:
            builder.append(now_ms, None, encode_record(record))
        first, last = self._append(builder.build(), now_ms)
        return MetadataBatch(first, last, self.epoch, now_ms, records)

    def _append(self, batch: bytearray, now_ms: int) -> tuple[int, int]:
        try:
            info = self.log.append(
                memoryview(batch), read_header(batch), leader_epoch=self.epoch, now_ms=now_ms, origin=AppendOrigin.RAFT
            )
        except DiskError as error:
            self._fail(error)
            raise
        self._carry_out(
            self._machine.on_appended(
                epoch=self.epoch,
                base_offset=info.first_offset,
                end_offset=info.last_offset + 1,
                now_ms=self._now_ms(),
            )
        )
        self._schedule_flush()
        return info.first_offset, info.last_offset

    # Flushing.

    def _schedule_flush(self) -> None:
        if self._flush_task is None and not self._flush_scheduled:
            self._flush_scheduled = True
            # Not now: what else is appended in this turn of the loop then shares the flush.
            asyncio.get_running_loop().call_soon(self._start_flush)

    def _start_flush(self) -> None:
        self._flush_scheduled = False
        if self._flush_task is None and self._failure is None and not self._stopped:
            self._flush_task = asyncio.get_running_loop().create_task(self._flush(), name="metadata-flush")

    async def _flush(self) -> None:
        try:
            while self.log.recovery_point < self.log.log_end_offset:
                flush = self.log.prepare_flush()
                await self._runtime.offload.run(flush.run)
                self.log.on_flushed(flush, self._runtime.clock.wall_ms())
                self._carry_out(self._machine.on_flushed(flush.end_offset, self._now_ms()))
        except Exception as error:
            # The disk failed, or what is committed could not be taken in. Either way this node cannot go on.
            self._fail(error)
        finally:
            self._flush_task = None

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
            self._carry_out(self._machine.on_disk_failed(self._now_ms()))

    # Stopping.

    async def stop(self) -> None:
        """Flush what was appended, and resign. The log stays open; its owner closes it."""
        if self._flush_scheduled:
            self._start_flush()
        if self._flush_task is not None:
            await self._flush_task
        self._stopped = True
        self._carry_out(self._machine.on_stop(self._now_ms()))
