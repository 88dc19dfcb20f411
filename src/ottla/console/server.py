"""The process that serves the console: the pages, on a listening socket that somebody opened."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ottla.client.registry import RegistrySettings
from ottla.client.settings import ClientSettings

if TYPE_CHECKING:
    import socket

    from fastapi import FastAPI

    from ottla.console.console import Console
    from ottla.console.guard import App

ASSETS = Path(__file__).parent / "assets"
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="4" height="12" x="1" y="2" rx="1" '
    'fill="#0b6e75"/><rect width="4" height="12" x="6" y="2" rx="1" fill="#0b6e75"/>'
    '<rect width="3" height="11" x="11.5" y="2.5" rx="1" fill="none" stroke="#0b6e75"/></svg>'
)


async def serve_console(
    sock: socket.socket,
    settings: ClientSettings,
    *,
    loopback: bool,
    users: Mapping[str, str],
    registry: RegistrySettings | None,
    leashed: bool,
) -> None:
    """Serve until told to stop. With `leashed`, also until standard input ends."""
    from ottla.console.console import Console
    from ottla.console.guard import Guard
    from ottla.console.registry import Registry
    from ottla.gateway.serving import serve_application

    asked = Registry(registry) if registry is not None else None
    console = Console(settings, registry=asked, may_change=loopback or bool(users))
    app = Guard(cast("App", make_app(console)), loopback=loopback, users=users)
    logging.getLogger("nicegui").setLevel(logging.WARNING)
    console.start()
    try:
        await serve_application(app, sock, leashed=leashed, lifespan=True)
    finally:
        await console.stop()


def make_app(console: Console) -> FastAPI:
    """All pages, and what they are made of. Once in a process: NiceGUI knows one application."""
    from fastapi import FastAPI
    from fastapi.staticfiles import StaticFiles
    from nicegui import ui

    from ottla.console.pages import (
        acls,
        brokers,
        charts,
        downloads,
        failures,
        group,
        groups,
        health,
        partition,
        produce,
        records,
        schemas,
        topic,
        topics,
        transactions,
        users,
    )
    from ottla.console.pages.frame import HEAD

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.mount("/assets", StaticFiles(directory=ASSETS))
    downloads.register(console, app)
    for register in (
        health.register,
        topics.register,
        topic.register,
        partition.register,
        records.register,
        produce.register,
        groups.register,
        group.register,
        brokers.register,
        charts.register,
        transactions.register,
        schemas.register,
        acls.register,
        users.register,
        failures.register,
    ):
        register(console)
    ui.add_head_html(HEAD, shared=True)
    ui.run_with(
        app, title="Ottla", favicon=ICON, dark=None, tailwind=False, show_welcome_message=False, language="en-US"
    )
    return app
