"""Fetch (key 1): on the controller's listener, where it reads the metadata log (KIP-595)."""

from __future__ import annotations

from ottla.broker.api.raft_request import answer
from ottla.broker.context import Context
from ottla.wire.messages.fetch_request import FetchRequest
from ottla.wire.messages.fetch_response import FetchResponse


async def handle(context: Context, request: FetchRequest) -> FetchResponse:
    return await answer(context, request, FetchResponse)
