"""What the checker of transactions notices, from records as they become committed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from ottla.coordinator.stored import TRANSACTION_KINDS, StoredRecord
from ottla.coordinator.transaction.states import TransactionState
from ottla.coordinator.transaction.transaction import EPOCH_MAX, Transaction
from ottla.model import TRANSACTION_TOPIC, TopicPartition
from ottla.records import BatchBuilder, end_txn_batch, read_header
from ottla.sim import view
from ottla.sim.checkers.mirror import Batch
from ottla.sim.checkers.transactions import TransactionChecker
from ottla.sim.checkers.violation import Violation
from ottla.sim.cluster import Cluster, Machine
from ottla.sim.epochs import epoch_max, few_epochs
from ottla.sim.history import History, Identity
from ottla.sim.volume import FileNode
from ottla.wire.messages.transaction_log_key import TransactionLogKey

PLACE = TopicPartition("orders", 0)
_S = TransactionState


class Story:
    """Partitions of which everything is committed at once."""

    def __init__(self) -> None:
        self.history = History()
        cluster = SimpleNamespace(brokers=[], scheduler=SimpleNamespace(now=1.0))
        self.checker = TransactionChecker(cast(Cluster, cluster), self.history, History())
        self._ends: dict[TopicPartition, int] = {}
        self._sequences: dict[int, int] = {}
        """By epoch, the next."""

    def becomes(
        self, state: TransactionState, *, producer_id: int = 7, epoch: int = 0, version: int = 2, places: int = 1
    ) -> None:
        """The next record of the one transactional id."""
        transaction = Transaction(
            producer_id=producer_id,
            producer_epoch=epoch,
            timeout_ms=1000,
            state=state,
            partitions=frozenset([PLACE][:places]),
            updated_ms=1,
            client_version=version,
        )
        record = StoredRecord(TransactionLogKey(transactional_id="t1"), transaction.to_value(1), 1)
        builder = BatchBuilder()
        builder.append(0, *TRANSACTION_KINDS.encode(record))
        self._append(TopicPartition(TRANSACTION_TOPIC, 0), builder.build())

    def write(self, *, epoch: int = 0, transactional: bool = True) -> None:
        sequence = self._sequences.get(epoch, 0)
        self._sequences[epoch] = sequence + 1
        builder = BatchBuilder(producer_id=7, producer_epoch=epoch, base_sequence=sequence, transactional=transactional)
        builder.append(0, None, b"x")
        self._append(PLACE, builder.build())

    def mark(self, *, epoch: int = 0, coordinator_epoch: int = 0) -> None:
        marker = end_txn_batch(
            commit=True, coordinator_epoch=coordinator_epoch, producer_id=7, producer_epoch=epoch, timestamp=0
        )
        self._append(PLACE, marker)

    def _append(self, place: TopicPartition, data: bytearray) -> None:
        base = self._ends.get(place, 0)
        data[:8] = base.to_bytes(8, "big")
        node = FileNode()
        node.content += data
        header = read_header(node.content, 0)
        self._ends[place] = header.next_offset
        self.checker.on_committed(place, Batch(base, header.next_offset, 0, 0, len(data), node, 0, "", 7))
        self.checker.after_step()


@pytest.fixture
def story() -> Story:
    return Story()


# D8.


def test_a_batch_of_a_transaction_that_does_not_have_the_partition(story: Story) -> None:
    story.becomes(_S.EMPTY, places=0)
    story.becomes(_S.ONGOING, places=0)
    with pytest.raises(Violation, match=r"D8: .*has no such partition"):
        story.write()


def test_a_batch_of_an_epoch_in_which_the_partition_is_not_part_of_anything(story: Story) -> None:
    ended(story)
    with pytest.raises(Violation, match=r"D8: .*epoch 1\) wrote to a transaction that has no such partition"):
        story.write(epoch=1)


def test_a_batch_of_an_epoch_that_is_over(story: Story) -> None:
    ended(story)
    with pytest.raises(Violation, match=r"D8: .*producer 7 has epoch 0, after 1"):
        story.write()


def test_a_batch_beside_the_transaction_that_its_producer_has_open(story: Story) -> None:
    ended(story)
    story.write(epoch=1, transactional=False)
    story.becomes(_S.ONGOING, epoch=1)
    story.write(epoch=1)
    with pytest.raises(Violation, match=r"D8: .*outside of the transaction that it began at 3"):
        story.write(epoch=1, transactional=False)


def ended(story: Story, *, coordinator_epoch: int = 0) -> None:
    """A transaction by version 2, from its beginning in epoch 0 to its end, with which epoch 1 begins."""
    story.becomes(_S.EMPTY, places=0)
    story.becomes(_S.ONGOING)
    story.write()
    story.becomes(_S.PREPARE_COMMIT, epoch=1)
    story.mark(epoch=1, coordinator_epoch=coordinator_epoch)
    story.becomes(_S.COMPLETE_COMMIT, epoch=1, places=0)


# D14.


def test_a_marker_of_a_coordinator_that_has_been_replaced(story: Story) -> None:
    ended(story, coordinator_epoch=5)
    story.mark(epoch=1, coordinator_epoch=5)  # A retry, and then one of its successor: both may be.
    story.mark(epoch=1, coordinator_epoch=6)
    with pytest.raises(Violation, match=r"D14: .*coordinator epoch 5 after one of 6"):
        story.mark(epoch=1, coordinator_epoch=5)


# D20.


def test_a_producer_id_that_two_were_given(story: Story) -> None:
    mine = [Identity("t1", 7, 0, 1.0, 1.1), Identity("t1", 7, 1, 2.0, 2.1), Identity("t1", 8, 0, 3.0, 3.1)]
    story.history.identities += mine
    story.checker.at_end()
    story.checker._kept.identities.append(Identity("t2", 9, 0, 1.0, 1.1))
    story.checker.at_end()
    story.checker._kept.identities.append(Identity("t2", 8, 1, 4.0, 4.1))
    with pytest.raises(Violation, match="D20: producer id 8 was given to t1 and to t2"):
        story.checker.at_end()


# D18.


def test_another_producer_id_when_the_epochs_are_used_up(story: Story) -> None:
    with few_epochs(4):
        assert epoch_max() == 4
        story.becomes(_S.EMPTY, epoch=3, places=0)
        story.becomes(_S.EMPTY, producer_id=8, places=0)
        assert story.checker.rotations == 1
        with pytest.raises(Violation, match="D18"):
            story.becomes(_S.EMPTY, producer_id=9, places=0)
    assert epoch_max() == EPOCH_MAX


@pytest.mark.parametrize(("producer_id", "epoch"), [(8, 1), (7, 0)])
def test_a_new_producer_id_begins_anew_and_is_never_an_old_one(story: Story, producer_id: int, epoch: int) -> None:
    with few_epochs(4):
        story.becomes(_S.EMPTY, producer_id=7, epoch=3, places=0)
        story.becomes(_S.EMPTY, producer_id=6, places=0)
        story.becomes(_S.EMPTY, producer_id=6, epoch=3, places=0)
        with pytest.raises(Violation, match="D18"):
            story.becomes(_S.EMPTY, producer_id=producer_id, epoch=epoch, places=0)


def test_no_client_has_the_last_epoch(story: Story) -> None:
    story.history.identities.append(Identity("t1", 7, EPOCH_MAX, 1.0, 1.1))
    with pytest.raises(Violation, match="D18"):
        story.checker.at_end()


# D19.


@pytest.mark.parametrize("version", [1, 2])
def test_an_abort_that_nobody_asked_for_fences(story: Story, version: int) -> None:
    story.becomes(_S.EMPTY, places=0)
    story.becomes(_S.ONGOING, version=version)
    story.becomes(_S.PREPARE_ABORT, epoch=1, version=version, places=0)
    story.becomes(_S.COMPLETE_ABORT, epoch=1, version=version, places=0)
    story.becomes(_S.ONGOING, epoch=1, version=version)
    with pytest.raises(Violation, match="D19"):
        story.becomes(_S.PREPARE_ABORT, epoch=1, version=version)


def test_by_version_1_who_asks_for_an_abort_keeps_the_epoch(story: Story) -> None:
    story.history.aborts.add((7, 0))
    story.becomes(_S.EMPTY, places=0)
    story.becomes(_S.ONGOING, version=1)
    story.becomes(_S.PREPARE_ABORT, version=1)


# Version 1, where a marker has the epoch of what it ends.


def test_a_transaction_of_version_1_is_complete_with_its_markers(story: Story) -> None:
    story.becomes(_S.EMPTY, version=1, places=0)
    story.becomes(_S.ONGOING, version=1)
    story.write()
    story.becomes(_S.PREPARE_COMMIT, version=1)
    story.mark()
    story.becomes(_S.COMPLETE_COMMIT, version=1, places=0)


def test_a_transaction_of_version_1_is_not_complete_without_its_markers(story: Story) -> None:
    story.becomes(_S.EMPTY, version=1, places=0)
    story.becomes(_S.ONGOING, version=1)
    story.write()
    story.becomes(_S.PREPARE_COMMIT, version=1)
    with pytest.raises(Violation, match=r"D16: .*still open"):
        story.becomes(_S.COMPLETE_COMMIT, version=1, places=0)


# D21 and C8, of whoever leads.


def test_a_leader_does_not_forget_an_open_transaction(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    entries: dict[int, object] = {7: None}
    producers = SimpleNamespace(entries=entries, _unreplicated={0: 1})
    log = SimpleNamespace(high_watermark=1, last_stable_offset=0, producers=producers)
    hosted = SimpleNamespace(log=log, leader=object(), index=0)
    story.checker._cluster.brokers.append(cast(Machine, SimpleNamespace(name="n1")))
    monkeypatch.setattr(view, "hosted", lambda machine, place: hosted if place == PLACE else None)
    story.becomes(_S.EMPTY, places=0)
    story.becomes(_S.ONGOING)
    story.write()
    entries.clear()
    log.high_watermark = 2
    story.write()  # Its marker may be there, and not be committed yet.
    producers._unreplicated = {5: 6}  # Of another transaction.
    log.high_watermark = 3
    with pytest.raises(Violation, match="D21"):
        story.write()


def test_a_coordinator_that_has_been_loaded_knows_every_id(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    story.becomes(_S.EMPTY, places=0)
    known = {"t1": story.checker.transactions["t1"]}
    shard = SimpleNamespace(transactions=SimpleNamespace(committed_items=lambda: known.items()))
    place = TopicPartition(TRANSACTION_TOPIC, 0)

    def serves() -> list[SimpleNamespace]:
        partition = SimpleNamespace(index=0, topic_partition=place, log=SimpleNamespace(high_watermark=1))
        return [SimpleNamespace(partition=partition)]

    image = SimpleNamespace(topic=lambda name: SimpleNamespace(partitions={0: None}))
    monkeypatch.setattr(view, "newest_image", lambda cluster: image)
    monkeypatch.setattr(view, "served_transactions", lambda machine: serves())
    monkeypatch.setattr(view, "transaction_shard", lambda machine, partition: shard)
    machine = cast(Machine, SimpleNamespace(id=1, name="n1"))
    story.checker.watch(machine)
    known.clear()
    with pytest.raises(Violation, match="C8: n1 does not know t1"):
        story.checker.watch(machine)
