"""Where the replicas of new partitions go.

Three aims, in this order: no broker holds two replicas of a partition, the replicas of a partition are spread over the
racks as evenly as they allow, and leaders and replicas are spread over the brokers. Leaders go round the racks and,
within a rack, round its brokers; followers go round the other racks from there. The starting points are random, so that
many small topics do not all begin on the same broker. A fenced broker is given replicas only when the others do not
suffice, and never the lead. Brokers without a rack share one.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from random import Random
from typing import NamedTuple

from ottla.errors import ErrorCode, KafkaError


class UsableBroker(NamedTuple):
    broker_id: int
    rack: str | None
    fenced: bool


class _Rack:
    __slots__ = ("followed", "led", "others", "ready")

    def __init__(self, brokers: list[UsableBroker], random: Random) -> None:
        self.ready = sorted(broker.broker_id for broker in brokers if not broker.fenced)
        self.others = sorted(broker.broker_id for broker in brokers if broker.fenced)
        self.led = random.randrange(len(self.ready)) if self.ready else 0
        self.followed = random.randrange(len(self.ready)) if self.ready else 0

    def next_leader(self) -> int:
        self.led += 1
        return self.ready[self.led % len(self.ready)]

    def followers(self, leader: int, shift: int) -> list[int]:
        """The rack's brokers in the order in which they are to follow `leader`, who may be one of them."""
        if leader in self.ready:
            at = self.ready.index(leader)
            rest = self.ready[at + 1 :] + self.ready[:at]
            return _rotated(rest, shift) + self.others
        self.followed += 1
        return _rotated(self.ready, self.followed) + _rotated(self.others, self.followed)


def _rotated(items: list[int], by: int) -> list[int]:
    if not items:
        return items
    by %= len(items)
    return items[by:] + items[:by]


def place_replicas(
    brokers: list[UsableBroker], *, partitions: int, replication_factor: int, random: Random
) -> list[tuple[int, ...]]:
    """The replicas of each partition, the preferred leader first. Raises INVALID_REPLICATION_FACTOR."""
    if replication_factor > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): only {len(brokers)} broker(s) are "
            f"registered.",
        )
    by_rack: dict[str, list[UsableBroker]] = {}
    for broker in brokers:
        by_rack.setdefault("" if broker.rack is None else broker.rack, []).append(broker)
    racks = [_Rack(by_rack[name], random) for name in sorted(by_rack)]
    leading = [index for index, rack in enumerate(racks) if rack.ready]
    if not leading:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): all brokers are fenced or shutting down.",
        )
    start = random.randrange(len(leading))
    ready = sum(len(rack.ready) for rack in racks)
    placements: list[tuple[int, ...]] = []
    for partition in range(partitions):
        first = leading[(start + partition) % len(leading)]
        replicas = [racks[first].next_leader()]
        if replication_factor > 1:
            # Once round all brokers, pair them differently than before.
            shift = partition // ready
            queues = [
                racks[(first + step) % len(racks)].followers(replicas[0], shift) for step in range(1, len(racks) + 1)
            ]
            turn = 0
            while len(replicas) < replication_factor:
                queue = queues[turn % len(queues)]
                if queue:
                    replicas.append(queue.pop(0))
                turn += 1
        placements.append(tuple(replicas))
    return placements


def check_assignment(
    partition: int, brokers: Sequence[int], registered: Container[int], factor: int | None = None
) -> None:
    """May somebody put the replicas of `partition` on `brokers` by hand? `factor` is how many the others have."""
    if not brokers:
        reason = "are an empty list"
    elif len(set(brokers)) != len(brokers):
        reason = "name a broker more than once"
    elif strangers := [broker_id for broker_id in brokers if broker_id not in registered]:
        reason = f"include broker {strangers[0]}, which is not registered"
    elif factor is not None and len(brokers) != factor:
        reason = f"are {len(brokers)}, but other partitions have {factor}"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The replicas of partition {partition} {reason}.")
