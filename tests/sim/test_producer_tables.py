"""What is noticed of a log whose table of producers is not what its batches say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from ottla.log.log import Log
from ottla.log.producer_replay import apply_to_producers
from ottla.log.producers import DEFAULT_EXPIRATION_MS, ProducerStates
from ottla.records import BatchBuilder, end_txn_batch, read_header
from ottla.sim.checkers.mirror import Batch
from ottla.sim.checkers.producer_tables import check_producers
from ottla.sim.checkers.violation import Violation
from ottla.sim.cluster import Machine
from ottla.sim.volume import FileNode

NOW_MS = 2_000_000_000_000


class Story:
    """One log: its batches, and a table that is kept as they are appended."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.table = ProducerStates()
        self.start = 0
        self._sequences: dict[tuple[int, int], int] = {}

    def write(self, producer_id: int, *, epoch: int = 0, transactional: bool = True) -> None:
        sequence = self._sequences.get((producer_id, epoch), 0)
        self._sequences[producer_id, epoch] = sequence + 1
        builder = BatchBuilder(
            producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
        )
        builder.append(NOW_MS, None, b"x")
        self._append(builder.build())

    def mark(self, producer_id: int, *, epoch: int = 0, timestamp: int = NOW_MS) -> None:
        self._append(
            end_txn_batch(
                commit=True, coordinator_epoch=0, producer_id=producer_id, producer_epoch=epoch, timestamp=timestamp
            )
        )

    def _append(self, data: bytearray) -> None:
        base = self.batches[-1].next if self.batches else 0
        data[:8] = base.to_bytes(8, "big")
        node = FileNode()
        node.content += data
        header = read_header(node.content, 0)
        self.batches.append(Batch(base, header.next_offset, 0, 0, len(data), node, 0, "", header.producer_id))
        apply_to_producers(self.table, header, memoryview(bytes(data)))

    def check(self, *, now_ms: int = NOW_MS, compacted: bool = False, written: tuple[Batch, ...] = ()) -> None:
        log = cast(Log, SimpleNamespace(producers=self.table, log_start_offset=self.start))
        machine = cast(Machine, SimpleNamespace(clock=SimpleNamespace(highest_wall_ms=now_ms)))
        headers = [read_header(batch.file.content, 0) for batch in written]
        check_producers(machine, "orders-0 on n1", log, self.batches, compacted=compacted, written=headers)


@pytest.fixture
def story() -> Story:
    """Two producers, and a transaction that is open."""
    story = Story()
    for _ in range(7):
        story.write(1, transactional=False)
    story.write(2)
    story.mark(2, epoch=1)
    story.write(2, epoch=1)
    return story


def test_a_table_that_is_right(story: Story) -> None:
    story.check()
    story.check(compacted=True)


def test_a_truncation_that_the_table_has_not_heard_of(story: Story) -> None:
    for left in (9, 6, 1):
        del story.batches[left:]
        with pytest.raises(Violation, match="D2"):
            story.check()


def test_a_table_that_knows_nothing_of_a_batch(story: Story) -> None:
    entry = story.table.entries[1]
    entry.batches.popleft()
    story.check()
    entry.batches.pop()
    with pytest.raises(Violation, match="D2"):
        story.check()


def test_a_table_with_somebody_of_whom_there_is_no_batch(story: Story) -> None:
    story.batches[:] = [batch for batch in story.batches if batch.producer_id != 1]
    with pytest.raises(Violation, match=r"D2: .*producers \[1\]"):
        story.check()
    story.start = 7
    story.check()


def test_the_epoch_of_the_coordinator_is_known(story: Story) -> None:
    story.table.entries[2].coordinator_epoch = 5
    with pytest.raises(Violation, match="D2"):
        story.check()


def test_who_has_been_silent_for_long_may_be_forgotten(story: Story) -> None:
    del story.table.entries[1]
    with pytest.raises(Violation, match="D2"):
        story.check()
    story.check(now_ms=NOW_MS + DEFAULT_EXPIRATION_MS)


def test_who_was_forgotten_and_came_back_has_had_no_marker_yet(story: Story) -> None:
    story.table.entries[2].coordinator_epoch = -1
    with pytest.raises(Violation, match="D2"):
        story.check()
    story.check(now_ms=NOW_MS + DEFAULT_EXPIRATION_MS)


def test_a_marker_of_a_coordinator_whose_clock_is_behind_makes_its_producer_seem_silent() -> None:
    story = Story()
    story.write(7)
    story.mark(7, timestamp=NOW_MS - 1000)
    story.write(7)
    story.table.entries[7].coordinator_epoch = -1
    with pytest.raises(Violation, match="D2"):
        story.check(now_ms=NOW_MS + DEFAULT_EXPIRATION_MS - 1001)
    story.check(now_ms=NOW_MS + DEFAULT_EXPIRATION_MS - 1000)


def test_who_has_an_open_transaction_is_not_forgotten(story: Story) -> None:
    del story.table.entries[2]
    with pytest.raises(Violation, match="D21"):
        story.check(now_ms=NOW_MS + DEFAULT_EXPIRATION_MS)


def test_a_transaction_that_began_before_the_log_does(story: Story) -> None:
    story.write(2, epoch=1)
    del story.batches[:10]
    story.start = 10
    story.check()


def test_a_transaction_whose_first_batch_was_compacted_away_and_whose_marker_is_lost(story: Story) -> None:
    """A snapshot still knows where it began. It is believed if that was committed, and in the place of what is gone."""
    story.write(2, epoch=1)
    committed = tuple(story.batches)
    began = story.batches.pop(9)
    assert story.table.entries[2].txn_first_offset == began.base
    story.check(compacted=True, written=committed)
    for written in ((), tuple(batch for batch in committed if batch is not began)):
        with pytest.raises(Violation, match=r"D2: .*\(1, 1, 10\).*table says \(1, 1, 9\)"):
            story.check(compacted=True, written=written)
    with pytest.raises(Violation, match="D2"):
        story.check(written=committed)
    story.table.entries[2].txn_first_offset = 8
    with pytest.raises(Violation, match="D2"):
        story.check(compacted=True, written=committed)


def test_what_was_committed_elsewhere_does_not_excuse_a_table_that_is_wrong_about_what_is_there(story: Story) -> None:
    """This log has something else at the same offsets, which is about to be cut."""
    committed = tuple(story.batches)
    del story.batches[9:]
    story.write(1, transactional=False)
    with pytest.raises(Violation, match=r"D2: .*\(1, -1, -1\).*table says \(1, 0, 9\)"):
        story.check(compacted=True, written=committed)
