"""The keys that tokens are checked by: had before the node serves, fetched again, and never given up for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import cast

import pytest

from ottla.broker.doors import jwks as jwks_module
from ottla.broker.doors.jwks import Jwks
from ottla.broker.services import Services
from ottla.config.node import NodeConfig
from ottla.errors import StartupError
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import SystemDisk
from ottla.runtime.offload import SystemOffload
from ottla.runtime.timers import TimerWheel
from tests.broker.test_key_material import STATIC
from tests.tokens import Provider


class Surroundings:
    """As much of a node as keys need."""

    def __init__(self) -> None:
        self.disk = SystemDisk()
        self.offload = SystemOffload()
        self.timers = TimerWheel(SystemClock())
        self.tasks: list[asyncio.Task[None]] = []

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def settle(self) -> None:
        await asyncio.gather(*self.tasks)

    def jwks(self, url: str) -> Jwks:
        config = NodeConfig({**STATIC, "sasl.oauthbearer.jwks.endpoint.url": url})
        return Jwks(config, "SSL", cast(Services, self))


@pytest.fixture
def surroundings() -> Iterator[Surroundings]:
    made = Surroundings()
    yield made
    made.offload.close()


@pytest.fixture(scope="module")
def provider() -> Provider:
    return Provider()


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """A web server with one document; its URL."""
    servers: list[HTTPServer] = []

    def start(document: bytes, status: int = 200, location: str = "") -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                if location:
                    self.send_header("Location", location)
                self.end_headers()
                self.wfile.write(document)

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/keys"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


async def test_keys_come_from_a_server(
    surroundings: Surroundings, provider: Provider, serve: Callable[..., str]
) -> None:
    jwks = surroundings.jwks(serve(provider.document()))
    await jwks.start()
    assert {"rsa", "ES256"} <= jwks.known().keys()
    surroundings.timers.close()


@pytest.mark.parametrize(("document", "status"), [(b"no keys", 200), (b"", 404), (b" " * (1024 * 1024 + 1), 200)])
async def test_without_keys_a_node_does_not_start(
    surroundings: Surroundings, serve: Callable[..., str], document: bytes, status: int
) -> None:
    with pytest.raises(StartupError, match="cannot be had"):
        await surroundings.jwks(serve(document, status)).start()


async def test_nobody_is_followed_to_where_he_sends_us(
    surroundings: Surroundings, provider: Provider, serve: Callable[..., str]
) -> None:
    elsewhere = serve(provider.document())
    with pytest.raises(StartupError, match="cannot be had"):
        await surroundings.jwks(serve(b"", 302, elsewhere)).start()


async def test_a_new_key_is_fetched_when_it_is_first_seen_and_old_ones_stay_until_then(
    surroundings: Surroundings, provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(provider.document())
    jwks = surroundings.jwks(f"file://{file}")
    await jwks.start()
    before = jwks.known()
    file.write_bytes(b"half a document")
    jwks.refresh_soon()  # Too soon: whoever sends strange tokens does not make us ask all the time.
    assert not surroundings.tasks
    monkeypatch.setattr(jwks_module, "REFRESH_MS_MIN", 0)
    jwks.refresh_soon()
    await surroundings.settle()
    assert jwks.known() is before
    file.write_bytes(Provider().document())
    jwks.refresh_soon()
    await surroundings.settle()
    assert jwks.known() is not before
    surroundings.timers.close()


@pytest.mark.parametrize("url", ["", "ftp://example.org/keys", "http://example.org/keys", "/etc/keys.json"])
def test_keys_come_from_files_and_servers_alone(surroundings: Surroundings, url: str) -> None:
    with pytest.raises(StartupError):
        surroundings.jwks(url)
