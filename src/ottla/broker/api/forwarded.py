"""Whatever only the active controller decides, on a broker's listener: handed on as it came (`broker/forwarding`)."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.broker.forwarding import forward
from ottla.wire.message import Message


async def handle(context: Context, request: Message) -> Message:
    return await forward(context, request)
