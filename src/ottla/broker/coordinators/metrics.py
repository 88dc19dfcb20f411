"""What the coordinators of a node show on its page of metrics, under Kafka's names.

Nothing is kept for it but what shards count (`coordinator/tally`): states are counted when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, TypeVar

from ottla.broker.coordinators.served import ShardState
from ottla.coordinator.shard import Shard
from ottla.coordinator.tally import GroupTally
from ottla.metrics.registry import Registry

if TYPE_CHECKING:
    from ottla.broker.coordinators.runtime import CoordinatorRuntime
    from ottla.broker.monitoring.node_metrics import NodeMetrics
    from ottla.coordinator.group_shard import GroupShard
    from ottla.coordinator.transaction.shard import TransactionShard

S = TypeVar("S", bound=Shard)
Series = Iterator[tuple[tuple[str, ...], float]]

_GROUPS = "kafka_server_group_coordinator_metrics_"
_CLASSIC = "kafka_coordinator_group_groupmetadatamanager_"
_TRANSACTIONS = "kafka_server_transaction_coordinator_metrics_"
_SHOWN_STATES = {ShardState.LOADING: "loading", ShardState.ACTIVE: "active", ShardState.FAILED: "failed"}
_CLASSIC_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
_CONSUMER_STATES = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")
_EMPTY = "Empty"
_KEPT = Struct(">qhq").unpack_from
"""What the table of offsets keeps begins with where the record lies; its value with its version and the offset."""


def group_tally(registry: Registry) -> GroupTally:
    return GroupTally(
        offset_commits=registry.meter(f"{_GROUPS}offset_commit"),
        offset_expirations=registry.meter(f"{_GROUPS}offset_expiration"),
        offset_deletions=registry.meter(f"{_GROUPS}offset_deletion"),
        classic_rebalances=registry.meter(f"{_GROUPS}group_completed_rebalance"),
        consumer_rebalances=registry.meter(f"{_GROUPS}consumer_group_rebalance"),
    )


def register_groups(metrics: NodeMetrics, runtime: CoordinatorRuntime[GroupShard]) -> None:
    registry = metrics.registry
    _register_partitions(registry, _GROUPS, runtime)
    census = _Census(runtime)
    metrics.before_page.append(census.take)
    registry.gauge(f"{_CLASSIC}numoffsets", lambda: sum(shard.offsets.state.table.count for shard in runtime.shards()))
    registry.gauge(f"{_CLASSIC}numgroups", lambda: sum(census.classic.values()))
    for state in _CLASSIC_STATES:
        registry.gauge(f"{_CLASSIC}numgroups{state.lower()}", partial(census.classic.__getitem__, state))
    registry.gauges(f"{_GROUPS}group_count", census.protocols)
    registry.gauges(f"{_GROUPS}consumer_group_count", census.consumers)
    registry.gauges("kafka_consumergroup_current_offset", lambda: _committed(runtime))
    registry.gauges("kafka_consumergroup_lag", lambda: _lags(runtime))


def _committed(runtime: CoordinatorRuntime[GroupShard]) -> Series:
    """Newest offsets, committed in a moment if not yet: what a page shows is a moment old anyway."""
    for shard in runtime.shards():
        table = shard.offsets.state.table
        for group_id, topic, partition in table.places():
            kept = table.get(group_id, topic, partition)
            assert kept is not None
            yield (group_id, topic, str(partition)), _KEPT(kept)[2]


def _lags(runtime: CoordinatorRuntime[GroupShard]) -> Series:
    """Of partitions with a replica here: how far others have got only their own nodes know."""
    replicas = runtime.services.replicas
    for labels, offset in _committed(runtime):
        hosted = replicas.partition(labels[1], int(labels[2]))
        if hosted is not None and not hosted.offline:
            yield labels, max(0, hosted.log.high_watermark - offset)


class _Census:
    """How many groups of each kind are in each state, counted once a page.

    A group that has offsets and nothing else is a classic one without members, as in Kafka.
    """

    def __init__(self, runtime: CoordinatorRuntime[GroupShard]) -> None:
        self._runtime = runtime
        self.classic = dict.fromkeys(_CLASSIC_STATES, 0)
        self.consumer = dict.fromkeys(_CONSUMER_STATES, 0)

    def take(self) -> None:
        for counts in (self.classic, self.consumer):
            counts.update(dict.fromkeys(counts, 0))
        for shard in self._runtime.shards():
            for state, count in shard.classic.count_states().items():
                self.classic[state.value] += count
            self.classic[_EMPTY] += shard.count_simple_groups()
            for name, count in shard.consumer.count_states().items():
                self.consumer[name] += count

    def protocols(self) -> Series:
        yield ("classic",), sum(self.classic.values())
        yield ("consumer",), sum(self.consumer.values())

    def consumers(self) -> Series:
        for name, count in self.consumer.items():
            yield (name.lower(),), count


def register_transactions(metrics: NodeMetrics, runtime: CoordinatorRuntime[TransactionShard]) -> None:
    _register_partitions(metrics.registry, _TRANSACTIONS, runtime)

    def states() -> Series:
        totals: dict[str, int] = {}
        for shard in runtime.shards():
            for state, count in shard.count_states().items():
                if count:
                    totals[state.title] = totals.get(state.title, 0) + count
        for title, count in totals.items():
            yield (title,), count

    metrics.registry.gauges(f"{_TRANSACTIONS}transactional_id_count", states)


def _register_partitions(registry: Registry, prefix: str, runtime: CoordinatorRuntime[S]) -> None:
    def partitions() -> Series:
        for state, count in runtime.count_partitions().items():
            if state in _SHOWN_STATES:
                yield (_SHOWN_STATES[state],), count

    registry.gauges(f"{prefix}num_partitions", partitions)
    registry.gauge(f"{prefix}partition_load_time_max", lambda: runtime.load_times.max_ms)
    registry.gauge(f"{prefix}partition_load_time_avg", lambda: runtime.load_times.average_ms)
