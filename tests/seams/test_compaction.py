"""Compaction by a node: which keys it obeys, and what happens when something comes in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, TypeVar

from ottla.broker.control.format import FormatOptions, format_node
from ottla.broker.node import Node
from ottla.config.node import NodeConfig
from ottla.errors import ErrorCode
from ottla.log import Log
from ottla.log.cleaner import CorruptSegment
from ottla.model import TopicPartition
from ottla.records import BatchBuilder, batches, iterate
from ottla.runtime import Apart, DiskError, Runtime, WorkStopped
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.delete_topics_response import DeleteTopicsResponse
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import ProduceResponse
from tests.log.compacting import texts
from tests.log.faulty_disk import FaultyDisk, Operation
from tests.seams.surroundings import InlineApart, InlineOffload, LoopClock, MemoryNetwork
from tests.seams.test_maintenance import Stage, until
from tests.seams.test_node_in_memory import CONFIG, Client

T = TypeVar("T")
TOPIC = 2
NO_KEY = 87


class HeldApart(InlineOffload):
    """Work apart waits until the test lets it go on, and can be stopped before that."""

    def __init__(self) -> None:
        self.held = False
        self.begun = 0
        self.stopped = 0
        self._waiting: tuple[asyncio.Future[Any], Callable[[], object]] | None = None

    def run_apart(
        self, work: Callable[[Apart], T], *, bytes_per_second: float, on_report: Callable[[Any], None]
    ) -> Awaitable[T]:
        self.begun += 1
        self.bytes_per_second = bytes_per_second
        if not self.held:
            return super().run_apart(work, bytes_per_second=bytes_per_second, on_report=on_report)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting = (future, lambda: work(InlineApart(on_report)))
        return future

    def release(self) -> None:
        assert self._waiting is not None
        future, work = self._waiting
        self._waiting = None
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)

    def report(self) -> None:
        """All is written and reported, and the worker still runs."""
        assert self._waiting is not None
        self._waiting[1]()

    def fail(self, error: Exception) -> None:
        assert self._waiting is not None
        self._waiting[0].set_exception(error)
        self._waiting = None

    def stop_apart(self) -> None:
        if self._waiting is not None:
            self.stopped += 1
            self.fail(WorkStopped("stopped"))


class CompactingStage(Stage):
    offload: HeldApart

    @property
    def log(self) -> Log:
        return self.node.services.logs.logs[TopicPartition("t", 0)]

    async def create_compacted(self, **more: str) -> None:
        """Compacted as soon as there is anything to do."""
        defaults = {
            "cleanup_policy": "compact",
            "internal_segment_bytes": "200",
            "flush_messages": "1",
            "min_cleanable_dirty_ratio": "0",
        }
        await self.create(partitions=1, **(defaults | more))

    async def put(self, *pairs: tuple[str, str | None]) -> None:
        """Each in a batch of its own, and a value also in a segment of its own."""
        for key, value in pairs:
            builder = BatchBuilder()
            padding = b"" if value is None else value.encode() + b"." * 80
            builder.append(self.clock.wall_ms(), key.encode(), None if value is None else padding)
            answer = await self.client.ask(produce(builder), ProduceResponse, 12)
            assert answer.responses[0].partition_responses[0].error_code == 0

    async def begin_compaction(self) -> None:
        """A pass over all of `OVERWRITTEN` but the last has begun, and waits."""
        self.offload.held = True
        await self.create_compacted(min_compaction_lag_ms="60000")
        await self.put(*OVERWRITTEN)
        self.clock.advance(60_001)
        await until(lambda: self.offload.begun == 1)

    async def delete(self) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
        answer = await self.client.ask(request, DeleteTopicsResponse, 6)
        assert answer.responses[0].error_code == 0

    def keys(self) -> list[str]:
        return [f"{key}@{offset}" for offset, key, _ in texts(self.log)]

    async def alter(self, **configs: str) -> None:
        changes = [
            AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
            for name, value in configs.items()
        ]
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=changes)
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = await self.client.ask(request, IncrementalAlterConfigsResponse, 1)
        assert answer.responses[0].error_code == 0, answer.responses[0].error_message

    def metric(self, name: str) -> float:
        self.node.services.metrics._pages.clear()
        for line in self.node.services.metrics.page().splitlines():
            if line.startswith(name):
                return float(line.split()[-1])
        raise AssertionError(f"there is no {name}")


def produce(builder: BatchBuilder) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=bytes(builder.build()))
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[data])])


async def fetch_all(client: Client) -> list[bytes]:
    """The first byte of every value, as a consumer finds them who reads from the beginning."""
    found: list[bytes] = []
    offset = 0
    while True:
        partition = FetchPartition(partition=0, partition_max_bytes=1 << 20, fetch_offset=offset)
        topics = [FetchTopic(topic="t", partitions=[partition])]
        answer = await client.ask(FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=topics), FetchResponse, 12)
        fetched = list(batches(memoryview(answer.responses[0].partitions[0].records or b"")))
        if not fetched:
            return found
        found += [(record.value or b"")[:1] for _, data in fetched for record in iterate(data)]
        offset = fetched[-1][0].next_offset


@asynccontextmanager
async def stage(**settings: str) -> AsyncIterator[CompactingStage]:
    given = {"log_cleaner_backoff_ms": "10", **settings}
    config = NodeConfig({**CONFIG.static, **{name.replace("_", "."): value for name, value in given.items()}})
    disk, clock, network, offload = FaultyDisk(), LoopClock(), MemoryNetwork(), HeldApart()
    runtime = Runtime(clock=clock, disk=disk, network=network, random=Random(1), offload=offload)
    format_node(disk, config, FormatOptions(standalone=True), random=runtime.random, now_ms=clock.wall_ms())
    node = Node(config, runtime)
    await node.start()
    client = Client()
    await network.connect("memory", 9092, client)
    it = CompactingStage(node, client, disk, clock, network)
    it.offload = offload
    yield it
    await node.stop()


OVERWRITTEN = (("a", "1"), ("b", "1"), ("a", "2"), ("b", "2"), ("c", "1"))


async def test_a_compacted_topic_is_compacted_and_served_without_what_went() -> None:
    async with stage() as it:
        await it.create_compacted()
        await it.put(*OVERWRITTEN)
        await until(lambda: it.keys() == ["a@2", "b@3", "c@4"])
        assert await fetch_all(it.client) == [b"2", b"2", b"1"]
        await until(lambda: b"t 0 4" in it.disk.files().get("/data/cleaner-offset-checkpoint", b""))
        assert it.metric("kafka_log_logcleaner_cleanerrecopypercent") < 100
        assert it.metric("kafka_log_logcleanermanager_uncleanablepartitionscount") == 0
        assert it.metric("kafka_log_logcleanermanager_maxdirtypercent") == 0


async def test_a_record_without_a_key_is_refused() -> None:
    async with stage() as it:
        await it.create_compacted()
        builder = BatchBuilder()
        builder.append(it.clock.wall_ms(), None, b"value")
        answer = await it.client.ask(produce(builder), ProduceResponse, 12)
        assert answer.responses[0].partition_responses[0].error_code == NO_KEY


async def test_a_node_that_is_told_not_to_compacts_nothing() -> None:
    async with stage(log_cleaner_enable="false") as it:
        await it.create_compacted()
        await it.put(*OVERWRITTEN)
        await asyncio.sleep(0.1)
        assert it.offload.begun == 0
        assert len(it.keys()) == 5


async def test_a_log_waits_for_its_ratio_and_its_lag() -> None:
    async with stage() as it:
        await it.create_compacted(min_compaction_lag_ms="60000")
        await it.put(*OVERWRITTEN)
        await asyncio.sleep(0.1)
        assert len(it.keys()) == 5
        it.clock.advance(60_001)
        await until(lambda: it.keys() == ["a@2", "b@3", "c@4"])
        await it.alter(min_compaction_lag_ms="0", min_cleanable_dirty_ratio="0.9")
        await it.put(("c", "2"), ("d", "1"))
        await asyncio.sleep(0.1)
        assert it.keys() == ["a@2", "b@3", "c@4", "c@5", "d@6"]
        await it.alter(max_compaction_lag_ms="1000")
        it.clock.advance(1_001)
        await until(lambda: it.keys() == ["a@2", "b@3", "c@5", "d@6"])


async def test_a_policy_that_changes_is_obeyed() -> None:
    async with stage() as it:
        await it.create_compacted(cleanup_policy="delete")
        await it.put(*OVERWRITTEN)
        await asyncio.sleep(0.1)
        assert it.offload.begun == 0
        await it.alter(cleanup_policy="compact,delete")
        await until(lambda: it.keys() == ["a@2", "b@3", "c@4"])


async def test_tombstones_go_after_their_retention() -> None:
    async with stage() as it:
        await it.create_compacted(delete_retention_ms="5000")
        await it.put(("a", "1"), ("a", None), ("b", "1"), ("b", "2"), ("b", "3"))
        await until(lambda: it.keys() == ["a@1", "b@3", "b@4"])
        it.clock.advance(5_001)
        await it.put(("b", "4"), ("b", "5"))
        await until(lambda: it.keys() == ["b@5", "b@6"])


async def test_the_rate_is_passed_on() -> None:
    async with stage(log_cleaner_io_max_bytes_per_second="12345.5") as it:
        await it.create_compacted()
        await it.put(*OVERWRITTEN)
        await until(lambda: it.offload.begun == 1)
        assert it.offload.bytes_per_second == 12345.5


async def test_a_topic_that_is_deleted_meanwhile_stops_its_compaction() -> None:
    async with stage() as it:
        await it.begin_compaction()
        await it.delete()
        await until(lambda: it.offload.stopped == 1)
        it.offload.held = False
        await it.create_compacted()
        await it.put(*OVERWRITTEN)
        await until(lambda: it.keys() == ["a@2", "b@3", "c@4"])
        assert it.metric("kafka_log_logcleanermanager_uncleanablepartitionscount") == 0


async def test_a_policy_without_compaction_stops_it() -> None:
    async with stage() as it:
        await it.begin_compaction()
        await it.alter(cleanup_policy="delete")
        await until(lambda: it.offload.stopped == 1)
        assert len(it.keys()) == 5


async def test_a_node_that_stops_does_not_wait_for_a_compaction() -> None:
    async with stage() as it:
        await it.begin_compaction()
    assert it.offload.stopped == 1
    assert not [path for path in it.disk.files() if path.endswith((".cleaned", ".swap"))]


async def test_a_log_that_was_cut_in_the_middle_of_its_compaction_keeps_what_it_has() -> None:
    async with stage() as it:
        await it.begin_compaction()
        it.log.truncate_to(2)
        it.offload.release()
        await asyncio.sleep(0.05)
        assert it.keys() == ["a@0", "b@1"]
        assert not [path for path in it.disk.files() if path.endswith((".cleaned", ".swap"))]


async def test_a_log_that_cannot_be_read_is_left_alone_and_counted() -> None:
    async with stage() as it:
        await it.begin_compaction()
        it.disk.open("/data/t-0/00000000000000000001.log").write(100, b"\xff\xff")
        it.offload.held = False
        it.offload.release()
        await until(lambda: it.metric("kafka_log_logcleanermanager_uncleanablepartitionscount") == 1)
        assert it.metric("kafka_log_logcleanermanager_uncleanablebytes") > 0
        await asyncio.sleep(0.05)
        assert it.offload.begun == 1
        assert not it.log.offline


async def test_a_disk_that_fails_under_a_compaction_takes_its_directory_offline() -> None:
    async with stage(log_dirs="/data,/other", metadata_log_dir="/other") as it:
        await it.begin_compaction()
        log = it.log
        it.offload.fail(DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "cannot write"))
        await until(lambda: log.offline)
        assert it.node.services.logs.directories[log.directory.rpartition("/")[0]].offline


async def test_a_disk_that_fails_under_a_swap_takes_its_directory_offline_while_the_worker_still_runs() -> None:
    async with stage(log_dirs="/data,/other", metadata_log_dir="/other") as it:
        await it.begin_compaction()
        log = it.log

        def fail(operation: Operation) -> None:
            if operation.kind == "rename" and operation.path.endswith(".cleaned"):
                raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "cannot rename")

        it.disk.hook = fail
        it.offload.report()
        await until(lambda: it.node.services.logs.directories[log.directory.rpartition("/")[0]].offline)
        partition = it.node.services.replicas.partition("t", 0)
        assert partition is not None
        assert partition.failed


async def test_a_compaction_that_fails_for_no_known_reason_does_not_end_all_others() -> None:
    async with stage() as it:
        await it.begin_compaction()
        it.offload.held = False
        it.offload.fail(ValueError("nobody expected this"))
        await until(lambda: it.metric("kafka_log_logcleanermanager_uncleanablepartitionscount") == 1)
        await it.delete()
        await it.create_compacted()
        await it.put(*OVERWRITTEN)
        await until(lambda: it.keys() == ["a@2", "b@3", "c@4"])


async def test_a_topic_that_is_made_anew_is_compacted_though_its_namesake_was_not() -> None:
    async with stage() as it:
        await it.begin_compaction()
        it.offload.fail(CorruptSegment("nobody can read this"))
        await until(lambda: it.metric("kafka_log_logcleanermanager_uncleanablepartitionscount") == 1)
        # Nothing looks for work between the deletion and the new topic.
        compaction = it.node._compaction
        assert compaction is not None
        assert compaction._timer is not None
        compaction._timer.cancel()
        await it.delete()
        it.offload.held = False
        await it.create_compacted()
        await it.put(*OVERWRITTEN)
        compaction._begin()
        await until(lambda: it.keys() == ["a@2", "b@3", "c@4"])


async def test_what_a_worker_wrote_beside_a_topic_made_anew_is_removed() -> None:
    async with stage() as it:
        await it.begin_compaction()
        await it.delete()
        await it.create_compacted(min_compaction_lag_ms="60000")
        it.disk.open("/data/t-0/00000000000000000000.log.cleaned", create=True)
        await until(lambda: it.offload.stopped == 1)
        await until(lambda: not [path for path in it.disk.files() if path.endswith(".cleaned")])
