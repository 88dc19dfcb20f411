"""Runs one node until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
from collections.abc import Callable

from ottla.broker.node import Node
from ottla.config.node import NodeConfig
from ottla.runtime import Runtime
from ottla.runtime.system import raise_descriptor_limit, run


def serve(config: NodeConfig, runtime: Runtime, on_ready: Callable[[Node], None]) -> None:
    """Start a node, call `on_ready` when clients can be served, and stop it on SIGINT or SIGTERM."""
    raise_descriptor_limit()
    run(_serve(config, runtime, on_ready))


async def _serve(config: NodeConfig, runtime: Runtime, on_ready: Callable[[Node], None]) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop() -> None:
        if stopping.is_set():
            sys.exit(130)  # Asked twice: whoever asks does not want to wait.
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, stop)
    node = Node(config, runtime)
    node.on_fatal = stopping.set
    await node.start()
    try:
        # What start-up made lives as long as the node: the collector need never look at it again.
        gc.collect()
        gc.freeze()
        on_ready(node)
        await stopping.wait()
    finally:
        await node.stop()
    if node.failure is not None:
        raise node.failure
