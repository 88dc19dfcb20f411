"""Which coordinators this node has: groups on `__consumer_offsets`, transactions on `__transaction_state`.

What a shard is made of is a lot of code, which a node without groups and transactions does not need: so that it starts
quickly, that is imported when the node is up already (`prepare`), or when the first shard is made, if that is sooner.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ottla.broker.coordinators import metrics
from ottla.broker.coordinators.runtime import CoordinatorRuntime
from ottla.coordinator.stored import GROUP_KINDS, TRANSACTION_KINDS
from ottla.errors import StartupError
from ottla.model import GROUP_TOPIC, TRANSACTION_TOPIC
from ottla.records import CompressionType

if TYPE_CHECKING:
    from ottla.broker.services import Services
    from ottla.coordinator.group_shard import GroupShard
    from ottla.coordinator.transaction.shard import TransactionShard


async def prepare(services: Services) -> None:
    """Bring in what the first group and the first transaction will need, while nobody waits for it."""
    await services.offload.run(_import_shards)


def _import_shards() -> None:
    for module in ("group_shard", "transaction.settings", "transaction.shard"):
        import_module(f"ottla.coordinator.{module}")


def group_coordinators(services: Services) -> CoordinatorRuntime[GroupShard]:
    config = services.config
    tally = metrics.group_tally(services.metrics.registry)

    def make(partition: int, leader_epoch: int) -> GroupShard:
        from ottla.coordinator.group_shard import GroupShard

        return GroupShard.empty(lambda: services.config, tally)

    runtime = CoordinatorRuntime(
        services,
        GROUP_TOPIC,
        GROUP_KINDS,
        make,
        partitions=config.get_int("offsets.topic.num.partitions"),
        timeout_ms=config.get_int("offsets.commit.timeout.ms"),
        load_bytes=config.get_int("offsets.load.buffer.size"),
        compression=_compression(config.get_int("offsets.topic.compression.codec")),
    )
    runtime.load_plainly = lambda shard, base_offset, records: shard.offsets.load(base_offset, records)
    runtime.on_unloaded = services.known_commits.on_unloaded
    metrics.register_groups(services.metrics, runtime)
    services.replicas.leaderships[GROUP_TOPIC] = runtime
    return runtime


def _compression(codec: int) -> CompressionType:
    try:
        return CompressionType(codec)
    except ValueError:
        raise StartupError(f"offsets.topic.compression.codec is {codec}: the codecs are 0 to 4.") from None


class _SpareProducerIds:
    """Producer ids for coordinators, which cannot wait for the next block: they are out of ids until it is there."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._asking = False

    def take(self) -> int | None:
        producer_id = self._services.producer_ids.take()
        if producer_id is None and not self._asking:
            self._asking = True
            self._services.spawn(self._refill())
        return producer_id

    async def _refill(self) -> None:
        try:
            await self._services.producer_ids.refill()
        finally:
            self._asking = False


def transaction_coordinators(services: Services) -> CoordinatorRuntime[TransactionShard]:
    config = services.config
    producer_ids = _SpareProducerIds(services)

    def make(partition: int, leader_epoch: int) -> TransactionShard:
        from ottla.coordinator.timeline import Timeline
        from ottla.coordinator.transaction.settings import TransactionSettings
        from ottla.coordinator.transaction.shard import TransactionShard

        return TransactionShard(
            timeline=Timeline(),
            coordinator_epoch=leader_epoch,
            producer_ids=producer_ids,
            settings=TransactionSettings.from_config(config),
        )

    runtime = CoordinatorRuntime(
        services,
        TRANSACTION_TOPIC,
        TRANSACTION_KINDS,
        make,
        partitions=config.get_int("transaction.state.log.num.partitions"),
        timeout_ms=config.get_int("offsets.commit.timeout.ms"),
        load_bytes=config.get_int("transaction.state.log.load.buffer.size"),
    )
    metrics.register_transactions(services.metrics, runtime)
    services.replicas.leaderships[TRANSACTION_TOPIC] = runtime
    return runtime
