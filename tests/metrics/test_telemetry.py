"""What clients push: bytes of real clients, bytes made by hand, and bytes made by enemies."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.errors import ErrorCode
from ottla.metrics.otlp import FIELDS_MAX, POINTS_MAX, InvalidTelemetry, Point, PointKind, decode
from ottla.metrics.telemetry import ClientTelemetry

HERE = Path(__file__).parent


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, data: bytes | str) -> bytes:
    raw = data.encode() if isinstance(data, str) else data
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def double(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


def fixed(number: int, value: int) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<q", value)


def attribute(key: str, value: bytes, *, at: int = 7) -> bytes:
    return field(at, field(1, key) + field(2, value))


def push(*metrics: bytes) -> bytes:
    return field(1, field(1, b"") + field(2, b"".join(field(2, metric) for metric in metrics)))


def gauge(name: str, *points: bytes) -> bytes:
    return field(1, name) + field(5, b"".join(field(1, point) for point in points))


def test_what_a_java_producer_pushes() -> None:
    points = decode((HERE / "java-producer-4.3.1.otlp").read_bytes())
    assert len(points) == 108
    by_name = {point.name: point for point in points}
    sent = by_name["org.apache.kafka.producer.outgoing.byte.total"]
    assert sent == Point("org.apache.kafka.producer.outgoing.byte.total", (), PointKind.DELTA, 2066.0)
    assert by_name["org.apache.kafka.producer.requests.in.flight"].kind is PointKind.GAUGE
    assert ("topic", "tel") in {label for point in points for label in point.labels}


def test_what_librdkafka_pushes() -> None:
    points = decode((HERE / "librdkafka-2.16.0.otlp").read_bytes())
    assert len(points) == 10
    latency = next(point for point in points if point.name.endswith("node.request.latency.avg"))
    assert latency.labels == (("node.id", "1"),)
    assert latency.value == pytest.approx(1.818, abs=0.001)


def test_every_kind_of_point() -> None:
    labels = (
        attribute("text", field(1, "é"))
        + attribute("bool", varint(2 << 3) + b"\x01")
        + attribute("int", varint(3 << 3) + varint((1 << 64) - 5))
        + attribute("double", double(4, 0.5))
        + attribute("list", field(5, b""))
    )
    total = field(1, "total") + field(7, field(1, fixed(6, -3)) + varint(2 << 3) + b"\x02" + varint(3 << 3) + b"\x01")
    added = field(1, "added") + field(7, field(1, double(4, 2.5)) + varint(2 << 3) + b"\x01")
    histogram_point = fixed(4, 3) + double(5, 6.0) + field(6, bytes(16)) + double(11, 1.0) + double(12, 3.0)
    histogram = field(1, "h") + field(9, field(1, histogram_point + attribute("k", field(1, "v"), at=9)))
    summary = field(1, "s") + field(11, field(1, fixed(4, 2) + double(5, 9.0)))
    points = decode(push(gauge("g", labels + double(4, 1.5)), total, added, histogram, summary))
    assert points == [
        Point(
            "g",
            (("text", "é"), ("bool", "true"), ("int", "-5"), ("double", "0.5"), ("list", "")),
            PointKind.GAUGE,
            1.5,
        ),
        Point("total", (), PointKind.CUMULATIVE, -3),
        Point("added", (), PointKind.DELTA, 2.5),
        Point("h.count", (("k", "v"),), PointKind.CUMULATIVE, 3),
        Point("h.sum", (("k", "v"),), PointKind.CUMULATIVE, 6.0),
        Point("h.min", (("k", "v"),), PointKind.GAUGE, 1.0),
        Point("h.max", (("k", "v"),), PointKind.GAUGE, 3.0),
        Point("s.count", (), PointKind.CUMULATIVE, 2),
        Point("s.sum", (), PointKind.CUMULATIVE, 9.0),
    ]


def test_everything_is_capped() -> None:
    point = b"".join(attribute("k" * 5000 + str(n), field(1, "v" * 5000)) for n in range(40)) + double(4, 1.0)
    (capped,) = decode(push(gauge("n" * 5000, point)))
    assert len(capped.name) == 200
    assert len(capped.labels) == 16
    assert all(len(text) == 128 for label in capped.labels for text in label)
    assert len(decode(push(gauge("g", *[double(4, 1.0)] * (POINTS_MAX + 10))))) == POINTS_MAX


def test_a_megabyte_of_nothing_is_refused_at_once() -> None:
    started = time.process_time()
    with pytest.raises(InvalidTelemetry, match=f"more than {FIELDS_MAX} fields"):
        decode(field(1, field(2, field(2, b"") * 500_000)))
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05abc",
        b"\xff" * 11,
        b"\x00\x01",
        b"\x0b",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        field(1, field(2, field(2, b"\x2a\x7f"))),
        push(gauge("g", b"\x21\x00")),
    ],
)
def test_malformed_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidTelemetry) as refused:
        decode(data)
    assert refused.value.code is ErrorCode.INVALID_RECORD


REAL = (HERE / "librdkafka-2.16.0.otlp").read_bytes()


@given(st.binary(max_size=300))
@example(b"")
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        decode(data)
    except InvalidTelemetry:
        return


@given(st.integers(0, len(REAL) - 1), st.binary(min_size=1, max_size=4))
def test_a_damaged_push_is_read_or_refused(position: int, damage: bytes) -> None:
    try:
        points = decode(REAL[:position] + damage + REAL[position + len(damage) :])
    except InvalidTelemetry:
        return
    ClientTelemetry().push("i", "c", points, 0.0)


@given(st.integers(0, len(REAL)))
def test_a_cut_push_is_read_or_refused(size: int) -> None:
    try:
        decode(memoryview(REAL)[:size])
    except InvalidTelemetry:
        return


def point(name: str, value: float, kind: PointKind = PointKind.GAUGE, **labels: str) -> Point:
    return Point(name, tuple(labels.items()), kind, value)


def test_the_last_value_of_each_series_is_shown() -> None:
    telemetry = ClientTelemetry()
    telemetry.push("i1", "app", [point("org.lag", 5, topic="t"), point("org.sent", 10, PointKind.DELTA)], 0.0)
    telemetry.push("i1", "app", [point("org.lag", 3, topic="t"), point("org.sent", 4, PointKind.DELTA)], 1.0)
    telemetry.push("i2", 'a"pp', [point("org.lag", 9, topic="t")], 1.0)
    assert telemetry.render(2.0) == (
        "# HELP client_org_lag Pushed by clients.\n"
        "# TYPE client_org_lag untyped\n"
        'client_org_lag{client_instance_id="i1",client_id="app",topic="t"} 3\n'
        'client_org_lag{client_instance_id="i2",client_id="a\\"pp",topic="t"} 9\n'
        "# HELP client_org_sent Pushed by clients.\n"
        "# TYPE client_org_sent untyped\n"
        'client_org_sent{client_instance_id="i1",client_id="app"} 14.0\n'
    )


def test_a_client_cannot_pass_for_another() -> None:
    telemetry = ClientTelemetry()
    telemetry.push("real", "app", [point("kafka_server_up", 1, client_instance_id="fake", client_id="fake")], 0.0)
    page = telemetry.render(0.0)
    assert "fake" not in page
    assert "\nkafka_server_up" not in page


def test_the_silent_are_forgotten_first() -> None:
    telemetry = ClientTelemetry(clients_max=3)
    for number in range(5):
        telemetry.push(f"i{number}", "c", [point("m", number)], float(number))
    telemetry.push("i2", "c", [point("m", 2)], 5.0)
    telemetry.push("i5", "c", [point("m", 5)], 6.0)
    page = telemetry.render(6.0)
    assert [name for name in ("i0", "i1", "i2", "i3", "i4", "i5") if f'"{name}"' in page] == ["i2", "i4", "i5"]
    assert telemetry.client_count == telemetry.series_count == 3
    telemetry.forget("i2")
    telemetry.forget("i2")
    assert telemetry.series_count == 2
    assert telemetry.render(5000.0) == ""
    assert telemetry.series_count == telemetry.client_count == 0


def test_no_client_fills_the_memory() -> None:
    telemetry = ClientTelemetry(series_per_client_max=10, series_max=25)
    for client in range(4):
        telemetry.push(f"i{client}", "c", [point(f"m{number}", 1) for number in range(1000)], 0.0)
        assert telemetry.series_count <= 25
    assert telemetry.client_count == 2
    assert len(telemetry.render(0.0)) < 5000
