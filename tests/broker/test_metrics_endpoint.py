"""HTTP on a Kafka port: what is answered, to whom, how fast; and whether the numbers are true."""

from __future__ import annotations

import http.client
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.connection import ClientConnection
from ottla.broker.monitoring.http_responder import DEADLINE_MS, HEAD_BYTES_MAX, HttpResponder
from ottla.broker.monitoring.request_metrics import RequestMetrics, TopicMeters
from ottla.broker.reply import Deferred
from ottla.errors import ErrorCode
from ottla.metrics.registry import Registry
from ottla.records import BatchBuilder
from ottla.records.compression import compress
from ottla.runtime import File
from ottla.runtime.seams import Buffer
from ottla.runtime.system import free_ports
from ottla.runtime.timers import Timer, TimerWheel
from ottla.wire.messages import fetch_request, incremental_alter_configs_request, produce_request
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from ottla.wire.messages.get_telemetry_subscriptions_response import GetTelemetrySubscriptionsResponse
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse
from ottla.wire.messages.produce_response import ProduceResponse
from ottla.wire.messages.push_telemetry_request import PushTelemetryRequest
from ottla.wire.messages.push_telemetry_response import PushTelemetryResponse
from tests.broker.test_connection import Echo, Wire, feed
from tests.node_process import NodeProcess, running_node
from tests.wire_client import WireClient

GET = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"


# The responder, fed by hand.


class HandTimers(TimerWheel):
    """Timers that ring when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Timer]] = []

    def after(self, delay_ms: float, call: Callable[[], None]) -> Timer:
        timer = Timer(call)
        self.waiting.append((delay_ms, timer))
        return timer

    def ring(self) -> None:
        for _, timer in self.waiting:
            timer._fire()


class Site:
    """A responder and the connections to it."""

    def __init__(self, page: str = "a_metric 1\n") -> None:
        self.timers = HandTimers()
        self.live = self.ready = True
        self.service = Echo()
        self.responder = HttpResponder(
            timers=self.timers,
            metrics=lambda: page,
            replica=lambda topic, partition: "{}\n" if (topic, partition) == ("orders", 3) else None,
            is_live=lambda: self.live,
            is_ready=lambda: self.ready,
        )

    def connect(self, wire: Wire | None = None) -> tuple[ClientConnection, Wire]:
        wire = wire or Wire()
        connection = ClientConnection(self.service, "PLAINTEXT", self.responder)
        connection.connection_made(wire)
        return connection, wire

    def ask(self, request: bytes, step: int = 1 << 30) -> Wire:
        connection, wire = self.connect()
        feed(connection, request, step)
        return wire


def status(wire: Wire) -> int:
    found = re.match(rb"HTTP/1\.1 (\d{3}) ", wire.sent)
    assert found is not None, bytes(wire.sent)
    return int(found[1])


@pytest.mark.parametrize("step", [1, 2, 3, 5, 1000])
def test_a_request_is_answered_once_and_the_connection_closed(step: int) -> None:
    site = Site()
    wire = site.ask(GET, step)
    head, _, body = bytes(wire.sent).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n")
    assert b"Content-Length: 11\r\n" in head
    assert head.endswith(b"Connection: close")
    assert body == b"a_metric 1\n"
    assert wire.closed
    assert site.service.frames == []
    assert site.service.reasons == [None]


def test_head_gets_the_head_alone() -> None:
    wire = Site().ask(b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert b"Content-Length: 11\r\n" in wire.sent
    assert wire.sent.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"GET /metrics HTTP/1.0", 200),
        (b"GET /metrics?name=x HTTP/1.1", 200),
        (b"GET /health/live HTTP/1.1", 200),
        (b"GET /health/ready HTTP/1.1", 200),
        (b"GET / HTTP/1.1", 404),
        (b"GET /replicas/orders/3 HTTP/1.1", 200),
        (b"GET /replicas/orders/4 HTTP/1.1", 404),
        (b"GET /replicas/orders/-3 HTTP/1.1", 404),
        (b"GET /replicas/orders/3/3 HTTP/1.1", 404),
        (b"GET /replicas/%s HTTP/1.1" % (b"9" * 4000), 404),
        (b"GET /replicas/\xff/3 HTTP/1.1", 404),
        (b"GET /metrics/../etc/passwd HTTP/1.1", 404),
        (b"GET /%s HTTP/1.1" % (b"x" * 4000), 404),
        (b"GET /metrics HTTP/2.0", 505),
        (b"GET /metrics", 400),
        (b"GET /metrics HTTP/1.1 more", 505),
        (b"GET /\xff\xfe\x00 HTTP/1.1", 404),
        (b"HEAD /x HTTP/1.1", 404),
        (b"POST /metrics HTTP/1.1", 405),
        (b"PUT / HTTP/1.1", 405),
        (b"DELETE /metrics HTTP/1.1", 405),
        (b"PATCH /metrics HTTP/1.1", 405),
        (b"OPTIONS * HTTP/1.1", 405),
        (b"DELETE", 400),
    ],
)
def test_what_each_request_is_answered(line: bytes, expected: int) -> None:
    wire = Site().ask(line + b"\r\n\r\n")
    assert status(wire) == expected
    assert wire.closed


def test_who_would_write_is_told_that_the_pages_are_for_reading() -> None:
    site = Site()
    wire = site.ask(b"POST /metrics HTTP/1.1\r\nContent-Length: 12\r\n\r\n\0\0\0\x08request!")
    assert b"\r\nAllow: GET, HEAD\r\n" in wire.sent
    assert wire.closed
    assert site.service.frames == []
    assert b"Allow" not in Site().ask(GET).sent


def test_health_says_when_it_is_bad() -> None:
    site = Site()
    site.ready = False
    assert status(site.ask(b"GET /health/ready HTTP/1.1\r\n\r\n")) == 503
    assert status(site.ask(b"GET /health/live HTTP/1.1\r\n\r\n")) == 200
    site.live = False
    assert status(site.ask(b"GET /health/live HTTP/1.1\r\n\r\n")) == 503


@pytest.mark.parametrize("step", [1, 1000, 1 << 20])
def test_a_head_without_an_end_is_cut_off(step: int) -> None:
    site = Site()
    connection, wire = site.connect()
    sent = 0
    while not wire.closed:
        feed(connection, (b"GET /metrics HTTP/1.1\r\nX: " if sent == 0 else b"") + b"x" * step)
        sent += step
        assert sent < HEAD_BYTES_MAX + 2 * step
    assert status(wire) == 431


def test_what_follows_a_request_is_never_taken_for_frames() -> None:
    """A page in a browser may send what it likes behind its request."""
    site = Site()
    frame = b"\0\0\0\x08request!"
    assert status(site.ask(GET + frame)) == 200
    assert status(site.ask(b"GET /x HTTP/1.1\r\nContent-Length: 12\r\n\r\n" + frame, 1)) == 404
    assert site.service.frames == []


@pytest.mark.parametrize(
    "first",
    [
        b"POSTER / HTTP/1.1\r\n\r\n",
        b"GETS / HTTP/1.1\r\n\r\n",
        b"GET metrics\r\n\r\n",
        b"HEADER /\r\n\r\n",
        b"PUT\0\0\0",
    ],
)
def test_other_words_are_frames_that_cannot_be(first: bytes) -> None:
    site = Site()
    wire = site.ask(first)
    assert wire.closed
    assert not wire.sent
    site.timers.ring()


def test_a_connection_that_spoke_kafka_does_not_change_its_mind() -> None:
    site = Site()
    connection, wire = site.connect()
    feed(connection, b"\0\0\0\x08request!" + GET)
    assert bytes(wire.sent) == b"request!"
    assert wire.closed
    assert connection.malformed


def test_where_frames_may_be_that_large_the_slash_decides() -> None:
    site = Site()
    site.service.frame_bytes_max = 0x7FFFFFFF
    assert status(site.ask(GET, 1)) == 200
    assert status(site.ask(b"HEAD / HTTP/1.1\r\n\r\n", 1)) == 404
    connection, wire = site.connect()
    feed(connection, b"GET \0\0\0\x0c", 1)  # A Produce of more than a gigabyte, whose first bytes are here.
    assert not wire.closed
    site.timers.ring()
    assert not wire.closed
    assert not wire.sent


@pytest.mark.parametrize("begun", [b"GET ", b"GET /", b"GET /metrics HTTP/1.1\r\nHost:"])
def test_who_is_slow_is_cut_off(begun: bytes) -> None:
    site = Site()
    wire = site.ask(begun)
    assert [delay for delay, _ in site.timers.waiting] == [DEADLINE_MS]
    assert not wire.closed
    site.timers.ring()
    assert wire.closed


class Clogged(Wire):
    """A peer that reads nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.connection: ClientConnection | None = None
        self.aborted = False

    def write(self, data: Buffer, more: bool = False) -> None:
        super().write(data, more)
        assert self.connection is not None
        self.connection.write_blocked()

    def write_file_span(self, file: File, position: int, size: int) -> None:
        raise AssertionError

    def abort(self) -> None:
        self.aborted = True
        assert self.connection is not None
        self.connection.connection_lost()


def test_a_peer_that_takes_its_time_gets_its_answer_whole_but_not_for_ever() -> None:
    site = Site()
    for patient in (True, False):
        wire = Clogged()
        connection, _ = site.connect(wire)
        wire.connection = connection
        feed(connection, GET)
        assert not wire.closed
        if patient:
            connection.write_resumed()
            assert wire.closed
        else:
            site.timers.ring()
            assert wire.aborted
    assert len(site.service.reasons) == 2


@pytest.mark.slow
@given(st.binary(max_size=300), st.integers(1, 50))
@settings(max_examples=300)
def test_no_bytes_behind_the_first_ones_do_harm(rest: bytes, step: int) -> None:
    site = Site()
    connection, wire = site.connect()
    data = b"GET /" + rest
    while data and not wire.closed:
        feed(connection, data[:step])
        data = data[step:]
    if wire.sent:
        assert wire.closed
        assert status(wire) in (200, 400, 404, 505)
    else:
        assert b"\n\n" not in rest
        assert b"\r\n\r\n" not in rest
    assert site.service.crashes == []


# A real node.


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("node")) as node:
        yield node


def fetch_page(address: tuple[str, int], path: str = "/metrics") -> str:
    connection = http.client.HTTPConnection(*address, timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        assert response.status == 200, path
        return response.read().decode()
    finally:
        connection.close()


def values(address: tuple[str, int]) -> dict[str, float]:
    """Every series of the page, by its name and labels."""
    found: dict[str, float] = {}
    for line in fetch_page(address).splitlines():
        if not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            assert series not in found, f"{series} is there twice"
            found[series] = float(value)
    return found


def fresh(address: tuple[str, int]) -> dict[str, float]:
    """A page that was made after now; a node that is asked often may give one that is a moment old."""
    received = 'kafka_network_socketserver_networkin_total{listener="PLAINTEXT"}'
    first = values(address)
    while (page := values(address))[received] == first[received]:
        time.sleep(0.02)
    return page


def eventually(address: tuple[str, int], series: str, expected: float) -> dict[str, float]:
    """The page once it shows `expected`."""
    deadline = time.monotonic() + 60
    while True:
        found = values(address)
        if found.get(series) == expected:
            return found
        assert time.monotonic() < deadline, f"{series} is {found.get(series)}, not {expected}"
        time.sleep(0.05)


def batch_of(*payloads: bytes) -> bytes:
    builder = BatchBuilder(base_offset=0)
    for payload in payloads:
        builder.append(int(time.time() * 1000), None, payload)
    return bytes(builder.build())


def create_topic(client: WireClient, name: str) -> None:
    """By asking for it, as development users do."""
    for _ in range(50):
        response = client.call(
            MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True),
            MetadataResponse,
            9,
        )
        if response.topics[0].error_code == 0:
            return
        time.sleep(0.05)
    raise AssertionError(f"{name} did not come into being")


def produce(client: WireClient, topic: str, records: bytes, acks: int = -1) -> int:
    partition = produce_request.PartitionProduceData(index=0, records=records)
    request = produce_request.ProduceRequest(
        acks=acks,
        timeout_ms=5000,
        topic_data=[produce_request.TopicProduceData(name=topic, partition_data=[partition])],
    )
    return client.call(request, ProduceResponse, 9).responses[0].partition_responses[0].error_code


def fetch(client: WireClient, topic: str, offset: int, max_wait_ms: int = 0) -> tuple[int, int]:
    """The error and the size of what was fetched."""
    request = fetch_request.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        topics=[
            fetch_request.FetchTopic(
                topic=topic,
                partitions=[
                    fetch_request.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
                ],
            )
        ],
    )
    answer = client.call(request, FetchResponse, 11).responses[0].partitions[0]
    return answer.error_code, len(answer.records or b"")


def test_curl_gets_the_page(node: NodeProcess) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("there is no curl here")
    done = subprocess.run([curl, "-sSf", f"http://{node.bootstrap}/metrics"], capture_output=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert b"kafka_server_kafkaserver_brokerstate 3\n" in done.stdout


def test_health_is_good(node: NodeProcess) -> None:
    assert fetch_page(node.address, "/health/live") == "live\n"
    assert fetch_page(node.address, "/health/ready") == "ready\n"


def test_the_controllers_port_answers_too(tmp_path: Path) -> None:
    host, ports = "127.0.0.1", free_ports("127.0.0.1", 2)
    listeners = f"PLAINTEXT://{host}:{ports[0]},CONTROLLER://{host}:{ports[1]}"
    with running_node(tmp_path, "--set", f"listeners={listeners}"):
        page = values((host, ports[1]))
    assert page['kafka_network_socketserver_connections{listener="CONTROLLER"}'] == 1


def test_byte_by_byte_over_a_real_socket(node: NodeProcess) -> None:
    with socket.create_connection(node.address, timeout=10) as sock:
        for byte in b"GET /health/ready HTTP/1.1\r\n\r\n":
            sock.sendall(bytes([byte]))
        answer = b""
        while more := sock.recv(4096):
            answer += more
    assert answer.endswith(b"\r\n\r\nready\n")


def test_the_counts_are_those_of_the_traffic(node: NodeProcess) -> None:
    topic = "counted"
    label = f'{{topic="{topic}"}}'
    prefix = "kafka_server_brokertopicmetrics_"
    with WireClient(node.address) as client:
        create_topic(client, topic)
        before = fresh(node.address)
        assert before[f"{prefix}messagesin_total{label}"] == 0
        batches = [batch_of(*[b"x" * (10 + number)] * number) for number in range(1, 21)]
        for batch in batches:
            assert produce(client, topic, batch) == 0
        size = sum(map(len, batches))
        page = eventually(node.address, f"{prefix}messagesin_total{label}", sum(range(1, 21)))
        assert page[f"{prefix}bytesin_total{label}"] == size
        assert page[f"{prefix}totalproducerequests_total{label}"] == 20
        assert f"{prefix}failedproducerequests_total{label}" not in page
        requests = 'kafka_network_requestmetrics_requests_total{request="Produce"}'
        assert page[requests] - before[requests] == 20
        request_bytes = 'kafka_network_requestmetrics_requestbytes_total{request="Produce"}'
        assert size < page[request_bytes] - before[request_bytes] < size + 20 * 100
        log = f'{{topic="{topic}",partition="0"}}'
        assert page[f"kafka_log_log_size{log}"] == size
        assert page[f"kafka_log_log_logendoffset{log}"] == sum(range(1, 21))
        assert page[f"kafka_log_log_logstartoffset{log}"] == 0
        assert page[f"kafka_log_log_numlogsegments{log}"] == 1

        # What is read is counted by what was sent.
        assert fetch(client, topic, 0) == (0, size)
        page = eventually(node.address, f"{prefix}bytesout_total{label}", size)
        assert page[f"{prefix}totalfetchrequests_total{label}"] == 1
        received = 'kafka_network_socketserver_networkin_total{listener="PLAINTEXT"}'
        sent = 'kafka_network_socketserver_networkout_total{listener="PLAINTEXT"}'
        assert page[received] - before[received] > size
        assert page[sent] - before[sent] > size

        # Failures are counted apart.
        assert produce(client, topic, batches[0][:-1] + b"?") == ErrorCode.CORRUPT_MESSAGE
        assert produce(client, topic, batch_of(b"x" * 1_100_000)) == ErrorCode.MESSAGE_TOO_LARGE
        assert fetch(client, topic, 1000)[0] == ErrorCode.OFFSET_OUT_OF_RANGE
        page = eventually(node.address, f"{prefix}failedfetchrequests_total{label}", 1)
        assert page[f"{prefix}failedproducerequests_total{label}"] == 2
        assert page[f"{prefix}bytesrejected_total{label}"] > 1_100_000
        assert page[f"{prefix}messagesin_total{label}"] == sum(range(1, 21))


def test_a_topic_that_nobody_has_makes_no_series(node: NodeProcess) -> None:
    with WireClient(node.address) as client:
        assert produce(client, "made-up", batch_of(b"x")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not any("made-up" in series for series in fresh(node.address))


def test_a_wait_that_runs_out_is_an_expiration(node: NodeProcess) -> None:
    expired = 'kafka_server_delayedoperationpurgatory_expires_total{delayedoperation="Fetch"}'
    with WireClient(node.address) as client:
        create_topic(client, "waited-for")
        before = fresh(node.address)[expired]
        assert fetch(client, "waited-for", 0, max_wait_ms=50) == (0, 0)
    page = eventually(node.address, expired, before + 1)
    assert page['kafka_server_delayedoperationpurgatory_purgatorysize{delayedoperation="Fetch"}'] == 0


def test_the_state_of_the_node_and_of_its_cluster(node: NodeProcess) -> None:
    page = values(node.address)
    assert page["kafka_controller_kafkacontroller_activecontrollercount"] == 1
    assert page["kafka_controller_kafkacontroller_activebrokercount"] == 1
    assert page["kafka_controller_kafkacontroller_fencedbrokercount"] == 0
    assert page["kafka_controller_kafkacontroller_offlinepartitionscount"] == 0
    assert page['kafka_server_raft_metrics_current_state{state="leader"}'] == 1
    assert page["kafka_server_raft_metrics_current_leader"] == 1
    assert page["kafka_server_raft_metrics_number_of_voters"] == 1
    assert page["kafka_server_raft_metrics_high_watermark"] == page["kafka_server_raft_metrics_log_end_offset"]
    assert page["kafka_server_replicamanager_partitioncount"] == page["kafka_server_replicamanager_leadercount"]
    assert page["kafka_server_replicamanager_underreplicatedpartitions"] == 0
    assert any(series.startswith("kafka_server_app_info{version=") for series in page)
    assert abs(page["kafka_server_kafkaserver_starttimems"] / 1000 - time.time()) < 600


def test_malformed_bytes_are_counted_and_http_is_not_among_them(node: NodeProcess) -> None:
    malformed = 'kafka_network_socketserver_malformedrequests_total{listener="PLAINTEXT"}'
    before = fresh(node.address)[malformed]
    with socket.create_connection(node.address, timeout=10) as sock:
        sock.sendall(b"\xff\xff\xff\xff")
        assert sock.recv(1) == b""
    eventually(node.address, malformed, before + 1)
    with socket.create_connection(node.address, timeout=10) as sock:
        sock.sendall(b"GET /nowhere HTTP/1.1\r\n\r\n")
        assert sock.recv(12) == b"HTTP/1.1 404"
    assert fresh(node.address)[malformed] == before + 1


# Telemetry, by raw requests.


def subscribe(client: WireClient, name: str, **configs: str) -> None:
    wire = incremental_alter_configs_request
    request = wire.IncrementalAlterConfigsRequest(
        resources=[
            wire.AlterConfigsResource(
                resource_type=16,
                resource_name=name,
                configs=[
                    wire.AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
                    for key, value in configs.items()
                ],
            )
        ]
    )
    assert client.call(request, IncrementalAlterConfigsResponse).responses[0].error_code == 0


def push(client: WireClient, asked: GetTelemetrySubscriptionsResponse, codec: int, metrics: bytes) -> int:
    request = PushTelemetryRequest(
        client_instance_id=asked.client_instance_id,
        subscription_id=asked.subscription_id,
        compression_type=codec,
        metrics=metrics,
    )
    return client.call(request, PushTelemetryResponse).error_code


def test_a_node_that_starts_again_still_offers_what_was_subscribed_to(tmp_path: Path) -> None:
    with running_node(tmp_path) as node, WireClient(node.address) as client:
        assert not offers_telemetry(client)
        subscribe(client, "raw", metrics="org.example.")
        assert offers_telemetry(client)
    with running_node(tmp_path) as node, WireClient(node.address) as client:
        assert offers_telemetry(client)


def offers_telemetry(client: WireClient) -> bool:
    hello = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return {71, 72} <= {each.api_key for each in client.call(hello, ApiVersionsResponse).api_keys}


def test_what_a_client_pushes_is_on_the_page(node: NodeProcess) -> None:
    # A gauge "org.example.depth" with the value 42.
    point = b"\x21" + bytes.fromhex("0000000000004540")
    gauge = b"\x0a\x11org.example.depth" + b"\x2a" + bytes([len(point) + 2]) + b"\x0a" + bytes([len(point)]) + point
    scope = b"\x12" + bytes([len(gauge)]) + gauge
    resource = b"\x12" + bytes([len(scope)]) + scope
    metrics = b"\x0a" + bytes([len(resource)]) + resource
    with WireClient(node.address, client_id="depth-gauge") as client:
        subscribe(client, "raw", metrics="org.example.", interval_ms="100", match="client_id=depth-.*")
        asked = client.call(GetTelemetrySubscriptionsRequest(), GetTelemetrySubscriptionsResponse)
        assert asked.error_code == 0
        assert asked.requested_metrics == ["org.example."]
        assert asked.push_interval_ms == 100
        assert asked.accepted_compression_types == [4, 3, 1, 2]
        assert asked.telemetry_max_bytes == 1_048_576
        assert asked.delta_temporality
        for codec in range(5):
            assert push(client, asked, codec, compress(codec, metrics) if codec else metrics) == 0
            time.sleep(0.11)
        # A bomb of ten kilobytes that would be ten megabytes.
        bomb = compress(1, bytes(10_000_000))
        assert len(bomb) < 20_000
        assert push(client, asked, 1, bomb) == ErrorCode.INVALID_RECORD
        time.sleep(0.11)
        assert push(client, asked, 7, metrics) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        time.sleep(0.11)
        assert push(client, asked, 0, bytes(1_048_577)) == ErrorCode.TELEMETRY_TOO_LARGE
        page = eventually(node.address, "kafka_server_clientmetrics_telemetryerrors_total", 3)
    assert page["kafka_server_clientmetrics_telemetrypushes_total"] == 5
    shown = [series for series in page if series.startswith("client_org_example_depth{")]
    assert len(shown) == 1
    assert 'client_id="depth-gauge"' in shown[0]
    assert page[shown[0]] == 42


def test_asking_all_the_time_costs_the_node_little(node: NodeProcess) -> None:
    """A page is used again for a while, so most of a hundred answers in a row are the same one."""
    pages = {fetch_page(node.address) for _ in range(100)}
    assert len(pages) < 50


# Timing.


class TickingClock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic(self) -> float:
        self.now_s += 0.001
        return self.now_s


def test_an_answer_that_comes_later_is_timed_from_its_request_on() -> None:
    clock, registry = TickingClock(), Registry()
    metrics = RequestMetrics(registry, clock)
    meters = metrics.of(3, "Metadata")
    asked = Deferred()
    given = metrics.timed(meters, clock.monotonic(), asked)
    assert isinstance(given, Deferred)
    answers: list[object] = []
    given.when_done(lambda: answers.append(given.reply))
    clock.now_s += 0.5
    asked.resolve(b"answer")
    assert answers == [b"answer"]
    assert (meters.local.count, meters.remote.count, meters.total.count) == (1, 1, 1)
    assert meters.local.total == pytest.approx(1_000, abs=10)
    assert meters.remote.total == pytest.approx(501_000, abs=10)
    assert meters.total.total == pytest.approx(502_000, abs=10)


def test_an_answer_that_nobody_waits_for_any_more_is_given_up() -> None:
    clock = TickingClock()
    metrics = RequestMetrics(Registry(), clock)
    asked = Deferred()
    given_up: list[bool] = []
    asked.when_abandoned(lambda: given_up.append(True))
    given = metrics.timed(metrics.fetch, clock.monotonic(), asked)
    assert isinstance(given, Deferred)
    given.abandon()
    assert given_up == [True]


def test_a_deleted_topic_leaves_no_series() -> None:
    registry = Registry()
    meters = TopicMeters(registry, "short-lived")
    meters.messages_in.value += 1
    meters.produce_failed(ErrorCode.MESSAGE_TOO_LARGE, 5)
    meters.fetch_failed(ErrorCode.OFFSET_OUT_OF_RANGE)
    assert 'bytesrejected_total{topic="short-lived"} 5\n' in registry.render(0)
    meters.remove()
    assert "short-lived" not in registry.render(0)
