"""One application over HTTP on a socket that somebody opened, with an end: what gateway and console have in common.

It ends on SIGINT and SIGTERM, and, if leashed, when whoever started it is gone: then its standard input ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

CONNECTIONS_MAX = 500
BACKLOG = 128
STANDARD_INPUT = 0
GRACE_S = 3
"""So long a request that is under way may take to end."""


async def serve_application(app: Any, sock: socket.socket, *, leashed: bool, lifespan: bool) -> None:
    """Serve `app`, an ASGI application, until told to stop. With `lifespan` it hears of start and end."""
    import uvicorn

    config = uvicorn.Config(
        app,
        http="h11",  # Which bounds what comes before a body; the faster one, where it is installed, takes any header.
        log_config=None,
        access_log=False,
        lifespan="auto" if lifespan else "off",
        server_header=False,
        limit_concurrency=CONNECTIONS_MAX,
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE_S,
    )
    server = uvicorn.Server(config)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    loop = asyncio.get_running_loop()

    def let_go() -> None:
        loop.remove_reader(STANDARD_INPUT)
        server.should_exit = True

    if leashed:
        loop.add_reader(STANDARD_INPUT, let_go)
    with contextlib.suppress(asyncio.CancelledError):
        await server.serve(sockets=[sock])
