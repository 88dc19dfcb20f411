"""HTTP in front of the registry and of records: bounded requests in, JSON or a stream out. An ASGI application.

A request is refused before it is looked at if it is too large, comes from a web page of another site, or would change
something where changes are not allowed (`door`). What is answered is never cached and never guessed to be a page.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ottla.gateway.door import Door
from ottla.gateway.http import Refusal
from ottla.gateway.registry.answers import Raw
from ottla.gateway.registry.routes import resolve
from ottla.gateway.registry.writing import Registry
from ottla.gateway.rest.api import Answer, RestApi
from ottla.gateway.rest.tail import CONTENT_TYPE as TAIL_CONTENT_TYPE
from ottla.gateway.rest.tail import Tail

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

_log = logging.getLogger(__name__)

BODY_BYTES_MAX = 4 * 1024 * 1024
"""More than a record of a topic may have by default."""
BODY_TIMEOUT_S = 30.0
PATH_BYTES_MAX = 8 * 1024

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_CONTENT_TYPES = frozenset(
    {CONTENT_TYPE, "application/vnd.schemaregistry+json", "application/json", "application/octet-stream"}
)
_POLICY = b"default-src 'none'; style-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'"
"""No script comes from here; a person who opens the description may follow a topic from its page all the same."""
_CHANGING = frozenset({"POST", "PUT", "DELETE"})


class App:
    def __init__(self, registry: Registry, door: Door, rest: RestApi | None = None) -> None:
        self._registry = registry
        self._door = door
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # No web sockets, and nothing to do when the server starts or ends.
        try:
            answer = await self._answer(scope, receive)
            if isinstance(answer, Tail):
                await _stream(answer, scope["method"], receive, send)
                return
            status, body, content_type = answer
        except Refusal as refusal:
            status, content_type = refusal.status, CONTENT_TYPE
            body = _json({"error_code": refusal.code, "message": refusal.message})
        except Exception:
            _log.exception("A request failed")
            status, content_type = 500, CONTENT_TYPE
            body = _json({"error_code": 500, "message": "The gateway failed: its log says why."})
        headers = [*_headers(content_type), (b"content-length", str(len(body)).encode())]
        if status == 401:
            headers.append((b"www-authenticate", b'Basic realm="ottla"'))
        if status == 413:
            headers.append((b"connection", b"close"))  # What is left of the body is not waited for.
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _answer(self, scope: Scope, receive: Receive) -> Answer | Tail:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        self._check(method, headers)
        path, query = bytes(scope["raw_path"]).partition(b"?")[0], bytes(scope["query_string"])
        if len(path) + len(query) > PATH_BYTES_MAX:
            raise Refusal(414, "The address of the request is too long.")
        body = await _read_body(headers, receive)
        if self._rest is not None and self._rest.serves(path.decode("latin-1")):
            self._check_guarded("shows no records")
            return await self._rest.answer(method, path.decode("latin-1"), query.decode("latin-1"), body, headers)
        if body and headers.get("content-type", CONTENT_TYPE).partition(";")[0].strip().lower() not in _CONTENT_TYPES:
            raise Refusal(415, "HTTP 415 Unsupported Media Type")
        target = resolve(method, path.decode("latin-1"), query.decode("latin-1"), body)
        answer = await self._registry.answer(target)
        if isinstance(answer, Raw):
            return Answer(200, answer.text.encode("utf-8", "replace"), CONTENT_TYPE)
        return Answer(200, _json(answer), CONTENT_TYPE)

    def _check(self, method: str, headers: Mapping[str, str]) -> None:
        """May this be asked by whoever asks it? Raises `Refusal`."""
        door = self._door
        door.check_site(method, headers)
        if door.users and not door.user_of(headers):
            raise door.stranger()
        if method in _CHANGING:
            self._check_guarded("changes nothing")

    def _check_guarded(self, what: str) -> None:
        if not self._door.is_guarded:
            raise Refusal(403, f"This port can be reached from other machines and has no users: it {what}.")


def _headers(content_type: str) -> list[tuple[bytes, bytes]]:
    return [
        (b"content-type", content_type.encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", _POLICY),
    ]


async def _stream(tail: Tail, method: str, receive: Receive, send: Send) -> None:
    """Until the peer hangs up, or the cluster has nothing to say for good."""
    gone = asyncio.ensure_future(_hung_up(receive))
    try:
        await send({"type": "http.response.start", "status": 200, "headers": _headers(TAIL_CONTENT_TYPE)})
        while method != "HEAD":
            coming = asyncio.ensure_future(tail.chunk())
            await asyncio.wait({coming, gone}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                coming.cancel()
                await asyncio.wait({coming})
                break
            await send({"type": "http.response.body", "body": coming.result(), "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    except Exception as error:
        # Whoever listens comes back with the id of the last event.
        _log.warning("A stream ended: %s", error)
        await send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()
        await tail.close()


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_body(headers: Mapping[str, str], receive: Receive) -> bytes:
    """The whole body, or `Refusal` as soon as it is known to be too large, or takes too long."""
    too_large = Refusal(413, f"A body may have {BODY_BYTES_MAX} bytes.")
    length = headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > BODY_BYTES_MAX:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refusal(400, "The request was not finished.")
                body += message.get("body", b"")
                if len(body) > BODY_BYTES_MAX:
                    raise too_large
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise Refusal(408, "The body of the request took too long.") from None


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
