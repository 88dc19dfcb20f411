"""Appending at one end, reading anywhere: where batches land, what a read returns, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.log import Log, LogConfig, UnexpectedOffset
from ottla.model import TopicPartition
from ottla.records import read_header
from ottla.runtime.disk import SystemDisk

from .faulty_disk import FaultyDisk
from .story import NOW, TOPIC_ID, TP, all_batches, append, batch, create, fill, offsets_of, open_manager

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200)


def new_log(config: LogConfig | None = None) -> tuple[FaultyDisk, Log]:
    disk = FaultyDisk()
    return disk, create(open_manager(disk, config), config)


def read(
    log: Log, offset: int, *, max_bytes: int = 1 << 20, upper: int | None = None, min_one: bool = True
) -> list[int]:
    """The base offsets of the batches in one span; empty if there is none."""
    span = log.read(
        offset, max_bytes=max_bytes, upper_bound=log.log_end_offset if upper is None else upper, min_one=min_one
    )
    if span is None:
        return []
    data, found = span.file.read(span.position, span.size), []
    while data:
        header = read_header(data)
        found.append(header.base_offset)
        assert header.size <= len(data), "a span ends with a whole batch"
        data = data[header.size :]
    return found


def test_a_leader_assigns_offsets_and_its_epoch_in_place() -> None:
    _, log = new_log()
    first, second = batch(3), batch(2)
    assert append(log, first, epoch=4) == (0, 2, -1, False)
    assert append(log, second, epoch=4) == (3, 4, -1, False)
    assert (read_header(second).base_offset, read_header(second).leader_epoch) == (3, 4)
    assert [data for _, data in all_batches(log)] == [bytes(first), bytes(second)]
    assert log.log_end_offset == 5
    assert log.high_watermark == 0


def test_an_append_is_one_write_and_touches_no_index_file() -> None:
    disk, log = new_log(LogConfig(index_interval_bytes=10))
    append(log, batch())
    before = disk.operations
    for _ in range(20):
        append(log, batch())
    assert disk.operations == before + 20
    assert not any(path.endswith("index") for path in disk.files())


def test_log_append_time_is_told() -> None:
    _, log = new_log()
    data = batch(2, log_append_time_ms=NOW + 5)
    assert append(log, data).log_append_time_ms == NOW + 5


def test_a_read_returns_whole_batches_from_the_one_that_holds_the_offset() -> None:
    _, log = new_log()
    fill(log, 10, records=3)
    assert read(log, 0) == list(range(0, 30, 3))
    assert read(log, 13) == list(range(12, 30, 3)), "the client drops the early records of its first batch"
    assert read(log, 30) == []


@pytest.mark.parametrize("start", [0, 4, 13, 29])
def test_no_byte_at_or_beyond_the_upper_bound_is_returned(start: int) -> None:
    _, log = new_log()
    fill(log, 10, records=3)
    for upper in range(31):
        expected = [base for base in range(0, 30, 3) if base + 2 >= start and base + 3 <= upper]
        assert read(log, start, upper=upper) == (expected if start < upper else [])
    # The same without the tail in memory.
    log._active.tail_start = log.log_end_offset
    for upper in range(31):
        expected = [base for base in range(0, 30, 3) if base + 2 >= start and base + 3 <= upper]
        assert read(log, start, upper=upper) == (expected if start < upper else [])


@pytest.mark.parametrize("warm", [True, False])
def test_max_bytes_bounds_a_read_but_one_batch_always_fits(warm: bool) -> None:
    _, log = new_log(LogConfig(index_interval_bytes=1))
    fill(log, 10)
    size = len(batch())
    if not warm:
        log._active.tail_start = log.log_end_offset
    assert read(log, 2, max_bytes=3 * size) == [2, 3, 4]
    assert read(log, 2, max_bytes=4 * size - 1) == [2, 3, 4]
    assert read(log, 2, max_bytes=size - 1) == [2]
    assert read(log, 2, max_bytes=0) == [2]
    assert read(log, 2, max_bytes=size - 1, min_one=False) == []


def test_offsets_outside_the_log_are_refused() -> None:
    _, log = new_log(SMALL)
    fill(log, 40)
    log.advance_log_start(7)
    for offset in (6, 41):
        with pytest.raises(KafkaError) as refusal:
            log.read(offset, max_bytes=100, upper_bound=40)
        assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert read(log, 7)[0] == 7


def test_every_offset_is_found_across_segments_and_the_read_ends_with_its_segment() -> None:
    _, log = new_log(SMALL)
    fill(log, 100, records=2)
    bases = log.segment_base_offsets
    assert len(bases) > 5
    for offset in range(200):
        found = read(log, offset)
        assert found[0] == offset - offset % 2
        assert not any(found[0] < base <= found[-1] for base in bases)


def test_the_tail_is_read_without_the_disk() -> None:
    disk, log = new_log()
    fill(log, 3000)
    before = disk.reads
    for offset in range(2600, 3000):
        assert log.read(offset, max_bytes=1000, upper_bound=2999 if offset < 2999 else 3000) is not None
    assert disk.reads == before


@pytest.mark.parametrize("segments", [1, 2, 10, 1000])
def test_a_random_read_costs_the_same_however_many_segments_there_are(segments: int) -> None:
    """Counts the reads of a cold log, in which a restart has forgotten everything: one finds the batch, always. The
    active segment holds its index; that of any other is read when it is first wanted, in one read, and remembered."""
    disk = FaultyDisk()
    config = LogConfig(segment_bytes=800, index_interval_bytes=300)
    manager = open_manager(disk, config)
    log = create(manager, config)
    batches_a_segment = 10
    fill(log, batches_a_segment * segments)
    manager.close(NOW)
    log = open_manager(disk, config).logs[TP]
    bases = log.segment_base_offsets
    assert bases == [batches_a_segment * slot for slot in range(segments)]

    def reads(offset: int) -> int:
        before = disk.reads
        assert log.read(offset, max_bytes=500, upper_bound=log.log_end_offset) is not None
        return disk.reads - before

    assert [reads(base + 4) for base in bases] == [2] * (segments - 1) + [1]
    assert [reads(base + 7) for base in bases] == [1] * segments


@pytest.mark.parametrize("start", [0, 3, 26, 29])
@pytest.mark.parametrize("sizes", [(9_000,), (9_000, 30), (30, 9_000, 30, 30)], ids=str)
def test_a_reader_who_goes_on_needs_one_short_read_where_batches_are_large(sizes: tuple[int, ...], start: int) -> None:
    """Spans end where the index knows a batch to begin, so the next one begins there: one look at its header says so,
    however large the batch before it is. With small ones between them a scan may be needed as well, and is right."""
    disk, log = new_log()
    for number in range(30):
        append(log, batch(value=bytes(sizes[number % len(sizes)])))
    log._active.tail_start = log.log_end_offset
    offset, found = start, []
    while offset < 30:
        before = disk.reads
        span = log.read(offset, max_bytes=20_000, upper_bound=30)
        assert span is not None
        if offset and len(sizes) == 1:  # The very first batch has no entry.
            assert disk.reads - before == 1
        found += read(log, offset, max_bytes=20_000)
        offset = found[-1] + 1
    assert found == list(range(start, 30))


# Rolling.


def test_a_shorter_segment_ms_counts_for_the_segment_that_is_being_written() -> None:
    _, log = new_log(LogConfig(segment_ms=1_000_000))
    append(log, batch(timestamp=NOW))
    append(log, batch(timestamp=NOW + 2000), now_ms=NOW + 2000)
    assert log.segment_base_offsets == [0]
    log.update_config(LogConfig(segment_ms=1000))
    append(log, batch(timestamp=NOW + 2001), now_ms=NOW + 2001)
    assert log.segment_base_offsets == [0, 2]


def test_a_full_segment_is_sealed() -> None:
    _, log = new_log(SMALL)
    fill(log, 100)
    assert len(log.segment_base_offsets) > 5
    assert all(segment.size <= 1000 for segment in log._segments)


def test_a_segment_is_sealed_when_its_time_is_over_by_the_batches_clock() -> None:
    _, log = new_log(LogConfig(segment_ms=1000))
    append(log, batch(timestamp=NOW))
    append(log, batch(timestamp=NOW + 1000))
    assert log.segment_base_offsets == [0]
    append(log, batch(timestamp=NOW + 1001))
    assert log.segment_base_offsets == [0, 2]
    append(log, batch(timestamp=NOW - 5000), now_ms=NOW + 100_000)
    assert log.segment_base_offsets == [0, 2], "an old record rolls nothing, whatever the wall clock says"


def test_jitter_rolls_earlier() -> None:
    _, log = new_log(LogConfig(segment_ms=1000, segment_jitter_ms=900))
    append(log, batch(timestamp=NOW))
    jitter = log._active.jitter_ms
    assert 0 < jitter < 900
    append(log, batch(timestamp=NOW + 1000 - jitter))
    append(log, batch(timestamp=NOW + 1001 - jitter))
    assert log.segment_base_offsets == [0, 2]


def test_records_without_timestamps_age_by_the_wall_clock() -> None:
    _, log = new_log(LogConfig(segment_ms=1000))
    append(log, batch(timestamp=-1, step=0))
    append(log, batch(timestamp=-1, step=0), now_ms=NOW + 1000)
    append(log, batch(timestamp=-1, step=0), now_ms=NOW + 1001)
    assert log.segment_base_offsets == [0, 2]


def test_a_full_index_seals_the_segment() -> None:
    _, log = new_log(LogConfig(segment_index_bytes=48, index_interval_bytes=1))
    fill(log, 10)
    assert log.segment_base_offsets[:2] == [0, 4], "the time index has room for four entries and keeps one free"


def test_a_segment_spans_at_most_two_billion_offsets() -> None:
    _, log = new_log()
    append(log, batch())
    far = (1 << 31) + 10
    log.append_replicated(batch(base_offset=far, leader_epoch=0))
    assert log.segment_base_offsets == [0, far]
    assert offsets_of(log) == [(0, 0), (far, far)]
    assert log.log_end_offset == far + 1


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    _, log = new_log(LogConfig(segment_bytes=100))
    with pytest.raises(KafkaError) as refusal:
        append(log, batch(value=b"x" * 100))
    assert refusal.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0


def test_a_preallocated_segment_is_trimmed_when_sealed_and_when_closed() -> None:
    disk = FaultyDisk()
    config = LogConfig(segment_bytes=1000, preallocate=True)
    manager = open_manager(disk, config)
    log = create(manager, config)
    fill(log, 30)
    sealed, active = log._segments[0], log._active
    assert disk.file_size(sealed.path(".log")) == sealed.size
    assert disk.file_size(active.path(".log")) == 1000
    before = all_batches(log)
    # A crash leaves the zeros behind; recovery cuts them.
    crashed = open_manager(disk.copy(), config).logs[TP]
    assert all_batches(crashed) == before
    manager.close(NOW)
    assert disk.file_size(active.path(".log")) == active.size


def test_a_config_can_change_under_a_log() -> None:
    _, log = new_log(LogConfig(segment_bytes=1 << 20))
    fill(log, 5)
    log.update_config(replace(log.config, segment_bytes=100))
    append(log, batch())
    assert log.segment_base_offsets == [0, 5]
    log.flush(NOW)
    log.update_config(replace(log.config, segment_bytes=1000))
    append(log, batch())
    assert not log.flush_due(NOW)
    log.update_config(replace(log.config, flush_messages=1))
    assert log.flush_due(NOW)


# Following.


def test_a_follower_appends_what_the_leader_wrote_byte_for_byte() -> None:
    _, leader = new_log(SMALL)
    for i in range(50):
        append(leader, batch(2, producer_id=3, producer_epoch=0, sequence=2 * i), epoch=i // 20)
    _, follower = new_log(SMALL)
    fetched = b"".join(data for _, data in all_batches(leader))
    half = len(fetched) // 2
    info = follower.append_replicated(memoryview(fetched[:half]))
    assert info is not None
    assert info.first_offset == 0
    rest = b"".join(data for header, data in all_batches(leader) if header.base_offset >= follower.log_end_offset)
    follower.append_replicated(memoryview(rest))
    assert all_batches(follower) == all_batches(leader)
    assert follower.epochs.entries == leader.epochs.entries == [(0, 0), (1, 40), (2, 80)]
    assert follower.producers.entries[3].last_sequence == 99
    assert follower.append_replicated(memoryview(b"")) is None


def test_a_follower_refuses_what_does_not_follow_and_what_is_corrupt() -> None:
    _, log = new_log()
    log.append_replicated(batch(3, base_offset=0, leader_epoch=1))
    with pytest.raises(UnexpectedOffset):
        log.append_replicated(batch(3, base_offset=2, leader_epoch=1))
    broken = batch(3, base_offset=3, leader_epoch=1)
    broken[-1] ^= 1
    good = batch(1, base_offset=3, leader_epoch=1)
    with pytest.raises(KafkaError) as refusal:
        log.append_replicated(memoryview(bytearray(batch(1, base_offset=3, leader_epoch=1)) + bytearray(broken)))
    assert refusal.value.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert log.log_end_offset == 3, "all or nothing"
    log.append_replicated(good)
    log.append_replicated(batch(1, base_offset=9, leader_epoch=1))
    assert offsets_of(log) == [(0, 2), (3, 3), (9, 9)], "compaction leaves gaps"
    assert read(log, 5) == [9]


def test_the_real_disk_behaves_like_the_one_in_memory(tmp_path: object) -> None:
    from random import Random

    from ottla.log import LogManager

    manager = LogManager(SystemDisk(), [str(tmp_path)], random=Random(1))
    manager.lock()
    manager.load(lambda topic: SMALL, NOW)
    log = manager.create(TopicPartition("topic", 0), TOPIC_ID, SMALL, NOW)
    fill(log, 100, records=2)
    before = all_batches(log)
    manager.close(NOW)
    manager = LogManager(SystemDisk(), [str(tmp_path)], random=Random(1))
    manager.lock()
    manager.load(lambda topic: SMALL, NOW)
    assert manager.directories[str(tmp_path)].was_clean
    assert all_batches(manager.logs[TP]) == before
    manager.close(NOW)
