"""A node that runs until it is told to stop, or finds that it must."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator

import pytest

from ottla.broker.control.format import FormatOptions, format_node
from ottla.broker.node import Node
from ottla.cli.serve import serve
from tests.log.faulty_disk import FaultyDisk
from tests.seams.surroundings import LoopClock, MemoryNetwork, memory_runtime
from tests.seams.test_node_in_memory import CONFIG


@pytest.fixture(autouse=True)
def _thaw() -> Iterator[None]:
    """A node freezes what it has made; the tests after this one live longer than it."""
    yield
    gc.unfreeze()


def serve_until(on_ready: Callable[[Node], None]) -> None:
    disk = FaultyDisk()
    runtime = memory_runtime(disk, LoopClock(), MemoryNetwork())
    format_node(disk, CONFIG, FormatOptions(standalone=True), random=runtime.random, now_ms=1_800_000_000_000)
    serve(CONFIG, runtime, on_ready)


def impossible() -> None:
    raise AssertionError("the impossible")


def in_a_timer(node: Node) -> None:
    node.services.timers.after(1, impossible)


def in_a_callback(node: Node) -> None:
    asyncio.get_running_loop().call_soon(impossible)


@pytest.mark.parametrize("begin", [in_a_timer, in_a_callback])
def test_a_node_stops_when_the_impossible_happens_where_nobody_awaits_it(begin: Callable[[Node], None]) -> None:
    def on_ready(node: Node) -> None:
        begin(node)
        asyncio.get_running_loop().call_later(10, node.on_fatal)

    with pytest.raises(AssertionError, match="the impossible"):
        serve_until(on_ready)


def test_a_node_goes_on_after_any_other_failure_of_a_timer() -> None:
    def on_ready(node: Node) -> None:
        def fail() -> None:
            node.services.timers.after(1, node.on_fatal)
            raise ValueError("merely unexpected")

        node.services.timers.after(1, fail)

    serve_until(on_ready)
