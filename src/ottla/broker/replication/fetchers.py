"""Everything that this node copies, and from whom: the pipelines to each leader.

Its invariant: a partition is in one pipeline, to the leader that was last named for it, or in none (A21). Driven by the
`ReplicaManager` (`follow`, `unfollow`) as metadata gives partitions their roles, by the publisher (`on_metadata`) with
what metadata says of brokers and configs, and by the node (`stop`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Protocol
from zlib import crc32

from ottla.broker.hosted import HostedPartition
from ottla.broker.node_lines import NodeServices
from ottla.broker.replication.copying import Copier, Followed, Replicas
from ottla.broker.replication.pipeline import FetchSettings, Pipeline, Surroundings
from ottla.broker.replication.throttle import ReplicationThrottle, is_throttled
from ottla.client.peer import Peers
from ottla.config.node import NodeConfig
from ottla.metadata.images import MetadataImage
from ottla.metrics.instruments import Meter
from ottla.model import TopicPartition, Uuid
from ottla.partition.follower import FollowerState, PartitionFollower

_THROTTLED = "follower.replication.throttled.replicas"


class HasBrokerEpoch(Protocol):
    @property
    def broker_epoch(self) -> int: ...


class FetcherServices(NodeServices, Protocol):
    @property
    def replicas(self) -> Replicas: ...

    @property
    def control(self) -> HasBrokerEpoch: ...


class ReplicaFetchers:
    """One instance a node."""

    def __init__(self, services: FetcherServices, peers: Peers, *, bytes_in: Meter | None = None) -> None:
        """`bytes_in` counts what is copied."""
        self._services = services
        config = services.config
        self.bytes_in = Meter() if bytes_in is None else bytes_in
        self.throttle = ReplicationThrottle(
            samples=config.get_int("replication.quota.window.num"),
            window_ms=1000 * config.get_int("replication.quota.window.size.seconds"),
        )
        self._copier = Copier(services.node_id, services.clock, services.replicas, self.throttle, self.bytes_in)
        self._surroundings = Surroundings(
            peers=peers,
            clock=services.clock,
            timers=services.timers,
            copier=self._copier,
            throttle=self.throttle,
            broker_epoch=lambda: services.control.broker_epoch,
            on_bug=services.on_bug,
        )
        self._pipelines: dict[tuple[int, int], Pipeline] = {}
        """By leader and number."""
        self._followed: dict[tuple[Uuid, int], tuple[Pipeline, Followed]] = {}
        self._ending: dict[Pipeline, None] = {}
        """Stopped, and not done yet."""
        self._image = services.image
        self._stopped = False
        self._pipelines_per_leader = 0
        self.on_config(config)

    # Who follows whom.

    def follow(self, partition: HostedPartition, leader_id: int, leader_epoch: int) -> None:
        """Copy `partition` from `leader_id`, who leads in `leader_epoch`, and from nobody else."""
        if self._stopped:
            return
        follower = PartitionFollower(
            leader_id=leader_id, leader_epoch=leader_epoch, log=partition.log, backoff_ms=self._settings.backoff_ms
        )
        followed = Followed(partition, follower, throttled=self._is_throttled(partition))
        key = (partition.topic_id, partition.index)
        pipeline = self._pipeline_for(partition, leader_id)
        old = self._followed.get(key)
        self._followed[key] = pipeline, followed
        if old is not None and old[0] is not pipeline:
            self._take_out(*old)
        pipeline.add(followed)

    def unfollow(self, partition: HostedPartition) -> None:
        """Copy it from nobody: we lead it, it is gone, or nobody leads it."""
        old = self._followed.pop((partition.topic_id, partition.index), None)
        if old is not None:
            self._take_out(*old)

    def _take_out(self, pipeline: Pipeline, followed: Followed) -> None:
        pipeline.remove(followed)
        if not len(pipeline):
            self._end(pipeline)

    def _end(self, pipeline: Pipeline) -> None:
        pipeline.stop()
        self._pipelines = {key: other for key, other in self._pipelines.items() if other is not pipeline}
        self._ending = {other: None for other in self._ending if not other.is_done}
        self._ending[pipeline] = None

    def _pipeline_for(self, partition: HostedPartition, leader_id: int) -> Pipeline:
        # The same for all replicas and restarts: neither `hash` nor the order of arrival decides.
        number = (31 * crc32(partition.topic.encode()) + partition.index) % self._pipelines_per_leader
        pipeline = self._pipelines.get((leader_id, number))
        if pipeline is None:
            pipeline = Pipeline(leader_id, self._surroundings, self._settings)
            pipeline.set_endpoint(self._endpoint_of(leader_id, self._services.image))
            self._pipelines[leader_id, number] = pipeline
        return pipeline

    # What metadata and configs say.

    def on_metadata(self, image: MetadataImage) -> None:
        """The image is another; whom to follow was said before."""
        before, self._image = self._image, image
        if self._services.config is not self._config:
            self.on_config(self._services.config)
        if image.cluster is not before.cluster:
            for (leader_id, _), pipeline in self._pipelines.items():
                pipeline.set_endpoint(self._endpoint_of(leader_id, image))
        if image.configs is not before.configs:
            for pipeline, followed in self._followed.values():
                throttled = self._is_throttled(followed.partition)
                if throttled != followed.throttled:
                    followed.throttled = throttled
                    pipeline.on_throttled(followed)

    def on_config(self, config: NodeConfig) -> None:
        """The node's configuration is new, or has changed."""
        self._config = config
        self.throttle.rate = config.get_int("follower.replication.throttled.rate")
        self._settings = settings = FetchSettings(
            replica_id=self._services.node_id,
            wait_ms_max=config.get_int("replica.fetch.wait.max.ms"),
            bytes_min=config.get_int("replica.fetch.min.bytes"),
            response_bytes_max=config.get_int("replica.fetch.response.max.bytes"),
            partition_bytes_max=config.get_int("replica.fetch.max.bytes"),
            backoff_ms=config.get_int("replica.fetch.backoff.ms"),
            timeout_ms=config.get_int("replica.socket.timeout.ms"),
            wants_watermark=bool(config.find_text("replica.selector.class")),
        )
        self._listener = config.inter_broker_listener_name
        for pipeline in self._pipelines.values():
            pipeline.settings = settings
        count = config.get_int("num.replica.fetchers")
        if count != self._pipelines_per_leader:
            self._pipelines_per_leader = count
            for _, followed in list(self._followed.values()):
                self.follow(followed.partition, followed.follower.leader_id, followed.follower.leader_epoch)

    def _endpoint_of(self, broker_id: int, image: MetadataImage) -> tuple[str, int] | None:
        broker = image.broker(broker_id)
        endpoint = broker.endpoint(self._listener) if broker is not None else None
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def _is_throttled(self, partition: HostedPartition) -> bool:
        listed = self._services.image.topic_config(partition.topic).get(_THROTTLED)
        if not listed:
            return False
        entries = (entry.strip() for entry in listed.split(","))
        return is_throttled(entries, partition.index, self._services.node_id)

    # Looking.

    def followed(self) -> Iterator[tuple[TopicPartition, PartitionFollower]]:
        for _, followed in self._followed.values():
            yield followed.partition.topic_partition, followed.follower

    def follower(self, partition: HostedPartition) -> PartitionFollower | None:
        found = self._followed.get((partition.topic_id, partition.index))
        return None if found is None else found[1].follower

    @property
    def lag_max(self) -> int:
        """Records that the partition which is furthest behind its leader lacks."""
        return max((follower.lag or 0 for _, follower in self.followed()), default=0)

    @property
    def failed_count(self) -> int:
        return sum(1 for _, follower in self.followed() if follower.state is FollowerState.FAILED)

    @property
    def pipeline_count(self) -> int:
        return len(self._pipelines)

    @property
    def truncations(self) -> int:
        return self._copier.truncations

    # Stopping.

    async def stop(self) -> None:
        """Hang up everywhere. What was appended stays."""
        self._stopped = True
        pipelines = [*self._pipelines.values(), *self._ending]
        for pipeline in pipelines:
            pipeline.stop()
        self._pipelines.clear()
        self._followed.clear()
        self._ending.clear()
        if pipelines:
            await asyncio.gather(*(pipeline.join() for pipeline in pipelines))
