"""The process that serves HTTP: a listening socket that somebody opened, the application, and an end.

It ends on SIGINT and SIGTERM, and when whoever started it is gone: then its standard input ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.client.settings import ClientSettings
from ottla.runtime.offload import SystemOffload

if TYPE_CHECKING:
    import socket

CONNECTIONS_MAX = 500
BACKLOG = 128
STANDARD_INPUT = 0


async def serve_registry(
    sock: socket.socket, settings: ClientSettings, *, loopback: bool, users: Mapping[str, str], leashed: bool
) -> None:
    """Serve until told to stop. With `leashed`, also until standard input ends."""
    import uvicorn

    from ottla.gateway.app import App, Door
    from ottla.gateway.registry.writing import Registry
    from ottla.gateway.rest.api import RestApi

    offload = SystemOffload()
    registry = Registry.over(settings, offload)
    rest = RestApi(settings)
    app = App(registry, Door(loopback=loopback, users=users), rest)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        limit_concurrency=CONNECTIONS_MAX,
        backlog=BACKLOG,
        timeout_graceful_shutdown=3,
    )
    server = uvicorn.Server(config)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    loop = asyncio.get_running_loop()

    def let_go() -> None:
        loop.remove_reader(STANDARD_INPUT)
        server.should_exit = True

    if leashed:
        loop.add_reader(STANDARD_INPUT, let_go)
    registry.start()
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await server.serve(sockets=[sock])
    finally:
        await registry.close()
        await rest.close()
        offload.close()
