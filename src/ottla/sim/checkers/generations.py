"""C6, and C12 of groups that rebalance: the generations of classic groups.

What a generation's members have is what its leader sent for each of them, all by one plan; the record of a generation
comes again only when a static member takes another's place. And in a coordinator's memory, where most of a rebalance
happens, a generation is one more than the last, for each join phase that ends.

While a group rebalances nothing of it expires. A coordinator gives each record its offset when it is decided on: so it
is known which records were decided on while which group was rebalancing, long before they are committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.broker.coordinators.served import ServedShard
from ottla.coordinator.classic.group import ClassicGroup, GroupState
from ottla.coordinator.consumer.embedded import read_assignment
from ottla.coordinator.group_shard import GroupShard
from ottla.sim import view
from ottla.sim.checkers.violation import Violation
from ottla.sim.cluster import Machine
from ottla.sim.history import History
from ottla.wire.messages.group_metadata_value import GroupMetadataValue

_REBALANCING = (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)
_JOIN_PHASE_OVER = (GroupState.COMPLETING_REBALANCE, GroupState.EMPTY)

Shares = dict[str, frozenset[int]]
"""What each member has."""


class _Seen(NamedTuple):
    """A group as a coordinator had it in mind after the last step."""

    group: ClassicGroup
    generation: int
    state: GroupState
    members: frozenset[str]

    def may_have_been_empty_since(self, now: _Seen) -> bool:
        """None of its members is left, and others are there: a node that stood still may notice both in one turn."""
        return bool(self.members) and bool(now.members) and self.members.isdisjoint(now.members)


@dataclass(slots=True)
class _Mind:
    """What is known of one coordinator's shard."""

    served: ServedShard[GroupShard]
    next_offset: int
    groups: dict[str, _Seen] = field(default_factory=dict)


@dataclass(slots=True)
class _Span:
    """The records from `start` to before `end` were decided on while the group rebalanced."""

    start: int
    end: int


class GenerationChecker:
    def __init__(self, history: History) -> None:
        self._history = history
        self._plans: dict[tuple[str, int, str], list[Shares]] = {}
        """(group, generation, leader) → what was sent; more than once if a generation was lost with its coordinator."""
        self._known_plans = 0
        self._written: dict[str, tuple[int, Shares]] = {}
        self._minds: dict[tuple[int, int], _Mind] = {}
        """By machine and partition."""
        self._rebalances: dict[tuple[int, int, str], list[_Span]] = {}
        """By partition, leader epoch and group."""
        self.loads = 0
        """How many shards of groups came to be served."""

    # What became committed.

    def on_record(self, group_id: str, value: GroupMetadataValue | None) -> Shares:
        """The group's newest record. What its members have by it."""
        before = self._written.get(group_id)
        if value is None:
            self._written.pop(group_id, None)
            return {}
        shares = {member.member_id: assigned_partitions(member.assignment) for member in value.members}
        self._written[group_id] = (value.generation, shares)
        if before is not None and value.generation < before[0]:
            raise Violation("C6", f"{group_id} is in generation {value.generation}, after {before[0]}")
        if not shares:
            return shares
        if before is not None and value.generation == before[0]:
            if sorted(map(sorted, shares.values())) != sorted(map(sorted, before[1].values())):
                raise Violation(
                    "C6", f"{group_id}: generation {value.generation} had {before[1]}, and has {shares} by another plan"
                )
            return shares
        self._learn_plans()
        plans = self._plans.get((group_id, value.generation, value.leader or ""), [])
        if not any(all(plan.get(member, frozenset()) == share for member, share in shares.items()) for plan in plans):
            raise Violation(
                "C6",
                f"{group_id}: generation {value.generation} has {shares}, where its leader {value.leader} sent {plans}",
            )
        return shares

    def _learn_plans(self) -> None:
        plans = self._history.plans
        for plan in plans[self._known_plans :]:
            self._plans.setdefault((plan.group_id, plan.generation, plan.leader), []).append(plan.partitions)
        self._known_plans = len(plans)

    def check_expired(self, partition: int, leader_epoch: int, group_id: str, record_offset: int) -> None:
        """C12: an offset of the group has been taken back."""
        for span in self._rebalances.get((partition, leader_epoch, group_id), ()):
            if span.start <= record_offset < span.end:
                raise Violation("C12", f"an offset of {group_id} expired while it was rebalancing")

    # What coordinators have in mind.

    def watch(self, machine: Machine) -> Iterator[int]:
        """After each step of the machine. The partitions that it has begun to serve in it."""
        for served in view.served_groups(machine):
            key = (machine.id, served.partition.index)
            mind = self._minds.get(key)
            if mind is None or mind.served is not served:
                mind = self._minds[key] = _Mind(served, served.next_offset)
                self.loads += 1
                yield served.partition.index
            if served.next_offset < mind.next_offset:
                self._forget_undone(served)
            mind.next_offset = served.next_offset
            live = served.shard.classic._live
            if live or mind.groups:
                for group in live.values():
                    self._look_at(machine, mind, group)
                for group_id in [group_id for group_id in mind.groups if group_id not in live]:
                    del mind.groups[group_id]

    def _look_at(self, machine: Machine, mind: _Mind, group: ClassicGroup) -> None:
        group_id = group.group_id
        seen = mind.groups.get(group_id)
        if seen is not None and seen.group is not group:
            seen = None
        mind.groups[group_id] = now = _Seen(group, group.generation, group.state, frozenset(group.members))
        if seen is not None:
            rose = now.generation - seen.generation
            ended = seen.state is GroupState.PREPARING_REBALANCE and group.state in _JOIN_PHASE_OVER
            most = 2 if seen.may_have_been_empty_since(now) else 1
            if not 0 <= rose <= most or (ended and not rose):
                raise Violation(
                    "C6",
                    f"{machine.name} has {group_id} in generation {group.generation} ({group.state}), after "
                    f"{seen.generation} ({seen.state})",
                )
        if group.state not in _REBALANCING:
            return
        served = mind.served
        spans = self._rebalances.setdefault((served.partition.index, served.leader_epoch, group_id), [])
        goes_on = seen is not None and seen.state in _REBALANCING and seen.generation == group.generation
        if not goes_on or not spans:
            spans.append(_Span(served.next_offset, served.next_offset))
        spans[-1].end = served.next_offset

    def _forget_undone(self, served: ServedShard[GroupShard]) -> None:
        """What was decided on could not be written: others will have those offsets."""
        end = served.next_offset
        for (partition, leader_epoch, _), spans in self._rebalances.items():
            if (partition, leader_epoch) == (served.partition.index, served.leader_epoch):
                for span in spans:
                    span.start, span.end = min(span.start, end), min(span.end, end)


def assigned_partitions(data: bytes) -> frozenset[int]:
    """Of an assignment as classic consumers write it."""
    if not data:
        return frozenset()
    return frozenset(partition for topic in read_assignment(data).assigned_partitions for partition in topic.partitions)
