"""Who may come in, asked before anything else (`gateway/door`): of every request and of every web socket. An ASGI
middleware. On other addresses than loopback people log in, or the console shows no records and changes nothing
(`console`).

A browser sends a password with requests, but not always with web sockets; so a login is remembered in a cookie that no
script can read and no other site can send.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

from ottla.gateway.door import Door
from ottla.gateway.http import Refusal

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "ottla-console"
BODY_BYTES_MAX = 4 * 1024 * 1024
_UNSERVED = frozenset({"/docs", "/redoc", "/openapi.json", "/docs/oauth2-redirect"})
"""The framework's own pages, which ask other hosts for their scripts."""
_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        b"img-src 'self' data:; font-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
        b"frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)


class Guard:
    """Around the application. With `users` (passwords by name) everybody must be one of them."""

    def __init__(self, app: App, *, loopback: bool, users: Mapping[str, str]) -> None:
        self._app = app
        self._door = Door(loopback=loopback, users=dict(users), of="console")
        self._secret = secrets.token_bytes(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            user = self.check(scope["type"], scope.get("method", "GET"), headers)
            _check_body(headers)
            if scope["path"] in _UNSERVED:
                raise Refusal(404, "There is no such page.")
        except Refusal as refusal:
            await _refuse(scope, receive, send, refusal)
            return

        async def adorned(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                extra = [*_HEADERS]
                if user:
                    cookie = f"{COOKIE}={self._token(user)}; Path=/; HttpOnly; SameSite=Strict"
                    extra.append((b"set-cookie", cookie.encode("latin-1")))
                message = {**message, "headers": [*message.get("headers", ()), *extra]}
            await send(message)

        await self._app(scope, receive, adorned)

    def check(self, kind: str, method: str, headers: Mapping[str, str]) -> str:
        """Who it is, or an empty text where nobody is asked. Raises `Refusal`."""
        door = self._door
        door.check_site("" if kind == "websocket" else method, headers)
        if not door.users:
            return ""
        user = door.user_of(headers) or self._by_cookie(headers.get("cookie", ""))
        if not user:
            raise door.stranger()
        return user

    def _by_cookie(self, text: str) -> str:
        try:
            cookie = SimpleCookie(text).get(COOKIE)
        except CookieError:
            return ""
        found = cookie.value if cookie is not None else ""
        return next(
            (name for name in self._door.users if hmac.compare_digest(found.encode(), self._token(name).encode())), ""
        )

    def _token(self, user: str) -> str:
        """Good as long as this process lives."""
        return hmac.new(self._secret, user.encode(), hashlib.sha256).hexdigest()


def _check_body(headers: Mapping[str, str]) -> None:
    """What pages send is small, and says how long it is. Raises `Refusal`."""
    if "transfer-encoding" in headers:
        raise Refusal(411, "Say how long the body is.")
    length = headers.get("content-length", "0")
    if not length.isdecimal() or len(length) > 12 or int(length) > BODY_BYTES_MAX:
        raise Refusal(413, f"A body may have {BODY_BYTES_MAX} bytes.")


async def _refuse(scope: Scope, receive: Receive, send: Send, refusal: Refusal) -> None:
    if scope["type"] == "websocket":
        await receive()  # The connect; only then may it be closed, which the other side sees as status 403.
        await send({"type": "websocket.close", "code": 1008})
        return
    body = f"{refusal.message}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    if refusal.status == 401:
        headers.append((b"www-authenticate", b'Basic realm="Ottla console"'))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
