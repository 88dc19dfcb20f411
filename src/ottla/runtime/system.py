"""The real surroundings of a node, and the event loop that it runs on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import socket
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import SystemDisk, VolatileDisk
from ottla.runtime.network import SocketNetwork
from ottla.runtime.offload import ThreadOffload
from ottla.runtime.seams import Runtime

T = TypeVar("T")


def system_runtime(*, durable: bool = True) -> Runtime:
    """The real thing; without `durable` nothing is synced, for data that is not meant to survive."""
    return Runtime(
        clock=SystemClock(),
        disk=SystemDisk() if durable else VolatileDisk(),
        network=SocketNetwork(),
        random=random.Random(random.SystemRandom().getrandbits(128)),
        offload=ThreadOffload(),
    )


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on uvloop where it is installed, else on asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def raise_descriptor_limit() -> None:
    """Every segment and connection takes a descriptor; the soft limit is often far below what the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def free_ports(host: str, count: int) -> list[int]:
    """Ports that nobody listens on just now, all different."""
    sockets: list[socket.socket] = []
    try:
        for _ in range(count):
            sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            sockets.append(sock)
            sock.bind((host, 0))
        return [int(sock.getsockname()[1]) for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


def process_age_seconds() -> float:
    """How long this process has been running, so that start-up is timed from its true beginning; 0 if unknown."""
    try:
        with open("/proc/self/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        return 0.0
