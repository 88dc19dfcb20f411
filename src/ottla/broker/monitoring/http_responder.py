"""A few pages over HTTP on the node's own ports: `/metrics` for Prometheus, `/health` (`/health/live`), `/ready`
(`/health/ready`), and `/replicas/TOPIC/PARTITION` for whoever wants to see a replica at work.

One port suffices because the two protocols cannot be mistaken for each other. A Kafka connection begins with the
length of its first frame; `GET ` and the other methods, read as such, are lengths beyond 1 GiB, and the bytes that
must follow would be an API key that does not exist. So a connection tells what it speaks with its first six bytes,
nobody opens, documents or guards a second port, and the frame path pays nothing: only a length that is already out of
the ordinary is looked at again.

Nothing here is a web server. One request is answered and the connection closed; a body is never read, so a web page
cannot smuggle frames in behind a request; the head is limited in size, and the whole exchange in time. The answers hold
nothing that needs a login today; a listener that asks its clients for one must not serve them, and where an authorizer
guards topics and groups none is named.

`HttpResponder` knows bytes alone and is driven by `ClientConnection`, whose listener's limits on connections hold for
these as for any other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from typing import NamedTuple

from ottla.metrics.exposition import CONTENT_TYPE
from ottla.runtime.timers import Timer, TimerWheel

HEAD_BYTES_MAX = 8 * 1024
DEADLINE_MS = 10_000
"""From the first bytes of a request until its answer has been taken."""

_SERVED = (b"GET", b"HEAD")
_BEGINNINGS = (b"GET /", b"HEAD /", b"POST /", b"PUT /", b"DELETE", b"PATCH ", b"OPTION")
"""Those that are not served are told so, rather than hung up on."""

REQUEST_LENGTHS = frozenset(int.from_bytes(beginning[:4], "big") for beginning in _BEGINNINGS)
"""What the beginnings of requests are, read as the length of a frame."""

LEAST_LENGTH = min(REQUEST_LENGTHS)
"""Frames below this length cannot be the beginning of a request."""

_DECIDING_BYTES = 6
_REPLICAS = b"/replicas/"
_TEXT = "text/plain; charset=utf-8"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


class Page(NamedTuple):
    status: int
    body: str
    content_type: str = _TEXT


class HttpResponder:
    """One instance a node."""

    def __init__(
        self,
        *,
        timers: TimerWheel,
        metrics: Callable[[], str],
        replica: Callable[[str, int], str | None],
        is_live: Callable[[], bool],
        is_ready: Callable[[], bool],
    ) -> None:
        """`replica` is the state of one partition as JSON; none where this node does not hold it."""
        self._timers = timers
        self._metrics = metrics
        self._replica = replica
        self._is_live = is_live
        self._is_ready = is_ready

    def showing(self, metrics: Callable[[], str]) -> HttpResponder:
        """The same pages, with other metrics."""
        other = copy(self)
        other._metrics = metrics
        return other

    def limit(self, expired: Callable[[], None]) -> Timer:
        """Call `expired` when an exchange that begins now has taken too long."""
        return self._timers.after(DEADLINE_MS, expired)

    def answer(self, received: bytes) -> bytes | None:
        """The whole answer to a request of which `received` has arrived; none while its head is not whole."""
        found = [(at, at + len(mark)) for mark in (b"\r\n\r\n", b"\n\n") if (at := received.find(mark)) >= 0]
        end = min(found)[1] if found else len(received)
        if end > HEAD_BYTES_MAX:
            return _encode(Page(431, f"The head of a request may have {HEAD_BYTES_MAX} bytes.\n"))
        if not found:
            # The buffer that holds the head is never filled by it, so there is room for the next byte.
            return None
        method, _, rest = received[:end].split(b"\n", 1)[0].rstrip(b"\r").partition(b" ")
        target, _, version = rest.partition(b" ")
        return _encode(self._page(method, target, version), body=method != b"HEAD")

    def _page(self, method: bytes, target: bytes, version: bytes) -> Page:
        if not target.startswith((b"/", b"*")) or not version.startswith(b"HTTP/"):
            return Page(400, "This is not a request.\n")
        if version not in (b"HTTP/1.1", b"HTTP/1.0"):
            return Page(505, "HTTP/1.1 is spoken here.\n")
        if method not in _SERVED:
            return Page(405, "These pages can be read, and nothing else.\n")
        match target.partition(b"?")[0]:
            case b"/metrics":
                return Page(200, self._metrics(), CONTENT_TYPE)
            case b"/health/live" | b"/health":
                return Page(200, "live\n") if self._is_live() else Page(503, "failed\n")
            case b"/health/ready" | b"/ready":
                return Page(200, "ready\n") if self._is_ready() else Page(503, "not ready\n")
            case path if path.startswith(_REPLICAS):
                return self._replica_page(path.removeprefix(_REPLICAS))
            case _:
                return Page(404, "There are /metrics, /health, /ready and /replicas/TOPIC/PARTITION.\n")

    def _replica_page(self, name: bytes) -> Page:
        topic, _, partition = name.decode("latin-1").partition("/")
        if not re.fullmatch("[0-9]{1,9}", partition):
            return Page(404, "A replica is /replicas/TOPIC/PARTITION.\n")
        found = self._replica(topic, int(partition))
        if found is None:
            return Page(404, "This node has no replica of that partition.\n")
        return Page(200, found, "application/json")


def speaks_http(received: bytes) -> bool | None:
    """Do the first bytes of a connection begin an HTTP request? None while they are too few to tell."""
    if len(received) < _DECIDING_BYTES:
        return None
    return received.startswith(_BEGINNINGS)


def _encode(page: Page, *, body: bool = True) -> bytes:
    content = page.body.encode("utf-8", "replace")
    allow = "Allow: GET, HEAD\r\n" if page.status == 405 else ""
    head = (
        f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\n"
        f"{allow}"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(content)}\r\n"
        f"Cache-Control: no-store\r\n"
        f"X-Content-Type-Options: nosniff\r\n"
        f"Connection: close\r\n"
        f"\r\n"
    ).encode()
    return head + content if body else head
