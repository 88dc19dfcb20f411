"""Runs one node until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
from collections.abc import Callable, Sequence

from ottla.broker.node import Node
from ottla.cli.gateway import ServicePort
from ottla.config.node import NodeConfig
from ottla.runtime import Runtime
from ottla.runtime.system import raise_descriptor_limit, run

YOUNG_OBJECTS_MAX = 10_000
"""By so many more objects there must be before the garbage collector looks at them; Python's own 700 come together with
a few requests of a group. What counts is what stays: nearly all that a request makes goes with it, by its last
reference. Each hundredth time the collector looks at everything, which takes tens of milliseconds where there are a
thousand partitions."""


def serve(
    config: NodeConfig,
    runtime: Runtime,
    on_ready: Callable[[Node], None],
    *,
    leash: int | None = None,
    beside: Sequence[ServicePort] = (),
) -> None:
    """Start a node, call `on_ready` when clients can be served, and stop it on SIGINT or SIGTERM.

    `leash` is the reading end of a pipe: the node also stops when nobody holds the other end any more, and then knows
    that all nodes of its cluster do. `beside` is what is served over HTTP beside the node.
    """
    raise_descriptor_limit()
    run(_serve(config, runtime, on_ready, leash, beside))


async def _serve(
    config: NodeConfig,
    runtime: Runtime,
    on_ready: Callable[[Node], None],
    leash: int | None,
    beside: Sequence[ServicePort],
) -> None:
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
    loop.set_exception_handler(node.on_unhandled)
    if leash is not None:

        def let_go() -> None:
            loop.remove_reader(leash)
            node.all_stop = True
            stopping.set()

        loop.add_reader(leash, let_go)
    if await _started(node, stopping):
        try:
            # What start-up made lives as long as the node: the collector need never look at it again.
            gc.collect()
            gc.freeze()
            gc.set_threshold(YOUNG_OBJECTS_MAX)
            on_ready(node)
            if node.bootstrap:
                for port in beside:
                    port.start(node.bootstrap)
            await stopping.wait()
        finally:
            for port in beside:
                await port.stop()
            await node.stop()
    if node.failure is not None:
        raise node.failure


async def _started(node: Node, stopping: asyncio.Event) -> bool:
    """Start the node; false if it was told to stop first, as one may be that waits for a quorum which never comes."""
    starting = asyncio.ensure_future(node.start())
    told = asyncio.ensure_future(stopping.wait())
    await asyncio.wait((starting, told), return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if not starting.done():
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        return False
    await starting
    return True
