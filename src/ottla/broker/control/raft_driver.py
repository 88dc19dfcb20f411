"""Drives the raft machine of the metadata log: tells it what happens, and carries out what it asks for.

One queue and one pump. The effects of every fact go to the end of the queue and are carried out strictly in order; what
has to wait for the disk holds up everything behind it. So nothing follows a promise (`PersistQuorumState`) that is not
durable, and the log is always as far as the effects that were carried out. Facts do not wait: they are told when they
come, and their effects queue up.

A leader's appends are written at once and flushed together, beside the pump: what was appended in one turn of the loop,
and what came while a flush was under way, shares the next one. A follower's are flushed before the next fetch tells the
leader of them.

A disk that fails ends the node's part in the quorum, and so does a listener that cannot take in what is committed: what
is queued is dropped, the machine resigns, and the listener is told once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from ottla.broker.control.metadata_log import LoadedSnapshot, MetadataLog
from ottla.broker.control.stores import QuorumStore
from ottla.client.peer import Peer, PeerLost, Peers
from ottla.errors import ErrorCode, KafkaError, Malformed, StartupError
from ottla.log.log import Log
from ottla.metadata.records import MetadataRecord, decode_record
from ottla.metadata.state import MetadataBatch
from ottla.raft.checkpoint import BOOTSTRAP_SNAPSHOT, SnapshotId
from ottla.raft.config import RaftConfig
from ottla.raft.control_records import KRAFT_VERSION, KRAFT_VOTERS, ControlFact
from ottla.raft.effects import (
    AppendControlRecords,
    AppendFetched,
    Effect,
    HighWatermarkAdvanced,
    InstallSnapshot,
    LeaderChanged,
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
from ottla.raft.machine import RaftMachine
from ottla.raft.voters import ReplicaKey, VoterEndpoint, VoterHistory, VoterSet
from ottla.runtime.seams import DiskError, FileSpan, Runtime
from ottla.runtime.timers import Timer, TimerWheel
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.wire.messages.kraft_version_record import KRaftVersionRecord
    from ottla.wire.messages.voters_record import VotersRecord

_log = logging.getLogger(__name__)

_LONG_POLLS = ("FetchRequest", "FetchSnapshotRequest")
"""What has a connection of its own: a peer answers in order, and a vote must not wait behind a long poll."""


class RaftListener(Protocol):
    """The state machine above the log."""

    def on_commit(self, batches: Sequence[MetadataBatch], high_watermark: int) -> None:
        """Everything before `high_watermark` is committed; `batches` are those that were not before."""
        ...

    def on_snapshot(self, snapshot: SnapshotId, timestamp_ms: int, records: Sequence[MetadataRecord]) -> None:
        """The log begins with `snapshot`, which replaces all that was told before."""
        ...

    def on_appended(self, batch: MetadataBatch) -> None:
        """As the leader, this node has appended `batch`: what it was given, or one of the raft layer's own, which has
        no records. Told in the order of the log, before anything follows from it."""
        ...

    def on_leader(self, leader_id: int | None, endpoint: VoterEndpoint | None) -> None:
        """Who leads, as far as this node knows; it need not have taken up its office yet."""
        ...

    def on_heard(self) -> None:
        """Somebody answered; this node may know more about the quorum than before."""
        ...

    def on_leadership(self, epoch: int) -> None:
        """This node leads; `on_commit` has told of all that was there before."""
        ...

    def on_resigned(self, epoch: int) -> None:
        """This node leads no more."""
        ...

    def on_failed(self, error: Exception) -> None:
        """This node can take no further part in the quorum, and must stop."""
        ...


class RaftDriver:
    def __init__(
        self,
        *,
        runtime: Runtime,
        timers: TimerWheel,
        peers: Peers,
        log: Log,
        local: ReplicaKey,
        cluster_id: str,
        configured_voters: VoterSet,
        config: RaftConfig,
        listener_name: str,
        endpoints: tuple[VoterEndpoint, ...],
        bootstrap: tuple[tuple[str, int], ...],
        can_become_voter: bool,
        listener: RaftListener,
    ) -> None:
        """`configured_voters` is from `controller.quorum.voters`, and empty where the quorum is dynamic (KIP-853);
        `endpoints` is where this node's controller listens, if it has one."""
        self._runtime = runtime
        self._timers = timers
        self._peers = peers
        self._log = MetadataLog(runtime.disk, log)
        self._store = QuorumStore(runtime.disk, log.directory)
        self._local = local
        self._cluster_id = cluster_id
        self._configured_voters = configured_voters
        self._config = config
        self._listener_name = listener_name
        self._endpoints = endpoints
        self._bootstrap = bootstrap
        self._can_become_voter = can_become_voter
        self._listener = listener
        self._machine = self._make_machine(VoterHistory(configured_voters), 0)

        self._queue: deque[Effect] = deque()
        self._pumping = False
        self._slow: asyncio.Task[None] | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._flush_scheduled = False
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._connections: dict[tuple[str, int, bool], Peer] = {}
        self._sending: dict[int, asyncio.Task[None]] = {}
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._last_token = 0
        self._started = asyncio.Event()
        self._stopping: asyncio.Event | None = None
        self._unreachable: dict[int, None] = {}
        self._strangers: dict[tuple[str, int], None] = {}
        """Addresses at which somebody of another cluster has answered, since somebody of this one did."""
        self._closed = False
        self._failure: Exception | None = None

    def _make_machine(self, voters: VoterHistory, kraft_version: int) -> RaftMachine:
        return RaftMachine(
            local=self._local,
            cluster_id=self._cluster_id,
            voters=voters,
            kraft_version=kraft_version,
            log=self._log,
            random=self._runtime.random,
            config=self._config,
            listener=self._listener_name,
            endpoints=self._endpoints,
            bootstrap=self._bootstrap,
            can_become_voter=self._can_become_voter,
        )

    @property
    def machine(self) -> RaftMachine:
        return self._machine

    @property
    def metadata_log(self) -> MetadataLog:
        return self._log

    @property
    def log(self) -> Log:
        return self._log.log

    @property
    def epoch(self) -> int:
        return self._machine.epoch

    def _now_ms(self) -> int:
        """Elections and timeouts must not jump with the wall clock."""
        return int(self._runtime.clock.monotonic() * 1000)

    # Starting.

    def load(self) -> LoadedSnapshot | None:
        """Read snapshot and log; the batches wait in the log until they are known to be committed. Blocks; raises
        `StartupError` where they cannot be trusted."""
        loaded = self._log.load_snapshot()
        start = self.log.log_start_offset
        if loaded is not None:
            start = loaded.snapshot.end_offset
            if loaded.checkpoint.voters is not None:
                voters = VoterHistory(loaded.checkpoint.voters)
                if loaded.snapshot != BOOTSTRAP_SNAPSHOT:
                    voters.add(start - 1, loaded.checkpoint.voters)
                self._machine = self._make_machine(voters, loaded.checkpoint.kraft_version)
        for fact in self._log.load_batches(start):
            self._on_control_fact(fact)
        return loaded

    def _on_control_fact(self, fact: ControlFact) -> None:
        if fact.type == KRAFT_VOTERS:
            self._machine.on_voters(fact.offset, VoterSet.from_record(cast("VotersRecord", fact.message)))
        elif fact.type == KRAFT_VERSION:
            self._machine.on_kraft_version(fact.offset, cast("KRaftVersionRecord", fact.message).kraft_version)

    async def start(self) -> None:
        """Take part in the quorum, or watch it. Raises `StartupError`, `DiskError`."""
        self._check_voters()
        stored = await self._runtime.offload.run(self._store.read)
        # What recovery found counts as ours from now on, so it must be here to stay.
        await self._flush_to(self.log.log_end_offset)
        if self._failure is not None:
            raise self._failure
        self._on(self._machine.on_start(stored=stored, now_ms=self._now_ms()))
        self._started.set()

    def _check_voters(self) -> None:
        """Refuse a start after which nobody could ever lead."""
        voters, local = self._machine.voters.latest, self._local
        own = {(endpoint.host, endpoint.port) for endpoint in self._endpoints}
        if not len(voters) and all(address in own for address in self._bootstrap):
            raise StartupError(
                "no voters are known: format the directory with --standalone, or name other nodes in "
                "controller.quorum.bootstrap.servers"
            )
        if voters.is_voter(local) and not self._can_become_voter:
            raise StartupError(
                f"node {local.id} is a voter of the metadata quorum, but process.roles does not name the role: make it "
                f"broker,controller again, or remove the voter from the quorum first"
            )
        if voters.is_voter(local) or local.id not in voters.ids:
            return
        if len(voters) == 1:
            raise StartupError(
                f"node {local} is not among the voters of its metadata log, {voters}: format a fresh directory, or "
                f"start the node that this one belongs to"
            )
        _log.warning(
            "this node is %s, but the voters are %r: it only watches the quorum until the old voter is removed and "
            "this one added (kafka-metadata-quorum remove-controller, add-controller)",
            local,
            voters,
        )

    # The pump.

    def _on(self, effects: list[Effect]) -> None:
        """A fact was told, and this is what follows from it."""
        self._queue.extend(effects)
        self._arm()
        if not self._pumping:
            self._pump()
        if self._stopping is not None and (self._machine.may_stop or self._is_alone):
            self._stopping.set()

    def _pump(self) -> None:
        self._pumping = True
        while self._queue and not self._closed:
            try:
                slow = self._carry_out(self._queue.popleft())
            except Exception as error:
                # The disk failed, or what is committed could not be taken in. Either way this node cannot go on.
                self.fail(error)
                continue
            if slow is not None:
                self._slow = asyncio.get_running_loop().create_task(self._await(slow), name="raft")
                return
        self._pumping = False

    async def _await(self, slow: Coroutine[object, object, None]) -> None:
        try:
            await slow
        except Exception as error:
            self.fail(error)
        self._slow = None
        self._pump()

    def _carry_out(self, effect: Effect) -> Coroutine[object, object, None] | None:
        """What has to wait is returned, and everything behind it waits too."""
        match effect:
            case PersistQuorumState():
                return self._persist(effect)
            case SendRequest():
                self._send(effect)
            case Respond():
                self._respond(effect.token, effect.response)
            case RespondWithRecords():
                return self._respond_with_records(effect)
            case RespondWithSnapshot():
                return self._respond_with_snapshot(effect)
            case AppendControlRecords():
                self._append_control(effect)
            case AppendFetched():
                return self._append_fetched(effect)
            case TruncateTo():
                return self._truncate(effect.offset)
            case WriteSnapshotChunk():
                write = partial(self._log.snapshots.write_part, effect.snapshot_id, effect.position, effect.data)
                return self._off_the_loop(write)
            case InstallSnapshot():
                return self._install(effect.snapshot_id)
            case HighWatermarkAdvanced():
                self.log.update_high_watermark(effect.offset)
                self._listener.on_commit(self._log.take_committed(effect.offset), effect.offset)
            case LeaderChanged():
                self._listener.on_leader(effect.leader_id, effect.endpoint)
            case LeadershipEstablished():
                if self._machine.leads(effect.epoch):
                    self._listener.on_leadership(effect.epoch)
            case Resigned():
                self._listener.on_resigned(effect.epoch)
        return None

    async def _off_the_loop(self, work: partial[None]) -> None:
        await self._runtime.offload.run(work)

    async def _persist(self, effect: PersistQuorumState) -> None:
        machine = self._machine
        write = partial(
            self._store.write,
            effect.election,
            kraft_version=machine.kraft_version,
            voter_ids=machine.voters.latest.ids,
        )
        await self._runtime.offload.run(write)

    # Appending.

    def append(self, records: Sequence[MetadataRecord], epoch: int, *, idle: bool = False) -> None:
        """Append `records` as one batch of the leader of `epoch`. Raises `KafkaError` NOT_CONTROLLER where this node
        does not lead it any more, or cannot since its disk failed just now; then nothing was appended. If they are
        `idle`, nobody waits for them.

        The raft layer may append a batch of its own right after it, so the listener is told of both (`on_appended`).
        """
        refusal = KafkaError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller any more.")
        if not self._machine.leads(epoch) or self._failure is not None:
            raise refusal
        try:
            batch = self._log.append(records, epoch, self._runtime.clock.wall_ms())
        except DiskError as error:
            self.fail(error)
            raise refusal from error
        self._on_appended(batch, idle=idle)

    def _append_control(self, effect: AppendControlRecords) -> None:
        if self._machine.leads(effect.epoch):
            batch, facts = self._log.append_control(effect.records, effect.epoch, self._runtime.clock.wall_ms())
            for fact in facts:
                self._on_control_fact(fact)
            self._on_appended(batch)

    def _on_appended(self, batch: MetadataBatch, *, idle: bool = False) -> None:
        self._listener.on_appended(batch)
        self._schedule_flush()
        self._on(
            self._machine.on_appended(
                epoch=batch.epoch,
                base_offset=batch.base_offset,
                end_offset=batch.last_offset + 1,
                idle=idle,
                now_ms=self._now_ms(),
            )
        )

    def _append_fetched(self, effect: AppendFetched) -> Coroutine[object, object, None] | None:
        data = effect.records if isinstance(effect.records, memoryview) else memoryview(effect.records)
        for fact in self._log.append_fetched(data, effect.leader_epoch, self._runtime.clock.wall_ms()):
            self._on_control_fact(fact)
        if self._machine.must_flush:
            return self._flush_fetched()
        if self.log.rolled:
            self._schedule_flush()
        self._on(self._machine.on_fetched_appended(self.log.log_end_offset, self._now_ms()))
        return None

    async def _flush_fetched(self) -> None:
        """The next fetch tells the leader that this voter has them, so they must be here to stay."""
        await self._flush_to(self.log.log_end_offset)
        if self._failure is None:
            self._on(self._machine.on_fetched_appended(self.log.log_end_offset, self._now_ms()))

    def _truncate(self, offset: int) -> Coroutine[object, object, None] | None:
        assert offset >= self.log.high_watermark, "what is committed is never truncated"
        if self._flushing is not None:
            return self._truncate_after_flush(offset)
        self._log.truncate_to(offset)
        self._on(self._machine.on_truncated(self.log.log_end_offset, self._now_ms()))
        return None

    async def _truncate_after_flush(self, offset: int) -> None:
        """A flush that ended later would vouch for what is not there any more."""
        await self._end_of_flush()
        if self._failure is None:
            self._truncate(offset)

    async def _end_of_flush(self) -> None:
        while self._flushing is not None:
            await asyncio.wait([self._flushing])

    async def _install(self, snapshot: SnapshotId) -> None:
        store = self._log.snapshots

        def check() -> tuple[LoadedSnapshot, int]:
            checkpoint, size = store.complete(snapshot)
            return LoadedSnapshot(snapshot, checkpoint, [decode_record(value) for value in checkpoint.values]), size

        try:
            loaded, size = await self._runtime.offload.run(check)
        except Malformed as error:
            _log.warning("a snapshot that was fetched is of no use: %s", error)
            self._on(self._machine.on_snapshot_rejected(snapshot, self._now_ms()))
            return
        await self._end_of_flush()
        store.on_added(snapshot, size)
        self._log.restart_after(snapshot, self._runtime.clock.wall_ms())
        for old in store.forget_before(snapshot.end_offset):
            await self._runtime.offload.run(partial(store.remove, old))
        checkpoint = loaded.checkpoint
        self._listener.on_snapshot(snapshot, checkpoint.last_contained_log_timestamp, loaded.records)
        self._on(
            self._machine.on_snapshot_installed(
                snapshot,
                voters=checkpoint.voters,
                kraft_version=checkpoint.kraft_version,
                now_ms=self._now_ms(),
            )
        )

    # Flushing.

    def _schedule_flush(self) -> None:
        if self._flushing is None and not self._flush_scheduled:
            self._flush_scheduled = True
            # Not now: what else is appended in this turn of the loop then shares the flush.
            asyncio.get_running_loop().call_soon(self._start_flush)

    def _start_flush(self) -> None:
        self._flush_scheduled = False
        if self._flushing is None and self._failure is None and not self._closed:
            self._flushing = asyncio.get_running_loop().create_task(self._flush(), name="metadata-flush")

    async def _flush(self) -> None:
        """Until everything that was appended is durable."""
        log = self.log
        try:
            while log.recovery_point < log.log_end_offset:
                flush = log.prepare_flush()
                await self._runtime.offload.run(flush.run)
                log.on_flushed(flush, self._runtime.clock.wall_ms())
                self._on(self._machine.on_flushed(flush.end_offset, self._now_ms()))
        except Exception as error:
            self.fail(error)
        finally:
            self._flushing = None

    async def _flush_to(self, end_offset: int) -> None:
        while self._failure is None and self.log.recovery_point < min(end_offset, self.log.log_end_offset):
            self._start_flush()
            if self._flushing is not None:
                await asyncio.wait([self._flushing])

    # Requests of others.

    async def request(self, request: Message, version: int) -> Message:
        """The machine's answer to a request that came over the wire. Raises `KafkaError` where none will come."""
        await self._started.wait()
        if self._closed:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "This node is stopping.")
        self._last_token = token = self._last_token + 1
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[token] = answer
        self._on(self._machine.on_request(token, request, self._now_ms(), version=version))
        return await answer

    def _respond(self, token: object, response: Message) -> None:
        answer = self._waiting.pop(cast("int", token), None)
        if answer is not None and not answer.done():
            answer.set_result(response)

    def _respond_with_records(self, effect: RespondWithRecords) -> Coroutine[object, object, None] | None:
        span = None
        if self.log.log_start_offset <= effect.offset <= self.log.log_end_offset:
            span = self._log.read(effect.offset, effect.max_bytes)
        if span is not None:
            if not span.file.cached(span.position, span.size):
                return self._respond_with_cold_records(effect, span)
            effect.response.responses[0].partitions[0].records = span.file.read(span.position, span.size)
        self._respond(effect.token, effect.response)
        return None

    async def _respond_with_cold_records(self, effect: RespondWithRecords, span: FileSpan) -> None:
        read = partial(span.file.read, span.position, span.size)
        effect.response.responses[0].partitions[0].records = await self._runtime.offload.run(read)
        self._respond(effect.token, effect.response)

    async def _respond_with_snapshot(self, effect: RespondWithSnapshot) -> None:
        read = partial(self._log.snapshots.read_bytes, effect.snapshot_id, effect.position, effect.max_bytes)
        partition = effect.response.topics[0].partitions[0]
        try:
            partition.unaligned_records = await self._runtime.offload.run(read)
        except FileNotFoundError:
            # It went between the machine's decision and now, with the ones that nobody needs any more.
            partition.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
        self._respond(effect.token, effect.response)

    # Requests to others.

    def _send(self, effect: SendRequest) -> None:
        task = asyncio.get_running_loop().create_task(self._exchange(effect), name="raft-request")
        self._sending[effect.correlation_id] = task

    async def _exchange(self, effect: SendRequest) -> None:
        number = effect.correlation_id
        key = (effect.host, effect.port, type(effect.request).__name__ in _LONG_POLLS)
        peer = self._connections.get(key)
        if peer is None:
            peer = self._connections[key] = self._peers.at(effect.host, effect.port)
        try:
            try:
                response = await peer.send(effect.request, effect.response, timeout_ms=effect.timeout_ms)
            except PeerLost:
                self._unreachable[effect.node_id] = None
                effects = self._machine.on_send_failed(number, self._now_ms())
            except KafkaError as error:
                effects = self._machine.on_send_failed(number, self._now_ms(), error.code)
            else:
                self._check_cluster(effect, response)
                effects = self._machine.on_response(number, response, self._now_ms())
            self._on(effects)
            self._listener.on_heard()
        except Exception as error:
            self.fail(error)
        finally:
            self._sending.pop(number, None)

    def _check_cluster(self, effect: SendRequest, response: Message) -> None:
        """One peer of another cluster may be its own mistake, unless this node knows nobody else; a majority of the
        voters is the mistake of this one."""
        if getattr(response, "error_code", 0) != ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._strangers.clear()
            return
        self._strangers[effect.host, effect.port] = None
        voters = self._machine.voters.latest
        strange = [v for v in voters.voters if any((e.host, e.port) in self._strangers for e in v.endpoints)]
        is_lost = self._machine.leader_id is None and self._machine.high_watermark is None
        if is_lost or len(strange) >= voters.majority:
            raise StartupError(
                f"{effect.host}:{effect.port} belongs to another cluster, not to {self._cluster_id}: correct "
                f"controller.quorum.bootstrap.servers, or format this node for that cluster"
            )

    def upgrade_kraft_version(self, level: int, epoch: int, *, validate_only: bool) -> None:
        """Raise kraft.version, as the leader of `epoch`. Raises `KafkaError`."""
        now_ms = self._now_ms()
        self._on(self._machine.upgrade_kraft_version(level, epoch=epoch, validate_only=validate_only, now_ms=now_ms))

    def on_snapshot_taken(self, snapshot: SnapshotId) -> None:
        self._machine.on_snapshot_taken(snapshot)

    # Time.

    def _arm(self) -> None:
        deadline_ms = self._machine.next_deadline_ms
        if deadline_ms is None or self._closed or (self._timer is not None and self._timer_ms <= deadline_ms):
            return  # A timer that comes too early looks again.
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._timers.after(max(0, deadline_ms - self._now_ms()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._closed:
            return
        now_ms = self._now_ms()
        deadline_ms = self._machine.next_deadline_ms
        if deadline_ms is None or deadline_ms > now_ms:
            self._arm()
            return
        try:
            self._on(self._machine.on_timer(now_ms))
        except Exception as error:
            self.fail(error)

    # Ending.

    def fail(self, error: Exception) -> None:
        """Nothing that was asked for before happens any more: it may rest on a promise that was not kept."""
        if self._failure is not None or self._closed:
            return
        self._failure = error
        self._queue.clear()
        self._refuse_waiting()
        self._started.set()
        effects = self._machine.on_disk_failed(self._now_ms())
        self._listener.on_failed(error)
        self._on(effects)

    def _refuse_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "This node is stopping."))
                answer.exception()  # Seen, whether or not anybody still waits.

    async def stop(self, *, hand_over: bool = True) -> None:
        """Flush what was appended, hand the leadership over, and end. The log stays open; its owner closes it."""
        if self._closed:
            return
        if self._started.is_set() and self._failure is None:
            await self._flush_to(self.log.log_end_offset)
        if self._started.is_set() and self._failure is None and hand_over:
            self._stopping = asyncio.Event()
            self._unreachable.clear()
            self._on(self._machine.on_stop(self._now_ms()))
            try:
                async with asyncio.timeout(self._config.request_timeout_ms / 1000):
                    await self._stopping.wait()
            except TimeoutError:
                _log.info("this node led the quorum and stops, and nobody has taken over yet")
        await self.abandon()

    @property
    def _is_alone(self) -> bool:
        """Has every other voter been asked to take over, in vain?"""
        return all(voter in self._unreachable for voter in self._machine.voters.latest.ids if voter != self._local.id)

    async def abandon(self) -> None:
        """End here and now."""
        self._closed = True
        self._queue.clear()
        self._started.set()
        self._refuse_waiting()
        if self._timer is not None:
            self._timer.cancel()
        for peer in self._connections.values():
            peer.close()
        self._connections.clear()
        sending = list(self._sending.values())
        for task in sending:
            task.cancel()
        under_way = [*sending, *(task for task in (self._slow, self._flushing) if task is not None)]
        if under_way:
            await asyncio.wait(under_way)
