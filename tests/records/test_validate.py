"""Each rule for produced batches, with the code that Apache Kafka 4.3.1 answers (asked of a running one).

Every test runs on both sides, compiled and Python.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import ModuleType

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.records import (
    BatchBuilder,
    Compression,
    CompressionType,
    InvalidRecords,
    TimestampType,
    Validated,
    ValidationRules,
    crc_is_valid,
    iterate,
    read_header,
    validate,
    validate_produced,
)
from ottla.records.varint import encode_varint

from .crafting import NOW, SIDES, batch_of, patched, plain_batch, record, seal

Validate = Callable[..., Validated]
CORRUPT = ErrorCode.CORRUPT_MESSAGE
INVALID = ErrorCode.INVALID_RECORD
TIMESTAMP = ErrorCode.INVALID_TIMESTAMP
TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE
UNSUPPORTED = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
COMPRESSED = [codec for codec in CompressionType if codec]


@pytest.fixture(params=SIDES, autouse=True)
def side(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module: ModuleType = request.param
    for name in ("check", "crc_matches", "walk"):
        monkeypatch.setattr(validate, name, getattr(module, name))
    return module


def refusal(batch: bytes | bytearray, rules: ValidationRules | None = None, *, zstd_allowed: bool = True) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        validate_produced(memoryview(bytearray(batch)), rules or ValidationRules(), NOW, zstd_allowed=zstd_allowed)
    return caught.value


def accepted(batch: bytes | bytearray, rules: ValidationRules | None = None) -> Validated:
    validated = validate_produced(memoryview(bytearray(batch)), rules or ValidationRules(), NOW)
    assert crc_is_valid(validated.batch, 0, len(validated.batch))
    assert validated.header == read_header(validated.batch)
    assert validated.header.size == len(validated.batch)
    return validated


@pytest.mark.parametrize("codec", CompressionType)
def test_a_good_batch_passes_as_it_came(codec: CompressionType) -> None:
    batch = plain_batch(300, codec=codec)
    given = memoryview(bytearray(batch))
    validated = validate_produced(given, ValidationRules(compacted=True), NOW)
    assert validated.batch.obj is given.obj, "no copy"
    assert validated.batch == batch
    assert validated.log_append_time_ms == -1


# The batch among the bytes


def test_no_batch_at_all_or_less_than_one_is_invalid() -> None:
    batch = plain_batch()
    for size in range(len(batch)):
        assert refusal(batch[:size]).code == INVALID
    assert refusal(patched(batch, 8, "i", 2**31 - 1, sealed=False)).code == INVALID


def test_two_batches_are_invalid() -> None:
    assert refusal(plain_batch() + plain_batch()).code == INVALID


def test_bytes_after_the_batch_that_are_no_batch_are_dropped() -> None:
    batch = plain_batch()
    for tail in (b"x", bytes(11), batch[:16], batch[:-1]):
        assert accepted(batch + tail).batch == batch
    assert refusal(batch + bytes(20)).code == CORRUPT, "a batch of no length"


def test_old_message_formats_are_invalid_and_unknown_ones_corrupt() -> None:
    for magic, code in ((0, INVALID), (1, INVALID), (3, CORRUPT), (-1, CORRUPT), (127, CORRUPT)):
        assert refusal(patched(plain_batch(), 16, "b", magic, sealed=False)).code == code


def test_lengths_that_no_batch_has_are_corrupt() -> None:
    for length in (-(2**31), -1, 0, 13, 14, 48):
        assert refusal(patched(plain_batch(), 8, "i", length, sealed=False)).code == CORRUPT


def test_zstd_comes_with_produce_version_7() -> None:
    batch = plain_batch(codec=CompressionType.ZSTD)
    assert refusal(batch, zstd_allowed=False).code == UNSUPPORTED
    assert refusal(batch + batch, zstd_allowed=False).code == UNSUPPORTED
    assert refusal(patched(batch, 16, "b", 1), zstd_allowed=False).code == INVALID
    accepted(batch)


# The header


def test_a_wrong_crc_is_corrupt() -> None:
    for codec in CompressionType:
        assert refusal(patched(plain_batch(codec=codec), 17, "I", 5, sealed=False)).code == CORRUPT


def test_a_base_offset_other_than_zero_is_invalid_before_the_crc_is_looked_at() -> None:
    for offset in (1, -1, 2**62):
        assert refusal(patched(plain_batch(), 0, "q", offset)).code == INVALID
    assert refusal(patched(patched(plain_batch(), 0, "q", 5), 17, "I", 0, sealed=False)).code == INVALID


def test_the_size_limit_holds_for_the_compressed_batch_and_comes_before_the_crc() -> None:
    rules = ValidationRules(max_message_bytes=200)
    large = plain_batch(1, value=b"v" * 200)
    assert refusal(large, rules).code == TOO_LARGE
    assert refusal(patched(large, 17, "I", 0, sealed=False), rules).code == TOO_LARGE
    assert refusal(patched(large, 0, "q", 5), rules).code == INVALID
    accepted(plain_batch(1, value=b"v" * 2000, codec=CompressionType.ZSTD), rules)
    exact = plain_batch(3)
    accepted(exact, ValidationRules(max_message_bytes=len(exact)))
    assert refusal(exact, ValidationRules(max_message_bytes=len(exact) - 1)).code == TOO_LARGE


def test_the_record_count_must_be_what_the_offsets_say() -> None:
    batch = plain_batch(3)
    for delta in (1, 3, -1, -5, 2**31 - 1, -(2**31)):
        assert refusal(patched(batch, 23, "i", delta)).code == INVALID
    for count in (0, -1, 2, 4, 2**31 - 1, -(2**31)):
        assert refusal(patched(batch, 57, "i", count)).code == INVALID


@pytest.mark.parametrize("codec", CompressionType)
def test_the_record_count_must_be_what_the_records_say(codec: CompressionType) -> None:
    batch = plain_batch(100, codec=codec)
    for count in (1, 64, 99, 101, 2**31 - 1):
        assert refusal(patched(patched(batch, 57, "i", count), 23, "i", count - 1)).code == INVALID


def test_clients_write_no_control_records() -> None:
    builder = BatchBuilder(control=True)
    builder.append(NOW, b"\0\0\0\1", b"\0\0\0\0\0\0")
    assert refusal(builder.build()).code == INVALID


def test_a_producer_id_brings_a_sequence() -> None:
    for sequence in (-1, -5):
        builder = BatchBuilder(producer_id=5, producer_epoch=0, base_sequence=sequence)
        builder.append(NOW, b"k", b"v")
        assert refusal(builder.build()).code == INVALID
    for producer_id, epoch, sequence in ((5, 0, 0), (5, -1, 7), (-1, -1, 3), (-5, 0, -1)):
        builder = BatchBuilder(
            producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=producer_id >= 0
        )
        builder.append(NOW, b"k", b"v")
        assert accepted(builder.build()).header.producer_id == producer_id


def test_unknown_codecs_are_unsupported_and_unknown_flags_let_through() -> None:
    for codec in (5, 6, 7):
        assert refusal(patched(plain_batch(), 21, "h", codec)).code == UNSUPPORTED
    for flags in (0x80, 0x100, -0x8000, 0x40):
        batch = patched(plain_batch(), 21, "h", flags)
        assert accepted(batch).batch == batch


# The records


GOOD_RECORDS = {
    "plain": [record(0), record(1)],
    "attributes set": [record(0, attributes=7), record(1)],
    "any negative length is null": [record(0, key=None, key_length=-2), record(1, value=None, value_length=-7)],
    "null key and value": [record(0, key=None), record(1, value=None)],
    "header with null value": [record(0, headers=b"\x02\x02h\x01"), record(1, headers=b"\x02\x02h\x05")],
    "header key that is no text": [record(0, headers=b"\x02\x02\xff\x00"), record(1)],
    "a longer varint than need be": [b"\x90\x80\x80\x80\x00" + record(0)[1:], record(1)],
    "bits that do not fit are dropped": [b"\x90\x80\x80\x80\x10" + record(0)[1:], record(1)],
    "a varlong of ten bytes": [encode_varint(17) + b"\x00" + b"\x80" * 9 + b"\x00" + record(0)[3:], record(1)],
    "a wide offset delta": [encode_varint(9) + b"\x00\x00\x80\x00" + record(0)[4:], record(1)],
}
BAD_RECORDS = {
    "key longer than the record": [record(0, key_length=100), record(1)],
    "value longer than the record": [record(0, value_length=2), record(1)],
    "length too great": [record(0, length=9), record(1)],
    "length too small": [record(0, length=7), record(1)],
    "negative length": [record(0, length=-1), record(1)],
    "no length": [record(0, length=0), record(1)],
    "huge length": [record(0, length=2**31 - 1), record(1)],
    "bytes left in the record": [record(0, tail=b"x"), record(1)],
    "bytes left in the batch": [record(0), record(1), b"x"],
    "headers that are not there": [record(0, headers=encode_varint(1)), record(1)],
    "header without a key": [record(0, headers=b"\x02\x01\x01"), record(1)],
    "negative number of headers": [record(0, headers=encode_varint(-1)), record(1)],
    "huge number of headers": [record(0, headers=encode_varint(2**31 - 1)), record(1)],
    "varint of six bytes": [b"\x90\x80\x80\x80\x80\x00" + record(0)[1:], record(1)],
    "varlong of eleven bytes": [encode_varint(18) + b"\x00" + b"\x80" * 10 + b"\x00" + record(0)[3:], record(1)],
    "one record too few": [record(0)],
    "no records": [b""],
    "offset deltas swapped": [record(1), record(0)],
    "an offset delta twice": [record(0), record(0)],
    "an offset delta left out": [record(0), record(2)],
    "a negative offset delta": [record(-1), record(1)],
}


@pytest.mark.parametrize("codec", CompressionType)
@pytest.mark.parametrize("name", GOOD_RECORDS)
def test_odd_records_that_kafka_takes(name: str, codec: CompressionType) -> None:
    batch = batch_of(*GOOD_RECORDS[name], codec=codec, count=2)
    assert accepted(batch).batch == batch
    assert len(list(iterate(batch))) == 2


@pytest.mark.parametrize("codec", CompressionType)
@pytest.mark.parametrize("name", BAD_RECORDS)
def test_records_that_do_not_hold_together_are_invalid(name: str, codec: CompressionType) -> None:
    batch = batch_of(*BAD_RECORDS[name], codec=codec, count=2)
    assert refusal(batch).code == INVALID
    assert refusal(batch, ValidationRules(timestamp_type=TimestampType.LOG_APPEND_TIME)).code == INVALID
    other = CompressionType.NONE if codec else CompressionType.ZSTD
    assert refusal(batch, ValidationRules(compression=Compression(other))).code == INVALID


def test_flaws_deep_in_a_run_of_equal_records_are_found() -> None:
    """The Python side checks runs by columns: each kind of byte is spoiled once, at several places."""
    records = [record(index, timestamp=index, key=b"key", value=b"v" * 80) for index in range(200)]
    starts = [sum(map(len, records[:index])) for index in range(201)]
    good = batch_of(*records)
    accepted(patched(good, 35, "q", NOW + 199))
    for index in (1, 9, 40, 63, 64, 70, 150, 199):
        start = 61 + starts[index]
        size = len(records[index])
        narrow = 1 if index < 64 else 2
        # Length, offset delta, key length, value length, number of headers.
        for at in (0, 1, 3 + narrow, 4 + 2 * narrow - 1, 4 + 2 * narrow + 3, size - 1):
            batch = bytearray(good)
            batch[start + at] ^= 0x02
            assert refusal(seal(batch)).code == INVALID, (index, at)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_streams_that_do_not_decompress_are_invalid(codec: CompressionType) -> None:
    batch = plain_batch(20, codec=codec)
    for content in (b"", b"garbage garbage garbage", *(bytes(batch[61:-cut]) for cut in (1, 4, 9, 15))):
        assert refusal(seal(batch[:61] + content)).code == INVALID


# Timestamps


def test_create_time_outside_the_bounds_is_refused_record_by_record() -> None:
    rules = ValidationRules(timestamp_before_max_ms=1000, timestamp_after_max_ms=500)
    for codec in CompressionType:
        builder = BatchBuilder(compression=codec)
        for delta in (0, -1000, -1001, 500, 501, -NOW - 1):
            builder.append(NOW + delta, b"k", b"v")
        error = refusal(builder.build(), rules)
        assert isinstance(error, InvalidRecords)
        assert error.code == TIMESTAMP
        assert [index for index, _ in error.record_errors] == [2, 4], "no timestamp (-1) is in no bounds"
        assert str(NOW - 1001) in (error.record_errors[0][1] or "")


def test_by_default_any_past_will_do_and_an_hour_of_future() -> None:
    for timestamp in (0, -1, -5, NOW + 3_600_000):
        accepted(plain_batch(1, timestamp=timestamp))
    for timestamp in (NOW + 3_600_001, 2**63 - 1, -(2**63)):
        assert refusal(plain_batch(1, timestamp=timestamp)).code == TIMESTAMP
    wide = ValidationRules(timestamp_after_max_ms=2**63 - 1)
    accepted(plain_batch(1, timestamp=2**63 - 1), wide)


def test_timestamps_wrap_as_in_java() -> None:
    batch = batch_of(record(0, timestamp=2**63 - 1), record(1))
    error = refusal(batch)
    assert isinstance(error, InvalidRecords)
    assert error.code == TIMESTAMP
    assert error.record_errors == [(0, error.record_errors[0][1])]


@pytest.mark.parametrize("codec", CompressionType)
def test_a_max_timestamp_that_the_records_deny_is_put_right(codec: CompressionType) -> None:
    batch = plain_batch(100, codec=codec)
    validated = accepted(patched(batch, 35, "q", 77))
    assert validated.batch == batch
    assert validated.log_append_time_ms == -1


@pytest.mark.parametrize("codec", CompressionType)
def test_log_append_time_is_the_leaders_and_leaves_the_records_as_they_are(codec: CompressionType) -> None:
    rules = ValidationRules(timestamp_type=TimestampType.LOG_APPEND_TIME, timestamp_before_max_ms=0)
    batch = plain_batch(3, timestamp=5, codec=codec)
    validated = accepted(batch, rules)
    assert validated.log_append_time_ms == NOW
    assert validated.header.max_timestamp == NOW
    assert validated.header.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert validated.header.base_timestamp == 5
    assert validated.batch[61:] == batch[61:]
    assert {read.timestamp for read in iterate(validated.batch)} == {NOW}


def test_a_producer_that_marks_log_append_time() -> None:
    def marked(time: int) -> bytearray:
        builder = BatchBuilder(log_append_time_ms=time)
        for _ in range(3):
            builder.append(NOW, b"k", b"v")
        return builder.build()

    log_append = ValidationRules(timestamp_type=TimestampType.LOG_APPEND_TIME)
    for batch, rules in ((marked(NOW), log_append), (marked(-1), ValidationRules())):
        error = refusal(batch, rules)
        assert isinstance(error, InvalidRecords)
        assert error.code == TIMESTAMP
        assert [index for index, _ in error.record_errors] == [0, 1, 2]
    # Kafka lets the mark pass where the topic has create time and the time is within bounds, and takes it off.
    validated = accepted(marked(NOW))
    assert validated.header.timestamp_type == TimestampType.CREATE_TIME
    assert validated.header.max_timestamp == NOW
    assert refusal(marked(5), ValidationRules(timestamp_before_max_ms=1000)).code == TIMESTAMP


# Keys


@pytest.mark.parametrize("codec", CompressionType)
def test_a_compacted_topic_wants_keys(codec: CompressionType) -> None:
    builder = BatchBuilder(compression=codec)
    for key in (b"a", None, b"", None):
        builder.append(NOW, key, b"v")
    batch = builder.build()
    accepted(batch)
    error = refusal(batch, ValidationRules(compacted=True))
    assert isinstance(error, InvalidRecords)
    assert error.code == INVALID
    assert [index for index, _ in error.record_errors] == [1, 3]


def test_a_timestamp_error_decides_the_code_when_keys_are_missing_too() -> None:
    builder = BatchBuilder()
    builder.append(NOW, None, b"v")
    builder.append(5, b"k", b"v")
    error = refusal(builder.build(), ValidationRules(compacted=True, timestamp_before_max_ms=1000))
    assert isinstance(error, InvalidRecords)
    assert error.code == TIMESTAMP
    assert [index for index, _ in error.record_errors] == [0, 1]
    marked = BatchBuilder(log_append_time_ms=NOW)
    marked.append(NOW, None, b"v")
    marked.append(NOW, b"k", b"v")
    rules = ValidationRules(compacted=True, timestamp_type=TimestampType.LOG_APPEND_TIME)
    error = refusal(marked.build(), rules)
    assert isinstance(error, InvalidRecords)
    assert [index for index, _ in error.record_errors] == [0, 1]
    assert "key" in (error.record_errors[0][1] or "")


# Compression


@pytest.mark.parametrize("source", CompressionType)
@pytest.mark.parametrize("target", CompressionType)
@pytest.mark.parametrize("kind", TimestampType)
def test_the_topics_codec_wins(source: CompressionType, target: CompressionType, kind: TimestampType) -> None:
    builder = BatchBuilder(compression=source, producer_id=9, producer_epoch=1, base_sequence=4, transactional=True)
    for index in range(50):
        builder.append(NOW + index, b"key", b"value" * index, [("h", b"1")])
    batch = builder.build()
    rules = ValidationRules(compression=Compression(target), timestamp_type=kind)
    validated = accepted(batch, rules)
    assert validated.header.compression == target
    assert validated.header.timestamp_type == kind
    told, given = validated.header, read_header(batch)
    unchanged = ("producer_id", "producer_epoch", "base_sequence", "is_transactional", "record_count", "base_timestamp")
    assert all(getattr(told, name) == getattr(given, name) for name in unchanged)
    times = [NOW + index if kind == TimestampType.CREATE_TIME else NOW for index in range(50)]
    assert [read[:2] for read in iterate(validated.batch)] == list(enumerate(times))
    assert [read[2:] for read in iterate(validated.batch)] == [read[2:] for read in iterate(batch)]
    if source == target and kind == TimestampType.CREATE_TIME:
        assert validated.batch == batch, "compressed once is enough"


def test_the_size_limit_holds_again_after_recompression() -> None:
    rules = ValidationRules(max_message_bytes=200, compression=Compression(CompressionType.NONE))
    batch = plain_batch(3, value=b"v" * 300, codec=CompressionType.ZSTD)
    assert len(batch) < 200
    assert refusal(batch, rules).code == TOO_LARGE


def test_a_level_can_be_said() -> None:
    batch = plain_batch(200, value=bytes(range(256)) * 4)
    sizes = {}
    for codec, levels in (
        (CompressionType.GZIP, (1, 9)),
        (CompressionType.LZ4, (1, 17)),
        (CompressionType.ZSTD, (-5, 22)),
    ):
        for level in levels:
            validated = accepted(batch, ValidationRules(compression=Compression(codec, level)))
            sizes[codec, level] = len(validated.batch)
            assert len(list(iterate(validated.batch))) == 200
    assert sizes[CompressionType.GZIP, 9] < sizes[CompressionType.GZIP, 1]
    assert sizes[CompressionType.ZSTD, 22] < sizes[CompressionType.ZSTD, -5]


def test_a_batch_that_unpacks_to_too_much_is_too_large() -> None:
    for codec in COMPRESSED:
        batch = plain_batch(10, value=bytes(100_000), codec=codec)
        accepted(batch)
        assert refusal(batch, ValidationRules(max_decompressed_bytes=500_000)).code == TOO_LARGE


def test_a_batch_in_read_only_memory_can_be_validated_if_nothing_needs_patching() -> None:
    validate_produced(memoryview(bytes(plain_batch())), ValidationRules(), NOW)


def test_a_batch_within_a_larger_buffer_is_patched_where_it_lies() -> None:
    batch = plain_batch()
    frame = bytearray(b"head" + batch + b"tail")
    rules = ValidationRules(timestamp_type=TimestampType.LOG_APPEND_TIME)
    validate_produced(memoryview(frame)[4:-4], rules, NOW + 5)
    assert frame[:4] + frame[-4:] == b"headtail"
    assert struct.unpack_from(">q", frame, 4 + 35) == (NOW + 5,)


def test_the_batches_of_a_request_share_what_they_may_unpack_to() -> None:
    budget = validate.DecompressionBudget(100_000)
    packed = plain_batch(1, value=bytes(60_000), codec=CompressionType.GZIP)
    validate_produced(memoryview(packed), ValidationRules(), NOW, budget=budget)
    assert 30_000 < budget.left < 41_000
    with pytest.raises(KafkaError) as caught:
        validate_produced(memoryview(packed), ValidationRules(), NOW, budget=budget)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert budget.left == 0
