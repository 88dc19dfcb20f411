"""Bytes that no browser sends, to the console: no path leads out, nothing large is kept, and pages are served on."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator

import pytest

from tests.console.conftest import Stage
from tests.raw_http import get, say, status

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def still_served(stage: Stage) -> Iterator[None]:
    yield
    connection = http.client.HTTPConnection(stage.url.removeprefix("http://"), timeout=60)
    connection.request("GET", "/topics")
    assert connection.getresponse().status == 200
    connection.close()


@pytest.mark.parametrize(
    "path",
    [
        b"/assets/../server.py",
        b"/assets/..%2fserver.py",
        b"/assets/%2e%2e/%2e%2e/__init__.py",
        b"/assets//etc/passwd",
        b"/_nicegui/../../../../etc/passwd",
        b"/topics/orders/records/0/0/..%2f..%2fetc%2fpasswd",
        b"/topics/orders/records/0/0/key%00",
        b"/topics/..%2f..%2fetc/records.jsonl",
        b"/topics/x%22%0d%0aX-Forged:%20y/records.jsonl",
        b"/docs",
        b"/openapi.json",
    ],
)
def test_no_path_leads_out(stage: Stage, path: bytes) -> None:
    answer = say(stage.url, get(path))
    assert status(answer) in (400, 404), answer[:500]
    assert b"root:" not in answer
    assert b"from __future__" not in answer
    assert b"X-Forged" not in answer.split(b"\r\n\r\n")[0]


@pytest.mark.parametrize(
    "path",
    [
        b"/topics/orders/records?from=time&time=" + b"9" * 30,
        b"/topics/orders/records?from=offset&offset=" + b"9" * 19,
        b"/topics/orders/records?filter=offset:" + b"9" * 5000,
        b"/topics/orders/records?filter=value.id." + b"9" * 5000 + b"=1",
        b"/topics/orders/records?partition=" + b"9" * 19,
        b"/topics/orders/records?older=0:" + b"9" * 19,
        b"/topics/orders/records.jsonl?partition=" + b"9" * 19,
        b"/topics/orders/records.jsonl?newer=" + b"9" * 19 + b":1",
        b"/topics/orders/records/" + b"9" * 30 + b"/0/key",
        b"/topics/orders/records/0/" + b"9" * 30 + b"/key",
        b"/topics/orders/partitions/" + b"9" * 5000,
        b"/transactions?silent=" + b"9" * 30,
        b"/schemas/subject?name=x&version=" + b"9" * 5000,
        b"/topics/hostile/records",
        b"/topics/hostile/records?tail=1",
        b"/topics/hostile/records.jsonl",
    ],
)
def test_no_number_is_too_large_to_be_refused_in_a_sentence(stage: Stage, path: bytes) -> None:
    answer = say(stage.url, get(path))
    assert status(answer) in (200, 400, 404, 422), answer[:500]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/", "/topics", "/acls", "/assets/console.js", "/topics/orders/records.jsonl"])
def test_pages_take_nothing(stage: Stage, method: str, path: str) -> None:
    with contextlib.closing(http.client.HTTPConnection(stage.url.removeprefix("http://"), timeout=60)) as connection:
        connection.request(method, path, b"x" * 1000)
        assert connection.getresponse().status in (404, 405)


def test_huge_bodies_are_not_kept(stage: Stage) -> None:
    """To the way by which pages send what people do."""
    head = (
        b"POST /_nicegui_ws/socket.io/?EIO=4&transport=polling HTTP/1.1\r\nHost: localhost\r\n"
        b"Connection: close\r\nContent-Length: 100000000\r\n\r\n"
    )
    answer = say(stage.url, head, *[b"x" * (1 << 20)] * 20)
    assert status(answer) in (0, 413), answer[:500]  # Whoever goes on sending may not hear it.
