"""HTTP in front of the registry: bounded requests in, JSON out. An ASGI application.

A request is refused before it is looked at if it is too large, comes from a web page of another site, or would change
something where changes are not allowed (`Door`). What is answered is never cached and never guessed to be a page.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.gateway.registry.answers import Raw
from ottla.gateway.registry.refusals import Refusal
from ottla.gateway.registry.routes import resolve
from ottla.gateway.registry.writing import Registry

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
_CHANGING = frozenset({"POST", "PUT", "DELETE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Who may come in. On a loopback address everybody on this machine, but no web page of another site; elsewhere
    only who has a name and a password may change anything."""

    loopback: bool
    users: Mapping[str, str] = field(default_factory=dict)
    """Passwords by name; with any, everybody must have one."""

    def check(self, method: str, headers: Mapping[str, str]) -> None:
        """Raises `Refusal`."""
        host = headers.get("host", "")
        if self.loopback and not _is_loopback(host):
            raise Refusal(403, "This registry serves its own machine: ask it by the name localhost.")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise Refusal(403, "A page of another site may not use this registry.")
        if self.users:
            if not self._knows(headers.get("authorization", "")):
                raise Refusal(401, "This registry asks for a name and a password.")
        elif not self.loopback and method in _CHANGING:
            raise Refusal(403, "This registry can be reached from other machines and has no users: it changes nothing.")

    def _knows(self, authorization: str) -> bool:
        kind, _, encoded = authorization.partition(" ")
        try:
            name, _, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        known = self.users.get(name)
        same = hmac.compare_digest(password.encode(), (known or "").encode())
        return kind.lower() == "basic" and same and known is not None


def _is_loopback(host: str) -> bool:
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class App:
    def __init__(self, registry: Registry, door: Door) -> None:
        self._registry = registry
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # No web sockets, and nothing to do when the server starts or ends.
        try:
            status, body, content_type = await self._answer(scope, receive)
        except Refusal as refusal:
            status, content_type = refusal.status, CONTENT_TYPE
            body = _json({"error_code": refusal.code, "message": refusal.message})
        except Exception:
            _log.exception("A request failed")
            status, content_type = 500, CONTENT_TYPE
            body = _json({"error_code": 500, "message": "The registry failed: its log says why."})
        headers = [
            (b"content-type", content_type.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ]
        if status == 401:
            headers.append((b"www-authenticate", b'Basic realm="schema registry"'))
        if status == 413:
            headers.append((b"connection", b"close"))  # What is left of the body is not waited for.
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[int, bytes, str]:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        self._door.check(method, headers)
        path, query = bytes(scope["raw_path"]).partition(b"?")[0], bytes(scope["query_string"])
        if len(path) + len(query) > PATH_BYTES_MAX:
            raise Refusal(414, "The address of the request is too long.")
        body = await _read_body(headers, receive)
        if body and headers.get("content-type", CONTENT_TYPE).partition(";")[0].strip().lower() not in _CONTENT_TYPES:
            raise Refusal(415, "HTTP 415 Unsupported Media Type")
        target = resolve(method, path.decode("latin-1"), query.decode("latin-1"), body)
        answer = await self._registry.answer(target)
        if isinstance(answer, Raw):
            return 200, answer.text.encode("utf-8", "replace"), CONTENT_TYPE
        return 200, _json(answer), CONTENT_TYPE


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
