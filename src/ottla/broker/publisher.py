"""Turns committed metadata into action: which partitions to host, lead, follow or let go, and under which configs.

Called once for each published delta, in order, on the event loop. When `on_metadata` returns, the node serves what the
image says, with one exception: logs that are to be made by the hundred are made a few at a time, so that the loop is
not kept from everything else. Such a partition is not here until then, and what later deltas say of it is not lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping

from ottla.broker.access.authorisation import authorizer_of
from ottla.broker.hosted import HostedPartition
from ottla.broker.services import Services
from ottla.config.dynamic import replay_broker
from ottla.config.key import ConfigValue
from ottla.config.node import NodeConfig
from ottla.config.topic import topic_values
from ottla.log import UNKNOWN_END, LogConfig, PendingWork
from ottla.metadata.delta import MetadataDelta, PartitionChange
from ottla.metadata.features import has_directory_assignment
from ottla.metadata.images import (
    DEFAULT_BROKER,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    ConfigResource,
    MetadataImage,
    PartitionImage,
    is_reserved_directory,
)
from ottla.model import TopicPartition
from ottla.records import CompressionType, TimestampType, ValidationRules
from ottla.records.compression import Compression
from ottla.runtime import DiskError

_log = logging.getLogger(__name__)

AT_ONCE_MAX = 64
"""Logs that one delta may have made before it returns."""
TURN_S_MAX = 0.001
"""For how long the making of logs may keep the loop."""
BUSY_S = 0.0002
"""Others who took so long in their turn have more to do, most likely."""
REST_S = 0.005
"""How long they are left alone then: whoever waits for an answer is not to feel that somebody made a large topic."""

CODECS = {
    "uncompressed": CompressionType.NONE,
    "gzip": CompressionType.GZIP,
    "snappy": CompressionType.SNAPPY,
    "lz4": CompressionType.LZ4,
    "zstd": CompressionType.ZSTD,
}
"""The values of `compression.type` that ask for a codec; the other, `producer`, keeps what came."""


def validation_rules(values: Mapping[str, ConfigValue]) -> ValidationRules:
    """What a topic's configs say of the batches it takes."""
    codec = CODECS.get(str(values["compression.type"]))
    compression = None
    if codec is not None:
        level = values.get(f"compression.{codec.name.lower()}.level")
        compression = Compression(codec, level if isinstance(level, int) else None)
    policy, before, after, largest = (
        values["cleanup.policy"],
        values["message.timestamp.before.max.ms"],
        values["message.timestamp.after.max.ms"],
        values["max.message.bytes"],
    )
    assert isinstance(policy, tuple)
    assert isinstance(before, int)
    assert isinstance(after, int)
    assert isinstance(largest, int)
    log_append_time = values["message.timestamp.type"] == "LogAppendTime"
    return ValidationRules(
        compacted="compact" in policy,
        timestamp_type=TimestampType.LOG_APPEND_TIME if log_append_time else TimestampType.CREATE_TIME,
        timestamp_before_max_ms=before,
        timestamp_after_max_ms=after,
        max_message_bytes=largest,
        compression=compression,
    )


Settings = tuple[dict[str, ConfigValue], LogConfig, ValidationRules]
"""A topic's configs, and what logs and batches make of them."""


class MetadataPublisher:
    """One instance a node."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._retiring: dict[TopicPartition, PendingWork] = {}
        """Deleted logs whose deletion is not durable yet."""
        self._postponed: OrderedDict[TopicPartition, PartitionChange] = OrderedDict()
        """The newest change of each partition whose log is yet to be made. (To find the first of a plain dict costs
        what was taken from it before.)"""
        self._all_made = asyncio.Event()
        self._all_made.set()
        self.on_made: Callable[[HostedPartition], None] = lambda partition: None
        """A postponed log is there: whoever was told of the metadata in the meantime has not seen it."""
        self._knows_acls = False
        self._known: tuple[NodeConfig, Mapping[str, str], Settings] | None = None

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta, offset: int) -> None:
        """In an order in which no step acts on half of the news. Whoever leads no more resigns first: a lower minimum
        in sync, or a broker that is gone, might let it commit what its successor does not have. Whoever leads from now
        on does so under the configs that are in force, and whoever goes on to lead hears of a partition's in-sync set
        and of the minimum in one: the old set may be large enough for a minimum that was never its own."""
        services = self._services
        services.image = image
        features = image.features
        services.replicas.lacking.can_tell_lost = has_directory_assignment(features.metadata_version)
        services.replicas.lacking.has_elr = features.elr
        if services.authorizer is not None and (delta.acls_changed or not self._knows_acls):
            self._knows_acls = True
            services.authorizer = authorizer_of(services.config, image)
        changes = delta.local_changes(services.node_id)
        if changes.deleted:
            self._delete([TopicPartition(topic, index) for topic, _, index in changes.deleted])
        self._apply(image, changes.followers)
        own = ConfigResource(RESOURCE_BROKER, str(services.node_id))
        changed = delta.configs_changed
        if DEFAULT_BROKER in changed or own in changed:
            reconfigured = list(services.replicas.by_name)
            self._reconfigure(image, own)
        else:
            reconfigured = [resource.name for resource in changed if resource.type == RESOURCE_TOPIC]
            for topic in reconfigured:
                self._reconfigure_topic(image, topic)
        self._apply(image, changes.leaders)
        for topic in reconfigured:
            self._tell_min_isr(topic)
        if delta.brokers_changed:
            services.replicas.on_brokers(image)
        services.fetchers.on_metadata(image)

    # Partitions.

    def _apply(self, image: MetadataImage, changes: list[PartitionChange]) -> None:
        replicas = self._services.replicas
        unmade = sum(replicas.partition(change.topic, change.partition) is None for change in changes)
        postpone = unmade > AT_ONCE_MAX or bool(self._postponed)
        for change in changes:
            where = TopicPartition(change.topic, change.partition)
            if where in self._postponed or (
                postpone and where not in self._services.logs.logs and replicas.partition(*where) is None
            ):
                self._postponed[where] = change
            else:
                self._give_role(image, change)
        if self._postponed and self._all_made.is_set():
            self._all_made.clear()
            self._services.spawn_vital(self._make_postponed())

    async def all_made(self) -> None:
        """Returns when no log is yet to be made."""
        await self._all_made.wait()

    async def _make_postponed(self) -> None:
        try:
            await self._make_in_turns()
        finally:
            self._all_made.set()

    async def _make_in_turns(self) -> None:
        services = self._services
        clock = services.clock
        while self._postponed:
            until_s = clock.monotonic() + TURN_S_MAX
            while self._postponed and clock.monotonic() < until_s:
                where, change = self._postponed.popitem(last=False)
                self._give_role(services.image, change)
                hosted = services.replicas.partition(*where)
                if hosted is not None:
                    self.on_made(hosted)
            yielded_s = clock.monotonic()
            await asyncio.sleep(0)
            if clock.monotonic() - yielded_s > BUSY_S:
                await asyncio.sleep(REST_S)

    def _give_role(self, image: MetadataImage, change: PartitionChange) -> None:
        if change.after.leader == self._services.node_id:
            self._lead(image, change)
        else:
            self._follow(image, change)

    def _lead(self, image: MetadataImage, change: PartitionChange) -> None:
        hosted = self._host(image, change)
        if hosted is None or hosted.offline:
            return
        leader = hosted.leader
        if leader is not None and leader.leader_epoch == change.after.leader_epoch:
            self._services.replicas.on_partition_changed(hosted, change.after)
        else:
            self._services.replicas.lead(hosted, change.after)

    def _follow(self, image: MetadataImage, change: PartitionChange) -> None:
        hosted = self._host(image, change)
        if hosted is not None and not hosted.offline:
            self._services.replicas.follow(hosted, change.after)

    def _host(self, image: MetadataImage, change: PartitionChange) -> HostedPartition | None:
        services = self._services
        hosted = services.replicas.partition(change.topic, change.partition)
        if hosted is not None:
            return hosted
        values, config, rules = self._settings(image, change.topic)
        where = TopicPartition(change.topic, change.partition)
        now_ms = services.clock.wall_ms()
        path = None
        try:
            log = services.logs.logs.get(where)
            if log is None and self._is_on_failed_disk(change.after):
                return None
            path = services.logs.place(where) if log is None else services.parent_dir(log)
            if log is not None and log.topic_id != change.topic_id:
                # A topic of the same name that is gone: its records are not this one's.
                _log.warning("%s is of an older topic, so it is kept apart, renamed to -stray", log.directory)
                services.logs.set_apart([where], now_ms).run()
                log = None
            if log is None:
                if where in self._retiring:
                    # A topic deleted and created again at once: rare enough to wait for the disk here.
                    self._retiring.pop(where).run()
                log = services.logs.create(where, change.topic_id, config, now_ms, directory=path)
                if self._was_elsewhere(change.after):
                    log.missing_until = UNKNOWN_END
            else:
                log.update_config(config)
        except DiskError as error:
            _log.error("%s cannot be opened: %s", where, error)
            if path is not None:
                services.fail_directory(path, error)
            return None
        hosted = HostedPartition(change.topic, change.topic_id, change.partition, log, rules, change.after)
        self._obey(hosted, values)
        services.replicas.host(hosted)
        return hosted

    def _is_on_failed_disk(self, image: PartitionImage) -> bool:
        """Is the replica in a directory of ours that is offline? An empty one elsewhere would pass for it."""
        if not image.directories:
            return False
        directory_id = image.directory_of(self._services.node_id)
        return any(
            known.offline and known.properties is not None and known.properties.directory_id == directory_id
            for known in self._services.logs.directories.values()
        )

    def _was_elsewhere(self, image: PartitionImage) -> bool:
        """Is the replica in a directory that this node does not have any more? Then its records went with the disk."""
        if not image.directories:
            return False
        directory_id = image.directory_of(self._services.node_id)
        return not is_reserved_directory(directory_id) and all(
            known.properties is not None and known.properties.directory_id != directory_id
            for known in self._services.logs.directories.values()
        )

    def _settings(self, image: MetadataImage, topic: str) -> Settings:
        """What the configs say. Asked for each partition of a topic, and for one topic after the other."""
        config, overrides = self._services.config, image.topic_config(topic)
        if self._known is None or self._known[0] is not config or self._known[1] != overrides:
            values = topic_values(config, overrides)
            self._known = config, overrides, (values, LogConfig.from_values(values), validation_rules(values))
        return self._known[2]

    def _obey(self, hosted: HostedPartition, values: Mapping[str, ConfigValue]) -> None:
        """What replication asks of a topic's configs."""
        min_isr, throttled = values["min.insync.replicas"], values["leader.replication.throttled.replicas"]
        assert isinstance(min_isr, int)
        assert isinstance(throttled, tuple)
        hosted.min_isr = min_isr
        hosted.throttled = "*" in throttled or f"{hosted.index}:{self._services.node_id}" in throttled

    def _delete(self, partitions: list[TopicPartition]) -> None:
        services = self._services
        for partition in partitions:
            self._postponed.pop(partition, None)
            services.replicas.forget(*partition)
        known = [partition for partition in partitions if partition in services.logs.logs]
        work = services.logs.delete(known, services.clock.wall_ms())
        self._retiring.update(dict.fromkeys(known, work))
        services.spawn(self._make_durable(work, known))

    async def _make_durable(self, work: PendingWork, partitions: list[TopicPartition]) -> None:
        try:
            await self._services.offload.run(work.run)
        except DiskError as error:
            _log.error("the deletion of %d logs is not durable: %s", len(partitions), error)
        for partition in partitions:
            if self._retiring.get(partition) is work:
                del self._retiring[partition]

    # Configs.

    def _reconfigure(self, image: MetadataImage, own: ConfigResource) -> None:
        services = self._services
        services.config, ignored = replay_broker(services.config, image.config(DEFAULT_BROKER), image.config(own))
        for sentence in ignored:
            # Stored before this node's own properties ruled it out, or by a node that knows more.
            _log.error("%s", sentence)
        services.on_config()
        for topic in services.replicas.by_name:
            self._reconfigure_topic(image, topic)

    def _reconfigure_topic(self, image: MetadataImage, topic: str) -> None:
        services = self._services
        hosted = services.replicas.by_name.get(topic)
        if hosted is None:
            return
        values, config, rules = self._settings(image, topic)
        for partition in hosted.partitions.values():
            partition.log.update_config(config)
            partition.rules = rules
            self._obey(partition, values)

    def _tell_min_isr(self, topic: str) -> None:
        replicas = self._services.replicas
        hosted = replicas.by_name.get(topic)
        if hosted is not None:
            for partition in hosted.partitions.values():
                replicas.on_min_isr(partition)
