"""The walk over a batch's records in Python: every length, every offset, every timestamp.

A record costs most of a microsecond to parse one by one (`_parse` for any, the loop in `walk` for the usual ones), so
the walk looks for stretches that can be checked faster, and trusts only what it has compared:

- `_run`: records that differ only in their contents, as producers of equal messages send them. They are checked by
  columns: a strided slice takes the same byte of every record, and must be what the first record's lengths say.
- `_alike`: records of one shape (keys of one length, varints as wide) whose values differ in length. One `unpack`
  takes all lengths of a record, which tables turn into numbers.

The verdict is the same as `_native`'s on any bytes, down to the index of the first record at fault.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from ottla.records._flaws import (
    FLAW_CUT,
    FLAW_FIELD,
    FLAW_HEADER_COUNT,
    FLAW_HEADER_KEY,
    FLAW_LENGTH,
    FLAW_NONE,
    FLAW_OFFSET,
    FLAW_TRAILING,
    FLAW_VARINT,
    OFFENCE_KEYLESS,
    OFFENCE_TIMESTAMP,
    OFFENCES_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.records.batch import Buffer

    Offence = tuple[int, int, int]
    Walk = tuple[int, int, int, int, list[Offence]]

_LEAST_RUN = 8
_WORTHWHILE = 4
_LONGEST_PATIENCE = 256

_LARGE_BYTES = 128 * 1024
_SPARE_BYTES_MAX = 2 * 1024 * 1024
_spare: list[bytearray] = []
"""Where the last large batch was walked over, if nobody is there just now."""

_LOW_BYTES = bytes(range(128))
_HIGH_BYTES = bytes(range(128, 256))
_EVEN_BYTES = bytes(range(0, 256, 2))

_TWO_BYTES_FROM = 64
_THREE_BYTES_FROM = 8192
_FOUR_BYTES_FROM = 1 << 20
"""Numbers from which a varint is wider."""


def walk(
    body: Buffer,
    record_count: int,
    base_timestamp: int,
    fixed_timestamp: int | None,
    oldest: int,
    newest: int,
    need_keys: bool,
) -> Walk:
    """Check every record: (flaw, index of its record, max timestamp, index of that, offences).

    A flaw ends the walk; offences (timestamps out of bounds, missing keys) are gathered. `fixed_timestamp` is that of
    every record in a batch with log append time.
    """
    if not 0 <= record_count < 1 << 31:
        raise ValueError("the record count is out of range")
    if len(body) < _LARGE_BYTES:
        return _walk(bytes(body), record_count, base_timestamp, fixed_timestamp, oldest, newest, need_keys)
    # Fresh memory for a large batch costs more than the walk over it.
    data = _spare.pop() if _spare else bytearray()
    data[:] = body
    try:
        return _walk(data, record_count, base_timestamp, fixed_timestamp, oldest, newest, need_keys)
    finally:
        if len(data) <= _SPARE_BYTES_MAX and not _spare:
            _spare.append(data)


def _walk(
    data: bytes | bytearray,
    record_count: int,
    base_timestamp: int,
    fixed_timestamp: int | None,
    oldest: int,
    newest: int,
    need_keys: bool,
) -> Walk:
    size = len(data)
    offences: list[Offence] = []
    max_timestamp = max_index = -1
    start = index = patience = failures = 0
    while index < record_count:
        # First the record that most are, with short varints. Whatever it is not, and whatever is wrong with it,
        # `_parse` finds out.
        try:
            length = data[start]
            at = start + 2
            if length > 127:
                length += (data[start + 1] << 7) - 128
                at = start + 3
            end = at - 1 + (length >> 1)
            delta = data[at]
            at += 1
            if delta > 127:
                delta += (data[at] << 7) - 128
                at += 1
            offset = data[at]
            at += 1
            if offset > 127:
                offset += (data[at] << 7) - 128
                at += 1
                if offset > 16383:
                    offset += (data[at] << 14) - 16384
                    at += 1
            key = data[at]
            at += 1
            if key > 127:
                key += (data[at] << 7) - 128
                at += 1
            keyless = key & 1
            if not keyless:
                at += key >> 1
            value = data[at]
            at += 1
            if value > 127:
                value += (data[at] << 7) - 128
                at += 1
            if not value & 1:
                at += value >> 1
            plain = (
                offset == index << 1
                and offset < 2097152
                and not length & 1
                and length | delta | key | value < 16384
                and end <= size
                and (at + 1 == end if data[at] == 0 else _after_headers(data, at) == end)
            )
        except IndexError:
            plain = False
        if plain:
            delta = delta >> 1 if not delta & 1 else ~(delta >> 1)
        else:
            flaw, end, delta, keyless = _parse(data, start, index)
            if flaw:
                return flaw, index, max_timestamp, max_index, offences
        timestamp = _wrapped(base_timestamp + delta) if fixed_timestamp is None else fixed_timestamp
        if timestamp > max_timestamp:
            max_timestamp, max_index = timestamp, index
        if need_keys and keyless:
            if len(offences) < OFFENCES_MAX:
                offences.append((index, OFFENCE_KEYLESS, timestamp))
        elif not oldest <= timestamp <= newest and timestamp != -1:
            if len(offences) < OFFENCES_MAX:
                offences.append((index, OFFENCE_TIMESTAMP, timestamp))
        elif patience:
            patience -= 1
        elif plain and index + 1 < record_count:
            stretch = _stretch(data, start, end, index, record_count)
            count = stretch.length
            if count and fixed_timestamp is None:
                peak = base_timestamp + stretch.peak
                if (base_timestamp + stretch.low < max(oldest, 0) or peak > min(newest, (1 << 63) - 1)) and not (
                    base_timestamp == -1 and stretch.peak == 0
                ):
                    count = 0
                elif peak > max_timestamp:
                    max_timestamp, max_index = peak, stretch.peak_index
            if count >= _WORTHWHILE:
                failures = 0
            else:
                # Nothing alike here: look again only after a while, and each time after a longer one.
                failures += 1
                patience = min(_LONGEST_PATIENCE, 1 << failures)
            if count:
                end = stretch.end
                index += count
        start = end
        index += 1
    return (FLAW_NONE if start == size else FLAW_TRAILING), index, max_timestamp, max_index, offences


def _wrapped(timestamp: int) -> int:
    """As Java adds: modulo 2⁶⁴, with a sign."""
    if -(1 << 63) <= timestamp < 1 << 63:
        return timestamp
    return (timestamp + (1 << 63)) % (1 << 64) - (1 << 63)


def _after_headers(data: bytes | bytearray, at: int) -> int:
    """The position after the headers that start at `at`, or -1 where `_parse` should look."""
    count = data[at]
    if count > 127 or count & 1:
        return -1
    at += 1
    for _ in range(count >> 1):
        length = data[at]
        if length > 127 or length & 1:
            return -1
        at += 1 + (length >> 1)
        length = data[at]
        if length > 127:
            return -1
        at += 1 if length & 1 else 1 + (length >> 1)
    return at


# Stretches of records that resemble one another


class _Stretch(NamedTuple):
    """Records found to be right: how many, where they end, and their timestamp deltas, none of which is negative."""

    length: int
    end: int
    low: int
    peak: int
    peak_index: int


_NOTHING = _Stretch(0, 0, 0, 0, 0)


class _Shape(NamedTuple):
    """Where the fields of a record are, counted from its first byte, and the length of its key."""

    timestamp_at: int
    offset_at: int
    key_at: int
    key_length: int
    value_at: int
    value_end: int
    """The end of the value's length."""


def _stretch(data: bytes | bytearray, start: int, end: int, index: int, record_count: int) -> _Stretch:
    """The records like the plain one at `start`, which follow it."""
    timestamp_at = 3 if data[start] > 127 else 2
    offset_at = timestamp_at + (2 if data[start + timestamp_at] > 127 else 1)
    key_at = offset_at + 1
    while data[start + key_at - 1] > 127:
        key_at += 1
    # The widest that an offset delta can be without being padded; padded ones are too rare to care for.
    if index < _TWO_BYTES_FROM:
        width, limit = 1, _TWO_BYTES_FROM
    elif index < _THREE_BYTES_FROM:
        width, limit = 2, _THREE_BYTES_FROM
    else:
        # Also the third byte stays the same until the next multiple.
        width, limit = 3, min(_FOUR_BYTES_FROM, (index // _THREE_BYTES_FROM + 1) * _THREE_BYTES_FROM)
    if key_at - offset_at != width:
        return _NOTHING
    value_at = key_at + 1
    key = data[start + key_at]
    if key > 127:
        key += (data[start + value_at] << 7) - 128
        value_at += 1
    key_length = -1 if key & 1 else key >> 1
    value_at += max(key_length, 0)
    value_end = value_at + (2 if data[start + value_at] > 127 else 1)
    shape = _Shape(timestamp_at, offset_at, key_at, key_length, value_at, value_end)
    limit = min(limit, record_count)
    return _run(data, start, end, index, limit, shape) or _alike(data, start, end, index, limit, shape) or _NOTHING


def _run(data: bytes | bytearray, model: int, first: int, index: int, limit: int, shape: _Shape) -> _Stretch | None:
    """Records with the same lengths as the one at `model`, from `first` on."""
    stride = first - model
    run = min(limit - index - 1, (len(data) - first) // stride)
    if run < _LEAST_RUN:
        return None
    # The same byte in every record: the lengths of record, key and value, and all that frames the headers.
    constant = [*range(shape.timestamp_at - 1), *range(shape.key_at, shape.value_at - max(shape.key_length, 0))]
    constant += range(shape.value_at, shape.value_end)
    value = data[model + shape.value_at]
    if shape.value_end - shape.value_at == 2:
        value += (data[model + shape.value_at + 1] << 7) - 128
    headers_at = shape.value_end + (0 if value & 1 else value >> 1)
    constant.append(headers_at)
    if headers_at + 1 < stride:
        constant += _header_lengths(data, model, headers_at)
    for at in constant:
        column = data[first + at : first + at + stride * (run - 1) + 1 : stride]
        same = data[model + at : model + at + 1]
        if column != same * run:
            run -= len(column.lstrip(same))
            if run < _LEAST_RUN:
                return None
    # Timestamp deltas: as many bytes as the model's, the lowest bit (the sign) clear.
    begin, stop = first + shape.timestamp_at, stride * (run - 1) + 1
    lower = data[begin : begin + stop : stride]
    run -= len(lower.lstrip(_EVEN_BYTES))
    wide = shape.offset_at - shape.timestamp_at == 2
    upper = data[begin + 1 : begin + 1 + stop : stride] if wide else b""
    if wide:
        run = min(run, len(lower) - len(lower.lstrip(_HIGH_BYTES)), len(upper) - len(upper.lstrip(_LOW_BYTES)))
    else:
        run = min(run, len(lower) - len(lower.lstrip(_LOW_BYTES)))
    if run < _LEAST_RUN or not _counts_on(data, first, stride, index + 1, run, shape):
        return None
    end = first + run * stride
    if not wide:
        deltas = lower[:run]
        found = _distinct(deltas)
        peak = max(found)
        return _Stretch(run, end, min(found) >> 1, peak >> 1, index + 1 + deltas.index(peak))
    # With every first byte's highest bit set, two bytes compare as the numbers that they hold.
    pairs = _pairs(lower[:run], upper[:run])
    lowest, highest = min(pairs), max(pairs)
    numbers = _tables().numbers
    return _Stretch(run, end, numbers[lowest], numbers[highest], index + 1 + pairs.index(highest))


def _distinct(column: bytes | bytearray) -> list[int]:
    """The bytes that occur in `column`: a batch's times are few, and to look at each record's costs more than this."""
    found = []
    while column:
        found.append(column[0])
        column = column.translate(None, bytes(column[:1]))
    return found


def _header_lengths(data: bytes | bytearray, model: int, at: int) -> list[int]:
    """Where the lengths of the headers' keys and values are in the record at `model`: a plain one, so all short."""
    found = []
    count = data[model + at] >> 1
    at += 1
    for _ in range(2 * count):
        found.append(at)
        length = data[model + at]
        at += 1 if length & 1 else 1 + (length >> 1)
    return found


def _counts_on(data: bytes | bytearray, first: int, stride: int, index: int, run: int, shape: _Shape) -> bool:
    """Do the offset deltas of `run` records count on from `index`?"""
    begin, stop = first + shape.offset_at, stride * (run - 1) + 1
    column = data[begin : begin + stop : stride]
    width = shape.key_at - shape.offset_at
    if width == 1:
        return column == bytes(range(index << 1, (index + run) << 1, 2))
    tables = _tables()
    phase = index % _THREE_BYTES_FROM
    if column != tables.delta_first[phase : phase + run]:
        return False
    column = data[begin + 1 : begin + 1 + stop : stride]
    if width == 2:
        return column == tables.delta_second[phase : phase + run]
    if column != tables.delta_second_of_three[phase : phase + run]:
        return False
    return data[begin + 2 : begin + 2 + stop : stride] == bytes((index >> 13,)) * run


def _alike(data: bytes | bytearray, model: int, first: int, index: int, limit: int, shape: _Shape) -> _Stretch | None:
    """Records without headers that are shaped like the one at `model`, from `first` on.

    The lengths of record and value may change their widths; then the record is looked at again.
    """
    timestamp_width, offset_width = shape.offset_at - shape.timestamp_at, shape.key_at - shape.offset_at
    key_length = max(shape.key_length, 0)
    # A key's length of two bytes, or an offset's of three, has no table.
    if shape.value_at - key_length - shape.key_at != 1 or offset_width > 2 or data[first - 1]:
        return None
    tables = _tables()
    deltas = tables.numbers if timestamp_width == 2 else tables.short_numbers
    expected = tables.deltas if offset_width == 2 else tables.short_deltas
    key = data[model + shape.key_at]
    # From the record's length to the value's.
    inner = 1 + timestamp_width + offset_width + 1 + key_length
    length_width, value_width = shape.timestamp_at - 1, shape.value_end - shape.value_at
    unpack = _fields_of(length_width, timestamp_width, offset_width, key_length, value_width)
    lengths, values = tables.sizes[length_width], tables.values[value_width]
    # All of a record but its value is as long as this; a table's impossible number never makes it so.
    frame = length_width + inner + value_width + 1
    low, peak, peak_index = 1 << 20, -1, -1
    known = -1
    at = first
    number = index + 1
    try:
        while number < limit:
            length, delta, offset, its_key, value = unpack(data, at)
            size = lengths[length]
            if size - values[value] != frame:
                widths = length_width, value_width
                length_width = 2 if data[at] > 127 else 1
                value_width = 2 if data[at + length_width + inner] > 127 else 1
                if widths == (length_width, value_width):
                    break
                unpack = _fields_of(length_width, timestamp_width, offset_width, key_length, value_width)
                lengths, values = tables.sizes[length_width], tables.values[value_width]
                frame = length_width + inner + value_width + 1
                continue
            end = at + size
            if its_key != key or offset != expected[number] or data[end - 1]:
                break
            if delta != known:
                known = delta
                decoded = deltas[delta]
                if decoded < 0:
                    break
                if decoded > peak:
                    peak, peak_index = decoded, number
                if decoded < low:
                    low = decoded
            at = end
            number += 1
    except (IndexError, struct.error):
        pass  # Too near to the end of the batch, or past it.
    count = number - index - 1
    return _Stretch(count, at, low, peak, peak_index) if count else None


_formats: dict[tuple[int, int, int, int, int], Callable[[bytes | bytearray, int], tuple[int, ...]]] = {}


def _fields_of(
    length_width: int, timestamp_width: int, offset_width: int, key_length: int, value_width: int
) -> Callable[[bytes | bytearray, int], tuple[int, ...]]:
    """What unpacks the lengths of record, timestamp delta, offset delta, key and value at a record's start."""
    shape = length_width, timestamp_width, offset_width, key_length, value_width
    unpack = _formats.get(shape)
    if unpack is None:
        length, timestamp, offset, value = (
            "H" if width == 2 else "B" for width in (length_width, timestamp_width, offset_width, value_width)
        )
        unpack = struct.Struct(f"<{length}x{timestamp}{offset}B{key_length}x{value}").unpack_from
        _formats[shape] = unpack  # At most 16 × 64 of them: the key's length has one byte.
    return unpack


def _pairs(first: bytes | bytearray, second: bytes | bytearray) -> list[int]:
    """Two columns as 16-bit numbers, the second byte weighing more."""
    joined = bytearray(2 * len(first))
    joined[::2], joined[1::2] = first, second
    return [*struct.unpack(f"<{len(first)}H", joined)]


class _Tables:
    """Varints of one and two bytes and what they stand for, made at first use.

    Two bytes are looked up by the little-endian number that they make. What is no varint of that width, or one of a
    negative number, has a number that fits nowhere.
    """

    def __init__(self) -> None:
        impossible = 1 << 30
        self.delta_first = bytes(range(128, 256, 2)) * 128
        self.delta_second = b"".join(bytes((byte,)) * 64 for byte in range(128))
        self.delta_second_of_three = b"".join(bytes((byte,)) * 64 for byte in range(128, 256))
        self.deltas = _pairs(self.delta_first, self.delta_second)
        self.short_deltas = [*range(0, 128, 2)]
        self.numbers = [-impossible] * 65536
        self.short_numbers = [-impossible] * 256
        sizes = [impossible] * 65536
        short_sizes = [impossible] * 256
        for number, pair in enumerate(self.deltas):
            self.numbers[pair] = number
            sizes[pair] = number + 2
        for number, byte in enumerate(self.short_deltas):
            self.short_numbers[byte] = number
            short_sizes[byte] = number + 1
        # By width: how long a record is, its length included, and how long a value.
        self.sizes = [[], short_sizes, sizes]
        self.values = [[], self.short_numbers, self.numbers]


_made: _Tables | None = None


def _tables() -> _Tables:
    global _made
    if _made is None:
        _made = _Tables()
    return _made


# Any record


def _parse(data: bytes | bytearray, start: int, index: int) -> tuple[int, int, int, int]:
    """Any record, with care: (flaw, end, timestamp delta, whether it has no key)."""
    size = len(data)
    length, at = _varint(data, start, size, 5)
    if at < 0:
        return (FLAW_CUT if -at == FLAW_FIELD else -at), 0, 0, 0
    end = at + length
    if length < 0 or end > size:
        return FLAW_CUT, 0, 0, 0
    if length == 0:
        return FLAW_FIELD, 0, 0, 0
    delta, at = _varint(data, at + 1, end, 10)
    if at < 0:
        return -at, 0, 0, 0
    offset, at = _varint(data, at, end, 5)
    if at < 0:
        return -at, 0, 0, 0
    key, at = _skip(data, at, end)
    if at < 0:
        return -at, 0, 0, 0
    _, at = _skip(data, at, end)
    if at < 0:
        return -at, 0, 0, 0
    count, at = _varint(data, at, end, 5)
    if at < 0:
        return -at, 0, 0, 0
    if count < 0 or count > end - at:
        return FLAW_HEADER_COUNT, 0, 0, 0
    for _ in range(count):
        name, at = _skip(data, at, end)
        if at < 0:
            return -at, 0, 0, 0
        if name < 0:
            return FLAW_HEADER_KEY, 0, 0, 0
        _, at = _skip(data, at, end)
        if at < 0:
            return -at, 0, 0, 0
    if at != end:
        return FLAW_LENGTH, 0, 0, 0
    if offset != index:
        return FLAW_OFFSET, 0, 0, 0
    return FLAW_NONE, end, delta, key < 0


def _varint(data: bytes | bytearray, at: int, end: int, most: int) -> tuple[int, int]:
    """The value and the position after it, which is a flaw's negative where the value cannot be read.

    Five bytes make 32 bits and ten 64; as in Kafka, what does not fit is dropped.
    """
    raw = shift = 0
    for position in range(at, at + most):
        if position >= end:
            return 0, -FLAW_FIELD
        byte = data[position]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFF if most == 5 else 0xFFFFFFFFFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), position + 1
        shift += 7
    return 0, -FLAW_VARINT


def _skip(data: bytes | bytearray, at: int, end: int) -> tuple[int, int]:
    """A length and that many bytes; any negative length is null, as in Kafka."""
    length, at = _varint(data, at, end, 5)
    if at >= 0 and length > 0:
        if length > end - at:
            return 0, -FLAW_FIELD
        at += length
    return length, at
