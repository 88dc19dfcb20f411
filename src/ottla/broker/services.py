"""Everything that handlers may use, in one place, and the questions that many of them ask."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING

from ottla.broker.access.audit import AuditLog
from ottla.broker.access.authorisation import first_authorizer
from ottla.broker.bounds.client_quotas import ClientQuotas
from ottla.broker.bounds.group_cap import GroupCap
from ottla.broker.buffers import ReceiveBuffers
from ottla.broker.connections import Connections
from ottla.broker.coordinators.composition import group_coordinators, transaction_coordinators
from ottla.broker.coordinators.known_commits import KnownCommits
from ottla.broker.coordinators.topics import CoordinatorTopics
from ottla.broker.fetching.fetch_sessions import FetchSessions
from ottla.broker.fetching.read_ahead import ReadAhead
from ottla.broker.fetching.replica_selector import replica_selector
from ottla.broker.hosted import Fetchers
from ottla.broker.image_watch import ImageWatch
from ottla.broker.monitoring.http_responder import HttpResponder
from ottla.broker.monitoring.logger_levels import requests_are_traced
from ottla.broker.monitoring.node_metrics import NodeMetrics
from ottla.broker.monitoring.replica_view import replica_page
from ottla.broker.monitoring.request_metrics import RequestMetrics
from ottla.broker.monitoring.telemetry import Telemetry
from ottla.broker.replica_manager import ReplicaManager
from ottla.broker.replication.isr_changes import IsrChanges
from ottla.broker.replication.throttle import ReplicationThrottle
from ottla.broker.transactions.producer_ids import ProducerIds
from ottla.config.node import NodeConfig
from ottla.controller.topic_names import check_topic_name
from ottla.errors import ErrorCode, KafkaError
from ottla.log import Log, LogManager
from ottla.metadata.images import EMPTY_IMAGE, MetadataImage
from ottla.metrics.registry import Registry
from ottla.model import Uuid
from ottla.runtime import Clock, Disk, FileSpan, Offload, Runtime
from ottla.runtime.timers import TimerWheel
from ottla.security.authorizer import Authorizer
from ottla.wire.message import Message
from ottla.wire.produce_codec import Openings

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.control.channel import ControllerChannel
    from ottla.broker.control.control_plane import ControlPlane
    from ottla.broker.doors.doors import Doors
    from ottla.broker.monitoring.request_tracing import RequestTracing
    from ottla.broker.transactions.verification import TransactionVerification
    from ottla.broker.upkeep.directory_moves import DirectoryMoves
    from ottla.client.network_peer import NetworkPeers
    from ottla.wire.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest
    from ottla.wire.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
    from ottla.wire.messages.produce_response import ProduceResponse

_log = logging.getLogger(__name__)

CREATED_WAIT_MS_MAX = 1_000
"""How long an answer waits for a topic that was created elsewhere to be known here."""

CREATE_TOPICS = 19

DRAIN_S_MAX = 5.0
"""How long a node that stops waits for what is under way."""

_KNOWS_NEW_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class Services:
    """One instance a node. The node builds it; handlers read it; nobody subclasses it."""

    def __init__(
        self,
        cluster_id: str,
        config: NodeConfig,
        runtime: Runtime,
        timers: TimerWheel,
        ageing: TimerWheel,
        logs: LogManager,
    ) -> None:
        self.cluster_id = cluster_id
        self.config = config
        """The configuration in force; replaced as a whole when a dynamic key changes."""
        self.clock: Clock = runtime.clock
        self.disk: Disk = runtime.disk
        self.offload: Offload = runtime.offload
        self.random = runtime.random
        self.timers = timers
        self.ageing = ageing
        """On which sessions, transactions and the upkeep of logs wait: the same wheel, but where a test moves time."""
        self.logs = logs
        self.image: MetadataImage = EMPTY_IMAGE
        """The newest committed metadata that has been acted upon."""
        self.authorizer: Authorizer | None = first_authorizer(config)
        """Who may do what, by the newest metadata; None where everybody may do everything."""
        self.quotas: ClientQuotas | None = None
        """What clients may use, while anybody is limited; None where nobody is."""
        self.client_quotas = ClientQuotas(self)
        self.tracing: RequestTracing | None = None
        """Tells of every request, while somebody wants that; None as a rule."""
        self.audit = AuditLog(runtime.clock)
        self.image_watch = ImageWatch(timers)
        self.known_commits = KnownCommits()
        self.openings = Openings()
        """How the produce requests of all connections begin; an opening means the same on each."""
        registry = Registry()
        self.replicas = ReplicaManager(config.node_id, runtime, registry, config.get_int("replica.lag.time.max.ms"))
        self.isr_changes = IsrChanges(self, registry)
        self.replica_selector = replica_selector(config)
        self.leader_throttle = ReplicationThrottle(
            samples=config.get_int("replication.quota.window.num"),
            window_ms=1000 * config.get_int("replication.quota.window.size.seconds"),
        )
        """Of what followers fetch here (`leader.replication.throttled.rate`)."""
        self.fetch_sessions = FetchSessions(
            config.get_int("max.incremental.fetch.session.cache.slots"),
            runtime.random,
            config.get_int("ottla.fetch.session.partitions.max"),
        )
        self.buffers = ReceiveBuffers(config.get_int("queued.max.request.bytes"))
        self.request_metrics = RequestMetrics(registry, runtime.clock)
        self.connections = Connections(
            clock=runtime.clock,
            timers=timers,
            idle_ms_max=config.get_int("connections.max.idle.ms"),
            registry=registry,
        )
        self.telemetry = Telemetry(
            clock=runtime.clock,
            random=runtime.random,
            registry=registry,
            max_bytes=config.get_int("telemetry.max.bytes"),
            instances_max=config.get_int("ottla.telemetry.instances.max"),
        )
        self.metrics = NodeMetrics(self, registry)
        metrics = self.metrics
        self.http = HttpResponder(
            timers=timers,
            metrics=metrics.page_for_clients,
            replica=self._replica_page,
            is_live=lambda: metrics.is_live,
            is_ready=lambda: metrics.is_ready,
        )
        self.frame_bytes_max = config.get_int("socket.request.max.bytes")
        self.fetch_max_bytes = config.get_int("fetch.max.bytes")
        self.partitions_per_describe_max = config.get_int("max.request.partition.size.limit")
        self.doors: Doors | None = None
        """TLS and SASL; None on a node whose listeners ask for neither."""
        self.control: ControlPlane
        self.controller: ControllerChannel
        """The way to the active controller, wherever it is."""
        self.moves: DirectoryMoves
        self.producer_ids: ProducerIds
        self.peers: NetworkPeers
        """How the brokers of the cluster are reached."""
        self.verification: TransactionVerification
        self.on_config()
        self.coordinator_topics = CoordinatorTopics(self)
        self.groups = group_coordinators(self)
        self.group_cap = GroupCap(self)
        self.transactions = transaction_coordinators(self)
        self.read_ahead = ReadAhead(runtime.offload, self.spawn)
        self.stop_node: Callable[[BaseException], None]
        """What keeps the node alive failed, or the impossible came true."""
        self.fail_directory: Callable[[str, BaseException], None]
        """The disk under a directory failed, and no partition on it is the one who noticed."""
        self._tasks: set[asyncio.Task[None]] = set()

    def _replica_page(self, topic: str, index: int) -> str | None:
        """The state of a replica for anybody who asks over HTTP: nobody, where an authorizer decides who may see it."""
        partition = self.replicas.partition(topic, index)
        if partition is None or self.authorizer is not None:
            return None
        return replica_page(self.config.node_id, partition, self.replicas.monotonic_ms())

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Run `work` beside the loop's other business, and hold on to it until it ends."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def spawn_vital(self, work: Coroutine[object, object, None]) -> None:
        """The same for what must not end unheard of: without it the node would look alive, and stand still."""

        async def guarded() -> None:
            try:
                await work
            except Exception as error:
                self.stop_node(error)
                raise

        self.spawn(guarded())

    def on_config(self) -> None:
        """Obey `config`, which is new or has changed, where it is not asked each time."""
        config = self.config
        if self.doors is not None:
            self.doors.on_config()
        self.leader_throttle.rate = config.get_int("leader.replication.throttled.rate")
        self.connections.set_limits(
            connections_max=config.get_int("max.connections"),
            per_address_max=config.get_int("max.connections.per.ip"),
            address_overrides=config.connection_limits,
            listener_max=config.listener_ints("max.connections"),
            for_brokers=frozenset(listener.name for listener in config.broker_listeners),
            between_brokers=config.inter_broker_listener_name,
        )
        self.connections.rates.set_limits(
            node_rate=config.get_int("max.connection.creation.rate"),
            listener_rates=config.listener_ints("max.connection.creation.rate"),
            exempt=config.inter_broker_listener_name,
            window_s=config.get_int("quota.window.size.seconds"),
            samples=config.get_int("quota.window.num"),
        )
        self.connections.addresses.set_window(
            config.get_int("quota.window.num"), 1000 * config.get_int("quota.window.size.seconds")
        )
        self.logs.cordoned = config.cordoned_log_dirs
        self.logs.set_producer_expiration(config.get_int("producer.id.expiration.ms"))
        self.logs.set_transaction_verification(config.get_bool("transaction.partition.verification.enable"))

    def on_logger_levels(self) -> None:
        """Levels of loggers were set."""
        if not requests_are_traced():
            self.tracing = None
        elif self.tracing is None:
            from ottla.broker.monitoring.request_tracing import RequestTracing

            self.tracing = RequestTracing(self.clock)

    async def drain(self) -> None:
        """Wait for what was spawned, but not for ever: nobody may keep a node from stopping."""
        if self._tasks:
            _, late = await asyncio.wait(list(self._tasks), timeout=DRAIN_S_MAX)
            for task in late:
                _log.warning("%r does not end, and is given up", task.get_coro())
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=DRAIN_S_MAX)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a background task failed", exc_info=error)
            self.on_bug(error)

    def on_bug(self, error: BaseException) -> None:
        """A failed assertion is the impossible come true: the node stops rather than go on wrong."""
        if isinstance(error, AssertionError):
            self.stop_node(error)

    # The cluster.

    @property
    def fetchers(self) -> Fetchers:
        """What copies from the leaders of the partitions that this node follows."""
        return self.replicas.fetchers

    @fetchers.setter
    def fetchers(self, fetchers: Fetchers) -> None:
        self.replicas.fetchers = fetchers

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def auto_create_topics(self) -> bool:
        return self.config.get_bool("auto.create.topics.enable")

    def active_controller_id(self) -> int:
        leader = self.control.leader_id
        return -1 if leader is None else leader

    def controller_endpoints(self, listener: str) -> list[tuple[int, str, int]]:
        """The controllers that have registered, each with its address on `listener`."""
        return [
            (controller.controller_id, endpoint.host, endpoint.port)
            for controller in self.image.cluster.controllers.values()
            for endpoint in controller.endpoints
            if endpoint.name == listener
        ]

    def any_controller_id(self) -> int:
        """Clients send admin requests to "the controller"; any live broker will do, since brokers forward (KIP-590)."""
        alive = self.image.alive_brokers()
        return self.random.choice(alive).broker_id if alive else -1

    async def create_on_first_use(self, names: list[str], client: Context | None = None) -> dict[str, ErrorCode]:
        """Create topics that somebody asked about, with the broker's defaults; the error of each that was refused.

        In the name of `client`, if it is one: then its right to create them counts, and its quota, not the broker's.
        """
        from ottla.broker.coordinators.topics import creatable
        from ottla.broker.forwarding import forward
        from ottla.wire.messages.create_topics_request import CreateTopicsRequest
        from ottla.wire.messages.create_topics_response import CreateTopicsResponse

        request = CreateTopicsRequest(topics=[creatable(self.config, name) for name in names])
        response: Message
        if client is None or (self.authorizer is None and self.quotas is None):
            try:
                response = await self.controller.send(request, CreateTopicsResponse)
            except KafkaError:
                return {}
        else:
            as_client = client._replace(api_key=CREATE_TOPICS, api_version=request.VERSIONS[-1])
            response = await forward(as_client, request)
        assert isinstance(response, CreateTopicsResponse)
        refused = {topic.name: ErrorCode(topic.error_code) for topic in response.topics if topic.error_code}
        # Somebody else was quicker: that is no error to whoever wants to use it.
        refused = {name: code for name, code in refused.items() if code != ErrorCode.TOPIC_ALREADY_EXISTS}
        usable = [name for name in names if name not in refused]
        await self.image_watch.until(
            lambda image: all(image.topic(name) is not None for name in usable), self.image, CREATED_WAIT_MS_MAX
        )
        return refused

    async def allocate_producer_ids(self) -> range:
        from ottla.wire.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
        from ottla.wire.messages.allocate_producer_ids_response import AllocateProducerIdsResponse

        request = AllocateProducerIdsRequest(broker_id=self.node_id, broker_epoch=self.control.broker_epoch)
        response = await self.controller.send(request, AllocateProducerIdsResponse)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code))
        return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)

    async def add_to_txn(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        """What the transaction coordinators of this node say to a broker's request."""
        from ottla.broker.api.add_partitions_to_txn import add_partitions

        return await add_partitions(self, request.transactions)

    # Partitions.

    def missing_partition(self, topic: str | Uuid, index: int) -> ErrorCode:
        """Why a partition is not hosted here."""
        if isinstance(topic, str):
            known = self.image.topic(topic)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            known = self.image.topic_by_id(topic)
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        if known is None:
            return unknown
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if index in known.partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def current_leader(self, topic: str | Uuid, index: int) -> tuple[int, int] | None:
        """The leader and its epoch, as far as this node has heard."""
        known = self.image.topic(topic) if isinstance(topic, str) else self.image.topic_by_id(topic)
        partition = known.partitions.get(index) if known is not None else None
        return None if partition is None else (partition.leader, partition.leader_epoch)

    def tell_new_leaders(self, response: ProduceResponse, listener: str) -> None:
        """Save a refused producer its metadata request: name the new leaders and where they are (KIP-951)."""
        from ottla.wire.messages.produce_response import LeaderIdAndEpoch, NodeEndpoint

        leaders: set[int] = set()
        for topic in response.responses:
            for partition in topic.partition_responses:
                if partition.error_code in _KNOWS_NEW_LEADER:
                    leader = self.current_leader(topic.name or topic.topic_id, partition.index)
                    if leader is not None:
                        partition.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
                        leaders.add(leader[0])
        response.node_endpoints += [
            NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in self.endpoints_of(leaders, listener)
        ]

    def endpoints_of(self, brokers: Collection[int], listener: str) -> list[tuple[int, str, int, str | None]]:
        """Id, address and rack of those of `brokers` that are alive and are served on `listener`; of none if that is a
        gateway, which stands for all of them."""
        if listener in self.config.gateway_listeners:
            return []
        return [
            (broker.broker_id, endpoint.host, endpoint.port, broker.rack)
            for broker in (self.image.alive_brokers() if brokers else ())
            if broker.broker_id in brokers and (endpoint := broker.endpoint(listener)) is not None
        ]

    def is_legal_topic_name(self, name: str) -> bool:
        try:
            check_topic_name(name)
        except KafkaError:
            return False
        return True

    def is_warm(self, span: FileSpan) -> bool:
        """Can the span be sent without waiting for the device?"""
        return span.file.cached(span.position, span.size)

    @property
    def log_dirs(self) -> list[str]:
        return [path for path, directory in self.logs.directories.items() if directory.for_topics]

    def parent_dir(self, log: Log) -> str:
        return log.directory.rpartition("/")[0]
