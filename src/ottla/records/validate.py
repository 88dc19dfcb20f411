"""What a leader checks before it appends a produced batch: Kafka's rules, and Kafka's error codes.

The common batch (whole, uncompressed, timestamps within bounds) is decided by one call of `check`, compiled where it
can be. Any other is looked at step by step in Kafka's order, so that the first thing wrong is the one that the client
is told. A batch that passes is returned as it came, patched in place (LogAppendTime, or a max timestamp that its
records deny), or compressed anew when the topic asks for another codec than the producer's.

Checked against Apache Kafka 4.3.1 by experiment. Where that answers UNKNOWN_SERVER_ERROR because it stumbled (streams
that do not decompress, varints without end) or lets unreadable records in (lengths within a compressed batch, offset
deltas that do not count on), the answer here is INVALID_RECORD. Driven by `broker`, with one `ValidationRules` a topic.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.records._flaws import FLAW_TEXT, OFFENCE_KEYLESS, OFFENCES_MAX
from ottla.records._hot import check, crc_matches, walk
from ottla.records.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LENGTH_POSITION,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    MAGIC_V2,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    CompressionType,
    TimestampType,
    read_header,
    set_max_timestamp,
)
from ottla.records.compression import (
    MAX_DECOMPRESSED_BYTES,
    Compression,
    CorruptCompression,
    compress,
    decompress,
    decompression_limit,
)

_LENGTH = struct.Struct(">i")
_HEADER_TO_MAGIC = 17
_LEAST_LENGTH = 14
_KNOWN_FLAGS = COMPRESSION_MASK | TRANSACTIONAL_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG
_NO_LIMIT = 1 << 63


class ValidationRules(NamedTuple):
    """What a topic's configs say of the batches it takes. The defaults are Kafka's.

    A named tuple, because making a dataclass would cost this room a quarter of its time to import.
    """

    compacted: bool = False
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = _NO_LIMIT - 1
    timestamp_after_max_ms: int = 3_600_000
    max_message_bytes: int = 1_048_588
    compression: Compression | None = None
    """The codec to store with; None keeps the producer's (`compression.type=producer`)."""
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES


class Validated(NamedTuple):
    """A batch that may be appended."""

    batch: memoryview
    """The one that was given, patched where need be; or a new one, if the topic's codec is another."""
    header: BatchHeader
    log_append_time_ms: int = -1
    """What the produce response says; -1 unless the topic has LogAppendTime."""


class DecompressionBudget:
    """What the batches of one request may still unpack to: many small bombs are as bad as a large one."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class InvalidRecords(KafkaError):
    """Records that a leader refuses, with what is wrong with which of them (KIP-467)."""

    def __init__(
        self, code: ErrorCode, message: str, record_errors: list[tuple[int, str | None]] | None = None
    ) -> None:
        super().__init__(code, message)
        self.record_errors: list[tuple[int, str | None]] = record_errors or []
        """Index within the batch and a sentence."""


def validate_produced(
    batch: memoryview,
    rules: ValidationRules,
    now_ms: int,
    *,
    zstd_allowed: bool = True,
    budget: DecompressionBudget | None = None,
) -> Validated:
    """Check the records of one partition in a produce request: exactly one v2 batch.

    `batch` must be writable unless it is sure to pass as it is. `zstd_allowed` is whether the request's version is 7
    or later (KIP-110). Raises `InvalidRecords`, or another `KafkaError` where no records are to blame.
    """
    header = validate_as_it_is(batch, rules, now_ms)
    if header is not None:
        return Validated(batch, header)
    return validate_closely(batch, rules, now_ms, zstd_allowed, budget)


def validate_as_it_is(batch: memoryview, rules: ValidationRules, now_ms: int) -> BatchHeader | None:
    """The header of a batch that may be appended byte for byte, which nearly all may; None says to look closer."""
    if rules.timestamp_type == 0 and rules.compression is None and len(batch) <= rules.max_message_bytes:
        return check(
            BatchHeader,
            batch,
            now_ms - rules.timestamp_before_max_ms,
            now_ms + rules.timestamp_after_max_ms,
            rules.compacted,
        )
    return None


def validate_closely(
    batch: memoryview,
    rules: ValidationRules,
    now_ms: int,
    zstd_allowed: bool,
    budget: DecompressionBudget | None = None,
) -> Validated:
    """The second half of `validate_produced`: unpacks, patches, and finds the words for what is wrong."""
    batch, header = _the_one_batch(batch, zstd_allowed)
    _validate_envelope(batch, header, rules)
    _validate_header(header)
    body = batch[HEADER_SIZE:]
    source = header.compression
    if source:
        limit = decompression_limit(len(body), rules.max_decompressed_bytes)
        if budget is not None:
            limit = min(limit, budget.left)
            budget.left -= limit  # Unpacked for nothing, if it comes to that, it cost as much.
        try:
            body = decompress(source, body, limit)
        except CorruptCompression as error:
            raise _invalid(f"The records cannot be decompressed: {error}.") from None
        if budget is not None:
            budget.left += limit - len(body)
    max_timestamp = _validate_records(body, header, rules, now_ms)

    log_append = rules.timestamp_type == TimestampType.LOG_APPEND_TIME
    if log_append:
        max_timestamp = now_ms
    target = source if rules.compression is None else rules.compression.type
    if target != source:
        assert rules.compression is not None
        batch, header = _recompress(body, header, batch, rules, max_timestamp)
    elif header.max_timestamp != max_timestamp or header.timestamp_type != rules.timestamp_type:
        header = _mark(batch, header, LOG_APPEND_TIME_FLAG if log_append else 0, max_timestamp)
    return Validated(batch, header, now_ms if log_append else -1)


def stamp(batch: memoryview, header: BatchHeader, now_ms: int) -> BatchHeader:
    """Mark a batch, which a coordinator made, with the time of its append: the header that it then has."""
    return _mark(batch, header, LOG_APPEND_TIME_FLAG, now_ms)


def _mark(batch: memoryview, header: BatchHeader, timestamp_flag: int, max_timestamp: int) -> BatchHeader:
    attributes = header.attributes & _KNOWN_FLAGS | timestamp_flag
    crc = set_max_timestamp(batch, attributes, max_timestamp)
    return header._replace(crc=crc, attributes=attributes, max_timestamp=max_timestamp)


def _the_one_batch(records: memoryview, zstd_allowed: bool) -> tuple[memoryview, BatchHeader]:
    """Find the one batch. As in Kafka, bytes after it that are no whole batch are dropped."""
    size = _size_of_next(records)
    if size is None:
        raise _invalid("A produce request must bring a record batch for each partition.")
    if records[MAGIC_POSITION] != MAGIC_V2:
        raise _invalid("Only record batches of message format v2 can be produced.")
    if size < HEADER_SIZE:
        raise InvalidRecords(ErrorCode.CORRUPT_MESSAGE, f"A batch of {size} bytes is smaller than its header.")
    batch = records[:size]
    header = read_header(batch)
    if header.compression == CompressionType.ZSTD and not zstd_allowed:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "Produce requests before version 7 cannot use zstd compression."
        )
    if len(records) > size and _size_of_next(records[size:]) is not None:
        raise _invalid("A produce request may bring only one record batch for each partition.")
    return batch, header


def _size_of_next(records: memoryview) -> int | None:
    """The size of the batch at the start, or None if it is not all there."""
    left = len(records)
    if left < LOG_OVERHEAD:
        return None
    length: int = _LENGTH.unpack_from(records, LENGTH_POSITION)[0]
    if length < _LEAST_LENGTH:
        raise InvalidRecords(ErrorCode.CORRUPT_MESSAGE, f"{length} bytes are too few for a record batch.")
    if left < _HEADER_TO_MAGIC:
        return None
    if records[MAGIC_POSITION] > MAGIC_V2:
        magic = (records[MAGIC_POSITION] ^ 0x80) - 0x80
        raise InvalidRecords(ErrorCode.CORRUPT_MESSAGE, f"There is no message format v{magic}.")
    size = length + LOG_OVERHEAD
    return size if size <= left else None


def _validate_envelope(batch: memoryview, header: BatchHeader, rules: ValidationRules) -> None:
    if header.base_offset != 0:
        raise _invalid(f"The base offset of a produced batch must be 0, and is {header.base_offset}.")
    if len(batch) > rules.max_message_bytes:
        raise _too_large(len(batch), rules)
    if not crc_matches(batch, 0, len(batch)):
        raise InvalidRecords(ErrorCode.CORRUPT_MESSAGE, f"The batch does not match its CRC of {header.crc}.")
    if header.compression > CompressionType.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"There is no compression codec {header.compression}.")


def _validate_header(header: BatchHeader) -> None:
    if header.last_offset_delta < 0:
        raise _invalid(f"The last offset delta of the batch is {header.last_offset_delta}.")
    if header.record_count <= 0:
        raise _invalid(f"The batch claims {header.record_count} records.")
    if header.last_offset_delta + 1 != header.record_count:
        raise _invalid(
            f"The batch claims {header.record_count} records and {header.last_offset_delta + 1} offsets for them."
        )
    if header.is_control:
        raise _invalid("Clients cannot write control records.")
    if header.has_producer_id and header.base_sequence < 0:
        raise _invalid(f"Producer {header.producer_id} sent the base sequence {header.base_sequence}.")


def _validate_records(body: Buffer, header: BatchHeader, rules: ValidationRules, now_ms: int) -> int:
    """Look at every record; returns the greatest timestamp."""
    create_time = rules.timestamp_type == TimestampType.CREATE_TIME
    marked = header.timestamp_type == TimestampType.LOG_APPEND_TIME
    oldest = now_ms - rules.timestamp_before_max_ms if create_time else -_NO_LIMIT
    newest = now_ms + rules.timestamp_after_max_ms if create_time else _NO_LIMIT - 1
    flaw, index, max_timestamp, _, offences = walk(
        body,
        header.record_count,
        header.base_timestamp,
        header.max_timestamp if marked else None,
        oldest,
        newest,
        rules.compacted,
    )
    if flaw:
        raise _invalid(f"Record {min(index, header.record_count - 1)} of the batch {FLAW_TEXT[flaw]}.")
    record_errors: list[tuple[int, str | None]] = []
    out_of_time = False
    for at, kind, timestamp in offences:
        if kind == OFFENCE_KEYLESS:
            record_errors.append((at, "A record without a key cannot go to a compacted topic."))
        else:
            out_of_time = True
            record_errors.append((at, f"Timestamp {timestamp} is not within [{oldest}, {newest}]."))
    if marked and (not create_time or header.max_timestamp == -1):
        # Kafka overlooks the mark on a CreateTime topic, where it is taken off again, if there is a time to check.
        out_of_time = True
        keyless = {at for at, _ in record_errors}
        record_errors += [
            (at, "A producer cannot mark its records with LogAppendTime.")
            for at in range(min(header.record_count, OFFENCES_MAX))
            if at not in keyless
        ]
        record_errors.sort()
    if out_of_time:
        raise InvalidRecords(
            ErrorCode.INVALID_TIMESTAMP,
            "Some records of the batch have timestamps that the topic does not take.",
            record_errors,
        )
    if record_errors:
        raise InvalidRecords(
            ErrorCode.INVALID_RECORD,
            f"{len(record_errors)}{' or more' if len(record_errors) == OFFENCES_MAX else ''} records of the batch were "
            "refused.",
            record_errors,
        )
    return max_timestamp


def _recompress(
    body: Buffer, header: BatchHeader, batch: memoryview, rules: ValidationRules, max_timestamp: int
) -> tuple[memoryview, BatchHeader]:
    """The same records in the topic's codec. They have been walked, so their bytes need no rebuilding."""
    assert rules.compression is not None
    codec, level = rules.compression
    if codec:
        body = compress(codec, body, level)
    attributes = (
        codec
        | header.attributes & TRANSACTIONAL_FLAG
        | (LOG_APPEND_TIME_FLAG if rules.timestamp_type == TimestampType.LOG_APPEND_TIME else 0)
    )
    size = HEADER_SIZE + len(body)
    if size > rules.max_message_bytes:
        raise _too_large(size, rules)
    stored = bytearray(size)
    stored[:HEADER_SIZE] = batch[:HEADER_SIZE]
    stored[HEADER_SIZE:] = body
    view = memoryview(stored)
    _LENGTH.pack_into(stored, LENGTH_POSITION, size - LOG_OVERHEAD)
    set_max_timestamp(view, attributes, max_timestamp)
    return view, read_header(view)


def _invalid(message: str) -> InvalidRecords:
    return InvalidRecords(ErrorCode.INVALID_RECORD, message)


def _too_large(size: int, rules: ValidationRules) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE, f"A batch of {size} bytes is larger than the topic's {rules.max_message_bytes}."
    )
