"""How many groups a node may coordinate (`ottla.groups.max`): whoever may name groups could name any number of them.

Asked before a group comes to be, by what makes groups: joining, and committing. Groups are counted anew when shards
come or go and when the bound seems to be reached, though not for more than a twentieth of the time; in between, whoever
was let in counts, also if no group came of it. So there may be room that is not seen for a moment, but never too many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.services import Services
    from ottla.coordinator.group_shard import GroupShard

REST_FACTOR = 20
"""For so many times as long as the last count took nobody counts again."""


class GroupCap:
    """One instance a node."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._shards: tuple[GroupShard, ...] = ()
        """Those that were counted."""
        self._count = 0
        self._count_again_s = 0.0

    def check(self, group_id: str) -> None:
        """Raises `KafkaError` where a group is new and does not fit in."""
        if not self.has_room_for(group_id):
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "This node coordinates as many groups as it may.")

    def has_room_for(self, group_id: str) -> bool:
        served = self._services.groups.find(group_id)
        if served is None or served.shard.group(group_id) is not None:
            return True  # It is another's, or here already.
        limit = self._services.config.get_int("ottla.groups.max")
        shards = tuple(self._services.groups.shards())
        if shards != self._shards or (self._count >= limit and self._services.clock.monotonic() >= self._count_again_s):
            self._take_census(shards)
        if self._count >= limit:
            return False
        self._count += 1
        return True

    def _take_census(self, shards: tuple[GroupShard, ...]) -> None:
        clock = self._services.clock
        began_s = clock.monotonic()
        self._shards = shards
        self._count = sum(_count(shard) for shard in shards)
        ended_s = clock.monotonic()
        self._count_again_s = ended_s + REST_FACTOR * (ended_s - began_s)


def _count(shard: GroupShard) -> int:
    with_members = sum(shard.classic.count_states().values()) + sum(shard.consumer.count_states().values())
    return with_members + shard.count_simple_groups()
