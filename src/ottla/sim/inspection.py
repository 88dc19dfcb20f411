"""All checkers of one simulation, and when each of them looks.

Driven by `run` after every step, with the loops that ran in it, and once at the end. Raises `Violation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.model import TopicPartition
from ottla.sim.checkers.compaction import CompactionChecker
from ottla.sim.checkers.groups import GroupChecker
from ottla.sim.checkers.histories import HistoryChecker
from ottla.sim.checkers.ledger import Ledger
from ottla.sim.checkers.metadata import MetadataChecker
from ottla.sim.checkers.mirror import Batch
from ottla.sim.checkers.quorum import QuorumChecker
from ottla.sim.checkers.replicas import ReplicaChecker
from ottla.sim.checkers.silence import check_silence
from ottla.sim.checkers.survivors import check_survivors
from ottla.sim.checkers.transactions import TransactionChecker
from ottla.sim.cluster import Cluster, Machine
from ottla.sim.fleeting import PLACE as FLEETING_PLACE
from ottla.sim.fleeting import Fleeting
from ottla.sim.history import History, Outcome

if TYPE_CHECKING:
    from ottla.sim.loop import SimLoop


class Inspection:
    def __init__(
        self, cluster: Cluster, history: History, kept: History, *, coordinated: bool, forgetful: bool = False
    ) -> None:
        """`kept` is the history of compacted partitions; `forgetful`: producers are soon forgotten."""
        self._cluster = cluster
        self._history = history
        self._kept = kept
        self._loops: dict[SimLoop, Machine] = {}
        self.compaction = CompactionChecker(cluster)
        self.replicas = ReplicaChecker(cluster, self.compaction)
        self.metadata = MetadataChecker(cluster, self.replicas.committed_metadata)
        self.quorum = QuorumChecker(cluster)
        self.histories = HistoryChecker(history, self._ledger_of)
        self.transactions = TransactionChecker(cluster, history, kept, forgetful=forgetful)
        self.groups = GroupChecker(cluster, history)
        self._coordinated = coordinated
        self.fleeting: Fleeting | None = None
        self.replicas.on_committed = self._on_committed
        if coordinated:
            self.histories.on_poll = self.transactions.on_poll

    def _on_committed(self, place: TopicPartition, batch: Batch) -> None:
        if place == FLEETING_PLACE:
            return  # Neither compacted nor written to in transactions, and its offsets begin again.
        self.compaction.on_committed(place, batch)
        if self._coordinated:
            self.transactions.on_committed(place, batch)
            self.groups.on_committed(place, batch)

    def after_step(self, touched: dict[SimLoop, None]) -> None:
        moved = False
        world = self._cluster.scheduler.world
        for loop in touched:
            if loop is world:
                continue
            machine = self._loops.get(loop) or self._machine_of(loop)
            if machine is None:
                continue
            self.replicas.after_step(machine)
            self.quorum.after_step(machine)
            moved = self.metadata.after_step(machine) or moved
            if self._coordinated:
                check_silence(machine)
                self.groups.watch(machine)
                self.transactions.watch(machine)
        if moved and self.metadata.moved:
            image = self.metadata.newest
            assert image is not None
            for place, topic_id, before, after in self.metadata.moved:
                ledger = self.replicas.ledger_of(place, topic_id)
                if ledger is not None:
                    self.replicas.check_candidates(place, topic_id, ledger)
                if before is not None and before is not after:
                    self.replicas.in_sync.on_changed(place, topic_id, before, after, image)
        if self.metadata.newest is not None:
            self.replicas.check_kept(self.metadata.newest)
        self.transactions.after_step()
        self.groups.after_step()
        if world in touched:
            self.groups.on_answers()
            self.histories.after_step()
            for history in (self._history, self._kept):
                while history.corrupt:
                    self.replicas.check_corrupt(*history.corrupt.pop())
            if self.fleeting is not None:
                for found in self.fleeting.after_step():
                    self.replicas.check_corrupt(*found)

    def at_end(self) -> None:
        self.replicas.at_end()
        self.quorum.at_end()
        self.histories.at_end(may_lose=False)
        self.transactions.at_end()
        self.groups.at_end()
        check_survivors(self._kept, self.compaction.revived)
        if self.fleeting is not None:
            self.fleeting.at_end()

    def _machine_of(self, loop: SimLoop) -> Machine | None:
        for machine in self._cluster.machines.values():
            if machine.process is not None and machine.process.loop is loop:
                self._loops[loop] = machine
                return machine
        return None

    def _ledger_of(self, place: TopicPartition) -> Ledger | None:
        for (topic, index, _), ledger in self.replicas.ledgers.items():
            if topic == place.topic and index == place.partition:
                return ledger
        return None

    def counts(self) -> dict[str, int]:
        """What happened."""
        history, scheduler = self._history, self._cluster.scheduler
        transactions = [*history.transactions, *self._kept.transactions]
        sends = [*history.sends, *self._kept.sends]

        def ended(outcome: Outcome) -> int:
            return sum(1 for each in transactions if each.outcome is outcome)

        return {
            "operations": history.operations + self._kept.operations,
            "transactions committed": ended(Outcome.OK),
            "transactions aborted": ended(Outcome.FAILED),
            "transactions left open": ended(Outcome.INFO),
            "transactions by version 1": history.by_version_1 + self._kept.by_version_1,
            "producer ids used up": self.transactions.rotations,
            "producers forgotten": self.replicas.forgotten,
            "acknowledged": sum(1 for send in sends if send.outcome is Outcome.OK),
            "polls": len(history.polls),
            "polls of followers": history.follower_polls,
            "old batches sent again": history.resent,
            "messages": self._cluster.trace.messages,
            "steps": scheduler.steps,
            "callbacks": scheduler.callbacks,
            "leaderships": self.replicas.leaderships,
            "elections": self.metadata.elections,
            "truncations": self.replicas.truncations,
            "markers": self.transactions.markers,
            "offsets committed": self.groups.offsets_committed,
            "offsets looked at while staged": self.groups.looks.while_staged,
            "static members replaced": self.groups.replaced,
            "assignments": self.groups.assignments,
            "coordinators loaded": self.groups.generations.loads + self.transactions.loads,
            "values transformed": sum(len(each.sources) for each in transactions),
            "topics created anew": 0 if self.fleeting is None else max(0, self.fleeting.lives - 1),
            "log starts moved": self.replicas.starts_moved,
            "segments compacted": self.compaction.cleaned,
            "records compacted away": self.compaction.removed,
            "isr shrinks": self.metadata.shrinks,
            "isr growths": self.metadata.growths,
            "unclean restarts": self.replicas.unclean_restarts,
            "quorum elections": self.quorum.elections,
            "snapshot loads": self.quorum.snapshot_loads,
            "voter changes": self.quorum.voter_changes,
        }
