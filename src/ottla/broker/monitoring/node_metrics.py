"""The node's own page of metrics: what is read when somebody asks, and the few instruments that belong to no request.

Nearly everything here costs nothing between two scrapes: a gauge looks at the state that is there anyway. Making the
page does take the loop's time, the more the more partitions there are, so a page is used again for `REUSE_FACTOR` times
as long as it took to make: however many ask, at most a twentieth of the loop's time goes into it.

Driven by the HTTP responder (`page`), by the node (`start`, `state`, `stop`) and by the metadata (`on_metadata`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import TYPE_CHECKING

import ottla
from ottla.broker.hosted import FetchWaiter, HostedPartition, ProduceWaiter
from ottla.broker.purgatory import DelayedProduce
from ottla.log import Log
from ottla.metadata.delta import MetadataDelta, PartitionChange
from ottla.metadata.images import MetadataImage
from ottla.metrics.registry import Registry
from ottla.model import METADATA_TOPIC
from ottla.partition import PartitionLeader
from ottla.raft.roles import Leader
from ottla.runtime.process import process_usage

if TYPE_CHECKING:
    from ottla.broker.control.control_plane import ControlPlane
    from ottla.broker.services import Services

REUSE_FACTOR = 20
LAG_CHECK_S = 0.5

Series = Iterator[tuple[tuple[str, ...], float]]


class BrokerState(IntEnum):
    """Kafka's numbers."""

    NOT_RUNNING = 0
    STARTING = 1
    RUNNING = 3
    SHUTTING_DOWN = 6


class NodeMetrics:
    """One instance a node."""

    def __init__(self, services: Services, registry: Registry) -> None:
        self._services = services
        self._registry = registry
        self._clock = services.clock
        self._pages: dict[bool, tuple[str, float]] = {}
        """With resources and without: the page, and until when it is used again."""
        self._lag_timer: asyncio.TimerHandle | None = None
        self._metadata_lag_ms = 0
        self._started_ms = services.clock.wall_ms()
        self._lag = registry.histogram("kafka_server_eventloop_lagms")
        self._evictions = registry.meter("kafka_server_fetchsessioncache_incrementalfetchsessionevictions")
        self.state = BrokerState.STARTING
        self.before_page: list[Callable[[], None]] = []
        """Called before a page is made: by whoever has several gauges that one look at its state fills."""
        self.expired_produces = registry.meter("kafka_server_delayedoperationpurgatory_expires", "Produce")
        self.expired_fetches = registry.meter("kafka_server_delayedoperationpurgatory_expires", "Fetch")
        self.replication_bytes_in = registry.meter("kafka_server_brokertopicmetrics_replicationbytesin")
        self.replication_bytes_out = registry.meter("kafka_server_brokertopicmetrics_replicationbytesout")
        self.verification_failures = registry.meter("kafka_server_addpartitionstotxnmanager_verificationfailurerate")
        self.verification_time = registry.histogram("kafka_server_addpartitionstotxnmanager_verificationtimems")
        self.segments_deleted = registry.counter("kafka_log_logmanager_segmentsdeleted")
        self.unclean_elections = registry.meter("kafka_controller_controllerstats_uncleanleaderelections")
        self._cpu_seconds = registry.counter("process_cpu_seconds")
        self._usage = process_usage()
        self.before_page.append(self._look_at_process)
        self._register_node()
        self._register_requests()
        self._register_logs()
        self._register_replicas()
        self._register_quorum()
        if services.config.is_controller:
            self._register_controller()

    @property
    def registry(self) -> Registry:
        return self._registry

    def page(self) -> str:
        """Everything, for Prometheus."""
        return self._page_with(resources=True)

    def page_for_clients(self) -> str:
        """What whoever reaches a port for clients may know: where there is an authorizer, nothing that it guards."""
        return self._page_with(resources=self._services.authorizer is None)

    def _page_with(self, *, resources: bool) -> str:
        began_s = self._clock.monotonic()
        page, until_s = self._pages.get(resources, ("", 0.0))
        if began_s < until_s:
            return page
        for prepare in self.before_page:
            prepare()
        self._services.connections.count_bytes()
        self._evictions.value = self._services.fetch_sessions.evictions
        page = self._registry.render(began_s, with_resources=resources)
        if resources:
            page += self._services.telemetry.pushed.render(began_s)
        ended_s = self._clock.monotonic()
        self._pages[resources] = page, ended_s + REUSE_FACTOR * (ended_s - began_s)
        return page

    # The node.

    @property
    def is_live(self) -> bool:
        """False once the node cannot go on: the disk under its metadata failed."""
        failed = self._services.control.failed
        return failed is None or not failed.done()

    @property
    def is_ready(self) -> bool:
        """Does the node serve, and does the cluster send clients to it?"""
        services = self._services
        served = not services.config.is_broker or not services.control.lifecycle.fenced
        return self.state is BrokerState.RUNNING and self.is_live and served

    def start(self) -> None:
        """The node serves."""
        self.state = BrokerState.RUNNING
        self._watch_lag()

    def stop(self) -> None:
        self.state = BrokerState.SHUTTING_DOWN
        if self._lag_timer is not None:
            self._lag_timer.cancel()

    def _watch_lag(self) -> None:
        due_s = self._clock.monotonic() + LAG_CHECK_S

        def check() -> None:
            self._lag.observe(int((self._clock.monotonic() - due_s) * 1e6))
            self._watch_lag()

        self._lag_timer = asyncio.get_running_loop().call_later(LAG_CHECK_S, check)

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta, offset: int) -> None:
        self._metadata_lag_ms = max(0, self._clock.wall_ms() - image.provenance.timestamp_ms)
        if self._services.control.is_active_controller:
            self.unclean_elections.value += sum(map(_is_unclean, delta.partition_changes()))

    def _register_node(self) -> None:
        services, gauge = self._services, self._registry.gauge
        gauge("kafka_server_app_info", lambda: 1, ottla.__version__, str(services.config.node_id), services.cluster_id)
        gauge("kafka_server_kafkaserver_brokerstate", lambda: self.state)
        gauge("kafka_server_kafkaserver_starttimems", lambda: self._started_ms)
        gauge("kafka_server_broker_metadata_metrics_last_applied_record_offset", lambda: services.image.last_offset)
        gauge("kafka_server_broker_metadata_metrics_last_applied_record_lag_ms", lambda: self._metadata_lag_ms)
        gauge("process_resident_memory_bytes", lambda: self._usage.resident_bytes)
        gauge("process_open_fds", lambda: self._usage.open_files)
        gauge("process_max_fds", lambda: self._usage.open_files_max)
        gauge("kafka_server_snapshotemitter_latestsnapshotgeneratedbytes", self._snapshot_bytes)

    def _snapshot_bytes(self) -> int:
        """0 while there is none."""
        sizes = self._services.control.raft.metadata_log.snapshots.sizes
        return sizes[max(sizes)] if sizes else 0

    def _look_at_process(self) -> None:
        self._usage = process_usage()
        self._cpu_seconds.value = self._usage.cpu_seconds

    def measure(self, control: ControlPlane) -> None:
        """Have the controller of this node tell how long its changes take."""
        registry = self._registry
        control.controller.processing_time = registry.histogram(
            "kafka_controller_controllereventmanager_eventqueueprocessingtimems"
        )
        control.controller.commit_latency = registry.histogram("kafka_server_raft_metrics_commit_latency")

    # Requests.

    def _register_requests(self) -> None:
        services, registry = self._services, self._registry
        registry.gauges("kafka_network_socketserver_connections", self._connections)
        registry.gauge("kafka_network_socketserver_memorypoolused", lambda: services.buffers.private_bytes)
        registry.gauges("kafka_server_delayedoperationpurgatory_purgatorysize", self._purgatories)
        sessions = services.fetch_sessions
        registry.gauge("kafka_server_fetchsessioncache_numincrementalfetchsessions", lambda: len(sessions))
        registry.gauge(
            "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", lambda: sessions.partition_count
        )

    def _connections(self) -> Series:
        for listener, count in self._services.connections.count_bytes().items():
            yield (listener,), count

    def _purgatories(self) -> Series:
        produces: set[ProduceWaiter] = set()
        fetches: set[FetchWaiter] = set()
        for partition in self._services.replicas.partitions():
            for waiters in (partition.durable_waiters, partition.watermark_waiters):
                produces.update(waiter for _, waiter in waiters)
            fetches.update(partition.fetch_waiters)
        # One whose time ran out stays in line behind its offset, but does not wait any more.
        waiting = sum(1 for waiter in produces if not isinstance(waiter, DelayedProduce) or waiter.waiting)
        yield ("Produce",), waiting
        yield ("Fetch",), len(fetches)

    # Logs.

    def _register_logs(self) -> None:
        services, registry = self._services, self._registry

        def of_each(name: str, read: Callable[[Log], int]) -> None:
            registry.gauges(f"kafka_log_log_{name}", lambda: self._logs(read))

        of_each("size", lambda log: log.size_bytes())
        of_each("numlogsegments", lambda log: len(log.segment_base_offsets))
        of_each("logstartoffset", lambda log: log.log_start_offset)
        of_each("logendoffset", lambda log: log.log_end_offset)
        directories = services.logs.directories
        registry.gauge(
            "kafka_log_logmanager_offlinelogdirectorycount",
            lambda: sum(directory.offline for directory in directories.values()),
        )
        registry.gauges(
            "kafka_log_logmanager_logdirectoryoffline",
            lambda: (((path,), int(directory.offline)) for path, directory in directories.items()),
        )

    def _logs(self, read: Callable[[Log], int]) -> Series:
        for partition in self._services.replicas.partitions():
            if not partition.offline:
                yield (partition.topic, str(partition.index)), read(partition.log)
        yield (METADATA_TOPIC, "0"), read(self._services.control.raft.log)

    # Replicas.

    def _register_replicas(self) -> None:
        services = self._services

        def count(name: str, counts: Callable[[HostedPartition], bool]) -> None:
            self._registry.gauge(
                f"kafka_server_replicamanager_{name}",
                lambda: sum(1 for partition in services.replicas.partitions() if counts(partition)),
            )

        def reassigned(partition: HostedPartition) -> bool:
            image = partition.image
            return partition.leader is not None and bool(image.adding_replicas or image.removing_replicas)

        def under_replicated(partition: HostedPartition) -> bool:
            leader, adding = partition.leader, partition.image.adding_replicas
            # One that is only being added was never there to be missed.
            return leader is not None and len(leader.isr) < sum(replica not in adding for replica in leader.replicas)

        count("partitioncount", lambda partition: True)
        count("leadercount", lambda partition: partition.leader is not None)
        count("offlinereplicacount", lambda partition: partition.offline)
        count("underreplicatedpartitions", under_replicated)
        count(
            "underminisrpartitioncount",
            lambda partition: partition.leader is not None and not partition.leader.has_min_isr,
        )
        count(
            "atminisrpartitioncount",
            lambda partition: (
                partition.leader is not None and len(partition.leader.isr) == partition.leader.effective_min_isr
            ),
        )
        count("reassigningpartitions", reassigned)
        registry = self._registry
        registry.gauges("kafka_cluster_partition_followerlag", self._follower_lags)
        registry.gauges("kafka_cluster_partition_insyncreplicascount", self._in_sync_replicas)
        registry.gauges("kafka_server_fetcherlagmetrics_consumerlag", self._own_lags)
        registry.gauge("kafka_server_replicafetchermanager_maxlag", lambda: services.fetchers.lag_max)

    def _led(self) -> Iterator[tuple[HostedPartition, PartitionLeader]]:
        """Partitions that are led here and have followers."""
        for partition in self._services.replicas.partitions():
            leader = partition.leader
            if leader is not None and not leader.alone:
                yield partition, leader

    def _follower_lags(self) -> Series:
        for partition, leader in self._led():
            log_end = partition.log.log_end_offset
            for replica, follower in leader.followers.items():
                if follower.log_end >= 0:
                    yield (partition.topic, str(partition.index), str(replica)), max(0, log_end - follower.log_end)

    def _in_sync_replicas(self) -> Series:
        for partition, leader in self._led():
            yield (partition.topic, str(partition.index)), len(leader.isr)

    def _own_lags(self) -> Series:
        for (topic, index), follower in self._services.fetchers.followed():
            if follower.lag is not None:
                yield (topic, str(index)), follower.lag

    # Quorum and controller.

    def _register_quorum(self) -> None:
        services = self._services

        def gauge(name: str, read: Callable[[], float | None]) -> None:
            """-1 is what Kafka says for what is not known."""
            self._registry.gauge(
                f"kafka_server_raft_metrics_{name}", lambda: -1 if (value := read()) is None else value
            )

        def state() -> Series:
            yield (type(services.control.raft.machine.role).__name__.lower(),), 1

        self._registry.gauges("kafka_server_raft_metrics_current_state", state)
        gauge("current_leader", lambda: services.control.raft.machine.leader_id)
        gauge("current_vote", self._vote)
        gauge("current_epoch", lambda: services.control.raft.epoch)
        gauge("high_watermark", lambda: services.control.raft.machine.high_watermark)
        gauge("log_end_offset", lambda: services.control.raft.log.log_end_offset)
        gauge("number_of_voters", lambda: len(services.control.raft.machine.voters.latest))

    def _vote(self) -> int | None:
        machine = self._services.control.raft.machine
        if isinstance(machine.role, Leader):
            return machine.local.id
        voted = machine.role.election.voted
        return None if voted is None else voted.id

    def _register_controller(self) -> None:
        services = self._services

        def gauge(name: str, read: Callable[[MetadataImage], int]) -> None:
            self._registry.gauge(f"kafka_controller_kafkacontroller_{name}", lambda: read(services.image))

        gauge("activecontrollercount", lambda image: int(services.control.is_active_controller))
        gauge("activebrokercount", lambda image: len(image.alive_brokers()))
        gauge("fencedbrokercount", lambda image: sum(broker.fenced for broker in image.cluster.brokers.values()))
        gauge("globaltopiccount", lambda image: len(image.topics.by_name))
        gauge("globalpartitioncount", lambda image: image.topics.partition_count)
        gauge("offlinepartitionscount", lambda image: self._count_partitions(image, lambda led, _: led < 0))
        gauge(
            "preferredreplicaimbalancecount",
            lambda image: self._count_partitions(image, lambda led, preferred: led != preferred),
        )
        gauge("lastappliedrecordoffset", lambda image: image.last_offset)
        gauge("lastcommittedrecordoffset", lambda image: services.control.raft.log.high_watermark - 1)

    def _count_partitions(self, image: MetadataImage, counts: Callable[[int, int], bool]) -> int:
        """Partitions by their leader and their preferred one."""
        return sum(
            counts(partition.leader, partition.preferred_leader)
            for topic in image.topics.by_name.values()
            for partition in topic.partitions.values()
        )


def _is_unclean(change: PartitionChange) -> bool:
    """Was a leader elected who may lack committed records?"""
    before, after = change.before, change.after
    if before is None or after.leader < 0 or after.leader_epoch == before.leader_epoch:
        return False
    return after.leader not in before.isr and after.leader not in before.elr
