"""Records in JSON, both ways, and what stands in paths and queries: without a cluster."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.admin.offsets import EARLIEST, LATEST
from ottla.client.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.gateway.http import Refusal
from ottla.gateway.rest.api import RestApi, Start, parse_positions, parse_start, refusal_of
from ottla.gateway.rest.cluster import BATCH_BYTES, _portions
from ottla.gateway.rest.openapi import OPERATIONS, document, page
from ottla.gateway.rest.paths import match
from ottla.gateway.rest.records import (
    RECORDS_MAX,
    DataType,
    NewRecord,
    Part,
    Shape,
    documents,
    parse_record,
    parse_time,
    show_record,
    show_time,
)
from ottla.records.records import Record


def test_documents_stand_one_after_the_other() -> None:
    assert list(documents(b' {"a": 1}{"b": 2}\r\n\n[3] ')) == [{"a": 1}, {"b": 2}, [3]]
    assert list(documents(b"  ")) == []


@pytest.mark.parametrize(
    "body", [b"{", b'{"a": NaN}', b"\xff", b'{"a": 1}, {"b": 2}', b"[" * 100_000, b'{"a": Infinity}']
)
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        list(documents(body))
    assert refused.value.status == 400


def test_a_body_of_too_many_records_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        list(documents(b"{}" * (RECORDS_MAX + 1)))
    assert refused.value.status == 413


def test_a_record_has_all_that_kafka_knows() -> None:
    found = parse_record(
        {
            "partition_id": 3,
            "key": {"type": "STRING", "data": "Größe"},
            "value": {"type": "JSON", "data": {"a": ["ü", None]}},
            "headers": [{"name": "h", "value": "AAE="}, {"name": "empty", "value": None}],
            "timestamp": "2026-01-31T13:00:00.250+01:00",
        }
    )
    assert found == NewRecord(
        3,
        Part(DataType.STRING, "Größe".encode()),
        Part(DataType.JSON, '{"a":["ü",null]}'.encode()),
        (("h", b"\0\1"), ("empty", None)),
        1_769_860_800_250,
    )
    assert parse_record({"value": {"data": 5}}).value == Part(DataType.JSON, b"5")
    assert parse_record({"value": {"type": "BINARY", "data": "//8="}}).value == Part(DataType.BINARY, b"\xff\xff")
    assert parse_record({}) == NewRecord(None, None, None, (), None)
    assert parse_record({"value": None, "timestamp": 5}) == NewRecord(None, None, None, (), 5)


@pytest.mark.parametrize(
    "unfit",
    [
        [],
        "text",
        {"partition_id": -1},
        {"partition_id": True},
        {"partition_id": "0"},
        {"partition_id": 1 << 31},
        {"key": "text"},
        {"key": {"type": "STRING"}},
        {"key": {"type": "STRING", "data": 5}},
        {"key": {"type": "STRING", "data": "\ud800"}},
        {"key": {"type": "JSON", "data": "\ud800"}},
        {"value": {"type": "BINARY", "data": "not base64!"}},
        {"value": {"type": "BINARY", "data": "ü"}},
        {"value": {"type": "AVRO", "data": {}}},
        {"value": {"type": ["JSON"], "data": {}}},
        {"headers": {}},
        {"headers": [{"value": "AA=="}]},
        {"headers": [{"name": "a", "value": 5}]},
        {"headers": [{"name": "a"}] * 101},
        {"timestamp": "yesterday"},
        {"timestamp": -1},
        {"timestamp": 1e9},
        {"timestamp": 1 << 60},
        {"timestamp": True},
    ],
    ids=str,
)
def test_what_is_no_record_is_refused(unfit: Any) -> None:
    with pytest.raises(Refusal) as refused:
        parse_record(unfit)
    assert refused.value.status == 422


@given(
    st.one_of(st.none(), st.binary(max_size=50)),
    st.one_of(st.none(), st.binary(max_size=50)),
    st.lists(
        st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.binary(max_size=5)), max_size=3
    ),
    st.sampled_from([Shape.AUTO, Shape.BINARY]),
)
def test_what_is_shown_can_be_written_again(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]], shape: Shape
) -> None:
    record = Record(7, 1_000, key, value, tuple(headers))
    shown = json.loads(json.dumps(show_record("t", 2, record, shape)))
    assert (shown["partition_id"], shown["offset"], shown["timestamp"]) == (2, 7, "1970-01-01T00:00:01.000Z")
    again = parse_record(shown)
    assert (again.key and again.key.data, again.value and again.value.data) == (key, value)
    assert again.headers == record.headers
    assert again.timestamp_ms == 1_000


def test_values_are_shown_as_what_they_are() -> None:
    def shown(value: bytes, shape: Shape) -> Any:
        return show_record("t", 0, Record(0, 0, None, value), shape)["value"]

    assert shown(b'{"a":1}', Shape.AUTO) == {"type": "STRING", "data": '{"a":1}'}
    assert shown(b'{"a":1}', Shape.JSON) == {"type": "JSON", "data": {"a": 1}}
    assert shown(b"<script>", Shape.JSON) == {"type": "STRING", "data": "<script>"}
    assert shown(b"NaN", Shape.JSON) == {"type": "STRING", "data": "NaN"}
    assert shown(b"\xff", Shape.JSON) == {"type": "BINARY", "data": "/w=="}
    assert shown(b"a", Shape.BINARY) == {"type": "BINARY", "data": base64.b64encode(b"a").decode()}


def test_times_have_dates_or_none() -> None:
    assert show_time(-1) is None
    assert show_time(1 << 62) is None
    assert parse_time("1970-01-01T00:00:01") == 1000
    assert parse_time("soon") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", Start(when=EARLIEST)),
        ("latest", Start(when=LATEST)),
        ("17", Start(offset=17)),
        ("-5", Start(before_end=5)),
        ("@1000", Start(when=1000)),
        ("@1970-01-01T00:00:02Z", Start(when=2000)),
        ("@1970-01-01T01:00:02 01:00", Start(when=2000)),
    ],
)
def test_where_to_begin(text: str, expected: Start) -> None:
    assert parse_start(text) == expected


@pytest.mark.parametrize("text", ["", "x", "--5", "1e9", "@", "@x", "@-5", "9" * 19, "²"])
def test_where_nobody_can_begin(text: str) -> None:
    with pytest.raises(Refusal):
        parse_start(text)


def test_the_id_of_an_event_says_where_each_partition_goes_on() -> None:
    assert parse_positions("0:17,1:4") == {0: 17, 1: 4}
    for nonsense in ("", "x", "0", "0:", ":5", "0:-1", "0:1;1:2", "0:" + "9" * 50):
        assert parse_positions(nonsense) == {}


def test_a_part_of_a_path_cannot_pass_for_two() -> None:
    routes = {"v3/*/topics/*": "topic", "v3": "root"}
    assert match(routes, "/v3/c/topics/a%2Fb") == ("topic", ("c", "a/b"))
    assert match(routes, "/v3/c/topics/..") == ("topic", ("c", ".."))
    for path in ("/v3/c/topics/a/b", "/v4", "/", "/v3/c/topics/%ff", "/../v3/x"):
        with pytest.raises(Refusal):
            match(routes, path)


def test_large_requests_are_cut_into_batches_that_topics_take() -> None:
    large = NewRecord(None, None, Part(DataType.BINARY, b"x" * (BATCH_BYTES // 2)), (), None)
    assert _portions([large] * 3, [0, 1, 2]) == [[0], [1], [2]]
    small = NewRecord(None, None, None, (("h", b"x"),), None)
    assert _portions([small] * 3, [0, 2]) == [[0, 2]]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 404),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 403),
        (ErrorCode.MESSAGE_TOO_LARGE, 413),
        (ErrorCode.OFFSET_OUT_OF_RANGE, 400),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 503),
        (ErrorCode.REQUEST_TIMED_OUT, 504),
        (ErrorCode.INVALID_RECORD, 400),
    ],
)
def test_the_clusters_errors_have_a_status(code: ErrorCode, status: int) -> None:
    assert refusal_of(KafkaError(code)).status == status


def test_the_description_is_whole() -> None:
    described = document()
    schemas = described["components"]["schemas"]
    for path, methods in described["paths"].items():
        for operation in methods.values():
            named = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
            assert all(f"{{{name}}}" in path for name in named)
            assert path.count("{") == len(named)
    for reference in _references(described):
        assert reference.removeprefix("#/components/schemas/") in schemas
    for operation in OPERATIONS:
        assert operation.path in page()


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [found for each in value.values() for found in _references(each)]
    return [found for each in value for found in _references(each)] if isinstance(value, list) else []


def test_a_lane_is_used_again_unless_nobody_knows_what_is_left_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Stub:
        def __init__(self, settings: object) -> None:
            self.closed = False
            made.append(self)

        def close(self) -> None:
            self.closed = True

    monkeypatch.setattr("ottla.gateway.rest.api.Lane", Stub)

    def fail(error: Exception) -> Any:
        def work(lane: object) -> None:
            raise error

        return work

    async def story() -> None:
        rest = RestApi(ClientSettings.parse({"bootstrap.servers": "localhost:1"}))
        for error in (KafkaError(ErrorCode.NOT_CONTROLLER), Refusal(404, "none")):
            with pytest.raises(type(error)):
                await rest._lanes.ask(fail(error))
        assert [each.closed for each in made] == [False]
        with pytest.raises(OSError):
            await rest._lanes.ask(fail(OSError("cut off")))
        assert [each.closed for each in made] == [True]
        assert await rest._lanes.ask(lambda lane: lane is made[1])
        await rest.close()

    asyncio.run(story())
