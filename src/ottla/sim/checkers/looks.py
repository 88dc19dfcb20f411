"""C10: what an open transaction has staged is not told to anybody, and who asks for stable offsets waits for its end.

An answer without a wait is judged by whoever gave it: a broker that leads the partition from the question to the answer
knows all that was committed there before the question. One that has been deposed and does not know it may say what was
true before, as in Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.model import GROUP_TOPIC, TopicPartition
from ottla.sim import view
from ottla.sim.checkers.violation import Violation
from ottla.sim.cluster import Cluster
from ottla.sim.history import History, Look

if TYPE_CHECKING:
    from ottla.sim.checkers.group_shadow import GroupShadow, InForce


@dataclass(slots=True)
class _Asked:
    """A question, and what was staged when it was asked."""

    look: Look
    leader_epoch: int | None
    staged: list[tuple[int, int, int, InForce]] = field(default_factory=list)
    """Partition of the group's topic, producer id, partition of the topic asked for, and the entry."""


class LookChecker:
    def __init__(self, cluster: Cluster, history: History, shadows: dict[int, GroupShadow]) -> None:
        self._cluster = cluster
        self._history = history
        self._shadows = shadows
        self._known = 0
        self._pending: list[_Asked] = []
        self.while_staged = 0
        """Questions for offsets that a transaction had staged."""

    def on_answers(self, took_effect: set[str]) -> None:
        looks = self._history.looks
        while self._known < len(looks):
            self._pending.append(self._ask(looks[self._known]))
            self._known += 1
        if self._pending:
            for asked in self._pending:
                if asked.look.completed >= 0:
                    self._check(asked, took_effect)
            self._pending = [asked for asked in self._pending if asked.look.completed < 0]

    def _ask(self, look: Look) -> _Asked:
        asked = _Asked(look, None)
        for index, shadow in self._shadows.items():
            for producer_id, places in shadow.staged.items():
                for (group_id, topic, partition), entry in places.items():
                    if (group_id, topic) == (look.group_id, look.topic):
                        asked.staged.append((index, producer_id, partition, entry))
        if asked.staged:
            self.while_staged += 1
            asked.leader_epoch = self._leader_epoch(look.node, asked.staged[0][0])
        return asked

    def _check(self, asked: _Asked, took_effect: set[str]) -> None:
        look = asked.look
        for partition, (offset, name) in look.found.items():
            if offset >= 0 and name not in took_effect:
                raise Violation(
                    "C10",
                    f"{look.node} told that {look.group_id} has {offset} for {partition} by {name}, which has not "
                    f"taken effect",
                )
        if not look.stable or asked.leader_epoch is None:
            return
        for index, producer_id, partition, entry in asked.staged:
            staged = self._shadows[index].staged.get(producer_id, {})
            if (
                partition in look.found
                and staged.get((look.group_id, look.topic, partition)) == entry
                and self._leader_epoch(look.node, index) == asked.leader_epoch
            ):
                raise Violation(
                    "C10",
                    f"{look.node} called {look.found[partition]} of {look.group_id} for {partition} stable, and "
                    f"producer {producer_id} has staged {entry} all the time",
                )

    def _leader_epoch(self, node: str, partition: int) -> int | None:
        """In which epoch that broker leads that partition of the groups' topic, by its own account and the newest
        metadata's."""
        machine = next((each for each in self._cluster.brokers if each.name == node), None)
        hosted = None if machine is None else view.hosted(machine, TopicPartition(GROUP_TOPIC, partition))
        leader = None if hosted is None else hosted.leader
        current = view.newest_image(self._cluster).partition(GROUP_TOPIC, partition)
        if leader is None or current is None or current.leader_epoch != leader.leader_epoch:
            return None
        return leader.leader_epoch
