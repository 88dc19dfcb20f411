"""A bit of a coordinator's log turns over while its node, which is alone, is stopped: what is wrong is not believed.

There is no other replica to copy from. The node serves all else, and says what to do about it; who follows that goes on
without what was behind the damage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest

from ottla.broker.coordinators.served import ShardState
from ottla.broker.node import Node
from ottla.config.node import NodeConfig
from ottla.errors import ErrorCode
from ottla.log.files import CLEAN_SHUTDOWN, RECOVERY_POINT_CHECKPOINT
from ottla.model import GROUP_TOPIC, TopicPartition
from ottla.records import batches
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.messages.offset_fetch_response import OffsetFetchResponse
from tests.jumping_loop import JumpingLoop
from tests.log.faulty_disk import FaultyDisk
from tests.seams.surroundings import MemoryNetwork, memory_runtime
from tests.seams.test_client_deaths import SETTINGS, FlowingClock
from tests.seams.test_coordinator_deaths import committed, node_on
from tests.seams.test_maintenance import Stage, until
from tests.seams.test_node_in_memory import CONFIG, Client

DATA = CONFIG.log_dirs[0]
LOG = f"{DATA}/{TopicPartition(GROUP_TOPIC, 0)}/00000000000000000000.log"


async def commit(it: Stage, group: str, offset: int) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])])
    answer = await it.client.ask(request, OffsetCommitResponse, 9)
    assert answer.topics[0].partitions[0].error_code == 0


async def write_and_stop(disk: FaultyDisk) -> None:
    async with node_on(disk, new=True) as it:
        for offset in range(3):
            await commit(it, f"group-{offset}", offset)


def spoil(disk: FaultyDisk) -> None:
    """A bit of the second batch: another name in its key."""
    content = disk.read_file(LOG)
    (_, first), (_, second), *_ = batches(memoryview(content))
    at = len(first) + bytes(second).index(b"group-1")
    file = disk.open(LOG)
    file.write(at, bytes([content[at] ^ 2]))
    file.sync()


async def look(disk: FaultyDisk, incarnation: int) -> None:
    """The node serves, but not the groups of that partition."""
    clock, network = FlowingClock(), MemoryNetwork()
    runtime = memory_runtime(disk, clock, network)
    runtime.random.seed(f"incarnation {incarnation}")
    node = Node(NodeConfig({**CONFIG.static, **SETTINGS}), runtime)
    await node.start()
    it = Stage(node, Client(), disk, clock, network)
    await network.connect("memory", 9092, it.client)
    await until(lambda: node.services.groups.count_partitions()[ShardState.FAILED] == 1)
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="group-0", topics=None)])
    (found,) = (await it.client.ask(request, OffsetFetchResponse, 9)).groups
    assert found.error_code == ErrorCode.NOT_COORDINATOR
    await it.produce(b"all else goes on")
    assert node.failure is None
    await node.stop()


async def look_again(disk: FaultyDisk) -> None:
    async with node_on(disk, new=False) as it:
        assert [await committed(it, f"group-{number}") for number in range(3)] == [0, -1, -1]
        await commit(it, "group-1", 7)
        assert await committed(it, "group-1") == 7


def run(story: Coroutine[object, object, None]) -> None:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(story)


def test_what_a_damaged_log_says_is_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk()
    run(write_and_stop(disk))
    spoil(disk)
    # It was closed cleanly, so that no start reads it; it is the same at each of them.
    for started in (1, 2):
        run(look(disk, started))
        assert caplog.text.count(f"remove {CLEAN_SHUTDOWN} and {RECOVERY_POINT_CHECKPOINT} from {DATA}") == started
    for name in (CLEAN_SHUTDOWN, RECOVERY_POINT_CHECKPOINT):
        disk.remove(f"{DATA}/{name}")
    run(look_again(disk))
