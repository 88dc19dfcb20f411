"""Bytes that no client of good will sends, to the port for schemas and records: each is refused, and others are served.

Over real sockets: what a framework refuses before the application sees it is part of the answer.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.gateway.app import BODY_BYTES_MAX
from tests.gateway.conftest import Served
from tests.gateway.test_rest import ask, records_of
from tests.raw_http import get, post, say, status

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def still_served(served: Served) -> Iterator[None]:
    yield
    assert ask(served, "GET", "/subjects").status == 200


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (b"/../../../../etc/passwd", 404),
        (b"/%2e%2e/%2e%2e/etc/passwd", 404),
        (b"/subjects/..%2f..%2f..%2fetc%2fpasswd/versions", 404),
        (b"/subjects/%2e%2e/versions/latest", 404),
        (b"//evil.example/subjects", 404),
        (b"/subjects\\..\\..", 404),
        (b"/docs/../../etc/passwd", 404),
        (b"/openapi.json%00.html", 404),
        (b"/v3/clusters/-/topics/..%2f..%2fetc/records", 405),
        (b"/topics/..%2f..%2fetc/stream", 404),
    ],
)
def test_no_path_leads_out(served: Served, path: bytes, expected: int) -> None:
    answer = say(served.url, get(path))
    assert status(answer) == expected, answer
    assert b"root:" not in answer


@pytest.mark.parametrize(
    "request_",
    [
        get(b"http://evil.example/subjects", host=b"evil.example"),
        get(b"/subjects", b"Host: evil.example\r\n"),
        get(b"/subjects", b"Content-Length: 5\r\n", b"Content-Length: 50\r\n"),
        get(b"/subjects", b"X: " + b"y" * 200_000 + b"\r\n"),
        get(b"/subjects", *(b"X-%d: y\r\n" % number for number in range(20_000))),
        b"GET /subjects\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500) + b"\r\n\r\n",
        b"\x00\x00\x00\x14\x00\x12\x00\x03" + bytes(16) + b"\r\n\r\n",
        bytes(100_000) + b"\r\n\r\n",
    ],
    ids=[
        "absolute",
        "two hosts",
        "two lengths",
        "long header",
        "many headers",
        "nul",
        "tls",
        "kafka",
        "zeros",
    ],
)
def test_what_is_no_request_is_refused(served: Served, request_: bytes) -> None:
    answer = say(served.url, request_)
    assert status(answer) in (0, 400, 403, 404, 431), answer


def test_a_body_in_pieces_is_not_read_for_ever(served: Served) -> None:
    piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    pieces = [piece] * (BODY_BYTES_MAX // 0x10000 + 2)
    head = post(b"/subjects/x/versions", b"Transfer-Encoding: chunked")
    assert status(say(served.url, head, *pieces)) in (0, 413)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b'{"value": {"type": "STRING", "data": "' + b"\xff\xfe" + b'"}}',
        b'{"value": {"type": "BINARY", "data": "***"}}',
        b'{"value": {"type": "JSON", "data": ' + b"9" * 10_000 + b"}}",
        b'{"value": {"type": "STRING", "data": "\\ud800"}}',
        b"\xef\xbb\xbf{}",
    ],
    ids=["lists", "objects", "no text", "no base64", "a number", "half a character", "a mark"],
)
def test_a_body_that_is_meant_ill_is_refused(served: Served, body: bytes) -> None:
    admin = AdminClient({"bootstrap.servers": served.node.bootstrap})
    admin.create_topics([NewTopic("ill", 1)])["ill"].exception(60)  # It may be there from the test before.
    reply = ask(served, "POST", records_of("ill"), body, {"Content-Type": "application/json"}, raw=True)
    assert reply.status in (400, 413, 422), reply.body
    schema = ask(served, "POST", "/subjects/ill/versions", body, {"Content-Type": "application/json"}, raw=True)
    assert schema.status in (400, 422), schema.body


def test_nobody_is_kept_waiting_by_who_says_nothing(served: Served) -> None:
    parts = urlsplit(served.url)
    idle = [socket.create_connection((parts.hostname or "", parts.port or 0), timeout=60) for _ in range(200)]
    try:
        for number, connection in enumerate(idle):
            connection.sendall(
                b"POST /subjects/x/versions HTTP/1.1\r\nHost: localhost\r\nContent-Le"[: number % 60 + 1]
            )
        assert ask(served, "GET", "/subjects").status == 200
    finally:
        for connection in idle:
            connection.close()


@contextmanager
def exposed(bootstrap: str) -> Iterator[str]:
    command = [sys.executable, "-m", "ottla.cli", "registry", "--bootstrap", bootstrap, "--listen", "0.0.0.0:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().removeprefix("ready: ").strip().replace("0.0.0.0", "127.0.0.1")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()


def test_where_other_machines_come_in_nobody_writes_and_records_are_not_shown(served: Served) -> None:
    with exposed(served.node.bootstrap) as url:
        elsewhere = Served(served.node, url)
        assert ask(elsewhere, "GET", "/subjects").status == 200
        assert ask(elsewhere, "POST", "/subjects/x/versions", {"schema": '"int"'}).status == 403
        for method, path, body in (
            ("POST", records_of("any"), {"value": {"data": 1}}),
            ("GET", "/v3/clusters/-/topics/any/partitions/0/records", None),
            ("GET", "/topics/any/stream", None),
            ("GET", "/v3/clusters", None),
        ):
            assert ask(elsewhere, method, path, body).status == 403, path
