"""Which coordinators this node has: groups on `__consumer_offsets`, transactions on `__transaction_state`."""

from __future__ import annotations

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
from ottla.model import GROUP_TOPIC, TRANSACTION_TOPIC
from ottla.records import CompressionType

if TYPE_CHECKING:
    from ottla.broker.services import Services


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
        consumer = _part("ottla.coordinator.consumer", "ConsumerGroups")(
            shared.timeline, lambda: services.config, classic
        )
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


def transaction_coordinators(services: Services) -> CoordinatorRuntime[Any]:
    config = services.config

    def make(partition: int, leader_epoch: int) -> Any:
        found = _part("ottla.coordinator.transaction", "make_shard")
        return found(services, partition, leader_epoch)

    runtime: CoordinatorRuntime[Any] = CoordinatorRuntime(
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
