"""A node in this process, on a real directory, whose fsyncs of one topic wait until the test lets them through."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ottla.broker.control.format import FormatOptions, format_node
from ottla.broker.node import Node
from ottla.config.node import NodeConfig
from ottla.errors import ErrorCode
from ottla.runtime.disk import Handle, SystemDisk, SystemFile
from ottla.runtime.seams import DiskError
from ottla.runtime.system import free_ports, system_runtime

HOST = "127.0.0.1"
PATIENCE_S = 60


class _HeldFile(SystemFile):
    __slots__ = ("_disk",)

    def __init__(self, path: str, handle: Handle, disk: HeldDisk) -> None:
        super().__init__(path, handle)
        self._disk = disk

    def sync(self) -> None:
        self._disk.pass_gate(self.path)
        super().sync()


class HeldDisk(SystemDisk):
    """Syncs of segments in a directory that begins with `topic` stop at the gate while it is closed."""

    def __init__(self, topic: str) -> None:
        self._mark = f"/{topic}"
        self._changed = threading.Condition()
        self._closed = False
        self._allowed = 0
        self._waiting = 0
        self.breaks = False
        """The next sync that is let through fails."""
        self.syncs = 0
        """How many were let through."""

    def close_gate(self) -> None:
        with self._changed:
            self._closed = True

    def open_gate(self) -> None:
        with self._changed:
            self._closed = False
            self._changed.notify_all()

    def let_one_through(self) -> None:
        with self._changed:
            self._allowed += 1
            self._changed.notify_all()

    def wait_for_a_sync(self) -> None:
        """Return when a sync stands at the gate."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._waiting > 0, PATIENCE_S), "nothing was synced"

    def pass_gate(self, path: str) -> None:
        if self._mark not in path or not path.endswith(".log"):
            return
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: not self._closed or self._allowed > 0, PATIENCE_S)
            self._waiting -= 1
            self._allowed = max(0, self._allowed - 1)
            self.syncs += 1
            if self.breaks:
                raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot sync {path}: the test says so")

    def open(self, path: str, *, create: bool = False) -> _HeldFile:
        return _HeldFile(path, super().open(path, create=create).handle, self)


@contextmanager
def node_on(
    disk: SystemDisk,
    directory: Path,
    settings: Mapping[str, str] | None = None,
    *,
    ports: Sequence[int] | None = None,
    is_new: bool = True,
) -> Iterator[tuple[str, int]]:
    """A node that serves from a thread of its own until the test is done, or it gives up; yields where. One that is not
    new goes on with what is in the directory, and needs the `ports` that it had."""
    runtime = replace(system_runtime(), disk=disk)
    port, controller_port = free_ports(HOST, 2) if ports is None else ports
    config = NodeConfig(
        {
            **(settings or {}),
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"{HOST}:{controller_port}",
            "log.dirs": str(directory),
        }
    )
    if is_new:
        options = FormatOptions(standalone=True)
        format_node(disk, config, options, random=runtime.random, now_ms=runtime.clock.wall_ms())
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    done = asyncio.Event()
    failures: list[BaseException] = []

    async def serve() -> None:
        node = Node(config, runtime)
        node.on_fatal = done.set
        await node.start()
        ready.set()
        await done.wait()
        await node.stop()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        except BaseException as failure:
            failures.append(failure)
        finally:
            ready.set()
            loop.close()

    thread = threading.Thread(target=run, name="node")
    thread.start()
    try:
        assert ready.wait(PATIENCE_S)
        assert not failures, failures
        yield HOST, port
    finally:
        if isinstance(disk, HeldDisk):
            disk.open_gate()
        if not loop.is_closed():
            loop.call_soon_threadsafe(done.set)
        thread.join(PATIENCE_S)
        runtime.offload.close()
    assert not thread.is_alive()
    assert not failures, failures
