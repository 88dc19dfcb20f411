"""A coordinator that dies in any step loses nothing that it has acknowledged.

One node in memory coordinates a group and a transaction, whose requests follow each other without waiting. Before each
operation of its disk the disk is copied, with what clients had been told by then. From every copy a node starts: the
process died there. What was acknowledged must be found, what is found must have been asked for, and nothing may be
half.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from ottla.broker.control.format import FormatOptions, format_node
from ottla.broker.node import Node
from ottla.config.node import NodeConfig
from ottla.model import TopicPartition
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.messages.offset_fetch_response import OffsetFetchResponse
from tests.jumping_loop import JumpingLoop
from tests.log.faulty_disk import FaultyDisk, Operation
from tests.seams.surroundings import MemoryNetwork, memory_runtime
from tests.seams.test_client_deaths import (
    FOREVER,
    GROUP,
    SETTINGS,
    FlowingClock,
    Mover,
    Steps,
    coordinated,
    nothing_is_open,
)
from tests.seams.test_maintenance import Stage
from tests.seams.test_node_in_memory import CONFIG, Client

COMMITTERS = 3
COMMITS = 4
"""Of each. Committer n commits for group `committer-n`, so that one waits for no other."""
MOVED = 7
"""The offset that the transaction commits for its group."""

Known = dict[str, int]
"""A group → the last offset of which somebody knows."""


class Moment(NamedTuple):
    disk: FaultyDisk
    acknowledged: Known
    asked: Known
    ended: bool
    """Has the producer been told that its transaction is committed?"""
    ending: bool
    """Has it asked for that?"""


@asynccontextmanager
async def node_on(disk: FaultyDisk, *, new: bool) -> AsyncIterator[Stage]:
    config = NodeConfig({**CONFIG.static, **SETTINGS})
    clock, network = FlowingClock(), MemoryNetwork()
    runtime = memory_runtime(disk, clock, network)
    if new:
        format_node(disk, config, FormatOptions(standalone=True), random=runtime.random, now_ms=clock.wall_ms())
    node = Node(config, runtime)
    await node.start()
    it = Stage(node, Client(), disk, clock, network)
    await network.connect("memory", 9092, it.client)
    if new:
        await it.create(partitions=2)
    await coordinated(it)
    yield it
    disk.hook = None
    await node.stop()


class Story:
    """What clients ask for and are told, and what the disk was like before each of its operations."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self.acknowledged: Known = {}
        self.asked: Known = {}
        self.ended = self.ending = False
        self._under_way = 0
        self.under_way_max = 0

    async def tell(self) -> None:
        disk = FaultyDisk()
        async with node_on(disk, new=True) as it:

            def remember(operation: Operation) -> None:
                disk.hook = None
                copy = disk.copy()
                disk.hook = remember
                known = dict(self.acknowledged), dict(self.asked)
                self.moments.append(Moment(copy, *known, self.ended, self.ending))

            disk.hook = remember
            await asyncio.gather(self._move(it), *(self._commit(it, number) for number in range(COMMITTERS)))

    async def _commit(self, it: Stage, number: int) -> None:
        group = f"committer-{number}"
        client = Client()
        await it.network.connect("memory", 9092, client)
        for offset in range(COMMITS):
            partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
            request = OffsetCommitRequest(
                group_id=group, topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])]
            )
            self.asked[group] = offset
            self._under_way += 1
            self.under_way_max = max(self.under_way_max, self._under_way)
            answer = await client.ask(request, OffsetCommitResponse, 9)
            self._under_way -= 1
            assert answer.topics[0].partitions[0].error_code == 0
            self.acknowledged[group] = offset

    async def _move(self, it: Stage) -> None:
        mover = Mover(await Steps.of(it, FOREVER), 2)
        mover.before_end = self._on_end
        await mover.live()
        self.ended = True

    def _on_end(self) -> None:
        self.ending = True


async def committed(it: Stage, group: str) -> int:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=True)
    (found,) = (await it.client.ask(request, OffsetFetchResponse, 9)).groups
    assert found.error_code == 0
    return next((each.committed_offset for topic in found.topics for each in topic.partitions), -1)


async def check(moment: Moment) -> bool:
    """Did the transaction survive?"""
    async with node_on(moment.disk, new=False) as it:
        for number in range(COMMITTERS):
            group = f"committer-{number}"
            found = await committed(it, group)
            assert moment.acknowledged.get(group, -1) <= found <= moment.asked.get(group, -1)
        heir = Mover(await Steps.of(it, FOREVER), 2)
        await heir.begin()  # What its predecessor left open is aborted, and what was decided is carried out.
        assert await nothing_is_open(it)
        moved = await committed(it, GROUP)
        survived = moved == MOVED
        assert survived or moved == -1
        assert survived or not moment.ended, "it was told that the transaction is committed"
        assert moment.ending or not survived, "nobody asked for it to be committed"
        aborted = [
            bool(log.aborted_transactions(0, log.high_watermark))
            for place in (TopicPartition("t", 0), TopicPartition("t", 1))
            if (log := it.node.services.logs.logs[place]).high_watermark
        ]
        assert not (survived and any(aborted)), "a transaction is committed everywhere, or nowhere"
        return survived


def test_whichever_disk_operation_is_the_last_nothing_acknowledged_is_lost() -> None:
    story = Story()
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(story.tell())
    assert story.under_way_max == COMMITTERS
    assert len(story.moments) > 20
    survived: set[bool] = set()
    for moment in story.moments:
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            survived.add(runner.run(check(moment)))
    assert survived == {False, True}, "it died before the decision, and after it"
