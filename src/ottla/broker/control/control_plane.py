"""A node's control plane, whole: what the node builds, starts, joins and stops.

    start   reads the metadata log, takes the lead of the quorum of one, publishes the image as it stands
    join    registers controller and broker, and returns when the broker is unfenced
    stop    shuts down in order: leaderships given away, log flushed, leadership resigned

Publishers are called on the event loop after every committed batch that changed something, in the order in which they
were added: `on_metadata(image, delta, offset)`. Requests are answered after the publication of what they changed, so
whoever hears of a new topic can use it here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ottla.broker.control.bootstrap import read_bootstrap
from ottla.broker.control.channel import LocalChannel
from ottla.broker.control.controller_driver import ControllerDriver, Operation
from ottla.broker.control.lifecycle import BrokerLifecycle
from ottla.broker.control.raft_driver import RaftDriver
from ottla.broker.control.snapshotter import Snapshotter
from ottla.config.node import NodeConfig
from ottla.controller.controller import Controller
from ottla.controller.requester import Requester
from ottla.controller.settings import ControllerSettings
from ottla.errors import ErrorCode, KafkaError, Malformed, StartupError
from ottla.log.log import Log
from ottla.log.log_config import LogConfig
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import KRAFT_VERSION, METADATA_VERSION, SUPPORTED_FEATURES, has_controller_registration
from ottla.metadata.ids import random_uuid
from ottla.metadata.images import Endpoint, MetadataImage
from ottla.metadata.records import MetadataRecord
from ottla.metadata.state import MetadataBatch, MetadataState, Publication
from ottla.model import Uuid
from ottla.raft.machine import QuorumStatus
from ottla.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from ottla.runtime.seams import DiskError, Runtime
from ottla.runtime.timers import TimerWheel
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.wire.messages.controller_registration_response import ControllerRegistrationResponse

R = TypeVar("R")

Publisher = Callable[[MetadataImage, MetadataDelta, int], None]


def metadata_log_config(config: NodeConfig) -> LogConfig:
    """The metadata log's own segments. Its retention follows snapshots (`snapshotter.py`), so the log has none."""
    return LogConfig(
        segment_bytes=config.get_int("metadata.log.segment.bytes"),
        segment_ms=config.get_int("metadata.log.segment.ms"),
        retention_ms=-1,
        retention_bytes=-1,
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
        previous_broker_epoch: int = -1,
    ) -> None:
        """`log` is the metadata log, which its owner opened and will close. `log_dir_ids` are those of the broker's log
        directories, `metadata_dir_id` is that of the directory with the metadata log (the same one, mostly)."""
        self._runtime = runtime
        self._config = config
        self._cluster_id = cluster_id
        self._metadata_dir = log.directory.rpartition("/")[0]
        self._publishers: list[Publisher] = []
        self._state = MetadataState()
        self._loading: list[MetadataBatch] = []
        self._established: asyncio.Future[None] | None = None
        self.failed: asyncio.Future[Exception] | None = None
        """Set when the disk under the metadata log has failed, or a publisher has: the node must stop."""

        self._incarnation_id = random_uuid(runtime.random)
        self.raft = RaftDriver(
            runtime=runtime,
            log=log,
            local=ReplicaKey(config.node_id, metadata_dir_id),
            configured_voters=VoterSet(
                Voter(ReplicaKey(v.id), (VoterEndpoint(config.controller_listener_names[0], v.host, v.port),))
                for v in config.voters
            ),
            listener=self,
        )
        self.controller = ControllerDriver(
            raft=self.raft,
            clock=runtime.clock,
            timers=timers,
            make_controller=self._make_controller,
            bootstrap=self._read_bootstrap,
        )
        self.channel = LocalChannel(self.controller)
        self.lifecycle = BrokerLifecycle(
            channel=self.channel,
            timers=timers,
            broker_id=config.node_id,
            cluster_id=cluster_id,
            incarnation_id=self._incarnation_id,
            rack=config.find_text("broker.rack"),
            log_dirs=log_dir_ids,
            previous_epoch=previous_broker_epoch,
            heartbeat_interval_ms=config.get_int("broker.heartbeat.interval.ms"),
            metadata_offset=lambda: self.image.last_offset,
        )
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
        return self._state.image

    @property
    def broker_epoch(self) -> int:
        return self.lifecycle.epoch

    @property
    def is_active_controller(self) -> bool:
        return self.controller.active is not None

    @property
    def leader_id(self) -> int | None:
        """The active controller, if this node knows of one."""
        return self._config.node_id if self.is_active_controller else None

    @property
    def finalized_features(self) -> dict[str, int]:
        """What ApiVersions tells, kraft.version included. Their epoch is `image.last_offset`."""
        features = {METADATA_VERSION: self.image.features.metadata_version, **self.image.features.levels}
        if level := self.raft.machine.kraft_version:
            features[KRAFT_VERSION] = level
        return features

    def quorum_status(self) -> QuorumStatus | None:
        """None where this node does not lead the quorum."""
        return self.raft.machine.describe(self._runtime.clock.wall_ms())

    def add_publisher(self, publisher: Publisher) -> None:
        """Before `start`: the first call then brings everything, as a delta to the empty image."""
        self._publishers.append(publisher)

    def submit(self, operation: Operation[R]) -> asyncio.Future[R]:
        """Carry out `operation` on the active controller; see `ControllerDriver.submit`."""
        return self.controller.submit(operation)

    def submit_request(self, request: Message, requester: Requester) -> asyncio.Future[Message]:
        """Have the active controller decide about `request`. Raises `KafkaError` where it is not this node."""
        return self.channel.submit(request, requester.may_describe_configs)

    # Life.

    def load(self) -> MetadataImage:
        """Read the metadata log: what it says, committed or not, which is enough to load logs by. Blocks; raises
        `StartupError`."""
        loaded = self.raft.load()
        if loaded.snapshot is not None and loaded.snapshot_records:
            first = MetadataBatch(
                0,
                loaded.snapshot.end_offset - 1,
                loaded.snapshot.epoch,
                loaded.snapshot_timestamp_ms,
                loaded.snapshot_records,
            )
            self._loading.append(first)
        self._loading += loaded.batches
        self._snapshotter.on_loaded(loaded.snapshot, self._runtime.clock.wall_ms())
        return self._replayed(self._loading)[0].newest if self._loading else self.image

    async def start(self) -> None:
        """After `load`. Returns when this node leads and the image has been published. Raises `StartupError`."""
        loop = asyncio.get_running_loop()
        self._established = loop.create_future()
        self.failed = loop.create_future()
        try:
            await self.raft.start()
            await self._established
        except DiskError as error:
            raise StartupError(f"the metadata log cannot be written: {error.message}") from error
        finally:
            if self._established.done() and not self._established.cancelled():
                self._established.exception()  # Seen, whichever of the two told of it.

    async def join(self, endpoints: Sequence[Endpoint], controller_endpoints: Sequence[Endpoint]) -> None:
        """Become part of the cluster; the endpoints are what clients, and other controllers, are told."""
        if controller_endpoints:
            self.raft.update_endpoints(tuple(VoterEndpoint(e.name, e.host, e.port) for e in controller_endpoints))
        controller = self._register_controller(controller_endpoints)
        try:
            # In one turn of the loop, so that one flush commits both.
            await asyncio.gather(self.lifecycle.register(endpoints), *([] if controller is None else [controller]))
            await self.lifecycle.unfence()
        except KafkaError as error:
            raise StartupError(f"node {self._config.node_id} could not join the cluster: {error}") from error

    def _register_controller(
        self, endpoints: Sequence[Endpoint]
    ) -> asyncio.Future[ControllerRegistrationResponse] | None:
        from ottla.wire.messages.controller_registration_request import (
            ControllerRegistrationRequest,
            Feature,
            Listener,
        )

        controller = self.controller.active
        if controller is None or not has_controller_registration(controller.image.features.metadata_version):
            return None
        request = ControllerRegistrationRequest(
            controller_id=self._config.node_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                Listener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in endpoints
            ],
            features=[
                Feature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
                for name, levels in sorted(SUPPORTED_FEATURES.items())
            ],
        )
        return self.controller.submit(lambda active, now_ms: active.register_controller(request, now_ms))

    async def stop(self) -> None:
        """In order; also after a start that failed half-way."""
        await self.lifecycle.shut_down()
        await self._snapshotter.stop()
        await self.raft.stop()

    # The raft driver's listener.

    def on_high_watermark(self, offset: int) -> None:
        controller = self.controller.active
        if controller is None:
            self._publish_loaded(offset)
            return
        for publication, state in controller.on_committed(offset):
            self._state = state
            self._announce(publication)
        self.controller.answer(offset)
        self._snapshotter.maybe_start(self.image)

    def _publish_loaded(self, high_watermark: int) -> None:
        """All that was read at the start and is now committed, as one publication."""
        ready = [batch for batch in self._loading if batch.last_offset < high_watermark]
        self._loading = self._loading[len(ready) :]
        if not ready:
            return
        self._state, publication = self._replayed(ready)
        self._announce(publication)

    def _replayed(self, batches: list[MetadataBatch]) -> tuple[MetadataState, Publication]:
        last = batches[-1]
        records = [record for batch in batches for record in batch.records]
        whole = MetadataBatch(batches[0].base_offset, last.last_offset, last.epoch, last.timestamp_ms, records)
        return self._state.replay(whole)

    def on_control_batch(self, batch: MetadataBatch) -> None:
        if self.controller.active is not None:
            self.controller.active.replay(batch)

    def on_leadership(self, epoch: int) -> None:
        try:
            self.controller.activate(self._state)
        except (KafkaError, StartupError, Malformed) as error:
            assert self._established is not None
            self._established.set_exception(
                error if isinstance(error, StartupError) else StartupError(f"the controller cannot start: {error}")
            )
            return
        assert self._established is not None
        if not self._established.done():
            self._established.set_result(None)

    def on_resigned(self, epoch: int, error: Exception | None) -> None:
        if isinstance(error, KafkaError):
            refusal = error
        elif error is not None:
            refusal = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The controller failed.")
        else:
            refusal = KafkaError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller any more.")
        self.controller.deactivate(refusal)
        if error is not None:
            if self._established is not None and not self._established.done():
                self._established.set_exception(error)
            if self.failed is not None and not self.failed.done():
                self.failed.set_result(error)

    def _announce(self, publication: Publication) -> None:
        image, delta = publication
        if not delta.empty:
            for publisher in self._publishers:
                publisher(image, delta, image.last_offset)
        self.lifecycle.on_metadata(image.last_offset)

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

    def _read_bootstrap(self) -> list[MetadataRecord]:
        return read_bootstrap(self._runtime.disk, self._metadata_dir)
