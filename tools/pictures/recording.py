"""What was seen of a partition and of the quorum while time passed: one entry whenever anything had changed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.model import TopicPartition
from ottla.sim import view
from ottla.sim.cluster import Cluster, Machine


class Replica(NamedTuple):
    """One node's copy of the partition, as the node itself knew it."""

    running: bool
    leads: bool
    end: int
    high_watermark: int
    stable: int
    """The last stable offset."""
    epochs: tuple[tuple[int, int], ...]
    """(epoch, where it begins), in order."""

    def epoch_of(self, offset: int) -> int:
        return max((epoch for epoch, start in self.epochs if start <= offset), default=-1)


class Voter(NamedTuple):
    """One node's part in the quorum."""

    role: str
    epoch: int


class Moment(NamedTuple):
    at: float
    replicas: dict[int, Replica]
    voters: dict[int, Voter]
    leader: int
    """Of the partition, by the newest metadata that anybody has; -1 if none."""
    leader_epoch: int
    isr: tuple[int, ...]


@dataclass(slots=True)
class Recording:
    """Looks at the cluster after every step; `moments` are in the order of time."""

    cluster: Cluster
    place: TopicPartition
    moments: list[Moment] = field(default_factory=list)

    def look(self) -> None:
        last = self.moments[-1] if self.moments else None
        replicas = {
            machine.id: self._replica(machine, None if last is None else last.replicas.get(machine.id))
            for machine in self.cluster.brokers
        }
        partition = view.newest_image(self.cluster).partition(*self.place)
        seen = Moment(
            at=self.cluster.scheduler.now,
            replicas={node: each for node, each in replicas.items() if each is not None},
            voters={machine.id: _voter(machine) for machine in self.cluster.controllers},
            leader=-1 if partition is None else partition.leader,
            leader_epoch=-1 if partition is None else partition.leader_epoch,
            isr=() if partition is None else tuple(sorted(partition.isr)),
        )
        if last is None or seen[1:] != last[1:]:
            self.moments.append(seen)

    def _replica(self, machine: Machine, before: Replica | None) -> Replica | None:
        """Of a node that is down, what it had."""
        hosted = view.hosted(machine, self.place) if machine.running else None
        if hosted is None:
            return None if before is None else before._replace(running=False, leads=False)
        log = hosted.log
        return Replica(
            running=True,
            leads=hosted.leader is not None,
            end=log.log_end_offset,
            high_watermark=log.high_watermark,
            stable=log.last_stable_offset,
            epochs=tuple(log.epochs.entries),
        )

    def at(self, when: float) -> Moment:
        """How it was then."""
        found = bisect_right(self.moments, when, key=lambda moment: moment.at)
        return self.moments[max(0, found - 1)]

    def between(self, begin: float, end: float) -> list[Moment]:
        """How it was at `begin`, and every change until `end`."""
        inside = [moment for moment in self.moments if begin < moment.at <= end]
        return [self.at(begin)._replace(at=begin), *inside]

    def when(self, condition: Callable[[Moment], bool], after: float = 0.0) -> float:
        """The first time that it was so."""
        return next(moment.at for moment in self.moments if moment.at >= after and condition(moment))


def _voter(machine: Machine) -> Voter:
    node = machine.node
    control = node._control if node is not None and machine.running else None
    if control is None:
        return Voter("gone", -1)
    raft = control.raft.machine
    return Voter(type(raft.role).__name__.lower(), raft.epoch)
