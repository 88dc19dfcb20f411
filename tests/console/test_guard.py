"""Who the console lets in: nobody from other sites, by no borrowed name, and elsewhere nobody without a password."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

import pytest

from ottla.console.guard import BODY_BYTES_MAX, COOKIE, Guard, Receive, Scope, Send
from ottla.gateway.http import Refusal


async def page(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"in"})


def basic(pair: str) -> str:
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


HERE = {"host": "localhost:8080"}


@pytest.mark.parametrize(
    ("kind", "method", "headers", "status"),
    [
        ("http", "GET", HERE, 0),
        ("http", "GET", {"host": "127.0.0.1:8080"}, 0),
        ("http", "GET", {"host": "[::1]:8080"}, 0),
        ("http", "GET", {"host": "rebound.example:8080"}, 403),
        ("http", "GET", {"host": "127.0.0.1.example:8080"}, 403),
        ("http", "GET", {}, 403),
        ("http", "POST", {**HERE, "origin": "http://localhost:8080"}, 0),
        ("http", "POST", {**HERE, "origin": "http://evil.example"}, 403),
        ("http", "POST", {**HERE, "origin": "http://localhost:9999"}, 403),
        ("http", "POST", {**HERE, "origin": "null"}, 403),
        ("http", "POST", {**HERE, "sec-fetch-site": "cross-site"}, 403),
        ("http", "GET", {**HERE, "sec-fetch-site": "cross-site"}, 0),
        ("websocket", "GET", {**HERE, "origin": "http://localhost:8080"}, 0),
        ("websocket", "GET", {**HERE, "origin": "http://evil.example"}, 403),
        ("websocket", "GET", {**HERE, "sec-fetch-site": "cross-site"}, 403),
    ],
)
def test_on_this_machine(kind: str, method: str, headers: Mapping[str, str], status: int) -> None:
    guard = Guard(page, loopback=True, users={})
    if not status:
        assert guard.check(kind, method, headers) == ""
        return
    with pytest.raises(Refusal) as refused:
        guard.check(kind, method, headers)
    assert refused.value.status == status


@pytest.mark.parametrize(
    ("authorization", "who"),
    [
        (basic("anna:secret"), "anna"),
        (basic("anna:wrong"), None),
        (basic("anna:"), None),
        (basic("nobody:"), None),
        ("Basic ***", None),
        ("Bearer x", None),
        ("", None),
    ],
)
def test_elsewhere_with_users(authorization: str, who: str | None) -> None:
    guard = Guard(page, loopback=False, users={"anna": "secret"})
    headers = {"host": "console.example", "authorization": authorization}
    if who is not None:
        assert guard.check("http", "GET", headers) == who
        return
    with pytest.raises(Refusal) as refused:
        guard.check("http", "GET", headers)
    assert refused.value.status == 401


def ask(guard: Guard, kind: str = "http", path: str = "/", **headers: str) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(dict(message))

    async def receive() -> Mapping[str, Any]:
        return {"type": f"{kind}.connect"}

    listed = [(name.encode(), value.encode()) for name, value in headers.items()]
    asyncio.run(guard({"type": kind, "method": "GET", "path": path, "headers": listed}, receive, send))
    return sent


def test_a_login_is_remembered_for_web_sockets() -> None:
    guard = Guard(page, loopback=False, users={"anna": "secret"})
    start, _ = ask(guard, host="console.example", authorization=basic("anna:secret"))
    cookie = dict(start["headers"])[b"set-cookie"].decode()
    assert "HttpOnly; SameSite=Strict" in cookie
    pair = cookie.partition(";")[0]
    assert guard.check("websocket", "GET", {"host": "console.example", "cookie": pair}) == "anna"
    with pytest.raises(Refusal):
        guard.check("websocket", "GET", {"host": "console.example", "cookie": f"{COOKIE}=0"})
    assert ask(guard, "websocket", host="console.example") == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Basic \xe9"},
        {"authorization": "Basic !"},
        {"authorization": f"Basic {base64.b64encode(bytes([0xFF])).decode()}"},
        {"cookie": f'{COOKIE}="\xe9"'},
        {"cookie": f"{COOKIE}="},
    ],
)
def test_what_is_no_password_is_refused_as_a_wrong_one(headers: dict[str, str]) -> None:
    guard = Guard(page, loopback=False, users={"anna": "secret"})
    with pytest.raises(Refusal) as refused:
        guard.check("http", "GET", {"host": "console.example", **headers})
    assert refused.value.status == 401


def test_answers_forbid_other_hosts_and_frames() -> None:
    start, _ = ask(Guard(page, loopback=True, users={}), host="localhost")
    policy = dict(start["headers"])[b"content-security-policy"]
    assert b"default-src 'self'" in policy
    assert b"frame-ancestors 'none'" in policy


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json"])
def test_the_framework_s_own_pages_are_not_served(path: str) -> None:
    assert ask(Guard(page, loopback=True, users={}), path=path, host="localhost")[0]["status"] == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-length": "1000"}, 200),
        ({"content-length": str(BODY_BYTES_MAX + 1)}, 413),
        ({"content-length": "9" * 100}, 413),
        ({"content-length": "-1"}, 413),
        ({"transfer-encoding": "chunked"}, 411),
    ],
)
def test_a_body_is_bounded_before_it_is_read(headers: dict[str, str], status: int) -> None:
    assert ask(Guard(page, loopback=True, users={}), host="localhost", **headers)[0]["status"] == status
