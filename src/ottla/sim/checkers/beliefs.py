"""C1, by what members take for their own: at no step do two that are in the group believe to have one partition.

Who is in the group is said by what is committed. A member that was removed may not have heard of it, and its belief
does no harm: nobody takes its commits. Nor has a static member of the classic protocol heard of a generation that began
without it (KIP-345): it keeps its place, and whatever it says in the old generation is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.groups import Group
from ottla.sim.checkers.group_shadow import GroupShadow
from ottla.sim.checkers.violation import Violation
from ottla.sim.history import Belief, History


class BeliefChecker:
    def __init__(self, history: History, shadows: dict[int, GroupShadow]) -> None:
        self._history = history
        self._shadows = shadows
        self._seen = 0

    def after_step(self, *, moved: bool) -> None:
        """`moved`: has anything been committed that concerns groups?"""
        history = self._history
        if not moved and history.belief_changes == self._seen:
            return
        self._seen = history.belief_changes
        owners: dict[tuple[str, int], Belief] = {}
        for (group_id, _), belief in history.beliefs.items():
            if not any(_counts(group, belief) for group in self._groups(group_id)):
                continue
            for partition in belief.partitions:
                other = owners.setdefault((group_id, partition), belief)
                if other is not belief:
                    raise Violation(
                        "C1",
                        f"{group_id}: {other.member_id} (epoch {other.epoch}) and {belief.member_id} (epoch "
                        f"{belief.epoch}) are members, and each takes {partition} for its own",
                    )

    def _groups(self, group_id: str) -> Iterable[Group]:
        for shadow in self._shadows.values():
            group = shadow.shard.group(group_id)
            if group is not None:
                yield group


def _counts(group: Group, belief: Belief) -> bool:
    """Is it a member's, as far as it can know?"""
    if isinstance(group, ClassicGroup):
        is_member = belief.member_id in group.members
        return is_member and (not belief.is_static or belief.epoch == group.generation)
    return isinstance(group, ConsumerGroup) and belief.member_id in group.members
