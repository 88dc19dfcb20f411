"""The metrics that clients push (KIP-714): OpenTelemetry's MetricsData, read from protobuf bytes.

Only what can be shown is kept: the points of gauges and sums, and count, sum, smallest and largest of histograms and
summaries. The bytes come from strangers, so every length is checked, everything is capped, nothing recurses, and
fields that are not known are skipped. Whatever does not follow the format is `InvalidTelemetry`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from ottla.errors import ErrorCode, KafkaError

POINTS_MAX = 2000
"""Points of one push that are kept; further ones are dropped."""
FIELDS_MAX = 50_000
"""Fields of one push, whatever they hold; a push with more is refused, because reading it would hold up others."""
LABELS_MAX = 16
LABEL_CHARS_MAX = 128
NAME_CHARS_MAX = 200


class InvalidTelemetry(KafkaError):
    """Bytes that are no MetricsData; Kafka answers INVALID_RECORD."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class PointKind(IntEnum):
    GAUGE = 0
    CUMULATIVE = 1
    """A sum since the client started."""
    DELTA = 2
    """What was added since the last push."""


class Point(NamedTuple):
    """One value of one metric of a client."""

    name: str
    labels: tuple[tuple[str, str], ...]
    kind: PointKind
    value: float


_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DELTA_TEMPORALITY = 1
Field = tuple[int, int, memoryview | int]


def decode(data: bytes | memoryview) -> list[Point]:
    """The points of a push, at most `POINTS_MAX`."""
    reader = _Reader()
    points: list[Point] = []
    for resource in reader.messages(memoryview(data), 1):
        for scope in reader.messages(resource, 2):
            for metric in reader.messages(scope, 2):
                for point in reader.metric(metric):
                    if len(points) == POINTS_MAX:
                        return points
                    points.append(point)
    return points


class _Reader:
    """Reads one push, and counts what it has read."""

    __slots__ = ("fields_left",)

    def __init__(self) -> None:
        self.fields_left = FIELDS_MAX

    def metric(self, data: memoryview) -> Iterator[Point]:
        name = ""
        shapes: list[tuple[int, memoryview]] = []
        for number, wire, value in self.fields(data):
            if wire == _BYTES and isinstance(value, memoryview):
                if number == 1:
                    name = _text(value, NAME_CHARS_MAX)
                elif number in (5, 7, 9, 10, 11):
                    shapes.append((number, value))
        for number, shape in shapes:
            if number == 5:
                yield from self.numbers(name, shape, PointKind.GAUGE)
            elif number == 7:
                yield from self.numbers(name, shape, self.temporality(shape))
            else:
                # Where the attributes, the smallest and the largest are differs from shape to shape.
                attributes, least, most = {9: (9, 11, 12), 10: (1, 12, 13), 11: (7, 0, 0)}[number]
                kind = PointKind.CUMULATIVE if number == 11 else self.temporality(shape)
                yield from self.distributions(name, shape, kind, attributes, least, most)

    def temporality(self, shape: memoryview) -> PointKind:
        delta = any(number == 2 and value == _DELTA_TEMPORALITY for number, _, value in self.fields(shape))
        return PointKind.DELTA if delta else PointKind.CUMULATIVE

    def numbers(self, name: str, shape: memoryview, kind: PointKind) -> Iterator[Point]:
        for point in self.messages(shape, 1):
            value: float | None = None
            labels: list[tuple[str, str]] = []
            for number, wire, field in self.fields(point):
                if wire == _FIXED64 and isinstance(field, memoryview):
                    if number == 4:
                        value = _double(field)
                    elif number == 6:
                        value = int.from_bytes(field, "little", signed=True)
                elif number == 7:
                    self.add_label(labels, field)
            if value is not None:
                yield Point(name, tuple(labels), kind, value)

    def distributions(
        self, name: str, shape: memoryview, kind: PointKind, attributes: int, least: int, most: int
    ) -> Iterator[Point]:
        for point in self.messages(shape, 1):
            values: list[tuple[str, PointKind, float]] = []
            labels: list[tuple[str, str]] = []
            for number, wire, field in self.fields(point):
                if wire == _FIXED64 and isinstance(field, memoryview):
                    if number == 4:
                        values.append(("count", kind, int.from_bytes(field, "little")))
                    elif number == 5:
                        values.append(("sum", kind, _double(field)))
                    elif number == least:
                        values.append(("min", PointKind.GAUGE, _double(field)))
                    elif number == most:
                        values.append(("max", PointKind.GAUGE, _double(field)))
                elif number == attributes:
                    self.add_label(labels, field)
            for suffix, value_kind, value in values[:4]:
                yield Point(f"{name}.{suffix}", tuple(labels), value_kind, value)

    def add_label(self, labels: list[tuple[str, str]], field: memoryview | int) -> None:
        """A KeyValue becomes a label if its value is a string, a boolean or a number."""
        if len(labels) == LABELS_MAX or not isinstance(field, memoryview):
            return
        key = text = ""
        for number, wire, value in self.fields(field):
            if wire == _BYTES and isinstance(value, memoryview):
                if number == 1:
                    key = _text(value, LABEL_CHARS_MAX)
                elif number == 2:
                    text = self.any_value(value)
        if key:
            labels.append((key, text))

    def any_value(self, data: memoryview) -> str:
        for number, wire, value in self.fields(data):
            if number == 1 and wire == _BYTES and isinstance(value, memoryview):
                return _text(value, LABEL_CHARS_MAX)
            if number == 2 and isinstance(value, int):
                return "true" if value else "false"
            if number == 3 and isinstance(value, int):
                return str(value - (1 << 64) if value >> 63 else value)
            if number == 4 and wire == _FIXED64 and isinstance(value, memoryview):
                return repr(_double(value))
        return ""

    def messages(self, data: memoryview, wanted: int) -> Iterator[memoryview]:
        for number, wire, value in self.fields(data):
            if number == wanted and wire == _BYTES and isinstance(value, memoryview):
                yield value

    def fields(self, data: memoryview) -> Iterator[Field]:
        """The fields of one message: its number, its wire type, and its bytes or, for a varint, its number."""
        position, end = 0, len(data)
        while position < end:
            self.fields_left -= 1
            if self.fields_left < 0:
                raise InvalidTelemetry(f"more than {FIELDS_MAX} fields")
            tag, position = _varint(data, position)
            number, wire = tag >> 3, tag & 7
            if number == 0:
                raise InvalidTelemetry("a field without a number")
            if wire == _VARINT:
                value, position = _varint(data, position)
                yield number, wire, value
                continue
            if wire == _BYTES:
                size, position = _varint(data, position)
            elif wire == _FIXED64:
                size = 8
            elif wire == _FIXED32:
                size = 4
            else:
                raise InvalidTelemetry(f"a field of the unknown wire type {wire}")
            if size > end - position:
                raise InvalidTelemetry("a field that is longer than its message")
            yield number, wire, data[position : position + size]
            position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    for place in range(position, min(position + 10, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, place + 1
        shift += 7
    raise InvalidTelemetry("a number that does not end")


def _double(data: memoryview) -> float:
    value: float = struct.unpack("<d", data)[0]
    return value


def _text(data: memoryview, chars_max: int) -> str:
    # Four bytes a character at most: decoding more than is kept would be wasted.
    return bytes(data[: chars_max * 4]).decode("utf-8", "replace")[:chars_max]
