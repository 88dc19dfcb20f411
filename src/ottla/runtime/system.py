"""The real surroundings of a node, and the event loop that it runs on."""

from __future__ import annotations

import asyncio
import contextlib
import errno
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
from ottla.runtime.offload import SystemOffload
from ottla.runtime.seams import Runtime

T = TypeVar("T")


def system_runtime(*, durable: bool = True) -> Runtime:
    """The real thing; without `durable` nothing is synced, for data that is not meant to survive."""
    return Runtime(
        clock=SystemClock(),
        disk=SystemDisk() if durable else VolatileDisk(),
        network=SocketNetwork(),
        random=random.Random(random.SystemRandom().getrandbits(128)),
        offload=SystemOffload(),
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


FREE_PORTS = range(10_000, 32_000)
"""Below those that systems hand to clients: one of those could be taken between being found and being listened on."""


def free_ports(host: str, count: int) -> list[int]:
    """Ports that nobody listens on just now, all different. Raises `OSError` where the host cannot be listened on."""
    found: list[int] = []
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
    for port in random.SystemRandom().sample(FREE_PORTS, 1000):
        with socket.socket(family) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                sock.bind((host, port))
                found.append(port)
        if len(found) == count:
            return found
    raise OSError(errno.EADDRINUSE, "no port is free")


def process_age_seconds() -> float:
    """How long this process has been running, so that start-up is timed from its true beginning; 0 if unknown."""
    try:
        with open("/proc/self/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        return 0.0


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that connections queue up at, before anybody serves them. Raises `OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(128)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def adopted_socket(descriptor: int) -> socket.socket:
    """The listening socket that another process opened and handed to this one."""
    sock = socket.socket(fileno=descriptor)
    sock.setblocking(False)
    return sock
