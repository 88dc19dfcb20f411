"""A disk that fails under a serving node: what was acknowledged stays true, and nothing is retried."""

from __future__ import annotations

from ottla.broker.node import Node
from ottla.errors import ErrorCode
from ottla.runtime import DiskError
from ottla.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.produce_response import ProduceResponse
from tests.log.faulty_disk import FaultyDisk, Operation
from tests.seams.surroundings import LoopClock, MemoryNetwork, memory_runtime
from tests.seams.test_node_in_memory import CONFIG, Client, fetch, fresh, produce, serving


async def failing_node(flush_messages: str, kind: str) -> tuple[list[int], FaultyDisk, bool]:
    """Produce until the disk refuses `kind` under the topic: the error codes, the disk, and did the node give up?"""
    disk, clock, network = FaultyDisk(), LoopClock(), MemoryNetwork()
    node = Node(CONFIG, fresh(disk, clock, network))
    stopped: list[bool] = []
    node.on_fatal = lambda: stopped.append(True)
    await node.start()
    client = Client()
    await network.connect("memory", 9092, client)
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    topic.configs = [CreatableTopicConfig(name="flush.messages", value=flush_messages)]
    await client.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 7)
    codes: list[int] = []

    def refuse(operation: Operation) -> None:
        if operation.kind == kind and operation.path == "/data/t-0/00000000000000000000.log":
            raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is broken")

    for number in range(6):
        if number == 3:
            disk.hook = refuse
        answer = await client.ask(produce(b"%d" % number), ProduceResponse, 12)
        codes.append(answer.responses[0].partition_responses[0].error_code)
    disk.hook = None
    await node.stop()
    return codes, disk, bool(stopped)


async def still_there(disk: FaultyDisk) -> list[bytes | None]:
    network = MemoryNetwork()
    async with serving(memory_runtime(disk, LoopClock(), network), network) as (_, client):
        return await fetch(client)


async def test_a_failed_write_takes_the_directory_offline_and_with_the_last_one_the_node() -> None:
    codes, disk, stopped = await failing_node("9223372036854775807", "write")
    assert codes == [0, 0, 0] + [ErrorCode.KAFKA_STORAGE_ERROR] * 3
    assert stopped
    assert await still_there(disk) == [b"0", b"1", b"2"]


async def test_a_failed_sync_is_not_tried_again() -> None:
    codes, disk, stopped = await failing_node("1", "sync")
    assert codes == [0, 0, 0] + [ErrorCode.KAFKA_STORAGE_ERROR] * 3
    assert stopped
    assert (await still_there(disk))[:3] == [b"0", b"1", b"2"]
