"""The process that serves HTTP: schemas and records, on a listening socket that somebody opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.client.settings import ClientSettings
from ottla.runtime.offload import SystemOffload

if TYPE_CHECKING:
    import socket


async def serve_gateway(
    sock: socket.socket, settings: ClientSettings, *, loopback: bool, users: Mapping[str, str], leashed: bool
) -> None:
    """Serve until told to stop. With `leashed`, also until standard input ends."""
    from ottla.gateway.app import App
    from ottla.gateway.door import Door
    from ottla.gateway.registry.writing import Registry
    from ottla.gateway.rest.api import RestApi
    from ottla.gateway.serving import serve_application

    offload = SystemOffload()
    registry = Registry.over(settings, offload)
    rest = RestApi(settings)
    registry.start()
    try:
        app = App(registry, Door(loopback=loopback, users=users), rest)
        await serve_application(app, sock, leashed=leashed, lifespan=False)
    finally:
        await registry.close()
        await rest.close()
        offload.close()
