"""Section D: idempotent and transactional producers, by what is committed in the logs and by what clients were told.

A shadow of every partition is fed with its batches as they become committed, and one of all transactional ids with the
records of `__transaction_state`; nodes have no part in either. Batches of one step are taken in first and judged after
it, since two partitions of one node may commit within the same step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.coordinator.java_hash import partition_for
from ottla.coordinator.stored import TRANSACTION_KINDS, StoredRecord
from ottla.coordinator.transaction.states import TransactionState
from ottla.coordinator.transaction.transaction import BUMPS_EPOCH, Transaction, is_exhausted
from ottla.model import NO_PRODUCER_EPOCH, TRANSACTION_TOPIC, TopicPartition
from ottla.records import BatchHeader, iterate, read_header
from ottla.sim import view
from ottla.sim.checkers.mirror import Batch
from ottla.sim.checkers.partition_shadow import PartitionShadow
from ottla.sim.checkers.violation import Violation
from ottla.sim.cluster import Cluster, Machine
from ottla.sim.epochs import epoch_max
from ottla.sim.history import History, Outcome, Poll
from ottla.wire.messages.transaction_log_key import TransactionLogKey
from ottla.wire.messages.transaction_log_value import TransactionLogValue

if TYPE_CHECKING:
    from ottla.broker.hosted import HostedPartition

COMPLETE_WITHIN_S = 5.0
"""Between a decision and its last marker, where everybody can be reached."""

_S = TransactionState
_MOVES = {
    _S.EMPTY: {_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT},
    _S.ONGOING: {_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT},
    _S.PREPARE_COMMIT: {_S.COMPLETE_COMMIT},
    _S.PREPARE_ABORT: {_S.COMPLETE_ABORT},
    _S.COMPLETE_COMMIT: {_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT},
    _S.COMPLETE_ABORT: {_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT},
}
"""D15. Under version 2 a transaction that nothing was written to may be aborted, too."""


class TransactionChecker:
    def __init__(self, cluster: Cluster, history: History, kept: History, *, forgetful: bool = False) -> None:
        """`kept` is the history of compacted partitions, in which not all stays that was committed; `forgetful` as of
        `PartitionShadow`."""
        self._cluster = cluster
        self._forgetful = forgetful
        self._history = history
        self._kept = kept
        self.shadows: dict[TopicPartition, PartitionShadow] = {}
        self.transactions: dict[str, Transaction] = {}
        """By transactional id, as the committed records have them."""
        self._added: dict[tuple[int, int], set[TopicPartition]] = {}
        """(producer id, epoch) → partitions that were ever part of that transaction."""
        self._decided: dict[tuple[int, int], tuple[bool, frozenset[TopicPartition]]] = {}
        """(producer id, epoch of the markers) → the decision, and whom it concerns."""
        self._data: list[tuple[TopicPartition, BatchHeader]] = []
        self._markers: list[tuple[TopicPartition, BatchHeader, bool]] = []
        self._completed: list[tuple[str, Transaction]] = []
        self._moved: dict[TopicPartition, None] = {}
        self._prepared: dict[str, float] = {}
        """Those that are decided and not complete, and since when."""
        self._used_up: set[int] = set()
        """Producer ids that have no epochs left."""
        self._served: dict[tuple[int, int], object] = {}
        """(machine, partition) → the shard that it serves."""
        self.markers = 0
        self.rotations = 0
        """How often a producer got another id, since the epochs of its own were used up."""
        self.loads = 0
        """How many shards of transactional ids came to be served."""

    # What became committed.

    def on_committed(self, place: TopicPartition, batch: Batch) -> None:
        shadow = self.shadows.get(place)
        if shadow is None:
            shadow = self.shadows[place] = PartitionShadow(place, forgetful=self._forgetful)
        content = batch.file.content
        header = read_header(content, batch.position)
        with memoryview(content) as everything, everything[batch.position : batch.position + batch.size] as data:
            commit = shadow.take(header, data)
            if place.topic == TRANSACTION_TOPIC and not header.is_control:
                for record in iterate(data):
                    self._on_record(bytes(record.key or b""), None if record.value is None else bytes(record.value))
        self._moved[place] = None
        if commit is not None:
            self._markers.append((place, header, commit))
        elif header.is_transactional and not header.is_control:
            self._data.append((place, header))

    def _on_record(self, key: bytes, value: bytes | None) -> None:
        record = TRANSACTION_KINDS.decode(key, value)
        assert isinstance(record, StoredRecord)
        assert isinstance(record.key, TransactionLogKey)
        transactional_id = record.key.transactional_id
        before = self.transactions.get(transactional_id)
        if record.value is None:
            if before is not None and before.state not in (_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT):
                raise Violation("D15", f"{transactional_id} was forgotten in the state {before.state.title}")
            self.transactions.pop(transactional_id, None)
            return
        assert isinstance(record.value, TransactionLogValue)
        after = Transaction.from_value(record.value)
        self.transactions[transactional_id] = after
        self._prepared.pop(transactional_id, None)
        if before is not None:
            if after.state not in _MOVES[before.state]:
                raise Violation("D15", f"{transactional_id} went from {before.state.title} to {after.state.title}")
            if after.producer_id == before.producer_id and after.producer_epoch < before.producer_epoch:
                raise Violation(
                    "D17", f"{transactional_id} had epoch {before.producer_epoch}, and has {after.producer_epoch}"
                )
            if after.producer_id != before.producer_id:
                self._on_rotation(transactional_id, before, after)
            if after.state == _S.PREPARE_ABORT:
                self._check_fenced(transactional_id, before, after)
        match after.state:
            case _S.ONGOING:
                self._added.setdefault((after.producer_id, after.producer_epoch), set()).update(after.partitions)
            case _S.PREPARE_COMMIT | _S.PREPARE_ABORT:
                self._decided[after.producer_id, after.producer_epoch] = (after.commits, after.partitions)
                self._prepared[transactional_id] = self._cluster.scheduler.now
            case _S.COMPLETE_COMMIT | _S.COMPLETE_ABORT:
                assert before is not None
                self._completed.append((transactional_id, before))

    def _check_fenced(self, transactional_id: str, before: Transaction, after: Transaction) -> None:
        """D19: an abort that its producer did not ask for has a higher epoch. (By version 2, every end has.)"""
        identity = (before.producer_id, before.producer_epoch)
        asked = identity in self._history.aborts or identity in self._kept.aborts
        if after.producer_epoch == before.producer_epoch and not (asked and after.client_version < BUMPS_EPOCH):
            raise Violation("D19", f"{transactional_id} was aborted in epoch {before.producer_epoch}, and not fenced")

    def _on_rotation(self, transactional_id: str, before: Transaction, after: Transaction) -> None:
        """D18: another producer id, from its first epoch on, when the old one's are used up, and then never again."""
        self.rotations += 1
        self._used_up.add(before.producer_id)
        if not is_exhausted(before.producer_epoch) or after.producer_epoch != 0 or after.producer_id in self._used_up:
            raise Violation(
                "D18",
                f"{transactional_id} was producer {before.producer_id} in epoch {before.producer_epoch}, and is "
                f"{after.producer_id} in epoch {after.producer_epoch}; used up are {sorted(self._used_up)}",
            )

    # After a step.

    def watch(self, machine: Machine) -> None:
        """The machine has done something. What it serves from now on is as its log has it, before it changes (C8)."""
        for served in view.served_transactions(machine):
            key = (machine.id, served.partition.index)
            if self._served.get(key) is not served:
                self._served[key] = served
                self.loads += 1
                shadow = self.shadows.get(served.partition.topic_partition)
                if shadow is not None and served.partition.log.high_watermark == shadow.end:
                    self._check_served(machine, served.partition)

    def after_step(self) -> None:
        for place, header in self._data:
            self._check_data(place, header)
        for place, header, commit in self._markers:
            self._check_marker(place, header, commit)
        for transactional_id, decided in self._completed:
            self._check_completed(transactional_id, decided)
        self._data, self._markers, self._completed = [], [], []
        moved, self._moved = self._moved, {}
        for place in moved:
            self._check_leader(place)

    def _check_data(self, place: TopicPartition, header: BatchHeader) -> None:
        """D8: a batch is part of a transaction that its coordinator knows to have this partition."""
        if place not in self._added.get((header.producer_id, header.producer_epoch), ()):
            raise Violation(
                "D8",
                f"{place} at {header.base_offset}: producer {header.producer_id} (epoch {header.producer_epoch}) wrote "
                f"to a transaction that has no such partition",
            )

    def _check_marker(self, place: TopicPartition, header: BatchHeader, commit: bool) -> None:
        """D16 and D7: a marker tells of a decision that is committed, and of no other transaction's."""
        self.markers += 1
        decided = self._decided.get((header.producer_id, header.producer_epoch))
        if decided is None or decided[0] != commit or place not in decided[1]:
            raise Violation(
                "D16",
                f"{place} at {header.base_offset}: a marker says that the transaction of producer {header.producer_id} "
                f"(epoch {header.producer_epoch}) is {'committed' if commit else 'aborted'}, and what was decided is "
                f"{decided}",
            )

    def _check_completed(self, transactional_id: str, decided: Transaction) -> None:
        """D16 and D9: a transaction is complete when all of its partitions have the marker, and none is left open."""
        for place in sorted(decided.partitions):
            shadow = self.shadows.get(place)
            producer = None if shadow is None else shadow.producers.get(decided.producer_id)
            if producer is None or producer.epoch < decided.producer_epoch:
                raise Violation("D16", f"{transactional_id} is complete, and {place} does not have its marker")
            if decided.client_version < BUMPS_EPOCH and producer.first_offset is not None:
                # The marker has the epoch of what it ends, and until now nobody could begin another.
                raise Violation("D16", f"{transactional_id} is complete, and on {place} its transaction is still open")
        for shadow in self.shadows.values():
            producer = shadow.producers.get(decided.producer_id)
            if producer is not None and producer.first_offset is not None and producer.epoch < decided.producer_epoch:
                raise Violation(
                    "D9",
                    f"{transactional_id} is complete, and on {shadow.place} its transaction that began at "
                    f"{producer.first_offset} is still open",
                )

    def _check_leader(self, place: TopicPartition) -> None:
        """D10 of whoever has committed as far as anybody; C8 of the coordinator that serves the partition."""
        shadow = self.shadows[place]
        for machine in self._cluster.brokers:
            hosted = view.hosted(machine, place)
            if hosted is None or hosted.leader is None or hosted.log.high_watermark != shadow.end:
                continue
            if hosted.log.last_stable_offset != shadow.last_stable_offset:
                raise Violation(
                    "D10",
                    f"{place} on {machine.name} has the last stable offset {hosted.log.last_stable_offset}, where the "
                    f"committed log says {shadow.last_stable_offset} (open: {shadow.open})",
                )
            producers = hosted.log.producers
            for producer_id, first_offset in shadow.open.items():
                # Whose marker is here, and not committed yet, has nothing open here, and may be forgotten.
                if producer_id not in producers.entries and first_offset not in producers._unreplicated:
                    raise Violation(
                        "D21",
                        f"{place} on {machine.name} has forgotten producer {producer_id}, whose transaction is open "
                        f"since {first_offset}",
                    )
            if place.topic == TRANSACTION_TOPIC:
                self._check_served(machine, hosted)

    def _check_served(self, machine: Machine, hosted: HostedPartition) -> None:
        """C8, of transactions: what a coordinator tells is what a replay of its log gives."""
        shard = view.transaction_shard(machine, hosted.index)
        if shard is None:
            return
        known = dict(shard.transactions.committed_items())
        topic = view.newest_image(self._cluster).topic(TRANSACTION_TOPIC)
        for transactional_id, stored in self.transactions.items():
            is_here = topic is not None and partition_for(transactional_id, len(topic.partitions)) == hosted.index
            if is_here and transactional_id not in known:
                raise Violation("C8", f"{machine.name} does not know {transactional_id}, and its log has {stored}")
        for transactional_id, served in known.items():
            written = self.transactions.get(transactional_id)
            # Records do not carry the epoch before.
            if written != replace(served, last_producer_epoch=NO_PRODUCER_EPOCH):
                raise Violation("C8", f"{machine.name} has {transactional_id} as {served}, and its log as {written}")

    # What clients were told.

    def on_poll(self, poll: Poll) -> None:
        """D5 and D12, of an answer to a reader of committed records."""
        shadow = self.shadows.get(poll.place)
        if shadow is None or not poll.read_committed:
            return
        if poll.next > max(poll.position, shadow.last_stable_offset):
            raise Violation(
                "D5",
                f"{poll.client} read {poll.place} up to {poll.next}, where {shadow.last_stable_offset} is the last "
                f"stable offset (open: {shadow.open})",
            )
        listed = set(poll.aborted)
        for aborted in shadow.aborted if poll.next > poll.position else ():
            if (
                aborted.first_offset < poll.next
                and aborted.marker >= poll.position
                and (aborted.producer_id, aborted.first_offset) not in listed
            ):
                raise Violation(
                    "D12",
                    f"{poll.client} read {poll.place} from {poll.position} to {poll.next} and was not told that the "
                    f"transaction of producer {aborted.producer_id} from {aborted.first_offset} was aborted",
                )

    def unmet(self) -> list[str]:
        """D13: what was decided is completed some time, however often its markers have to be sent."""
        now = self._cluster.scheduler.now
        return [
            f"D13: {transactional_id} was decided at {since:.1f}, and is not complete"
            for transactional_id, since in self._prepared.items()
            if now - since > COMPLETE_WITHIN_S
        ]

    # At the end.

    def at_end(self) -> None:
        self._check_identities()
        for place, reads in self._history.final_committed.items():
            shadow = self.shadows.get(place)
            if shadow is not None and shadow.open:
                raise Violation("L10", f"{place} has open transactions for ever: {shadow.open}")
            visible = {read.value for read in reads}
            for poll in (*self._history.polls, *self._history.inner):
                if poll.read_committed and poll.place == place:
                    for read in poll.reads:
                        if read.value not in visible:
                            raise Violation(
                                "D5",
                                f"{poll.client} read {read.value!r} at {read.offset} of {place}: it is not committed",
                            )
        visible = {read.value for reads in self._history.final_committed.values() for read in reads}
        for transaction in self._history.transactions:
            acknowledged = [value for send in transaction.sends if send.outcome is Outcome.OK for value in send.values]
            seen = [value for send in transaction.sends for value in send.values if value in visible]
            who = f"{transaction.transactional_id} (producer {transaction.producer_id}, {transaction.producer_epoch})"
            if transaction.outcome is Outcome.FAILED and seen:
                raise Violation("D5", f"{who} was aborted, and {seen[0]!r} is there")
            if transaction.outcome is Outcome.OK or seen:
                missing = [value for value in acknowledged if value not in visible]
                if missing:
                    name = "D6" if transaction.outcome is Outcome.OK else "D4"
                    raise Violation(name, f"{who} was committed, and {missing[0]!r} is not there")

    def _check_identities(self) -> None:
        """D17, D18 and D20: what is handed out rises, never to the last epoch, and is one's own."""
        owners: dict[int, str] = {}
        by_id: dict[str, list[tuple[float, float, int, int]]] = {}
        for name, producer_id, producer_epoch, invoked, completed in (
            *self._history.identities,
            *self._kept.identities,
        ):
            if producer_epoch >= epoch_max():
                raise Violation("D18", f"{name} was given epoch {producer_epoch} of producer {producer_id}")
            owner = owners.setdefault(producer_id, name)
            if owner != name:
                raise Violation("D20", f"producer id {producer_id} was given to {owner} and to {name}")
            by_id.setdefault(name, []).append((invoked, completed, producer_id, producer_epoch))
        for name, given in by_id.items():
            told: list[tuple[float, int, int]] = []
            for invoked, completed, producer_id, producer_epoch in sorted(given):
                for earlier, other_id, other_epoch in told:
                    if earlier < invoked and other_id == producer_id and other_epoch >= producer_epoch:
                        raise Violation(
                            "D17",
                            f"{name} was given epoch {producer_epoch} of producer {producer_id}, after {other_epoch}",
                        )
                told.append((completed, producer_id, producer_epoch))
