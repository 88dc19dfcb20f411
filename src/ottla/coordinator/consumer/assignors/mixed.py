"""`uniform` where members are subscribed to different topics.

First everybody keeps what it had and is still subscribed to. Then what nobody has goes, topic by topic, to the
subscriber with the least. Then partitions move, topic by topic, from the subscriber with the most to the one with the
least, until no move makes it more even or the rounds are used up.
"""

from __future__ import annotations

import struct

from ottla.coordinator.consumer.assignors.spec import Assignment, Draft, GroupSpec
from ottla.coordinator.consumer.hash_order import capacity_for
from ottla.model import Uuid

_ROUNDS_MAX = 16
_NOBODY = -1
_SIGNED = struct.Struct(">qq")


def assign_mixed(spec: GroupSpec) -> dict[str, Assignment]:
    plan = _Plan(spec)
    if not plan.subscribers:
        return {}
    plan.assign_free()
    plan.balance()
    return {member_id: draft.result for member_id, draft in zip(spec.members, plan.drafts, strict=True)}


class _Plan:
    """Members are numbers here, in the order of the spec: an order that ties are broken by."""

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self.drafts: list[Draft] = []
        self._loads: list[int] = []
        self.subscribers: dict[Uuid, list[int]] = {}
        for index, member in enumerate(spec.members.values()):
            for topic in member.topics:
                self.subscribers.setdefault(topic, []).append(index)
        self._owners = {topic: [_NOBODY] * spec.partitions[topic] for topic in self.subscribers}
        for index, member in enumerate(spec.members.values()):
            draft = Draft(member.assignment)
            load = 0
            for topic, partitions in member.assignment.items():
                if topic not in member.topics:
                    draft.remove_topic(topic)
                    continue
                load += len(partitions)
                for partition in partitions:
                    self._owners[topic][partition] = index
            self.drafts.append(draft)
            self._loads.append(load)

    def assign_free(self) -> None:
        for topic in self._sorted([topic for topic, owners in self._owners.items() if _NOBODY in owners]):
            ladder = _Ladder(self._loads, self.subscribers[topic])
            for partition, owner in enumerate(self._owners[topic]):
                if owner == _NOBODY:
                    self._give(topic, partition, ladder.next_least())

    def balance(self) -> None:
        topics = self._sorted([topic for topic, members in self.subscribers.items() if len(members) >= 2])
        last_changed: int | None = None
        for _ in range(_ROUNDS_MAX):
            for index, topic in enumerate(topics):
                if index == last_changed:
                    return  # A whole round without a move.
                if self._balance_topic(topic) or last_changed is None:
                    last_changed = index

    def _balance_topic(self, topic: Uuid) -> bool:
        """Whether anything moved."""
        ladder = _Ladder(self._loads, self.subscribers[topic])
        if ladder.spread <= 1:
            return False
        held: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic]):
            held.setdefault(owner, []).append(partition)
        moved = False
        while not ladder.is_even:
            giver = ladder.next_most()
            while giver is not None and not held.get(giver):
                ladder.exclude_most()
                giver = ladder.next_most()
            if giver is None:
                break
            partition = held[giver].pop()
            taker = ladder.next_least()
            if ladder.is_even:
                break
            self._give(topic, partition, taker)
            moved = True
        return moved

    def _give(self, topic: Uuid, partition: int, member: int) -> None:
        before = self._owners[topic][partition]
        if before != _NOBODY:
            self.drafts[before].remove(topic, partition)
            self._loads[before] -= 1
        share = -(-self._spec.partitions[topic] // len(self.subscribers[topic]))
        self.drafts[member].add(topic, [partition], capacity=capacity_for(int(share / 0.75 + 1)))
        self._owners[topic][partition] = member
        self._loads[member] += 1

    def _sorted(self, topics: list[Uuid]) -> list[Uuid]:
        """Those with the most partitions for each subscriber first: they leave the least choice."""

        def rank(topic: Uuid) -> tuple[float, int, tuple[int, ...]]:
            members = len(self.subscribers[topic])
            return -self._spec.partitions[topic] / members, members, _SIGNED.unpack(topic)

        return sorted(topics, key=rank)


class _Ladder:
    """The subscribers of one topic by load, handed out from both ends.

    From below: the least loaded, each once, as if each had then got one partition; when all of them have, they are a
    rung higher, together with those who stood there already. From above likewise, downwards. `loads` changes
    meanwhile as partitions are given, and the rungs are compared with it as it is.
    """

    __slots__ = (
        "_loads",
        "_low_count",
        "_low_end",
        "_low_next",
        "_members",
        "_most_count",
        "_most_end",
        "_most_next",
        "_most_start",
    )

    def __init__(self, loads: list[int], members: list[int]) -> None:
        self._loads = loads
        self._members = sorted(members, key=lambda member: (loads[member], member))
        self._low_end = 0
        self._low_count = loads[self._members[0]] - 1
        self._low_next = 0
        self._most_start = self._most_end = len(members)
        self._most_count = loads[self._members[-1]] + 1
        self._most_next = len(members) - 1

    @property
    def spread(self) -> int:
        return self._loads[self._members[-1]] - self._loads[self._members[0]]

    @property
    def is_even(self) -> bool:
        return self._most_count - self._low_count <= 1

    def next_least(self) -> int:
        members, loads = self._members, self._loads
        if self._low_next >= self._low_end:
            self._low_count += 1
            while self._low_end < len(members) and loads[members[self._low_end]] == self._low_count:
                self._low_end += 1
            self._low_next = 0
        self._low_next += 1
        return members[self._low_next - 1]

    def next_most(self) -> int | None:
        """None: nobody is left who has anything to give."""
        members, loads = self._members, self._loads
        if self._most_next < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                # Everybody on this rung has been excluded: go down to the next one, however far.
                self._most_count = loads[members[self._most_start - 1]]
            else:
                self._most_count -= 1
            while self._most_start > 0 and loads[members[self._most_start - 1]] == self._most_count:
                self._most_start -= 1
            self._most_next = self._most_end - 1
        if self._most_next < 0:
            return None
        self._most_next -= 1
        return members[self._most_next + 1]

    def exclude_most(self) -> None:
        """Who was handed out last from above has nothing of this topic."""
        members, last = self._members, self._most_end - 1
        members[self._most_next + 1], members[last] = members[last], members[self._most_next + 1]
        self._most_end = last
