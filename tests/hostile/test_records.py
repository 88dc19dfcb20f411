"""Records that no sound producer sends: each is refused with Kafka's code, costs little, and leaves nothing behind."""

from __future__ import annotations

import struct
import time
import zlib
from typing import NamedTuple

import pytest

from ottla.errors import ErrorCode
from ottla.records import BatchBuilder, CompressionType
from ottla.wire.messages import produce_request
from ottla.wire.messages.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from ottla.wire.messages.get_telemetry_subscriptions_response import GetTelemetrySubscriptionsResponse
from ottla.wire.messages.produce_response import ProduceResponse
from ottla.wire.messages.push_telemetry_request import PushTelemetryRequest
from ottla.wire.messages.push_telemetry_response import PushTelemetryResponse
from tests.records.crafting import batch_of, patched, record, seal

from .canary import batch_of as sound_batch
from .canary import produce
from .harness import VICTIM_TOPIC, Target

CODECS = [codec for codec in CompressionType if codec]
MIB = 1 << 20
WORK_MAX = 7
"""Millions of rounds of a plain loop (`harness.Cost`): twice what a request may take."""
PEAK_MB_MAX = 64


def now_ms() -> int:
    return int(time.time() * 1000)


def sound() -> bytearray:
    return bytearray(sound_batch(b"value", b"another"))


def bomb(codec: CompressionType, size: int) -> bytes:
    """A batch of one record whose value is `size` zeros; but for snappy small enough for any topic."""
    builder = BatchBuilder(compression=codec)
    builder.append(now_ms(), None, bytes(size))
    return bytes(builder.build())


def many_records(codec: CompressionType, count: int, timestamp: int) -> bytes:
    """Records of seven bytes, far from the present if `timestamp` is."""
    body = b"".join(record(index, key=None, value=b"") for index in range(count))
    return bytes(batch_of(body, codec=codec, count=count, base_timestamp=timestamp))


def old_message(magic: int, *, value: bytes = b"v", attributes: int = 0) -> bytes:
    """A message of the formats before record batches: offset, size, CRC-32, magic, attributes, (time,) key, value."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", now_ms()) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


class Case(NamedTuple):
    name: str
    records: bytes
    codes: tuple[ErrorCode, ...]


def cases() -> list[Case]:
    corrupt, invalid = (ErrorCode.CORRUPT_MESSAGE,), (ErrorCode.INVALID_RECORD,)
    either = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
    whole = sound()
    flipped = bytearray(whole)
    flipped[-2] ^= 1
    return [
        Case("nothing", b"", invalid),
        Case("a few bytes", b"\x00" * 11, invalid),
        Case("a wrong CRC", bytes(flipped), corrupt),
        Case("a CRC of zero", bytes(patched(whole, 17, "I", 0, sealed=False)), corrupt),
        Case("magic 0", old_message(0), invalid),
        Case("magic 1", old_message(1), invalid),
        Case("magic 1, compressed", old_message(1, attributes=1, value=zlib.compress(old_message(1))), invalid),
        Case("magic 3", bytes(patched(whole, 16, "b", 3, sealed=False)), corrupt),
        Case("magic -1", bytes(patched(whole, 16, "b", -1, sealed=False)), corrupt),
        Case("a negative length", bytes(patched(whole, 8, "i", -5, sealed=False)), corrupt),
        Case("a length of zero", bytes(patched(whole, 8, "i", 0, sealed=False)), corrupt),
        Case("a length beyond the bytes", bytes(patched(whole, 8, "i", 1 << 30, sealed=False)), either),
        Case("the greatest length", bytes(patched(whole, 8, "i", 0x7FFFFFFF, sealed=False)), either),
        Case("half a batch", bytes(whole[:40]), either),
        Case("a base offset", bytes(patched(whole, 0, "q", 7)), invalid),
        Case("no records", bytes(patched(whole, 57, "i", 0)), invalid),
        Case("a negative count", bytes(patched(whole, 57, "i", -1)), invalid),
        Case("two thousand million records", bytes(patched(whole, 57, "i", 0x7FFFFFFF)), invalid),
        Case("as many, agreed upon", bytes(patched(patched(whole, 57, "i", 0x7FFFFFFF), 23, "i", 0x7FFFFFFE)), invalid),
        Case("a last offset below zero", bytes(patched(whole, 23, "i", -1)), invalid),
        Case("codec 7", bytes(patched(whole, 21, "h", 7)), (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,)),
        Case("a control batch", bytes(patched(whole, 21, "h", 0x20)), invalid),
        Case("a sequence below zero", bytes(patched(patched(whole, 43, "q", 9), 53, "i", -4)), invalid),
        Case("two batches", bytes(whole + whole), invalid),
        *(Case(f"{codec.name}, but plain bytes", bytes(patched(whole, 21, "h", codec)), invalid) for codec in CODECS),
        *(
            Case(f"{codec.name}, cut short", bytes(seal(bytearray(bomb(codec, 5000)[:-9]))), invalid)
            for codec in CODECS
        ),
        Case("a record's length", bytes(batch_of(record(length=1 << 30))), invalid),
        Case("a record's negative length", bytes(batch_of(record(length=-1))), invalid),
        Case("a key's length", bytes(batch_of(record(key_length=1 << 30))), invalid),
        Case("a value's length", bytes(batch_of(record(value_length=0x7FFFFFFF))), invalid),
        Case("a header count", bytes(batch_of(record(headers=b"\xfe\xff\xff\xff\x0f"))), invalid),
        Case("a negative header count", bytes(batch_of(record(headers=b"\x01"))), invalid),
        Case("a varint without end", bytes(batch_of(b"\xff" * 30)), invalid),
        Case("bytes after the last record", bytes(batch_of(record(), b"tail", count=1)), invalid),
    ]


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_what_is_no_sound_batch_is_refused_with_a_code(target: Target, case: Case) -> None:
    with target.client() as client:
        code, offset = produce(client, VICTIM_TOPIC, case.records)
        assert ErrorCode(code) in case.codes
        assert offset == -1
        # The connection is as good as before.
        assert produce(client, VICTIM_TOPIC, sound_batch(b"sound"))[0] == 0


def test_a_batch_nested_in_a_compressed_batch_is_an_opaque_value(target: Target) -> None:
    """Message format 2 has no nesting: what looks like it is a value, stored as it came and never unpacked."""
    inner = bomb(CompressionType.GZIP, MIB)
    builder = BatchBuilder(compression=CompressionType.GZIP)
    builder.append(now_ms(), None, inner)
    with target.client() as client:
        assert produce(client, VICTIM_TOPIC, bytes(builder.build()))[0] == 0


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_a_bomb_is_refused_before_it_goes_off(target: Target, codec: CompressionType) -> None:
    """A batch below the topic's 1 MiB that would unpack to 64 MiB; snappy cannot do better than one to twenty."""
    size = 18 * MIB if codec is CompressionType.SNAPPY else 64 * MIB
    batch = bomb(codec, size)
    assert len(batch) <= 1_048_588
    with target.client() as client:
        produce(client, VICTIM_TOPIC, bomb(codec, 100))  # Loads the codec.
        with target.costing() as cost:
            code, _ = produce(client, VICTIM_TOPIC, batch)
    if codec is CompressionType.SNAPPY:
        assert code in (ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE)
    else:
        assert code == ErrorCode.MESSAGE_TOO_LARGE
    assert cost[0].work < WORK_MAX
    assert cost[0].peak_mb < PEAK_MB_MAX


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_many_small_bombs_in_one_request_share_one_budget(target: Target, codec: CompressionType) -> None:
    count = 16 if codec is CompressionType.SNAPPY else 64  # Snappy's bombs are large themselves.
    batch = bomb(codec, 15 * MIB)
    partitions = [produce_request.PartitionProduceData(index=0, records=batch) for _ in range(count)]
    topics = [produce_request.TopicProduceData(name=VICTIM_TOPIC, partition_data=partitions)]
    request = produce_request.ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)
    with target.client() as client, target.costing() as cost:
        answers = client.call(request, ProduceResponse, 12).responses[0].partition_responses
    codes = [answer.error_code for answer in answers]
    assert len(codes) == count
    assert set(codes) == {ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE}
    assert codes.count(ErrorCode.NONE) <= 8
    assert cost[0].work < WORK_MAX
    assert cost[0].peak_mb < PEAK_MB_MAX


def test_very_many_bad_records_get_a_short_answer(target: Target) -> None:
    batch = many_records(CompressionType.ZSTD, 300_000, now_ms() + 10**9)
    wanted = produce_request.PartitionProduceData(index=0, records=batch)
    topics = [produce_request.TopicProduceData(name=VICTIM_TOPIC, partition_data=[wanted])]
    request = produce_request.ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)
    with target.client() as client, target.costing() as cost:
        answer = client.call(request, ProduceResponse, 12).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == list(range(1000))
    assert cost[0].work < WORK_MAX
    assert cost[0].peak_mb < PEAK_MB_MAX


def test_a_batch_above_the_topics_limit_is_too_large(target: Target) -> None:
    with target.client() as client:
        assert produce(client, VICTIM_TOPIC, sound_batch(bytes(2 * MIB)))[0] == ErrorCode.MESSAGE_TOO_LARGE


def test_acks_that_do_not_exist_append_nothing(target: Target) -> None:
    with target.client() as client:
        before = produce(client, VICTIM_TOPIC, sound_batch(b"before"))[1]
        for acks in (2, -2, 0x7FFF):
            assert produce(client, VICTIM_TOPIC, sound_batch(b"x"), acks=acks)[0] == ErrorCode.INVALID_REQUIRED_ACKS
        assert produce(client, VICTIM_TOPIC, sound_batch(b"after"))[1] == before + 1


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_telemetry_is_unpacked_no_further_than_its_limit(target: Target, codec: CompressionType) -> None:
    """CVE-2026-111073: a limit on the compressed bytes alone is none."""
    from ottla.records.compression import compress

    with target.client() as client:
        subscription = client.call(GetTelemetrySubscriptionsRequest(), GetTelemetrySubscriptionsResponse)
        push = PushTelemetryRequest(
            client_instance_id=subscription.client_instance_id,
            subscription_id=subscription.subscription_id,
            compression_type=codec,
            metrics=compress(codec, bytes(15 * MIB if codec is CompressionType.SNAPPY else 64 * MIB)),
        )
        with target.costing() as cost:
            answer = client.call(push, PushTelemetryResponse)
    assert answer.error_code in (ErrorCode.INVALID_RECORD, ErrorCode.TELEMETRY_TOO_LARGE)
    assert cost[0].work < WORK_MAX
    assert cost[0].peak_mb < PEAK_MB_MAX
