"""One node: everything that it is made of, the order in which it starts, and the order in which it stops.

Start: lock the directories, take the addresses, read the metadata log, open the door to the other controllers, find the
quorum while the logs load, register, act on the metadata, open the doors to clients. Stop: leave the cluster, close the
doors, then the same backwards. A node is a broker, a controller or both; the very same node runs on the real runtime
and on a simulated one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.broker.control.control_plane import ControlPlane, metadata_log_config
from ottla.broker.coordinators.composition import prepare
from ottla.broker.dispatch import Dispatcher
from ottla.broker.publisher import MetadataPublisher
from ottla.broker.services import Services
from ottla.broker.transactions.producer_ids import ProducerIds
from ottla.broker.upkeep.compaction import Compaction
from ottla.broker.upkeep.directory_assignments import DirectoryAssignments
from ottla.broker.upkeep.directory_moves import DirectoryMoves
from ottla.broker.upkeep.log_dirs import LogDirFailures
from ottla.broker.upkeep.maintenance import LogMaintenance
from ottla.config.listeners import Listener as ListenerConfig
from ottla.config.node import NodeConfig
from ottla.config.topic import topic_values
from ottla.errors import Malformed, StartupError
from ottla.log import LogConfig, LogManager, MetaProperties
from ottla.metadata.images import Endpoint, MetadataImage
from ottla.metadata.records import MetadataRecord
from ottla.model import TopicPartition, Uuid
from ottla.runtime import DiskError, Listener, ListenOptions, Runtime
from ottla.runtime.addresses import is_no_address
from ottla.runtime.timers import TimerWheel

if TYPE_CHECKING:
    from ottla.broker.coordinators.marker_sender import MarkerSender
    from ottla.broker.replication.fetchers import ReplicaFetchers
    from ottla.broker.transactions.verification import TransactionVerification
    from ottla.client.network_peer import NetworkPeers

_log = logging.getLogger(__name__)

SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


def listen_options(config: NodeConfig) -> ListenOptions:
    """Kafka's defaults are for an acceptor with a thread of its own. One loop that also serves needs a longer backlog,
    or a burst of peers waits a second for its next try; and buffers that the system tunes, or our own for what is
    sent, move a third more."""
    ours = ListenOptions()
    sends_as_told = "socket.send.buffer.bytes" in config.properties
    return ListenOptions(
        backlog=config.int_where_set("socket.listen.backlog.size", ours.backlog),
        send_buffer_bytes=config.get_int("socket.send.buffer.bytes") if sends_as_told else ours.send_buffer_bytes,
        receive_buffer_bytes=config.int_where_set("socket.receive.buffer.bytes", ours.receive_buffer_bytes),
    )


class Node:
    """States: new → starting → serving → stopping → stopped. `start` and `stop` are called once each."""

    def __init__(
        self, config: NodeConfig, runtime: Runtime, dispatcher: Callable[..., Dispatcher] = Dispatcher
    ) -> None:
        """`dispatcher` makes what answers on a listener; a test's own may answer in another way."""
        self._config = config
        self._runtime = runtime
        self._new_dispatcher = dispatcher
        self._timers = TimerWheel(runtime.clock)
        self._ageing = self._timers if runtime.ageing is None else TimerWheel(runtime.ageing)
        self._logs = LogManager(
            runtime.disk,
            config.log_dirs,
            random=runtime.random,
            metadata_directory=config.metadata_log_dir,
            producer_expiration_ms=config.get_int("producer.id.expiration.ms"),
            producers_max=config.get_int("ottla.partition.producers.max"),
        )
        self._listeners: list[tuple[ListenerConfig, Listener]] = []
        self._metrics_listener: Listener | None = None
        self._services: Services | None = None
        self._maintenance: LogMaintenance | None = None
        self._compaction: Compaction | None = None
        self._control: ControlPlane | None = None
        self._fetchers: ReplicaFetchers | None = None
        self._markers: MarkerSender | None = None
        self._verification: TransactionVerification | None = None
        self.failure: BaseException | None = None
        """Why the node had to stop by itself, if it had to."""
        self.on_fatal: Callable[[], None] = lambda: None
        self.all_stop = False
        """Does the whole cluster stop with this node, so that there is nobody to hand over to?"""

    @property
    def services(self) -> Services:
        assert self._services is not None, "the node has not started"
        return self._services

    @property
    def client_addresses(self) -> list[tuple[str, int]]:
        """Where clients are served, as they are told."""
        return [(endpoint.host, endpoint.port) for endpoint in self._endpoints()]

    @property
    def bootstrap(self) -> str:
        """The same, as clients are configured with it."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.client_addresses)

    # Starting.

    async def start(self) -> None:
        """Returns when clients can be served. Raises `StartupError`; then nothing is left behind."""
        self._refuse_unsupported()
        try:
            self._logs.lock()
            identity = self._read_identity()
            services = Services(
                identity.cluster_id, self._config, self._runtime, self._timers, self._ageing, self._logs
            )
            self._services = services
            services.stop_node = self._fail
            failures = LogDirFailures(services, self._config.metadata_log_dir, self._fail)
            services.replicas.on_offline = failures.on_offline
            services.fail_directory = failures.fail
            await self._prepare_doors(services)
            await self._listen(services)
            await self._start_control_plane(services, identity.cluster_id)
            self._maintenance = LogMaintenance(services)
            self._maintenance.start()
            self._compaction = Compaction(services)
            self._compaction.start()
            services.metrics.start()
            self._open(self._config.broker_listeners)
            if self._metrics_listener is not None:
                self._metrics_listener.start()
                _log.info("metrics are served on http://%s:%d/metrics", *self._metrics_listener.address[:2])
            if self._config.broker_listeners:
                services.spawn(prepare(services))
        except DiskError as error:
            await self.stop()
            raise StartupError(f"The node's directories cannot be used: {error.told}") from error
        except BaseException:
            await self.stop()
            raise

    def _read_identity(self) -> MetaProperties:
        identities = self._logs.read_identities()
        missing = [path for path, found in zip(self._logs.directories, identities, strict=True) if found is None]
        if missing:
            raise StartupError(f"{missing[0]} is not formatted: run `ottla format` with this node's properties first.")
        identity = identities[0]
        assert identity is not None
        if identity.node_id != self._config.node_id:
            raise StartupError(
                f"{self._config.log_dirs[0]} belongs to node {identity.node_id}, not to node {self._config.node_id}: "
                f"give the node its own log.dirs, or its own node.id."
            )
        return identity

    def _refuse_unsupported(self) -> None:
        for key in ("create.topic.policy.class.name", "alter.config.policy.class.name"):
            if self._config[key]:
                raise StartupError(f"{key} is set, but this release cannot enforce it: remove the key.")

    async def _prepare_doors(self, services: Services) -> None:
        """TLS and SASL, if any listener asks for them: one of this node's own, or one that it finds others on."""
        config = self._config
        used = {listener.name for listener in config.listeners}
        used |= {config.controller_listener_names[0], *self._inter_broker_listener()}
        if any(config.security_protocols[name] != "PLAINTEXT" for name in used):
            from ottla.broker.doors.doors import Doors

            services.doors = Doors(services, self._runtime)
            await services.doors.prepare()

    def _inter_broker_listener(self) -> tuple[str, ...]:
        return (self._config.inter_broker_listener_name,) if self._config.is_broker else ()

    async def _listen(self, services: Services) -> None:
        controllers = {listener.name for listener in self._config.controller_listeners}
        options = listen_options(self._config)
        for listener in self._config.listeners:
            dispatcher = self._dispatcher_of(services, listener.name, on_controller=listener.name in controllers)
            network = self._runtime.network if services.doors is None else services.doors.network(listener)
            try:
                bound = await network.listen(listener.host or "0.0.0.0", listener.port, dispatcher.accept, options)
            except OSError as error:
                if is_no_address(error):
                    raise StartupError(
                        f"{listener.host} cannot be listened on ({error.strerror}): choose an address of this machine "
                        f"in listeners."
                    ) from None
                raise StartupError(
                    f"Port {listener.port} of {listener.host or 'this machine'} cannot be used ({error.strerror}): "
                    f"stop what listens there, or choose another port."
                ) from None
            self._listeners.append((listener, bound))
            services.connections.rates.watch(listener.name, bound, on_controller=listener.name in controllers)
        if self._config["ottla.metrics.listener"]:
            from ottla.broker.monitoring.metrics_listener import listen

            self._metrics_listener = await listen(services, self._runtime.network, options)

    def _dispatcher_of(self, services: Services, listener: str, *, on_controller: bool) -> Dispatcher:
        if listener not in self._config.gateway_listeners:
            return self._new_dispatcher(services, listener, on_controller=on_controller)
        from ottla.broker.gateway.dispatcher import GatewayDispatcher

        return GatewayDispatcher(services, listener)

    def _open(self, listeners: Sequence[ListenerConfig]) -> None:
        for config, listener in self._listeners:
            if config in listeners:
                listener.start()

    def _endpoints(self, advertised: Sequence[ListenerConfig] | None = None) -> list[Endpoint]:
        """What others are told: the advertised listeners, with the ports that were really got."""
        bound = {config.name: listener.address[1] for config, listener in self._listeners}
        if advertised is None:
            advertised = self._config.advertised_broker_listeners
        return [
            Endpoint(
                each.name,
                each.host or "localhost",
                each.port or bound.get(each.name, 0),
                SECURITY_PROTOCOL_IDS[each.security_protocol],
            )
            for each in advertised
        ]

    async def _start_control_plane(self, services: Services, cluster_id: str) -> None:
        from ottla.broker.coordinators.marker_sender import MarkerSender
        from ottla.broker.replication.fetchers import ReplicaFetchers
        from ottla.broker.transactions.verification import TransactionVerification

        config, logs = self._config, self._logs
        controllers, peers = self._peers(services)
        directories = {path: found.properties for path, found in logs.directories.items() if found.properties}
        metadata_dir = config.metadata_log_dir
        control = ControlPlane(
            runtime=self._runtime,
            timers=self._timers,
            config=config,
            cluster_id=cluster_id,
            log=logs.load_metadata_log(metadata_dir, metadata_log_config(config), self._runtime.clock.wall_ms()),
            log_dir_ids=[
                found.properties.directory_id
                for found in logs.directories.values()
                if found.for_topics and found.properties is not None
            ],
            metadata_dir_id=directories[metadata_dir].directory_id,
            peers=controllers,
            controller_endpoints=self._endpoints(config.advertised_controller_listeners),
        )
        self._control = services.control = control
        services.metrics.measure(control)
        services.controller = control.channel
        services.producer_ids = ProducerIds(services.allocate_producer_ids)
        services.peers = peers
        self._fetchers = services.fetchers = ReplicaFetchers(
            services, peers, bytes_in=services.metrics.replication_bytes_in
        )
        self._markers = markers = MarkerSender(services, peers)
        services.transactions.carry_out = markers.carry_out
        services.transactions.on_unloaded = markers.on_unloaded
        self._verification = services.verification = TransactionVerification(services, peers, services.add_to_txn)
        publisher = MetadataPublisher(services)
        control.add_publisher(publisher.on_metadata)
        control.add_publisher(services.client_quotas.on_metadata)
        if services.doors is not None:
            control.add_publisher(services.doors.credentials.on_metadata)
        control.add_publisher(services.groups.on_metadata)
        control.add_publisher(services.transactions.on_metadata)
        control.add_publisher(markers.on_metadata)
        assignments = DirectoryAssignments(services)
        publisher.on_made = assignments.look_again
        services.moves = DirectoryMoves(services, assignments.look_again)
        assignments.promised = services.moves.promised
        control.add_publisher(assignments.on_metadata)
        control.add_publisher(services.moves.on_metadata)
        control.add_publisher(services.image_watch.on_metadata)
        control.add_publisher(services.telemetry.on_metadata)
        control.add_publisher(services.metrics.on_metadata)

        def load() -> MetadataImage:
            found = control.load()
            logs.accept_metadata_log()
            return found

        image = await self._runtime.offload.run(load)
        if services.doors is not None:
            services.doors.credentials.begin_with(self._first_records(control), image)
        logs_are_loaded = control.raft.log.log_end_offset == 0
        if logs_are_loaded:
            await self._load_logs(image)
            self._check_logs_are_known(control)
        # The other voters can be heard before this node knows a leader: they may wait for its vote.
        self._open(config.controller_listeners)
        starting = asyncio.ensure_future(control.start())
        try:
            if not logs_are_loaded:
                await self._load_logs(image)
            await starting
        except BaseException:
            starting.cancel()
            await asyncio.wait([starting])
            raise
        assert control.failed is not None
        control.failed.add_done_callback(self._on_metadata_log_failed)
        for found in logs.directories.values():
            if found.failed and found.properties is not None:
                control.lifecycle.report_offline(found.properties.directory_id)
        # Asked only now: logs that had to be cut are no proof of a clean shutdown, whatever the marker said.
        epoch = logs.previous_broker_epoch

        async def losses_told() -> None:
            # A log that is yet to be made may be one that was lost.
            await publisher.all_made()
            await assignments.losses_told()

        await control.join(self._endpoints(), self._know_logs, epoch, losses_told)

    def _first_records(self, control: ControlPlane) -> list[MetadataRecord]:
        try:
            return control.first_records()
        except Malformed as error:
            raise StartupError(f"bootstrap.checkpoint cannot be read ({error}): format the directory anew.") from None

    def _peers(self, services: Services) -> tuple[NetworkPeers, NetworkPeers]:
        """How this node reaches the controllers, and how the other brokers."""
        from ottla.client.network_peer import NetworkPeers

        name, doors = f"ottla-{self._config.node_id}", services.doors
        if doors is None:
            peers = NetworkPeers(self._runtime.network, self._timers, name)
            return peers, peers
        listener = self._config.controller_listener_names[0]
        controllers = doors.peers_for(listener, "sasl.mechanism.controller.protocol", name)
        brokers = controllers
        for inter_broker in self._inter_broker_listener():
            brokers = doors.peers_for(inter_broker, "sasl.mechanism.inter.broker.protocol", name)
        return controllers, brokers

    def _check_logs_are_known(self, control: ControlPlane) -> None:
        """A voter whose metadata log is empty had better be new."""
        if self._logs.logs and control.raft.machine.is_voter:
            # Nothing could be done with the records but to set them apart, and a backup may hold what is missing.
            raise StartupError(
                f"{control.raft.log.directory} has lost its records, so that nobody knows the {len(self._logs.logs)} "
                f"logs of this node: bring it back from a backup, or start on an empty directory."
            )

    async def _load_logs(self, image: MetadataImage) -> None:
        """Each log under its topic's own configs, which the metadata log holds."""
        now_ms = self._runtime.clock.wall_ms()

        def config_of(topic: str) -> LogConfig:
            return LogConfig.from_values(topic_values(self._config, image.topic_config(topic)))

        def has_copies(partition: TopicPartition) -> bool:
            topic = image.topic(partition.topic)
            found = topic.partitions.get(partition.partition) if topic is not None else None
            return found is not None and len(found.replicas) > 1

        def is_assigned(partition: TopicPartition, directory_id: Uuid) -> bool:
            topic = image.topic(partition.topic)
            found = topic.partitions.get(partition.partition) if topic is not None else None
            if found is None or not found.directories or self._config.node_id not in found.replicas:
                return False
            return found.directory_of(self._config.node_id) == directory_id

        await self._runtime.offload.run(lambda: self._logs.load(config_of, now_ms, has_copies, is_assigned))

    def _know_logs(self, image: MetadataImage) -> None:
        self._set_strays_apart(image)

        def topic_id_of(partition: TopicPartition) -> Uuid | None:
            topic = image.topic(partition.topic)
            return None if topic is None else topic.topic_id

        self._logs.identify_gone(topic_id_of)

    def _set_strays_apart(self, image: MetadataImage) -> None:
        """Logs that the metadata does not place here: a topic was deleted while this node was away."""
        strays = [
            partition
            for partition, log in self._logs.logs.items()
            if (topic := image.topic_by_id(log.topic_id)) is None
            or (found := topic.partitions.get(partition.partition)) is None
            or self._config.node_id not in found.replicas
        ]
        if strays:
            _log.warning(
                "the metadata does not place these %d logs here, so they are kept apart, renamed to -stray: %s",
                len(strays),
                ", ".join(self._logs.logs[partition].directory for partition in strays[:10]),
            )
            self._logs.set_apart(strays, self._runtime.clock.wall_ms()).run()

    def _on_metadata_log_failed(self, failed: asyncio.Future[Exception]) -> None:
        if not failed.cancelled():
            self._fail(StartupError(f"The metadata log failed, and the node stopped: {failed.result()}"))

    def _fail(self, error: BaseException) -> None:
        """There is no going on. Whoever runs the node stops it; the first reason is the one that counts."""
        if self.failure is None:
            self.failure = error
            self.on_fatal()

    def on_unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """The loop's exception handler: what nobody awaits has failed, a timer or a callback."""
        loop.default_exception_handler(context)
        error = context.get("exception")
        if isinstance(error, BaseException) and self._services is not None:
            self._services.on_bug(error)

    async def on_clock_moved(self) -> None:
        """`Runtime.ageing` was set ahead. Returns when the upkeep of logs that is due by it has been done."""
        self._ageing.on_clock_moved()
        if self._maintenance is not None:
            await self._maintenance.settled()

    # Stopping.

    async def stop(self) -> None:
        """Hand over, hang up, and leave the directories so that the next start need not recover."""
        if self._services is not None:
            self._services.metrics.stop()
        if self._control is not None:
            await self._control.stop(hand_over=not self.all_stop)
        for _, listener in self._listeners:
            listener.close()
        if self._metrics_listener is not None:
            self._metrics_listener.close()
        if self._maintenance is not None:
            self._maintenance.stop()
        if self._markers is not None:
            self._markers.close()
        if self._compaction is not None:
            self._compaction.stop()
        if self._fetchers is not None:
            self.services.moves.stop()
        if self._fetchers is not None:
            await self._fetchers.stop()
        if self._verification is not None:
            self._verification.close()
        if self._services is not None:
            self._services.connections.close_all()
            await self._services.replicas.drain()
            await self._services.drain()
        broker_epoch = self._control.broker_epoch if self._control is not None else -1
        now_ms = self._runtime.clock.wall_ms()
        await self._runtime.offload.run(lambda: self._logs.close(now_ms, broker_epoch))
        self._timers.close()
        self._ageing.close()
