"""Records over HTTP against a real node: written, read, followed; and what strangers may not do."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.gateway.rest.api import LANES_MAX, PATIENT_MAX
from tests.broker.test_metrics_endpoint import values
from tests.gateway.conftest import Served

JSON = {"Content-Type": "application/json"}
_numbers = count(1)


class Reply(NamedTuple):
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]


def ask(
    served: Served, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, raw: bool = False
) -> Reply:
    connection = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=60)
    try:
        data = body if raw or body is None else json.dumps(body).encode()
        connection.request(method, path, data, headers if headers is not None else JSON if data else {})
        response = connection.getresponse()
        return Reply(response.status, response.read(), {name.lower(): value for name, value in response.getheaders()})
    finally:
        connection.close()


@pytest.fixture
def topic(served: Served) -> str:
    name = f"rest-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": served.node.bootstrap})
    admin.create_topics([NewTopic(name, 2)])[name].result(60)
    return name


def records_of(topic: str) -> str:
    return f"/v3/clusters/-/topics/{topic}/records"


def test_a_record_is_written_and_a_kafka_client_reads_it(served: Served, topic: str) -> None:
    record = {
        "partition_id": 1,
        "key": {"type": "STRING", "data": "k"},
        "value": {"type": "JSON", "data": {"a": 1}},
        "headers": [{"name": "h", "value": "AAE="}],
        "timestamp": "2026-01-31T12:00:00Z",
    }
    reply = ask(served, "POST", records_of(topic), record)
    assert reply.status == 200
    (cluster,) = ask(served, "GET", "/v3/clusters").json["data"]
    assert reply.json == {
        "error_code": 200,
        "cluster_id": cluster["cluster_id"],
        "topic_name": topic,
        "partition_id": 1,
        "offset": 0,
        "timestamp": "2026-01-31T12:00:00.000Z",
        "key": {"type": "STRING", "size": 1},
        "value": {"type": "JSON", "size": 7},
    }
    consumer = Consumer(
        {"bootstrap.servers": served.node.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        message = consumer.poll(60)
        assert message is not None
        assert (message.key(), message.value(), message.partition()) == (b"k", b'{"a":1}', 1)
        assert message.headers() == [("h", b"\0\1")]
        assert message.timestamp()[1] == 1_769_860_800_000
    finally:
        consumer.close()


def test_many_records_in_one_body_are_answered_one_by_one(served: Served, topic: str) -> None:
    body = b"".join(json.dumps({"partition_id": 0, "value": {"data": number}}).encode() for number in range(50))
    lines = ask(served, "POST", records_of(topic), body, JSON, raw=True).lines
    assert [line["offset"] for line in lines] == list(range(50))
    mixed = b'{"partition_id":0,"value":{"data":1}}{"partition_id":9,"value":{"data":2}}{"key":5}{"value":{"data":3}}'
    first, second, third = ask(served, "POST", records_of(topic), mixed, JSON, raw=True).lines
    assert first["offset"] == 50
    assert second["error_code"] == 40403
    assert third["error_code"] == 42200


def test_keys_go_where_javas_producer_sends_them(served: Served, topic: str) -> None:
    found: dict[str, int] = {}
    for key in ("a", "b", "c", "d"):
        reply = ask(served, "POST", records_of(topic), {"key": {"type": "STRING", "data": key}, "value": None})
        found[key] = reply.json["partition_id"]
    from ottla.records.partitioner import partition_of_key

    assert found == {key: partition_of_key(key.encode(), 2) for key in found}
    assert set(found.values()) == {0, 1}


def test_records_are_read_by_offset_time_and_from_the_end(served: Served, topic: str) -> None:
    for number in range(5):
        record = {"partition_id": 0, "value": {"data": number}, "timestamp": 1_000 * (number + 1)}
        assert ask(served, "POST", records_of(topic), record).status == 200

    def read(query: str) -> tuple[list[Any], int]:
        reply = ask(served, "GET", f"/v3/clusters/-/topics/{topic}/partitions/0/records?format=json&{query}")
        assert reply.status == 200, reply.body
        return [each["value"]["data"] for each in reply.json["data"]], reply.json["next_offset"]

    assert read("") == ([0, 1, 2, 3, 4], 5)
    assert read("from=3") == ([3, 4], 5)
    assert read("from=-2") == ([3, 4], 5)
    assert read("from=@2500") == ([2, 3, 4], 5)
    assert read("from=@1970-01-01T00:00:05Z") == ([4], 5)
    assert read("from=@2100-01-01T00:00:00Z") == ([], 5)
    assert read("from=end") == ([], 5)
    assert read("max_records=2") == ([0, 1], 2)
    assert read("from=2&max_records=1") == ([2], 3)
    assert ask(served, "GET", f"/v3/clusters/-/topics/{topic}/partitions/0/records?from=99").json["error_code"] == 40002
    assert ask(served, "GET", f"/v3/clusters/-/topics/{topic}/partitions/7/records").status == 404
    partitions = ask(served, "GET", f"/v3/clusters/-/topics/{topic}/partitions").json["data"]
    assert [(each["partition_id"], each["first_offset"], each["end_offset"]) for each in partitions] == [
        (0, 0, 5),
        (1, 0, 0),
    ]


def test_records_of_a_transaction_that_was_taken_back_are_not_shown(served: Served, topic: str) -> None:
    producer = Producer({"bootstrap.servers": served.node.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for committed in (False, True):
        producer.begin_transaction()
        producer.produce(topic, b"yes" if committed else b"no", partition=0)
        producer.flush(60)
        if committed:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    shown = ask(served, "GET", f"/v3/clusters/-/topics/{topic}/partitions/0/records").json
    assert [each["value"]["data"] for each in shown["data"]] == ["yes"]


def test_whoever_waits_for_records_keeps_no_writer_waiting(served: Served, topic: str) -> None:
    path = f"/v3/clusters/-/topics/{topic}/partitions/0/records?wait_ms=30000&format=json"
    parked = 'kafka_server_delayedoperationpurgatory_purgatorysize{delayedoperation="Fetch"}'
    with ThreadPoolExecutor(LANES_MAX + 2) as pool:
        waiting = [pool.submit(ask, served, "GET", path) for _ in range(LANES_MAX + 2)]
        deadline = time.monotonic() + 60
        while values(served.node.address)[parked] < PATIENT_MAX:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert ask(served, "POST", records_of(topic), {"partition_id": 1, "value": {"data": "elsewhere"}}).status == 200
        assert not any(each.done() for each in waiting)
        assert ask(served, "POST", records_of(topic), {"partition_id": 0, "value": {"data": "here"}}).status == 200
        for each in waiting:
            assert [record["value"]["data"] for record in each.result(60).json["data"]] == ["here"]


class Listener:
    """`curl -N`, in a thread."""

    def __init__(self, served: Served, path: str, headers: dict[str, str] | None = None) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=60)
        self._connection.request("GET", path, headers=headers or {})
        self.response = self._connection.getresponse()
        self.events: list[tuple[str, Any]] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        event_id = ""
        try:
            while line := self.response.readline():
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "id":
                    event_id = value
                elif name == "data":
                    self.events.append((event_id, json.loads(value)))
        except (OSError, ValueError, AttributeError):
            pass  # The test has heard enough, and hung up.

    def until(self, number: int) -> list[tuple[str, Any]]:
        deadline = time.monotonic() + 60
        while len(self.events) < number:
            assert time.monotonic() < deadline, self.events
            time.sleep(0.02)
        return self.events[:number]

    def close(self) -> None:
        sock = self._connection.sock
        if sock is not None:
            sock.shutdown(2)
        self._thread.join(60)
        self._connection.close()


@pytest.fixture
def listening(served: Served) -> Iterator[Any]:
    opened: list[Listener] = []

    def listen(path: str, headers: dict[str, str] | None = None) -> Listener:
        opened.append(Listener(served, path, headers))
        return opened[-1]

    yield listen
    for each in opened:
        each.close()


def test_a_topic_is_followed_as_events(served: Served, topic: str, listening: Any) -> None:
    assert ask(served, "POST", records_of(topic), {"partition_id": 0, "value": {"data": "before"}}).status == 200
    tail = listening(f"/topics/{topic}/stream?from=end&format=json")
    everything = listening(f"/topics/{topic}/stream?from=beginning")
    assert tail.response.getheader("content-type") == "text/event-stream; charset=utf-8"
    ((_, first),) = everything.until(1)
    assert first["value"] == {"type": "STRING", "data": '"before"'}
    for partition in (0, 1):
        record = {"partition_id": partition, "value": {"type": "STRING", "data": "line\n\nid: 9:9\n<script>"}}
        assert ask(served, "POST", records_of(topic), record).status == 200
        events = tail.until(partition + 1)
    assert [event["partition_id"] for _, event in events] == [0, 1]
    assert events[0][1]["value"]["data"] == "line\n\nid: 9:9\n<script>"
    assert events[-1][0] == "0:2,1:1"
    again = listening(f"/topics/{topic}/stream", {"Last-Event-ID": events[0][0]})
    ((_, missed),) = again.until(1)
    assert (missed["partition_id"], missed["offset"]) == (1, 0)


@pytest.mark.parametrize("offset", [0, 99, 10**18], ids=["trimmed", "not yet", "never"])
def test_who_comes_back_after_retention_or_to_another_topic_goes_on(
    served: Served, topic: str, listening: Any, offset: int
) -> None:
    """Else a browser, which comes back by itself, would do so for ever."""
    for number in range(3):
        assert ask(served, "POST", records_of(topic), {"partition_id": 0, "value": {"data": number}}).status == 200
    admin = AdminClient({"bootstrap.servers": served.node.bootstrap})
    for done in admin.delete_records([TopicPartition(topic, 0, 2)]).values():
        done.result(60)
    tail = listening(f"/topics/{topic}/stream?partition=0&format=json", {"Last-Event-ID": f"0:{offset}"})
    assert tail.response.status == 200
    if offset:
        assert ask(served, "POST", records_of(topic), {"partition_id": 0, "value": {"data": 3}}).status == 200
    ((_, event),) = tail.until(1)
    assert event["offset"] == (3 if offset else 2)


def test_what_cannot_be_followed_is_refused(served: Served, topic: str) -> None:
    assert ask(served, "GET", "/topics/nobody-made-it/stream").json["error_code"] == 40403
    assert ask(served, "GET", f"/topics/{topic}/stream?partition=5").status == 404
    assert ask(served, "GET", f"/topics/{topic}/stream?from=soon").status == 400


def test_descriptions_are_served_here(served: Served) -> None:
    described = ask(served, "GET", "/openapi.json")
    assert described.json["openapi"] == "3.1.0"
    page = ask(served, "GET", "/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert b"<script" not in page.body
    assert b"http://127.0.0.1:8081/topics/orders/stream" in page.body
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_the_cluster_and_its_topics_are_listed(served: Served, topic: str) -> None:
    (cluster,) = ask(served, "GET", "/v3/clusters").json["data"]
    path = f"/v3/clusters/{cluster['cluster_id']}"
    assert ask(served, "GET", path).json == cluster
    assert ask(served, "GET", "/v3/clusters/another").status == 404
    topics = {
        each["topic_name"]: each["partitions_count"] for each in ask(served, "GET", f"{path}/topics").json["data"]
    }
    assert topics[topic] == 2
    assert ask(served, "GET", f"{path}/topics/{topic}").json["partitions_count"] == 2
    assert ask(served, "GET", f"{path}/topics/no-such").json["error_code"] == 40403


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        ("POST", "/v3/clusters/-/topics/T/records", {"Content-Type": "text/plain"}, b'{"value":null}', 415),
        ("POST", "/v3/clusters/-/topics/T/records", {}, b'{"value":null}', 415),
        ("POST", "/v3/clusters/-/topics/T/records", {**JSON, "Origin": "http://evil.example"}, b"{}", 403),
        ("POST", "/v3/clusters/-/topics/T/records", {**JSON, "Origin": "null"}, b"{}", 403),
        ("POST", "/v3/clusters/-/topics/T/records", {**JSON, "Host": "evil.example"}, b"{}", 403),
        ("GET", "/topics/T/stream", {"Origin": "http://evil.example"}, b"", 403),
        ("GET", "/v3/clusters", {"Host": "rebound.example:8081"}, b"", 403),
        ("POST", "/v3/clusters/-/topics/T/records", JSON, b"", 400),
        ("POST", "/v3/clusters/-/topics/T/records", JSON, b"[", 400),
        ("POST", "/v3/clusters/-/topics/T/records", JSON, b"5", 422),
        ("POST", "/v3/clusters/-/topics/%2e%2e/records", JSON, b"{}", 404),
        ("POST", "/v3/clusters/-/topics/no%2Fsuch/records", JSON, b"{}", 404),
        ("POST", "/v3/clusters/-/topics/%00/records", JSON, b"{}", 404),
        ("POST", "/v3/clusters/-/topics/%ff/records", JSON, b"{}", 404),
        ("POST", "/v3/clusters/../topics/T/records", JSON, b"{}", 404),
        ("PUT", "/v3/clusters", JSON, b"{}", 405),
        ("DELETE", "/v3/clusters/-/topics/T", {}, b"", 405),
        ("GET", "/v3/../subjects", {}, b"", 404),
        ("GET", "/v3/" + "x" * 9000, {}, b"", 414),
        ("GET", "/v3/clusters/-/topics/T/partitions/0/records?max_records=x", {}, b"", 400),
        ("GET", "/v3/clusters/-/topics/T/partitions/0/records?format=xml", {}, b"", 400),
        ("GET", "/v3/clusters/-/topics/T/partitions/-1/records", {}, b"", 404),
    ],
)
def test_what_strangers_send_is_refused(
    served: Served, method: str, path: str, headers: dict[str, str], body: bytes, status: int
) -> None:
    reply = ask(served, method, path.replace("T", "nobody-made-it"), body or None, headers, raw=True)
    assert reply.status == status, reply.body
    assert "error_code" in reply.json
    assert reply.headers["x-content-type-options"] == "nosniff"


def test_a_body_that_is_too_large_is_not_read_to_its_end(served: Served, topic: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=60)
    connection.putrequest("POST", records_of(topic))
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(1 << 40))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_a_record_that_the_topic_does_not_take_is_refused_alone(served: Served, topic: str) -> None:
    large = {"partition_id": 0, "value": {"type": "STRING", "data": "x" * 1_500_000}}
    assert ask(served, "POST", records_of(topic), large).status == 413
    assert ask(served, "POST", records_of(topic), {"partition_id": 0, "value": {"data": 1}}).json["offset"] == 0
