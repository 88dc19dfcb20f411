"""A node's control plane, whole: what the node builds, starts, joins and stops.

    load    reads the metadata log
    start   takes part in the quorum, or watches it; returns when it has heard what is committed
    join    registers; returns when the broker is unfenced
    stop    shuts down in order: leaderships given away, log flushed, leadership of the quorum handed over

Every node has the raft driver and the loader of committed metadata. Leadership is a state among others: while this node
leads, its controller is active and requests to it stay in the process; else they go to whoever leads.

Requests are answered after the publication of what they changed, so whoever hears of a new topic from this node can use
it here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from ottla.broker.control.bootstrap import read_bootstrap
from ottla.broker.control.channel import LeaderChannel
from ottla.broker.control.controller_driver import ControllerDriver, Operation
from ottla.broker.control.controller_registration import ControllerRegistrar
from ottla.broker.control.lifecycle import BrokerLifecycle
from ottla.broker.control.metadata_loader import MetadataLoader, Publisher, as_one
from ottla.broker.control.raft_driver import RaftDriver
from ottla.broker.control.snapshotter import Snapshotter
from ottla.client.peer import Peers
from ottla.config.node import NodeConfig
from ottla.controller.controller import Controller
from ottla.controller.requester import ANYBODY, Requester
from ottla.controller.settings import ControllerSettings
from ottla.errors import ErrorCode, KafkaError, Malformed, StartupError
from ottla.log.log import Log
from ottla.log.log_config import LogConfig
from ottla.metadata.features import KRAFT_VERSION, METADATA_VERSION
from ottla.metadata.ids import random_uuid
from ottla.metadata.images import Endpoint, MetadataImage
from ottla.metadata.records import MetadataRecord
from ottla.metadata.state import MetadataBatch, MetadataState
from ottla.model import Uuid
from ottla.raft.checkpoint import SnapshotId
from ottla.raft.config import RaftConfig
from ottla.raft.machine import QuorumStatus, ReplicaStatus
from ottla.raft.roles import Follower
from ottla.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from ottla.runtime.seams import DiskError, Runtime
from ottla.runtime.timers import TimerWheel
from ottla.wire.message import Message

R = TypeVar("R")


def metadata_log_config(config: NodeConfig) -> LogConfig:
    """The metadata log's own segments. Its retention follows snapshots (`snapshotter.py`), so the log has none."""
    return LogConfig(
        segment_bytes=config.find_int("internal.metadata.log.segment.bytes")
        or config.get_int("metadata.log.segment.bytes"),
        segment_ms=config.get_int("metadata.log.segment.ms"),
        file_delete_delay_ms=config.get_int("internal.metadata.delete.delay.millis"),
        retention_ms=-1,
        retention_bytes=-1,
    )


def raft_config(config: NodeConfig) -> RaftConfig:
    def ms(name: str) -> int:
        return config.get_int(f"controller.quorum.{name}.ms")

    return RaftConfig(
        election_timeout_ms=ms("election.timeout"),
        fetch_timeout_ms=ms("fetch.timeout"),
        election_backoff_max_ms=ms("election.backoff.max"),
        request_timeout_ms=ms("request.timeout"),
        retry_backoff_ms=ms("retry.backoff"),
        fetch_max_bytes=config.get_int("controller.quorum.fetch.max.bytes"),
        snapshot_max_bytes=config.get_int("controller.quorum.fetch.snapshot.max.bytes"),
        auto_join=config.get_bool("controller.quorum.auto.join.enable"),
    )


class ControlPlane:
    def __init__(
        self,
        *,
        runtime: Runtime,
        timers: TimerWheel,
        config: NodeConfig,
        cluster_id: str,
        log: Log,
        log_dir_ids: Sequence[Uuid],
        metadata_dir_id: Uuid,
        peers: Peers,
        controller_endpoints: Sequence[Endpoint] = (),
    ) -> None:
        """`log` is the metadata log, which its owner opened and will close. `log_dir_ids` are those of the broker's log
        directories, `metadata_dir_id` is that of the directory with the metadata log (the same one, mostly).
        `controller_endpoints` is where other nodes find this one's controller, if it has the role."""
        self._runtime = runtime
        self._config = config
        self._cluster_id = cluster_id
        self._metadata_dir = log.directory.rpartition("/")[0]
        self._located: asyncio.Future[None] | None = None
        self.failed: asyncio.Future[Exception] | None = None
        """Set when the disk under the metadata log has failed, or a publisher has: the node must stop."""

        self.peers = peers
        self.loader = MetadataLoader()
        listener = config.controller_listener_names[0]
        self.raft = RaftDriver(
            runtime=runtime,
            timers=timers,
            peers=peers,
            log=log,
            local=ReplicaKey(config.node_id, metadata_dir_id),
            cluster_id=cluster_id,
            configured_voters=VoterSet(
                Voter(ReplicaKey(v.id), (VoterEndpoint(listener, v.host, v.port),)) for v in config.voters
            ),
            config=raft_config(config),
            listener_name=listener,
            endpoints=tuple(VoterEndpoint(e.name, e.host, e.port) for e in controller_endpoints),
            bootstrap=tuple((v.host, v.port) for v in config.voters) or config.bootstrap_controllers,
            can_become_voter=config.is_controller,
            listener=self,
        )
        self.controller = ControllerDriver(
            raft=self.raft,
            clock=runtime.clock,
            timers=timers,
            make_controller=self._make_controller,
            bootstrap=self.first_records,
        )
        self.channel = LeaderChannel(serve=self.controller.submit_request, peers=peers, clock=runtime.clock)
        incarnation_id = random_uuid(runtime.random)
        self.lifecycle = BrokerLifecycle(
            channel=self.channel,
            clock=runtime.clock,
            timers=timers,
            broker_id=config.node_id,
            cluster_id=cluster_id,
            incarnation_id=incarnation_id,
            rack=config.find_text("broker.rack"),
            log_dirs=log_dir_ids,
            heartbeat_interval_ms=config.get_int("broker.heartbeat.interval.ms"),
            session_timeout_ms=config.get_int("broker.session.timeout.ms"),
            registration_timeout_ms=config.get_int("initial.broker.registration.timeout.ms"),
            controlled_shutdown=config.get_bool("controlled.shutdown.enable"),
            metadata_offset=lambda: self.image.last_offset,
            on_bug=self.on_failed,
        )
        self._registrar: ControllerRegistrar | None = None
        if config.is_controller:
            self._registrar = ControllerRegistrar(
                channel=self.channel,
                node_id=config.node_id,
                incarnation_id=incarnation_id,
                endpoints=controller_endpoints,
            )
        self._joined = False
        self._snapshotter = Snapshotter(
            runtime=runtime,
            raft=self.raft,
            bytes_between=config.get_int("metadata.log.max.record.bytes.between.snapshots"),
            interval_ms=config.get_int("metadata.log.max.snapshot.interval.ms"),
            retention_bytes=config.get_int("metadata.max.retention.bytes"),
            retention_ms=config.get_int("metadata.max.retention.ms"),
        )

    # What others ask.

    @property
    def image(self) -> MetadataImage:
        """The newest committed image."""
        return self.loader.image

    @property
    def broker_epoch(self) -> int:
        return self.lifecycle.epoch

    @property
    def is_active_controller(self) -> bool:
        return self.controller.active is not None

    @property
    def leader_id(self) -> int | None:
        """The active controller's node id, as far as this node knows."""
        leader_id = self.raft.machine.leader_id
        return None if leader_id == self._config.node_id and not self.is_active_controller else leader_id

    @property
    def kraft_version(self) -> int:
        return self.raft.machine.kraft_version

    @property
    def finalized_features(self) -> dict[str, int]:
        """What ApiVersions tells, kraft.version included. Their epoch is `image.last_offset`."""
        features = {METADATA_VERSION: self.image.features.metadata_version, **self.image.features.levels}
        if level := self.kraft_version:
            features[KRAFT_VERSION] = level
        return features

    def quorum_status(self) -> QuorumStatus | None:
        """None where this node does not lead the quorum. Times are the wall clock's."""
        now_ms = int(self._runtime.clock.monotonic() * 1000)
        status = self.raft.machine.describe(now_ms)
        if status is None:
            return None
        ahead_ms = self._runtime.clock.wall_ms() - now_ms

        def on_the_wall(replica: ReplicaStatus) -> ReplicaStatus:
            fetched, caught_up = replica.last_fetch_ms, replica.last_caught_up_ms
            return replace(
                replica,
                last_fetch_ms=fetched if fetched < 0 else fetched + ahead_ms,
                last_caught_up_ms=caught_up if caught_up < 0 else caught_up + ahead_ms,
            )

        return replace(
            status,
            voters=tuple(on_the_wall(replica) for replica in status.voters),
            observers=tuple(on_the_wall(replica) for replica in status.observers),
        )

    def add_publisher(self, publisher: Publisher) -> None:
        """Before `join`: the first call then brings everything, as a delta to the empty image."""
        self.loader.add_publisher(publisher)

    def submit(self, operation: Operation[R]) -> asyncio.Future[R]:
        """Carry out `operation` on the active controller; see `ControllerDriver.submit`."""
        return self.controller.submit(operation)

    def submit_request(self, request: Message, requester: Requester = ANYBODY) -> asyncio.Future[Message]:
        """A request that reached this node as the active controller; `KafkaError` NOT_CONTROLLER if it is not."""
        return self.controller.submit_request(request, requester)

    # Life.

    def load(self) -> MetadataImage:
        """Read the metadata log: what it says, committed or not, which is enough to load logs by. Blocks; raises
        `StartupError`."""
        loaded = self.raft.load()
        snapshot = None if loaded is None else loaded.snapshot
        if loaded is not None and loaded.records:
            timestamp_ms = loaded.checkpoint.last_contained_log_timestamp
            self.loader.on_snapshot(loaded.snapshot, timestamp_ms, loaded.records)
        self._snapshotter.on_loaded(snapshot, self._runtime.clock.wall_ms())
        uncommitted = self.raft.metadata_log.uncommitted
        return self.loader.state.replay(as_one(uncommitted))[0].newest if uncommitted else self.image

    async def start(self) -> None:
        """After `load`. Returns when this node leads the quorum, or has heard from whoever does what is committed: the
        other voters may not be up yet. Raises `StartupError`."""
        loop = asyncio.get_running_loop()
        self._located = loop.create_future()
        self.failed = loop.create_future()
        try:
            await self.raft.start()
            await self._located
        except DiskError as error:
            raise StartupError(f"the metadata log cannot be used: {error.told}") from error
        finally:
            if self._located.done() and not self._located.cancelled():
                self._located.exception()  # Seen, whichever of the two told of it.

    async def join(
        self,
        endpoints: Sequence[Endpoint],
        before_unfencing: Callable[[MetadataImage], None] | None = None,
        previous_broker_epoch: int = -1,
        until_ready: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Become part of the cluster; `endpoints` is what clients are told, and empty where there is no broker.

        `previous_broker_epoch` is what the last clean shutdown left as its proof (KIP-966), or -1. A broker acts
        on metadata from its own registration on. `before_unfencing` is called when it has read that far, and
        `until_ready` awaited when it has acted upon it: no replica of it is elected before.
        """
        self._joined = True
        if self._registrar is not None:
            # In the same turn of the loop as the broker's, and before a new cluster has committed its first records, so
            # that one flush commits both.
            active = self.controller.active
            self._registrar.on_image(self.image if active is None else active.image)
        if not self._config.is_broker:
            self.loader.admit_publishers()
            return
        assert self.failed is not None
        joining = asyncio.ensure_future(self._join(endpoints, before_unfencing, previous_broker_epoch, until_ready))
        try:
            either: list[asyncio.Future[None] | asyncio.Future[Exception]] = [joining, self.failed]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not joining.done():
                joining.cancel()
                await asyncio.wait([joining])
        try:
            refusal = None if joining.cancelled() else joining.exception()
            if self.failed.done():
                raise self.failed.result()
            if refusal is not None:
                raise refusal
        except KafkaError as error:
            raise StartupError(f"node {self._config.node_id} could not join the cluster: {_advice(error)}") from error

    async def _join(
        self,
        endpoints: Sequence[Endpoint],
        before_unfencing: Callable[[MetadataImage], None] | None,
        previous_broker_epoch: int,
        until_ready: Callable[[], Awaitable[None]] | None,
    ) -> None:
        await self.lifecycle.register(endpoints, previous_broker_epoch)
        await self.lifecycle.catch_up()
        if before_unfencing is not None:
            before_unfencing(self.image)
        self.loader.admit_publishers()
        if until_ready is not None:
            await until_ready()
        await self.lifecycle.unfence()

    async def stop(self, *, hand_over: bool = True) -> None:
        """In order; also after a start that failed half-way. Without `hand_over` leaderships are left as they are, for
        the others stop too and will find everything as it was."""
        failed = self.failed is not None and self.failed.done()
        await self.lifecycle.shut_down(with_leave=hand_over and not failed)
        if self._registrar is not None:
            await self._registrar.stop()
        await self._snapshotter.stop()
        await self.raft.stop(hand_over=hand_over)
        self._end()

    async def abandon(self) -> None:
        """As if the process had been killed: nothing more is written or said."""
        await self.lifecycle.shut_down(with_leave=False)
        if self._registrar is not None:
            await self._registrar.stop()
        await self.raft.abandon()
        await self._snapshotter.stop()
        self._end()

    def _end(self) -> None:
        self._deactivate(KafkaError(ErrorCode.NOT_CONTROLLER, "This node is stopping."))
        self.channel.close()

    # The raft driver's listener.

    def on_commit(self, batches: Sequence[MetadataBatch], high_watermark: int) -> None:
        if batches:
            self.loader.on_commit(batches)
        self.controller.on_committed(high_watermark)
        if batches:
            self._on_image()
        self.on_heard()

    def on_heard(self) -> None:
        if self._located is None or self._located.done():
            return
        role = self.raft.machine.role
        here = self.loader.state.newest.last_offset + 1
        if isinstance(role, Follower) and 0 <= role.leader_high_watermark <= here:
            self._located.set_result(None)

    def on_snapshot(self, snapshot: SnapshotId, timestamp_ms: int, records: Sequence[MetadataRecord]) -> None:
        assert self.controller.active is None, "a leader never loads a snapshot"
        self.loader.on_snapshot(snapshot, timestamp_ms, records)
        self._snapshotter.on_loaded(snapshot, self._runtime.clock.wall_ms())
        self._on_image()

    def _on_image(self) -> None:
        image = self.image
        self.lifecycle.on_metadata(image.last_offset)
        self._snapshotter.maybe_start(image)
        if self._joined:
            self.lifecycle.on_image(image)
            if self._registrar is not None:
                self._registrar.on_image(image)

    def on_appended(self, batch: MetadataBatch) -> None:
        self.controller.on_appended(batch)

    def on_leader(self, leader_id: int | None, endpoint: VoterEndpoint | None) -> None:
        elsewhere = endpoint is not None and leader_id != self._config.node_id
        self.channel.on_leader((endpoint.host, endpoint.port) if endpoint is not None and elsewhere else None)

    def on_leadership(self, epoch: int) -> None:
        try:
            self.controller.activate(epoch, self.loader.state)
        except DiskError as error:
            raise StartupError(f"the controller cannot start: {error.told}") from error
        except (KafkaError, Malformed) as error:
            reason = error.message or error.code.name if isinstance(error, KafkaError) else str(error)
            raise StartupError(f"the controller cannot start: {reason}") from error
        self.channel.on_leading(True)
        if self._located is not None and not self._located.done():
            self._located.set_result(None)

    def on_resigned(self, epoch: int) -> None:
        self._deactivate(KafkaError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller any more."))

    def _deactivate(self, refusal: KafkaError) -> None:
        self.channel.on_leading(False)
        self.controller.deactivate(refusal)

    def on_failed(self, error: Exception) -> None:
        if isinstance(error, DiskError):
            # Whoever waits asks the next controller: to a client the disk's own error would tell of a partition's disk.
            # What a bug was the end of is not asked again, for it might be the end of the next one too.
            self._deactivate(KafkaError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller any more."))
        else:
            self._deactivate(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The controller failed."))
        self.channel.close()
        if self._located is not None and not self._located.done():
            self._located.set_exception(error)
        if self.failed is not None and not self.failed.done():
            self.failed.set_result(error)

    # Making the controller.

    def _make_controller(self, committed: MetadataState, next_offset: int, now_ms: int) -> Controller:
        return Controller(
            settings=ControllerSettings.from_config(self._config, self._cluster_id),
            config=self._config,
            random=self._runtime.random,
            committed=committed,
            next_offset=next_offset,
            now_ms=now_ms,
        )

    def first_records(self) -> list[MetadataRecord]:
        """What `format` wrote for a cluster to begin with. Raises `Malformed`."""
        return read_bootstrap(self._runtime.disk, self._metadata_dir)


def _advice(error: KafkaError) -> str:
    """The refusal, and what to do about it where that is known."""
    advice = {
        ErrorCode.INCONSISTENT_CLUSTER_ID: "correct controller.quorum.bootstrap.servers, or format the node's "
        "directories for that cluster.",
        ErrorCode.DUPLICATE_BROKER_REGISTRATION: "stop the other broker, or give this one its own node.id.",
        ErrorCode.INVALID_REGISTRATION: "give the broker log.dirs of its own, freshly formatted.",
    }.get(error.code)
    return str(error) if advice is None else f"{str(error).rstrip('.')}: {advice}"
