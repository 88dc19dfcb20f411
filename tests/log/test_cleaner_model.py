"""Logs made by chance, compacted again and again, held against what invariants E10 to E14 say of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from ottla.log import Log, LogConfig, LogManager, ProducerStates
from ottla.log.cleaner import CleaningSettings, LogCleaned, assess
from ottla.log.producer_replay import apply_to_producers
from ottla.records import BatchHeader, Record, crc_is_valid, iterate

from .compacting import ChanceWriter, compact, seal
from .crash_story import check_times
from .faulty_disk import FaultyDisk
from .story import NOW, TP, all_batches, create, open_manager, restart

RETENTION_MS = 2000
CONFIG = LogConfig(
    compact=True, delete=False, delete_retention_ms=RETENTION_MS, segment_bytes=3000, index_interval_bytes=200
)


@dataclass(slots=True)
class Seen:
    """A log as it was at some moment."""

    batches: list[tuple[BatchHeader, bytes]]
    records: dict[int, tuple[BatchHeader, Record]] = field(default_factory=dict)
    controls: dict[int, BatchHeader] = field(default_factory=dict)

    @classmethod
    def of(cls, log: Log) -> Seen:
        seen = cls(all_batches(log))
        for header, data in seen.batches:
            for record in iterate(data):
                if header.is_control:
                    seen.controls[record.offset] = header
                else:
                    seen.records[record.offset] = (header, record)
        return seen


class Story:
    def __init__(self, seed: int, settings: CleaningSettings) -> None:
        self.disk = FaultyDisk()
        self.manager: LogManager = open_manager(self.disk, CONFIG, verify_transactions=False)
        self.log = create(self.manager, CONFIG)
        self.writer = ChanceWriter(self.log, seed)
        self.settings = settings
        self.everything: dict[int, Record] = {}
        self.transactions: dict[int, int] = {}
        """Offset of a transactional record → offset of the marker that ended it."""

    def tell(self, rounds: int) -> None:
        for _ in range(rounds):
            for _ in range(self.writer.random.randint(5, 40)):
                self.writer.step()
            if self.writer.random.random() < 0.3:
                self.writer.end_all()
            seal(self.log, self.writer.now_ms)
            self.note()
            self.writer.now_ms += self.writer.random.choice((0, 100, RETENTION_MS + 1))
            self.compact()

    def note(self) -> None:
        opened: dict[int, list[int]] = {}
        for header, data in all_batches(self.log):
            for record in iterate(data):
                if header.is_control:
                    for offset in opened.pop(header.producer_id, ()):
                        self.transactions.setdefault(offset, record.offset)
                else:
                    self.everything[record.offset] = record
                    if header.is_transactional:
                        opened.setdefault(header.producer_id, []).append(record.offset)

    def compact(self) -> None:
        log, now_ms = self.log, self.writer.now_ms
        before = Seen.of(log)
        cleanable = assess(log, now_ms)
        end = log.log_end_offset
        cleaned = compact(self.disk, self.manager, log, now_ms, self.settings)
        after = Seen.of(log)
        assert log.log_end_offset == end
        self.check(before, after, cleaned, cleanable.end_offset, now_ms)
        check_log(log)
        reopened = restart(self.disk.copy(), CONFIG).logs[TP]
        assert [data for _, data in all_batches(reopened)] == [data for _, data in after.batches]
        assert reopened.log_end_offset == end
        check_log(reopened)

    def check(self, before: Seen, after: Seen, cleaned: LogCleaned, end_offset: int, now_ms: int) -> None:
        reached = cleaned.next_dirty_offset
        assert reached <= end_offset, "E12"
        untouched = [data for header, data in before.batches if header.base_offset >= end_offset]
        assert [data for header, data in after.batches if header.base_offset >= end_offset] == untouched, "E12"

        # E10: the same records at the same offsets, in order, and nothing but sound batches.
        for _, data in after.batches:
            assert crc_is_valid(data, 0, len(data))
        for offset, (_, record) in after.records.items():
            assert before.records[offset][1] == record == self.everything[offset]

        # E10, E11: of every key the last record stays, and no other; a tombstone until its horizon.
        last: dict[bytes | None, int] = {}
        for offset, record in self.everything.items():
            if offset < reached and offset not in self.writer.aborted:
                last[record.key] = max(offset, last.get(record.key, -1))
        for offset, (header, record) in before.records.items():
            if offset >= reached:
                assert offset in after.records or offset in self.writer.aborted
                continue
            expired = record.value is None and header.has_delete_horizon and header.base_timestamp <= now_ms
            wanted = last.get(record.key) == offset and not expired
            assert (offset in after.records) is wanted, f"offset {offset}"
        for offset, (header, record) in after.records.items():
            if offset < reached and record.value is None:
                earlier = before.records[offset][0]
                expected = earlier.base_timestamp if earlier.has_delete_horizon else now_ms + RETENTION_MS
                assert header.has_delete_horizon
                assert header.base_timestamp == expected

        # E13: no aborted record is left, and a marker stays while a batch of its transaction does, empty or not.
        assert not {offset for offset in after.records if offset < reached} & self.writer.aborted
        for header, _ in after.batches:
            if header.is_transactional and not header.is_control:
                ended = self.transactions.get(header.last_offset)
                assert ended is None or ended in after.controls or ended >= end_offset
        for offset, header in before.controls.items():
            if offset not in after.controls:
                assert header.has_delete_horizon
                assert header.base_timestamp <= now_ms, "E11"
                assert not any(self.transactions.get(kept) == offset for kept in before.records)

        # E14: whoever reads the log knows as much of its active producers as before.
        replayed = ProducerStates()
        for header, data in after.batches:
            apply_to_producers(replayed, header, memoryview(data))
        for producer_id, entry in self.log.producers.entries.items():
            known = replayed.entries[producer_id]
            assert (known.epoch, known.last_sequence, known.next_sequence) == (
                entry.epoch,
                entry.last_sequence,
                entry.next_sequence,
            )
            assert known.txn_first_offset < 0 or entry.txn_first_offset >= 0


def check_log(log: Log) -> None:
    """Indexes are what the batches say, and every batch can be found."""
    for segment in log._segments:
        offsets, times = segment.build_indexes(note_end=log.config.compact and segment is not log._active)
        assert segment.offset_index(log._segments.cache).encode() == offsets.encode()
        assert segment.largest_timestamp() == times.last[0]
        if segment is not log._active:
            check_times(segment, segment.time_index(log._segments.cache), final=True)
    for header, _ in all_batches(log):
        span = log.read(header.base_offset, max_bytes=1, upper_bound=log.log_end_offset)
        assert span is not None
    aborted = {
        txn.last_offset for segment in log._segments for txn in segment.aborted_transactions(log._segments.cache)
    }
    for header, data in all_batches(log):
        if header.is_control and header.base_offset in aborted:
            assert list(iterate(data)), "the index tells of a marker that is there"


ROOMY = CleaningSettings(map_bytes=1 << 20, io_bytes=1 << 11)
TIGHT = CleaningSettings(map_bytes=24 * 7, io_bytes=1 << 11)


@pytest.mark.parametrize("seed", range(6))
def test_logs_made_by_chance(seed: int) -> None:
    Story(seed, ROOMY if seed % 3 else TIGHT).tell(4)


@pytest.mark.parametrize("seed", range(3))
def test_logs_made_by_chance_in_python(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import ottla.records.cleaning as cleaning
    from ottla.records.cleaning import _pure

    monkeypatch.setattr(cleaning, "OffsetMap", _pure.OffsetMap)
    Story(seed, ROOMY if seed % 3 else TIGHT).tell(4)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_logs_made_by_chance(seed: int) -> None:
    Story(seed, ROOMY if seed % 3 else replace(TIGHT, map_bytes=24 * (4 + seed % 20))).tell(8)


def test_time_passes_for_the_story() -> None:
    """The story is one in which tombstones and markers do go."""
    story = Story(2, ROOMY)
    story.tell(6)
    before = Seen.of(story.log)
    assert any(header.has_delete_horizon for header, _ in before.batches)
    assert len(story.everything) > 2 * len(before.records)
    assert story.writer.now_ms > NOW
