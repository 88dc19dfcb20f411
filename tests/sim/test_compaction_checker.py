"""What the checker of compaction notices, by what is gone from a log and by what is left in it."""

from __future__ import annotations

from typing import cast

import pytest

from ottla.log.log import Log
from ottla.log.log_config import LogConfig
from ottla.log.producers import ProducerEntry, ProducerStates
from ottla.model import TopicPartition
from ottla.records import BatchBuilder, end_txn_batch, read_header
from ottla.records.batch import DELETE_HORIZON_FLAG
from ottla.sim.checkers.compaction import PASS_MAX_MS, CompactionChecker
from ottla.sim.checkers.mirror import Batch
from ottla.sim.checkers.survivors import check_survivors
from ottla.sim.checkers.violation import Violation
from ottla.sim.cluster import Machine
from ottla.sim.faults import KINDS
from ottla.sim.history import History, Outcome, Read, Send, Txn
from ottla.sim.options import Mode, expand
from ottla.sim.producing import keyed
from ottla.sim.run import Simulation
from ottla.sim.volume import FileNode

PLACE = TopicPartition("profiles", 0)


class _Log:
    """As much of a log as the checker asks for."""

    def __init__(self, log_end_offset: int) -> None:
        self.log_end_offset = self.high_watermark = log_end_offset
        self.config = LogConfig(compact=True, delete_retention_ms=1000)
        self.producers = ProducerStates()


class Story:
    """One compacted partition: what was committed, and what a machine has of it now."""

    def __init__(self) -> None:
        options = expand(0, Mode.SAFETY, kinds=tuple(KINDS), with_compaction=True)
        self.cluster = Simulation(options).cluster
        self.machine: Machine = self.cluster.brokers[0]
        self.checker = CompactionChecker(self.cluster)
        self.batches: list[Batch] = []

    def write(self, key: bytes, value: bytes | None, *, producer_id: int = -1, horizon_ms: int | None = None) -> Batch:
        batch = self._record(len(self.batches), key, value, producer_id, horizon_ms)
        self._commit(batch)
        return batch

    def _record(
        self, offset: int, key: bytes, value: bytes | None, producer_id: int = -1, horizon_ms: int | None = None
    ) -> Batch:
        epoch = 0 if producer_id >= 0 else -1
        builder = BatchBuilder(
            producer_id=producer_id,
            producer_epoch=epoch,
            transactional=producer_id >= 0,
            delete_horizon_ms=horizon_ms,
        )
        builder.append(0, key, value)
        return _batch(offset, builder.build())

    def mark(self, producer_id: int, *, commit: bool) -> None:
        marker = end_txn_batch(
            commit=commit, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, timestamp=0
        )
        self._commit(_batch(len(self.batches), marker))

    def _commit(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.checker.on_committed(PLACE, batch)

    def stamped(self, offset: int, key: bytes, horizon_ms: int) -> Batch:
        """The tombstone at `offset`, with the horizon that a first pass gave it."""
        return self._record(offset, key, None, -1, horizon_ms)

    def stamped_marker(self, offset: int, producer_id: int, horizon_ms: int) -> Batch:
        """The same of a marker."""
        marker = end_txn_batch(
            commit=False, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, timestamp=horizon_ms
        )
        attributes = int.from_bytes(marker[21:23], "big") | DELETE_HORIZON_FLAG
        marker[21:23] = attributes.to_bytes(2, "big")
        return _batch(offset, marker)

    def becomes(self, *left: Batch | int, before: list[Batch] | None = None, known: tuple[int, ...] = ()) -> None:
        """Compaction leaves these: batches, or the offsets of those that stay as they were. The log still knows the
        producers `known`."""
        after = [self.batches[each] if isinstance(each, int) else each for each in left]
        log = cast(Log, _Log(len(self.batches)))
        log.producers.entries.update({producer_id: ProducerEntry(producer_id) for producer_id in known})
        self.checker.on_cleaned(self.machine, PLACE, log, before or self.batches, after)


def _batch(offset: int, data: bytearray) -> Batch:
    data[:8] = offset.to_bytes(8, "big")
    node = FileNode()
    node.content += data
    header = read_header(node.content, 0)
    return Batch(offset, header.next_offset, 0, 0, len(data), node, 0, "", header.producer_id)


@pytest.fixture
def story() -> Story:
    return Story()


def test_the_last_value_of_a_key_stays(story: Story) -> None:
    story.write(b"a", b"1")
    story.write(b"b", b"2")
    story.write(b"a", b"3")
    story.becomes(1, 2)
    assert story.checker.removed == 1
    with pytest.raises(Violation, match="E10"):
        story.becomes(2)


def test_what_stays_is_what_was_written(story: Story) -> None:
    story.write(b"a", b"1")
    with pytest.raises(Violation, match="E10"):
        story.becomes(story._record(0, b"a", b"2"))


def test_nothing_goes_that_is_not_committed(story: Story) -> None:
    story.write(b"a", b"1")
    above = story._record(1, b"a", b"2")
    story.batches.append(above)
    with pytest.raises(Violation, match="E12"):
        story.becomes(0)


def test_a_tombstone_goes_after_its_horizon(story: Story) -> None:
    now_ms = story.machine.clock.wall_ms()
    story.write(b"a", b"1")
    story.write(b"a", None)
    story.becomes(story.stamped(1, b"a", now_ms + 1000))
    with pytest.raises(Violation, match="E11"):
        story.becomes()
    with pytest.raises(Violation, match="E11"):
        story.becomes(before=[story.stamped(1, b"a", now_ms + 1000)])
    story.becomes(before=[story.stamped(1, b"a", now_ms - 1)])


def test_a_horizon_gives_readers_time(story: Story) -> None:
    story.write(b"a", None)
    with pytest.raises(Violation, match="E11"):
        story.becomes(story.stamped(0, b"a", story.machine.clock.wall_ms() - PASS_MAX_MS))


def test_a_horizon_that_was_copied_is_of_another_clock(story: Story) -> None:
    """While segments were replaced here, the last tombstone came from a leader whose clock is an hour behind."""
    story.write(b"a", b"1")
    story.write(b"b", None)
    late = story.stamped(1, b"b", 1)
    story.becomes(0, late, before=story.batches[:1])
    with pytest.raises(Violation, match=r"E11: .*go at 1$"):
        story.becomes(0, late)


def test_what_an_aborted_transaction_wrote_replaces_nothing(story: Story) -> None:
    story.write(b"a", b"1")
    story.write(b"a", b"2", producer_id=7)
    story.mark(7, commit=False)
    story.becomes(0, 2)
    with pytest.raises(Violation, match="E10"):
        story.becomes(1, 2)


def test_what_a_transaction_committed_replaces_the_rest(story: Story) -> None:
    story.write(b"a", b"1")
    story.write(b"a", b"2", producer_id=7)
    story.mark(7, commit=True)
    story.becomes(1, 2)
    with pytest.raises(Violation, match="E10"):
        story.becomes(0, 2)


def test_a_marker_stays_as_long_as_anything_of_its_transaction(story: Story) -> None:
    story.write(b"a", b"2", producer_id=7)
    story.mark(7, commit=True)
    with pytest.raises(Violation, match="E13"):
        story.becomes(0)


def test_a_marker_goes_after_its_horizon(story: Story) -> None:
    """As a tombstone, when nothing is left of its transaction."""
    now_ms = story.machine.clock.wall_ms()
    story.write(b"a", b"1", producer_id=7)
    story.mark(7, commit=False)
    story.becomes(1)
    with pytest.raises(Violation, match=r"E11: .*lost the marker"):
        story.becomes()
    with pytest.raises(Violation, match=r"E11: .*lost the marker"):
        story.becomes(before=[story.stamped_marker(1, 7, now_ms + 1000)])
    story.becomes(before=[story.stamped_marker(1, 7, now_ms - 1)])
    with pytest.raises(Violation, match=r"E11: .*go at"):
        story.becomes(story.stamped_marker(1, 7, now_ms - PASS_MAX_MS))


def test_who_was_behind_when_a_marker_went_may_still_have_its_records(story: Story) -> None:
    """By Kafka's rules: markers outlast their records as long as tombstones do, and no longer. A pass of its own that
    takes the marker has to take the records first."""
    now_ms = story.machine.clock.wall_ms()
    story.write(b"a", b"1", producer_id=7)
    story.mark(7, commit=True)
    story.write(b"a", b"2")
    stamped = story.stamped_marker(1, 7, now_ms - 1)
    behind = [story.batches[0], story.batches[2]]
    with pytest.raises(Violation, match=r"E13: .*and not the marker at 1"):
        story.checker.check_held(story.machine, PLACE, behind, 3)
    story.becomes(2, before=[stamped, story.batches[2]])
    story.checker.check_held(story.machine, PLACE, behind, 3)
    with pytest.raises(Violation, match=r"E13: .*lost the marker at 1 and still holds"):
        story.becomes(0, 2, before=[story.batches[0], stamped, story.batches[2]])


def test_who_takes_a_tombstone_has_taken_what_it_deletes(story: Story) -> None:
    """Or the value would be back. Who was behind until the tombstone was gone has never seen it, and keeps the value:
    that is Kafka's rule, and known of that key alone."""
    now_ms = story.machine.clock.wall_ms()
    story.write(b"a", b"1")
    story.write(b"b", b"1")
    story.write(b"a", None)
    story.write(b"c", b"1")
    stamped = story.stamped(2, b"a", now_ms - 1)
    with pytest.raises(Violation, match=r"E10: .*took the tombstone at 2, and still holds .* at 0"):
        story.becomes(0, 1, 3, before=[*story.batches[:2], stamped, story.batches[3]])
    behind = [story.batches[at] for at in (0, 1, 3)]
    other = story.cluster.brokers[1]
    assert story.checker.revived(PLACE) == set()
    story.checker.check_held(other, PLACE, behind, 4)
    assert story.checker.revived(PLACE) == {b"a"}
    with pytest.raises(Violation, match="took the tombstone"):
        story.checker.check_held(story.machine, PLACE, behind, 4)
    story.checker.on_end(story.machine, PLACE, 3)
    with pytest.raises(Violation, match="took the tombstone"):
        story.checker.check_held(story.machine, PLACE, behind, 4)
    story.checker.on_end(story.machine, PLACE, 2)
    story.checker.check_held(story.machine, PLACE, behind, 4)


def test_a_value_outlasts_no_tombstone_that_nobody_took(story: Story) -> None:
    story.write(b"a", b"1")
    story.write(b"a", None)
    story.checker.check_held(story.machine, PLACE, story.batches[:1], 2)
    assert story.checker.revived(PLACE) == set()
    unreadable = story._record(2, b"b", b"1")
    unreadable.file.content[-4] ^= 0xFF
    story.checker.on_cleaned_damaged(PLACE, [*story.batches, unreadable], story.batches[:1])
    story.checker.check_held(story.machine, PLACE, story.batches[:1], 2)
    assert story.checker.revived(PLACE) == {b"a"}


def test_the_last_batch_of_a_producer_stays(story: Story) -> None:
    """E14: or its marker, if that is the last that is known of it."""
    story.write(b"a", b"1", producer_id=7)
    story.mark(7, commit=False)
    story.becomes(1)
    with pytest.raises(Violation, match="E14"):
        story.becomes(1, known=(7,))
    story.becomes(0, 1, known=(7,))


def test_a_restart_finds_all_that_was_left(story: Story) -> None:
    story.write(b"a", b"1")
    story.write(b"b", b"2")
    log = cast(Log, _Log(2))
    story.checker.on_recovered(story.machine, PLACE, log, story.batches, story.batches)
    with pytest.raises(Violation, match="E10"):
        story.checker.on_recovered(story.machine, PLACE, log, story.batches, story.batches[1:])


# What a client sees.


def sent(number: int, *, outcome: Outcome = Outcome.OK, transaction: Txn | None = None) -> Send:
    return Send(
        client="l0",
        place=PLACE,
        values=(b"l0:%d" % number,),
        acks=-1,
        idempotent=True,
        invoked=float(number),
        outcome=outcome,
        transaction=transaction,
    )


def found(sends: list[Send], *numbers: int, revived: tuple[bytes, ...] = ()) -> str | None:
    """What is wrong if the records of these numbers are there in the end."""
    records = [keyed(b"l0:%d" % number) for number in numbers]
    reads = [Read(at, value or b"", 0, key) for at, (key, value) in enumerate(records)]
    try:
        check_survivors(History(sends=sends, final_committed={PLACE: reads}), lambda place: set(revived))
    except Violation as violation:
        return violation.invariant
    return None


def test_readers_find_the_last_value() -> None:
    assert keyed(b"l0:0")[0] == keyed(b"l0:6")[0]
    sends = [sent(0), sent(6)]
    assert found(sends, 6) is None
    assert found(sends, 0, 6) is None
    assert found(sends, 0) == "E10"
    assert found(sends) == "E10"
    assert found(sends, 6, 1) == "E10", "a key that nobody wrote"


def test_a_key_whose_last_write_is_a_tombstone_may_be_gone() -> None:
    assert keyed(b"l0:18")[1] is None
    sends = [sent(12), sent(18)]
    assert found(sends) is None
    assert found(sends, 18) is None
    assert found(sends, 12) == "E10"
    key = keyed(b"l0:18")[0]
    assert found(sends, 12, revived=(key,)) is None, "a replica was behind until the tombstone was gone"
    assert found([sent(12)], revived=(key,)) == "E10"
    assert found([sent(6), sent(12)], 6, revived=(key,)) == "E10", "and only tombstones go"


def test_what_came_to_no_certain_end_may_be_there() -> None:
    aborted = Txn(client="l9", transactional_id="k", producer_id=1, producer_epoch=0, began=0.0, outcome=Outcome.FAILED)
    sends = [sent(0), sent(6, outcome=Outcome.INFO), sent(12, transaction=aborted)]
    assert found(sends, 0) is None
    assert found(sends, 6) is None
    assert found(sends, 12) == "E10"
