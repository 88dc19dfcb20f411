"""The door of the registry: who is let in, and how much they may bring."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

import pytest

from ottla.gateway.app import BODY_BYTES_MAX, PATH_BYTES_MAX, App
from ottla.gateway.door import Door
from tests.gateway.stage import Client, MemoryLog, play, registry_on

USERS = Door(loopback=False, users={"ada": "secret:with:colons"})


def basic(text: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(text.encode()).decode()}


def test_answers_are_json_and_nothing_else() -> None:
    async def story(client: Client) -> None:
        answer = await client.ask("GET", "/subjects")
        assert answer.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        head = await client.ask("HEAD", "/subjects")
        assert (head.status, head.body, head.headers["content-length"]) == (200, None, "2")

    play(story)


@pytest.mark.parametrize("host", ["localhost", "localhost:8081", "127.0.0.1:8081", "127.8.8.8", "[::1]:8081"])
def test_this_machine_is_let_in(host: str) -> None:
    async def story(client: Client) -> None:
        assert (await client.ask("GET", "/subjects", headers={"host": host})).status == 200

    play(story)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8081", "localhost.evil.example", "10.0.0.1", "", "[::2]"]
)
def test_a_name_that_was_made_to_mean_this_machine_is_not(host: str) -> None:
    async def story(client: Client) -> None:
        assert (await client.ask("GET", "/subjects", headers={"host": host})).status == 403

    play(story)


def test_a_page_of_another_site_changes_nothing() -> None:
    async def story(client: Client) -> None:
        body = {"schema": '"int"'}
        for origin in ("http://evil.example", "null", "http://localhost:9999"):
            answer = await client.ask("POST", "/subjects/x/versions", body, headers={"origin": origin})
            assert answer.status == 403
        answer = await client.ask("POST", "/subjects/x/versions", body, headers={"sec-fetch-site": "cross-site"})
        assert answer.status == 403
        form = {"content-type": "application/x-www-form-urlencoded"}
        assert (await client.ask("POST", "/subjects/x/versions", body, headers=form)).status == 415
        plain = {"content-type": "text/plain"}
        assert (await client.ask("POST", "/subjects/x/versions", body, headers=plain)).status == 415
        own = {"origin": "http://localhost:8081"}
        assert (await client.ask("POST", "/subjects/x/versions", body, headers=own)).status == 200

    play(story)


def test_other_machines_may_read_and_change_nothing_without_users() -> None:
    async def story(client: Client) -> None:
        elsewhere = {"host": "registry.example:8081"}
        assert (await client.ask("GET", "/subjects", headers=elsewhere)).status == 200
        refused = await client.ask("POST", "/subjects/x/versions", {"schema": '"int"'}, headers=elsewhere)
        assert refused.status == 403
        assert (await client.ask("PUT", "/config", {"compatibility": "NONE"}, headers=elsewhere)).status == 403

    play(story, door=Door(loopback=False))


def test_users_say_who_they_are() -> None:
    async def story(client: Client) -> None:
        for headers in (
            {},
            basic("ada"),
            basic("ada:wrong"),
            basic("eve:secret"),
            basic(":"),
            {"authorization": "Basic %"},
            {"authorization": "Basic \xe9"},
        ):
            answer = await client.ask("GET", "/subjects", headers=headers)
            assert (answer.status, "www-authenticate" in answer.headers) == (401, True)
        bearer = {"authorization": "Bearer " + basic("ada:secret:with:colons")["authorization"].split()[1]}
        assert (await client.ask("GET", "/subjects", headers=bearer)).status == 401
        known = basic("ada:secret:with:colons")
        assert (await client.ask("POST", "/subjects/x/versions", {"schema": '"int"'}, headers=known)).status == 200

    play(story, door=USERS)


def test_what_is_too_large_is_refused_before_it_is_read() -> None:
    async def story(client: Client) -> None:
        huge = {"content-length": str(BODY_BYTES_MAX + 1)}
        assert (await client.ask("POST", "/subjects/x/versions", b"{}", headers=huge)).status == 413
        more_than_said = b" " * (BODY_BYTES_MAX + 1)
        assert (await client.ask("POST", "/subjects/x/versions", more_than_said)).status == 413
        assert (await client.ask("GET", "/subjects/" + "x" * PATH_BYTES_MAX)).status == 414
        assert (await client.ask("GET", "/subjects?" + "&".join(f"a{n}=1" for n in range(500)))).status == 400
        assert (await client.ask("GET", "/subjects?limit=99999999999999")).status == 404

    play(story)


def test_a_client_that_goes_away_leaves_no_trace() -> None:
    async def run() -> None:
        async with registry_on(MemoryLog()) as client:
            app: App = client._app
            scope: dict[str, Any] = {
                "type": "http",
                "method": "POST",
                "raw_path": b"/subjects/x/versions",
                "query_string": b"",
                "headers": [(b"host", b"localhost")],
            }
            sent: list[Mapping[str, Any]] = []

            async def receive() -> Mapping[str, Any]:
                return {"type": "http.disconnect"}

            async def send(message: Mapping[str, Any]) -> None:
                sent.append(message)

            await app(scope, receive, send)
            assert sent[0]["status"] == 400
            assert await client.get("/subjects") == []

    asyncio.run(run())
