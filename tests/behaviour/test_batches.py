"""What a batch must be before a leader takes it, what the leader may change in it, and what a reader gets back."""

from __future__ import annotations

import struct

import pytest

from ottla.errors import ErrorCode
from ottla.records import CompressionType, batches, crc_is_valid, read_header
from tests.behaviour.client import LATEST, Client, Topic, batch, now_ms, records_of, values_of
from tests.records.crafting import batch_of, patched, record, seal

BASE_OFFSET, BATCH_LENGTH, LEADER_EPOCH, MAGIC, CRC, ATTRIBUTES, LAST_OFFSET_DELTA = 0, 8, 12, 16, 17, 21, 23
RECORD_COUNT = 57
CODECS = list(CompressionType)
DAY_MS = 86_400_000


def refused(client: Client, topic: Topic, records: bytes | bytearray, *, version: int = 13) -> tuple[int, list[int]]:
    """The code of the refusal and the records it blames; and nothing was appended."""
    before = client.list_offset(topic, LATEST).offset
    answer = client.produce(topic, records, version=version)
    assert answer.error_code != 0
    assert answer.base_offset == -1
    assert client.list_offset(topic, LATEST).offset == before
    return answer.error_code, [blamed.batch_index for blamed in answer.record_errors]


def fetched(client: Client, topic: Topic, offset: int = 0) -> memoryview:
    found = client.fetch(topic, offset)
    assert found.records is not None
    return memoryview(found.records)


@pytest.mark.parametrize("codec", CODECS)
def test_the_leader_sets_offset_and_epoch_and_nothing_else(
    client: Client, topic: Topic, codec: CompressionType
) -> None:
    client.append(topic, b"before")
    sent = batch(b"a" * 100, b"b" * 100, key=b"k", compression=codec)
    assert client.produce(topic, sent).base_offset == 1
    got = bytes(fetched(client, topic, 1))
    header = read_header(got)
    assert (header.base_offset, header.leader_epoch) == (1, 0)
    assert got[BATCH_LENGTH:LEADER_EPOCH] == sent[BATCH_LENGTH:LEADER_EPOCH]
    assert got[MAGIC:] == sent[MAGIC:]
    assert crc_is_valid(got, 0, len(got))


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_went(client: Client, topic: Topic, codec: CompressionType) -> None:
    at = now_ms()
    client.produce(topic, batch(b"a", None, b"", key=b"key", timestamps=[at, at - 5, at + 5], compression=codec))
    got = [(each.offset, each.timestamp, each.key, each.value) for each in client.read_all(topic)]
    assert got == [(0, at, b"key", b"a"), (1, at - 5, b"key", None), (2, at + 5, b"key", b"")]


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_of_fetch_returns_the_same_bytes(client: Client, topic: Topic, version: int) -> None:
    sent = batch(b"a", b"b")
    client.produce(topic, sent)
    found = client.fetch(topic, 0, version=version)
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 2, 2)
    assert found.log_start_offset == (0 if version >= 5 else -1)
    assert found.preferred_read_replica == -1
    assert found.records is not None
    assert bytes(found.records)[MAGIC:] == sent[MAGIC:]


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_of_fetch_says_what_is_wrong(client: Client, topic: Topic, version: int) -> None:
    found = client.fetch(topic, 9, version=version)
    assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (-1, -1, -1)
    assert not found.records


def test_a_wrong_checksum_is_a_corrupt_message(client: Client, topic: Topic) -> None:
    sent = bytearray(batch(b"a" * 50))
    sent[-3] ^= 0x10
    assert refused(client, topic, sent)[0] == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("version", [3, 8, 13])
def test_a_wrong_checksum_is_corrupt_in_any_field_it_covers(client: Client, topic: Topic, version: int) -> None:
    sent = patched(bytearray(batch(b"a")), LAST_OFFSET_DELTA, "i", 5, sealed=False)
    assert refused(client, topic, sent, version=version)[0] == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(("delta", "count"), [(1, 1), (0, 2), (2, 2), (-1, 0), (0, 0), (-2, -1)])
def test_offsets_and_count_must_agree(client: Client, topic: Topic, delta: int, count: int) -> None:
    sent = bytearray(batch(b"a"))
    struct.pack_into(">i", sent, LAST_OFFSET_DELTA, delta)
    struct.pack_into(">i", sent, RECORD_COUNT, count)
    assert refused(client, topic, seal(sent))[0] == ErrorCode.INVALID_RECORD


def test_a_produced_batch_begins_at_offset_zero(client: Client, topic: Topic) -> None:
    sent = patched(bytearray(batch(b"a")), BASE_OFFSET, "q", 5)
    assert refused(client, topic, sent)[0] == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_refused(client: Client, topic: Topic, magic: int) -> None:
    body = struct.pack(">bbq", magic, 0, now_ms()) if magic else struct.pack(">bb", magic, 0)
    body += struct.pack(">i", -1) + struct.pack(">i", 1) + b"a"
    import zlib

    message = struct.pack(">I", zlib.crc32(body)) + body
    old = struct.pack(">qi", 0, len(message)) + message
    assert refused(client, topic, old)[0] == ErrorCode.INVALID_RECORD


def test_a_format_of_the_future_is_corrupt(client: Client, topic: Topic) -> None:
    sent = patched(bytearray(batch(b"a")), MAGIC, "b", 3)
    assert refused(client, topic, sent)[0] == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("cut", [1, 20])
def test_a_batch_that_is_cut_short_is_refused(client: Client, topic: Topic, cut: int) -> None:
    assert refused(client, topic, batch(b"a" * 40)[:-cut])[0] in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)


def test_a_client_may_not_write_control_records(client: Client, topic: Topic) -> None:
    sent = batch(b"\0\0\0\0\0\0", key=b"\0\0\0\1", control=True)
    assert refused(client, topic, sent)[0] == ErrorCode.INVALID_RECORD


def test_a_compacted_topic_wants_keys(client: Client, name: str) -> None:
    topic = client.create_topic(name, cleanup_policy="compact")
    code, blamed = refused(client, topic, batch(b"a", b"b"))
    assert code == ErrorCode.INVALID_RECORD
    assert blamed == [0, 1]
    mixed = batch_of(record(0, key=b"k"), record(1, key=None), record(2, key=b"k"), base_timestamp=now_ms())
    assert refused(client, topic, mixed) == (ErrorCode.INVALID_RECORD, [1])
    assert client.produce(topic, batch(b"a", key=b"k")).error_code == 0


# Sizes.


def test_a_batch_above_the_topics_limit_is_too_large(client: Client, name: str) -> None:
    topic = client.create_topic(name, max_message_bytes="1000")
    fits = batch(bytes(1_000 - 61 - 9))
    assert len(fits) <= 1_000
    assert client.produce(topic, fits).error_code == 0
    assert refused(client, topic, batch(bytes(1_000)))[0] == ErrorCode.MESSAGE_TOO_LARGE


def test_the_limit_counts_compressed_bytes(client: Client, name: str) -> None:
    topic = client.create_topic(name, max_message_bytes="1000")
    assert client.produce(topic, batch(bytes(50_000), compression=CompressionType.GZIP)).error_code == 0
    assert values_of(client.fetch(topic, 0)) == [bytes(50_000)]


def test_the_limit_can_be_raised_while_the_node_runs(client: Client, name: str) -> None:
    topic = client.create_topic(name, max_message_bytes="1000")
    refused(client, topic, batch(bytes(1_500)))
    client.alter_topic(topic, max_message_bytes="2000")
    assert client.produce(topic, batch(bytes(1_500))).error_code == 0


def test_a_batch_above_the_segment_size_is_refused(client: Client, name: str) -> None:
    topic = client.create_topic(name, segment_bytes="1048576", max_message_bytes="3000000")
    assert refused(client, topic, batch(bytes(1_100_000)))[0] == ErrorCode.RECORD_LIST_TOO_LARGE


# Compression.


@pytest.mark.parametrize("version", range(3, 14))
def test_zstd_needs_a_producer_that_knows_it(client: Client, topic: Topic, version: int) -> None:
    sent = batch(b"a" * 100, compression=CompressionType.ZSTD)
    if version < 7:
        assert refused(client, topic, sent, version=version)[0] == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    else:
        assert client.produce(topic, sent, version=version).error_code == 0


@pytest.mark.parametrize("version", [4, 9, 10])
def test_a_reader_of_zstd_is_not_asked_whether_it_knows_it(client: Client, name: str, version: int) -> None:
    """Since Kafka 4 no reader is too old for a batch: nothing is converted for anybody (KIP-724)."""
    topic = client.create_topic(name, compression_type="zstd")
    client.append(topic, b"a" * 100)
    assert values_of(client.fetch(topic, 0, version=version)) == [b"a" * 100]


@pytest.mark.parametrize("wanted", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_topic_may_choose_its_own_compression(client: Client, name: str, wanted: str) -> None:
    topic = client.create_topic(name, compression_type=wanted)
    sent_as = CompressionType.LZ4 if wanted != "lz4" else CompressionType.GZIP
    values = [b"%d" % index * 50 for index in range(10)]
    client.produce(topic, batch(*values, compression=sent_as))
    got = fetched(client, topic)
    header = read_header(got)
    stored = CompressionType.NONE if wanted == "uncompressed" else CompressionType[wanted.upper()]
    assert header.compression == stored
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (0, 9, 10)
    assert crc_is_valid(got, 0, len(got))
    assert [each.value for each in client.read_all(topic)] == values


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(client: Client, topic: Topic, codec: int) -> None:
    sent = patched(bytearray(batch(b"a")), ATTRIBUTES, "h", codec)
    client.produce(topic, sent)
    assert client.list_offset(topic, LATEST).offset == 0


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec])
def test_what_does_not_unpack_is_refused(client: Client, topic: Topic, codec: CompressionType) -> None:
    sent = bytearray(batch(b"a" * 100, compression=codec))
    sent[61:] = bytes(len(sent) - 61)
    client.produce(topic, seal(sent))
    assert client.list_offset(topic, LATEST).offset == 0


# Timestamps.


def test_records_too_old_are_refused_one_by_one(client: Client, name: str) -> None:
    topic = client.create_topic(name, message_timestamp_before_max_ms="60000")
    at = now_ms()
    sent = batch(b"ok", b"old", b"ok", b"older", timestamps=[at, at - 120_000, at, at - DAY_MS])
    assert refused(client, topic, sent) == (ErrorCode.INVALID_TIMESTAMP, [1, 3])
    assert client.produce(topic, batch(b"ok", timestamp=at - 30_000)).error_code == 0


def test_records_of_the_future_are_refused_one_by_one(client: Client, topic: Topic) -> None:
    at = now_ms()
    sent = batch(b"ok", b"early", timestamps=[at, at + 2 * 3_600_000])
    assert refused(client, topic, sent) == (ErrorCode.INVALID_TIMESTAMP, [1])


def test_any_age_is_welcome_unless_the_topic_says_otherwise(client: Client, name: str) -> None:
    topic = client.create_topic(name, retention_ms="-1")
    assert client.produce(topic, batch(b"ancient", timestamp=1)).error_code == 0
    assert client.produce(topic, batch(b"timeless", timestamp=-1)).error_code == 0


def test_a_producer_may_not_claim_the_brokers_clock(client: Client, name: str) -> None:
    topic = client.create_topic(name, message_timestamp_type="LogAppendTime")
    assert refused(client, topic, batch(b"a", log_append_time_ms=now_ms())) == (ErrorCode.INVALID_TIMESTAMP, [0])


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.LZ4])
def test_log_append_time_is_set_on_the_batch_and_told(client: Client, name: str, codec: CompressionType) -> None:
    topic = client.create_topic(name, message_timestamp_type="LogAppendTime")
    before = now_ms()
    sent = batch(b"a", b"b", timestamps=[1_000, 2_000], compression=codec)
    answer = client.produce(topic, sent)
    after = now_ms()
    assert answer.error_code == 0
    assert before <= answer.log_append_time_ms <= after
    got = fetched(client, topic)
    header = read_header(got)
    assert header.timestamp_type == 1
    assert header.max_timestamp == answer.log_append_time_ms
    assert crc_is_valid(got, 0, len(got))
    assert bytes(got[61:]) == sent[61:]
    assert [each.timestamp for each in client.read_all(topic)] == [answer.log_append_time_ms] * 2


def test_log_append_time_has_no_bounds(client: Client, name: str) -> None:
    topic = client.create_topic(
        name,
        message_timestamp_type="LogAppendTime",
        message_timestamp_before_max_ms="1",
        message_timestamp_after_max_ms="1",
    )
    assert client.produce(topic, batch(b"a", timestamp=5)).error_code == 0


def test_create_time_is_not_told(client: Client, topic: Topic) -> None:
    assert client.produce(topic, batch(b"a")).log_append_time_ms == -1


# Records inside the batch.


@pytest.mark.ottla_only
def test_records_must_number_their_offsets(client: Client, topic: Topic) -> None:
    """Kafka looks only inside compressed batches; a record that lies outside its batch would be lost to readers."""
    sent = batch_of(record(0), record(2), base_timestamp=now_ms())
    assert refused(client, topic, sent)[0] == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(record(0, length=500), id="a record longer than its batch"),
        pytest.param(record(0, value_length=90), id="a value longer than its record"),
        pytest.param(record(0, key_length=-7), id="a key of less than nothing"),
        pytest.param(record(0, tail=b"tail"), id="bytes after the headers"),
    ],
)
def test_a_record_that_lies_about_itself_is_refused(client: Client, topic: Topic, broken: bytes) -> None:
    assert refused(client, topic, batch_of(broken, base_timestamp=now_ms()))[0] == ErrorCode.INVALID_RECORD


def test_a_fetch_ends_in_whole_batches_once_the_partial_one_is_dropped(client: Client, topic: Topic) -> None:
    for _ in range(6):
        client.append(topic, bytes(700))
    one = len(fetched(client, topic)) // 6
    found = client.fetch(topic, 0, partition_max_bytes=one * 3 + one // 2)
    assert found.records is not None
    assert [header.base_offset for header, _ in batches(found.records)] == [0, 1, 2]
    assert len(records_of(found)) == 3
