"""Which coordinators this node has: groups on `__consumer_offsets`, transactions on `__transaction_state`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ottla.broker.coordinators.runtime import CoordinatorRuntime
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.groups import Group, Shared
from ottla.coordinator.outcome import Outcome
from ottla.coordinator.stored import GROUP_KINDS, TRANSACTION_KINDS
from ottla.coordinator.timeline import Timeline
from ottla.coordinator.transaction.settings import TransactionSettings
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.errors import KafkaError
from ottla.model import GROUP_TOPIC, TRANSACTION_TOPIC
from ottla.records import CompressionType

if TYPE_CHECKING:
    from ottla.broker.services import Services

_log = logging.getLogger(__name__)


AnyGroupShard = GroupShard[Any, Any, Any]


class _Unbuilt:
    """Stands for a part that is not in this tree yet."""

    def __init__(self) -> None:
        self.timeline = Timeline()

    def group(self, group_id: str) -> Group | None:
        return None

    def groups(self) -> Iterator[Group]:
        return iter(())

    def replay(self, *_: object) -> None: ...

    replay_marker = on_group_tombstone = replay

    def on_loaded(self, *_: object) -> Outcome[None]:
        return Outcome()

    on_metadata = on_timer = on_written = on_loaded


def _part(module: str, name: str) -> Callable[..., Any]:
    try:
        found = find_spec(module) is not None and hasattr(import_module(module), name)
    except ModuleNotFoundError:
        found = False
    return getattr(import_module(module), name) if found else lambda *_, **__: _Unbuilt()


def group_coordinators(services: Services) -> CoordinatorRuntime[GroupShard[Any, Any, Any]]:
    config = services.config

    def make(partition: int, leader_epoch: int) -> GroupShard[Any, Any, Any]:
        shared = Shared(lambda: services.config)
        offsets = _part("ottla.coordinator.offsets", "Offsets")(shared)
        classic = _part("ottla.coordinator.classic", "ClassicGroups")(shared)
        consumer = _part("ottla.coordinator.consumer", "ConsumerGroups")(shared, classic)
        return GroupShard(shared, offsets, classic, consumer)

    runtime = CoordinatorRuntime(
        services,
        GROUP_TOPIC,
        GROUP_KINDS,
        make,
        partitions=config.get_int("offsets.topic.num.partitions"),
        timeout_ms=config.get_int("offsets.commit.timeout.ms"),
        load_bytes=config.get_int("offsets.load.buffer.size"),
        compression=CompressionType(config.get_int("offsets.topic.compression.codec")),
    )
    services.replicas.leaderships[GROUP_TOPIC] = runtime
    return runtime


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
        except KafkaError as error:
            _log.warning("the controller gives no producer ids: %s", error)
        finally:
            self._asking = False


def transaction_coordinators(services: Services) -> CoordinatorRuntime[TransactionShard]:
    config = services.config
    settings = TransactionSettings.from_config(config)
    producer_ids = _SpareProducerIds(services)

    def make(partition: int, leader_epoch: int) -> TransactionShard:
        return TransactionShard(
            timeline=Timeline(), coordinator_epoch=leader_epoch, producer_ids=producer_ids, settings=settings
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
    services.replicas.leaderships[TRANSACTION_TOPIC] = runtime
    return runtime
