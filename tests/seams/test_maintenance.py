"""What a node does by the clock: flushes, retention, checkpoints, removal, expiry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ottla.broker.control.format import FormatOptions, format_node
from ottla.broker.node import Node
from ottla.config.node import NodeConfig
from ottla.log import LogConfig
from ottla.metadata.images import PartitionImage
from ottla.model import TopicPartition
from ottla.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.produce_response import ProduceResponse
from tests.log.faulty_disk import FaultyDisk
from tests.seams.surroundings import LoopClock, MemoryNetwork, memory_runtime
from tests.seams.test_node_in_memory import CONFIG, Client, produce


class Stage:
    def __init__(self, node: Node, client: Client, disk: FaultyDisk, clock: LoopClock, network: MemoryNetwork) -> None:
        self.node = node
        self.client = client
        self.disk = disk
        self.clock = clock
        self.network = network

    async def create(self, *, partitions: int = 1, **configs: str) -> None:
        topic = CreatableTopic(name="t", num_partitions=partitions, replication_factor=1)
        topic.configs = [
            CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()
        ]
        answer = await self.client.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 7)
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message

    async def produce(self, *values: bytes) -> None:
        answer = await self.client.ask(produce(*values), ProduceResponse, 12)
        assert answer.responses[0].partition_responses[0].error_code == 0

    def files(self) -> list[str]:
        return [path.removeprefix("/data/") for path in self.disk.files() if path.startswith("/data/t-0")]


@asynccontextmanager
async def stage(**settings: str) -> AsyncIterator[Stage]:
    config = NodeConfig({**CONFIG.static, **{name.replace("_", "."): value for name, value in settings.items()}})
    disk, clock, network = FaultyDisk(), LoopClock(), MemoryNetwork()
    runtime = memory_runtime(disk, clock, network)
    format_node(disk, config, FormatOptions(standalone=True), random=runtime.random, now_ms=clock.wall_ms())
    node = Node(config, runtime)
    await node.start()
    client = Client()
    await network.connect("memory", 9092, client)
    yield Stage(node, client, disk, clock, network)
    await node.stop()


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(6_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came true")


async def test_flush_ms_makes_records_durable_after_that_time() -> None:
    async with stage() as it:
        await it.create(flush_ms="1000")
        await it.produce(b"one")
        log = it.node.services.logs.logs[TopicPartition("t", 0)]
        assert log.recovery_point == 0
        it.clock.advance(1001)
        await until(lambda: log.recovery_point == 1)


async def test_retention_by_time_deletes_renames_and_later_removes() -> None:
    async with stage(log_retention_check_interval_ms="20", log_initial_task_delay_ms="0") as it:
        await it.create(retention_ms="60000", file_delete_delay_ms="5000")
        await it.produce(b"old")
        log = it.node.services.logs.logs[TopicPartition("t", 0)]
        await asyncio.sleep(0.1)
        assert log.log_start_offset == 0
        it.clock.advance(60_001)
        await until(lambda: log.log_start_offset == 1)
        await until(lambda: "t-0/00000000000000000000.log.deleted" in it.files())
        it.clock.advance(5000)
        await until(lambda: not any(path.endswith(".deleted") for path in it.files()))
        await it.produce(b"new")
        assert log.log_end_offset == 2


async def test_the_high_watermark_is_checkpointed() -> None:
    async with stage(replica_high_watermark_checkpoint_interval_ms="20") as it:
        await it.create()
        await it.produce(b"one", b"two")
        await until(lambda: b"t 0 2" in it.disk.files().get("/data/replication-offset-checkpoint", b""))


async def test_the_recovery_point_is_checkpointed_once_it_has_moved() -> None:
    async with stage(log_flush_offset_checkpoint_interval_ms="20", log_initial_task_delay_ms="0") as it:
        await it.create(flush_messages="1")
        await it.produce(b"one")
        await until(lambda: b"t 0 1" in it.disk.files().get("/data/recovery-point-offset-checkpoint", b""))


async def test_a_topic_config_takes_effect_while_the_node_runs() -> None:
    from ottla.wire.messages.incremental_alter_configs_request import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )
    from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse

    async with stage() as it:
        await it.create()
        change = AlterableConfig(name="max.message.bytes", config_operation=0, value="10")
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = await it.client.ask(request, IncrementalAlterConfigsResponse, 1)
        assert answer.responses[0].error_code == 0
        refused = await it.client.ask(produce(b"too large by now"), ProduceResponse, 12)
        assert refused.responses[0].partition_responses[0].error_code == 10


async def test_a_new_leadership_does_not_jump_the_flush_gate() -> None:
    """What an earlier leadership left unsynced becomes readable only after its fsync, under the new one too."""
    async with stage() as it:
        await it.create()
        await it.produce(b"unsynced")
        replicas = it.node.services.replicas
        partition = replicas.partition("t", 0)
        assert partition is not None
        log = partition.log
        assert log.recovery_point == 0
        log.update_config(LogConfig(flush_messages=1))
        log.high_watermark = 0
        seen: list[int] = []
        it.disk.hook = lambda operation: seen.append(log.high_watermark) if operation.kind == "sync" else None
        image = PartitionImage((1,), (1,), 1, partition.leader.leader_epoch + 1 if partition.leader else 1, 9, ())
        replicas.lead(partition, image)
        await until(lambda: log.high_watermark == 1)
        it.disk.hook = None
        assert seen[0] == 0
        assert log.recovery_point == 1
