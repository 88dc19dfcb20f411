"""A whole node that hears what a client says: the target `live_node`.

It lives in memory, without a file, a socket or a thread (`tests/seams`), so that an input costs a few turns of the
loop, and coverage sees all that it does. An input is one request, with a length that is right, on the port of the
clients. The node breaks its word when it speaks of an error, which it does where something was raised that nobody
expected. Everybody may do everything here, so a node is given up for a new one after a while.
"""

from __future__ import annotations

import asyncio
import logging
from struct import pack

from ottla.broker.control.format import FormatOptions, format_node
from ottla.broker.node import Node
from ottla.wire.frames import request_frame
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from tests.hostile.harness import VICTIM_TOPIC
from tests.log.faulty_disk import FaultyDisk
from tests.seams.surroundings import LoopClock, MemoryNetwork, memory_runtime
from tests.seams.test_node_in_memory import CONFIG, Client

INPUTS_MAX = 1_000
TURNS = 20
"""Of the loop, for each input: more than anything needs that does not wait for time to pass."""


class Complained(Exception):
    """The node said that something happened which must not."""


class LiveNode:
    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._network = MemoryNetwork()
        self._node: Node | None = None
        self._heard = 0
        self._ears = _Ears()

    def hear(self, data: bytes) -> None:
        """Raises `Complained`."""
        if self._loop is None or self._heard >= INPUTS_MAX:
            self._renew()
        assert self._loop is not None
        self._heard += 1
        self._loop.run_until_complete(self._send(pack(">i", len(data)) + data))
        if self._ears.heard is not None:
            complaint, self._ears.heard = self._ears.heard, None
            self.close()
            error = complaint.exc_info[1] if complaint.exc_info else None
            raise Complained(complaint.getMessage()) from error

    def close(self) -> None:
        if self._loop is not None:
            assert self._node is not None
            self._loop.run_until_complete(self._node.stop())
            self._loop.close()
            logging.getLogger("ottla").removeHandler(self._ears)
            self._loop = None

    def _renew(self) -> None:
        self.close()
        self._heard = 0
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._start())
        logging.getLogger("ottla").addHandler(self._ears)

    async def _start(self) -> None:
        disk, clock, self._network = FaultyDisk(), LoopClock(), MemoryNetwork()
        runtime = memory_runtime(disk, clock, self._network)
        format_node(disk, CONFIG, FormatOptions(standalone=True), random=runtime.random, now_ms=clock.wall_ms())
        self._node = Node(CONFIG, runtime)
        await self._node.start()
        topic = CreatableTopic(name=VICTIM_TOPIC, num_partitions=2, replication_factor=1)
        await self._send(request_frame(19, 7, 7, "fuzz", CreateTopicsRequest(topics=[topic]).encode(7)))

    async def _send(self, data: bytes) -> None:
        connection = await self._network.connect("memory", 9092, Client())
        connection.write(data)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        connection.abort()
        await asyncio.sleep(0)


class _Ears(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: logging.LogRecord | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self.heard = self.heard or record
