"""Transactions of several producers, interleaved, with markers, rolls, truncations, crashes and restarts, against a
list of batches that is looked through from the beginning each time.

One thing is allowed that the list does not say: who starts anew from a snapshot has forgotten which markers are not
replicated yet, and lets readers pass the transactions that they decided. Kafka's snapshots do not hold that either. It
does no harm: a decision was durable at the coordinator before its first marker was sent, so that a marker which is lost
is written again and says the same.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.errors import ErrorCode, KafkaError
from ottla.log import Log, LogConfig
from ottla.log.producers import BATCHES_TO_RETAIN, BatchMetadata

from .faulty_disk import FaultyDisk
from .story import COORDINATOR, NOW, TP, append, batch, create, marker, open_manager

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, retention_ms=-1)
PRODUCERS = st.integers(0, 3)


class Written(NamedTuple):
    """One batch in the log, as its writer meant it."""

    first: int
    last: int
    producer: int
    epoch: int
    sequence: int
    transactional: bool
    commit: bool | None = None
    """Of a marker; None for data."""
    coordinator_epoch: int = -1


class Known(NamedTuple):
    """What a partition should know of a producer."""

    epoch: int
    batches: tuple[BatchMetadata, ...]
    txn_first: int
    coordinator_epoch: int


class Transactions(NamedTuple):
    open: dict[int, int]
    """Producer → first offset."""
    decided: list[tuple[int, int, int, bool]]
    """Producer, first offset, offset of the marker, commit."""


class TransactionModel(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.disk = FaultyDisk()
        self.manager = open_manager(self.disk, CONFIG)
        self.log: Log = create(self.manager, CONFIG)
        self.written: list[Written] = []
        self.start = self.end = self.high = 0

    # The list, looked through.

    def transactions(self) -> Transactions:
        opened: dict[int, int] = {}
        decided: list[tuple[int, int, int, bool]] = []
        for each in self.written:
            if each.commit is None:
                if each.transactional:
                    opened.setdefault(each.producer, each.first)
            elif each.producer in opened:
                decided.append((each.producer, opened.pop(each.producer), each.first, each.commit))
        return Transactions(opened, decided)

    def known(self, producer: int) -> Known | None:
        """None: never heard of. What lies before the log start counts, since its files are still there."""
        found: Known | None = None
        for each in self.written:
            if each.producer != producer:
                continue
            before = found or Known(each.epoch, (), -1, -1)
            batches = before.batches if each.epoch == before.epoch else ()
            if each.commit is not None:
                found = Known(each.epoch, batches, -1, each.coordinator_epoch)
            else:
                last_sequence = each.sequence + each.last - each.first
                batches = (*batches, BatchMetadata(each.sequence, last_sequence, each.first, each.last, NOW))
                txn_first = each.first if each.transactional and before.txn_first < 0 else before.txn_first
                found = Known(each.epoch, batches[-BATCHES_TO_RETAIN:], txn_first, before.coordinator_epoch)
        return found

    def next_sequence(self, producer: int, epoch: int) -> int:
        known = self.known(producer)
        if known is None or known.epoch != epoch or not known.batches:
            return 0
        return known.batches[-1].last_sequence + 1

    def epoch_of(self, producer: int) -> int:
        known = self.known(producer)
        return 0 if known is None else known.epoch

    # What happens.

    @rule(producer=PRODUCERS, count=st.integers(1, 4), bump=st.booleans())
    def write_in_transaction(self, producer: int, count: int, bump: bool) -> None:
        epoch = self.epoch_of(producer) + (bump and producer not in self.transactions().open)
        self._write(producer, epoch, self.next_sequence(producer, epoch), count, transactional=True)

    @rule(producer=st.integers(10, 11), count=st.integers(1, 3))
    def write_idempotently(self, producer: int, count: int) -> None:
        self._write(producer, 0, self.next_sequence(producer, 0), count, transactional=False)

    @rule(count=st.integers(1, 3))
    def write_plainly(self, count: int) -> None:
        info = append(self.log, batch(count))
        assert info.first_offset == self.end
        self.end += count

    def _write(self, producer: int, epoch: int, sequence: int, count: int, *, transactional: bool) -> None:
        data = batch(
            count, step=0, producer_id=producer, producer_epoch=epoch, sequence=sequence, transactional=transactional
        )
        guard = self.log.producers.start_verification(producer, sequence, epoch, NOW) if transactional else None
        info = append(self.log, data, verification_guard=guard)
        assert (info.first_offset, info.last_offset, info.duplicate) == (self.end, self.end + count - 1, False)
        self.written.append(Written(self.end, info.last_offset, producer, epoch, sequence, transactional))
        self.end += count

    @rule(producer=PRODUCERS, commit=st.booleans(), own_epoch=st.booleans(), newer_coordinator=st.booleans())
    def mark(self, producer: int, commit: bool, own_epoch: bool, newer_coordinator: bool) -> None:
        """The end of a transaction, or a marker where nothing is open: a retry, or one that found no data."""
        known = self.known(producer)
        epoch = self.epoch_of(producer) + (own_epoch and producer in self.transactions().open)
        coordinator_epoch = max(0, known.coordinator_epoch if known else 0) + newer_coordinator
        data = marker(commit=commit, producer_id=producer, producer_epoch=epoch, coordinator_epoch=coordinator_epoch)
        append(self.log, data, origin=COORDINATOR, transaction_version=2 if own_epoch else 1)
        self.written.append(Written(self.end, self.end, producer, epoch, -1, True, commit, coordinator_epoch))
        self.end += 1

    @rule(producer=PRODUCERS)
    def a_retry_is_known_as_one(self, producer: int) -> None:
        known = self.known(producer)
        if known is None or not known.batches:
            return
        last = known.batches[-1]
        data = batch(
            last.last_sequence - last.first_sequence + 1,
            producer_id=producer,
            producer_epoch=known.epoch,
            sequence=last.first_sequence,
            transactional=True,
        )
        guard = self.log.producers.start_verification(producer, last.first_sequence, known.epoch, NOW)
        info = append(self.log, data, verification_guard=guard)
        assert info == (last.first_offset, last.last_offset, last.timestamp, True)
        self._forget_guard(producer, known.epoch)

    @rule(producer=PRODUCERS, gap=st.integers(1, 3))
    def a_gap_is_refused(self, producer: int, gap: int) -> None:
        known = self.known(producer)
        if known is None:
            return
        sequence = self.next_sequence(producer, known.epoch) + gap
        guard = self.log.producers.start_verification(producer, sequence, known.epoch, NOW)
        data = batch(producer_id=producer, producer_epoch=known.epoch, sequence=sequence, transactional=True)
        with pytest.raises(KafkaError) as refusal:
            append(self.log, data, verification_guard=guard)
        assert refusal.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self._forget_guard(producer, known.epoch)

    def _forget_guard(self, producer: int, epoch: int) -> None:
        """As if the verification of what was not appended had been long ago."""
        self.log.producers._guards.pop(producer, None)

    @rule(producer=PRODUCERS)
    def a_late_marker_is_refused(self, producer: int) -> None:
        known = self.known(producer)
        if known is None or known.epoch == 0:
            return
        data = marker(commit=True, producer_id=producer, producer_epoch=known.epoch - 1, coordinator_epoch=1 << 20)
        with pytest.raises(KafkaError) as refusal:
            append(self.log, data, origin=COORDINATOR, transaction_version=2)
        assert refusal.value.code is ErrorCode.INVALID_PRODUCER_EPOCH

    @rule(producer=PRODUCERS)
    def a_marker_of_the_open_epoch_is_refused_where_each_transaction_has_its_own(self, producer: int) -> None:
        if producer not in self.transactions().open or (known := self.known(producer)) is None:
            return
        data = marker(commit=True, producer_id=producer, producer_epoch=known.epoch, coordinator_epoch=1 << 20)
        with pytest.raises(KafkaError) as refusal:
            append(self.log, data, origin=COORDINATOR, transaction_version=2)
        assert refusal.value.code is ErrorCode.INVALID_PRODUCER_EPOCH

    @rule(share=st.floats(0, 1))
    def replicate(self, share: float) -> None:
        self.high += int((self.end - self.high) * share)
        self.log.update_high_watermark(self.high)

    @rule()
    def replicate_all(self) -> None:
        self.replicate(1.0)

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW)

    @rule()
    def flush(self) -> None:
        self.log.flush(NOW)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = self.start + int((self.high - self.start) * share)
        self.log.advance_log_start(offset)
        self.start = max(self.start, offset)

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        self.log.truncate_to(max(self.start, self.end - back))
        self.end = self.log.log_end_offset
        self.start, self.high = min(self.start, self.end), min(self.high, self.end)
        self.written = [each for each in self.written if each.last < self.end]

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.manager.prepare_checkpoints().run()
        if clean:
            self.manager.close(NOW)
        self.disk = self.disk.copy()
        self.manager = open_manager(self.disk, CONFIG)
        self.log = self.manager.logs[TP]
        assert self.log.high_watermark == self.high

    # What must hold.

    @invariant()
    def producers_are_those_of_the_list(self) -> None:
        entries = self.log.producers.entries
        assert set(entries) == {each.producer for each in self.written}
        for producer, entry in entries.items():
            known = self.known(producer)
            assert known is not None
            assert (entry.epoch, entry.coordinator_epoch) == (known.epoch, known.coordinator_epoch)
            assert entry.txn_first_offset == known.txn_first
            # A snapshot holds the last batch of each.
            remembered = tuple(entry.batches)
            assert bool(remembered) == bool(known.batches)
            assert remembered == known.batches[len(known.batches) - len(remembered) :]
            assert entry.next_sequence == self.next_sequence(producer, entry.epoch)

    @invariant()
    def readers_of_committed_records_stop_where_they_should(self) -> None:
        opened, decided = self.transactions()
        not_replicated = [first for _, first, at, _ in decided if at >= self.high]
        assert self.log.last_stable_offset == max(self.start, min([self.high, *opened.values(), *not_replicated]))

    @invariant()
    def what_was_aborted_is_listed(self) -> None:
        aborted = [each[:3] for each in self.transactions().decided if not each[3]]
        stable = self.log.last_stable_offset
        for first in {self.start, (self.start + stable) // 2, max(self.start, stable - 1)}:
            for upper in {stable, (first + stable) // 2 + 1}:
                if first < upper <= stable:
                    expected = [(p, f, at) for p, f, at in aborted if at >= first and f < upper]
                    assert [txn[:3] for txn in self.log.aborted_transactions(first, upper)] == expected

    @precondition(lambda self: self.log.last_stable_offset > self.start)
    @rule(share=st.floats(0, 0.999), max_bytes=st.integers(1, 2000))
    def a_fetch_lists_what_it_needs(self, share: float, max_bytes: int) -> None:
        stable = self.log.last_stable_offset
        offset = self.start + int((stable - self.start) * share)
        span = self.log.read(offset, max_bytes=max_bytes, upper_bound=stable)
        if span is None:
            return
        listed = self.log.aborted_transactions_in(offset, span, stable)
        held = span.file.read(span.position, span.size)
        last = 0
        position = 0
        while position < len(held):
            last = int.from_bytes(held[position : position + 8], "big")
            last += int.from_bytes(held[position + 23 : position + 27], "big")
            position += 12 + int.from_bytes(held[position + 8 : position + 12], "big")
        needed = self.log.aborted_transactions(offset, last + 1)
        assert set(needed) <= set(listed) <= set(self.log.aborted_transactions(offset, stable))


TestTransactionModel = TransactionModel.TestCase
TestTransactionModel.settings = settings(max_examples=50, stateful_step_count=50, deadline=None)


class LongTransactionModel(TransactionModel):
    """The same, many more times."""


TestLongTransactionModel = pytest.mark.long(LongTransactionModel.TestCase)
TestLongTransactionModel.settings = settings(max_examples=2000, stateful_step_count=60, derandomize=False)
