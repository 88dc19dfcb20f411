"""What must not end unheard of: a node without it would look alive, and stand still, so it stops."""

from __future__ import annotations

import pytest

from ottla.broker.node import Node
from tests.log.faulty_disk import FaultyDisk
from tests.seams.surroundings import LoopClock, MemoryNetwork
from tests.seams.test_maintenance import until
from tests.seams.test_node_in_memory import CONFIG, fresh


async def started() -> tuple[Node, list[bool]]:
    node = Node(CONFIG, fresh(FaultyDisk(), LoopClock(), MemoryNetwork()))
    stopped: list[bool] = []
    node.on_fatal = lambda: stopped.append(True)
    await node.start()
    return node, stopped


async def surprising() -> None:
    raise RuntimeError("nobody expected this")


async def test_a_vital_task_that_fails_stops_the_node() -> None:
    node, stopped = await started()
    node.services.spawn_vital(surprising())
    await until(lambda: bool(stopped))
    await node.stop()


async def test_another_task_that_fails_does_not() -> None:
    node, stopped = await started()
    node.services.spawn(surprising())
    await node.services.drain()
    assert not stopped
    await node.stop()


async def test_a_heartbeat_that_fails_for_no_known_reason_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    node, stopped = await started()
    lifecycle = node.services.control.lifecycle
    monkeypatch.setattr(lifecycle, "_heartbeat", surprising)
    lifecycle._beat()
    await until(lambda: bool(stopped))
    await node.stop()
