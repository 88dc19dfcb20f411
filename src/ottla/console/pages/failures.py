"""What is shown for an address that leads nowhere, and for a page that failed: the way around, and a sentence."""

from __future__ import annotations

import logging

from fastapi import Request, Response
from nicegui import Client, app, ui

from ottla.console.console import Console
from ottla.console.pages.frame import frame, notice

_log = logging.getLogger(__name__)


def register(console: Console) -> None:
    def page(request: Request, status: int, title: str, text: str) -> Response:
        with Client(ui.page(""), request=request) as client, frame(console, title, ""):
            notice(text, bad=True)
        return client.build_response(request, status)

    @app.exception_handler(404)
    async def missing(request: Request, error: Exception) -> Response:
        return page(request, 404, "Nothing here", "There is no page at this address.")

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        _log.exception("A page failed", exc_info=error)
        return page(request, 500, "This page failed", "The console's log says why. Load it again, or go elsewhere.")
