"""A node with two disks: where its partitions go, what a restart finds, and what is left when one of the two fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ottla.broker.control.format import FormatOptions, format_node
from ottla.broker.control.lifecycle import BrokerLifecycle
from ottla.broker.node import Node
from ottla.broker.publisher import AT_ONCE_MAX
from ottla.config.node import NodeConfig
from ottla.errors import ErrorCode
from ottla.metadata.images import LEADER_RECOVERING
from ottla.model import TopicPartition
from ottla.records import batches, iterate
from ottla.runtime import DiskError
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest
from ottla.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse, DescribeLogDirsResult
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
from tests.log.faulty_disk import FaultyDisk, Operation
from tests.seams.surroundings import LoopClock, MemoryNetwork, memory_runtime
from tests.seams.test_maintenance import until
from tests.seams.test_node_in_memory import CONFIG, Client, batch

BROKER = 4


class Station:
    """A node on two disks, which can be stopped and started again, and a client of it."""

    def __init__(self, **settings: str) -> None:
        self.config = NodeConfig({**CONFIG.static, "log.dirs": "/a,/b", **settings})
        self.disk = FaultyDisk()
        self.clock = LoopClock()
        self._lives = 1
        format_node(
            self.disk,
            self.config,
            FormatOptions(standalone=True),
            random=memory_runtime(self.disk, self.clock, MemoryNetwork()).random,
            now_ms=self.clock.wall_ms(),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Life]:
        network = MemoryNetwork()
        self._lives += 1  # Each has other dice, and so another incarnation id.
        node = Node(self.config, memory_runtime(self.disk, self.clock, network, seed=self._lives))
        await node.start()
        client = Client()
        await network.connect("memory", 9092, client)
        yield Life(node, client)
        await node.stop()

    def break_directory(self, path: str) -> None:
        def refuse(operation: Operation) -> None:
            if operation.kind in ("write", "sync") and operation.path.startswith(f"{path}/"):
                raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is broken")

        self.disk.hook = refuse


class Life:
    def __init__(self, node: Node, client: Client) -> None:
        self.node = node
        self.client = client

    async def create(self, name: str, partitions: int) -> None:
        topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)]
        answer = await self.client.ask(CreateTopicsRequest(topics=topics), CreateTopicsResponse, 7)
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message

    async def produce(self, topic: str, index: int, value: bytes) -> int:
        data = PartitionProduceData(index=index, records=batch(value))
        topics = [TopicProduceData(name=topic, partition_data=[data])]
        request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)
        answer = await self.client.ask(request, ProduceResponse, 12)
        return answer.responses[0].partition_responses[0].error_code

    async def fetch(self, topic: str, index: int) -> list[bytes | None]:
        partition = FetchPartition(partition=index, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic=topic, partitions=[partition])]
        )
        answer = await self.client.ask(request, FetchResponse, 12)
        found = answer.responses[0].partitions[0]
        assert found.error_code == 0
        return [record.value for _, data in batches(memoryview(found.records or b"")) for record in iterate(data)]

    async def describe(self) -> dict[str, DescribeLogDirsResult]:
        answer = await self.client.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, 5)
        return {result.log_dir: result for result in answer.results}

    def places(self) -> dict[TopicPartition, str]:
        logs = self.node.services.logs.logs
        return {partition: log.directory.rpartition("/")[0] for partition, log in logs.items()}

    def held(self) -> dict[str, int]:
        """How many logs each directory holds."""
        places = list(self.places().values())
        return {path: places.count(path) for path in ("/a", "/b")}


async def test_new_partitions_go_where_the_fewest_are() -> None:
    async with Station().running() as it:
        await it.create("first", 5)
        assert sorted(it.held().values()) == [2, 3]
        await it.create("second", 3)
        assert it.held() == {"/a": 4, "/b": 4}


async def test_a_restart_finds_every_log_where_it_was() -> None:
    station = Station()
    async with station.running() as it:
        await it.create("t", 4)
        for index in range(4):
            assert await it.produce("t", index, b"in %d" % index) == 0
        before = it.places()
    async with station.running() as it:
        assert it.places() == before
        for index in range(4):
            assert await it.fetch("t", index) == [b"in %d" % index]
        described = await it.describe()
        for path in ("/a", "/b"):
            names = {TopicPartition(t.name, p.partition_index) for t in described[path].topics for p in t.partitions}
            assert names == {partition for partition, place in before.items() if place == path}


async def test_a_node_that_stopped_in_order_proves_it_and_one_that_was_killed_cannot() -> None:
    """KIP-966: the proof is the epoch that its clean shutdown left. Without it the node leads what only it has as one
    that may have lost records."""

    def recovering(life: Life) -> bool:
        partition = life.node.services.image.partition("t", 0)
        assert partition is not None
        assert partition.leader == station.config.node_id
        return partition.leader_recovery_state == LEADER_RECOVERING

    station = Station()
    async with station.running() as it:
        await it.create("t", 1)
        assert await it.produce("t", 0, b"kept") == 0
    async with station.running() as it:
        assert not recovering(it)
        as_killed = station.disk.copy()
    station.disk = as_killed
    station.clock.advance(60_000)  # Its session is over.
    async with station.running() as it:
        assert recovering(it)


async def test_one_failing_disk_takes_its_own_partitions_and_no_others() -> None:
    station = Station(**{"metadata.log.dir": "/a"})
    async with station.running() as it:
        stopped: list[bool] = []
        it.node.on_fatal = lambda: stopped.append(True)
        await it.create("t", 4)
        for index in range(4):
            assert await it.produce("t", index, b"before") == 0
        places = it.places()
        lost = [partition.partition for partition, place in places.items() if place == "/b"]
        kept = [partition.partition for partition, place in places.items() if place == "/a"]
        assert len(lost) == len(kept) == 2
        station.break_directory("/b")
        assert await it.produce("t", lost[0], b"nowhere") == ErrorCode.KAFKA_STORAGE_ERROR
        # Nobody has touched the other one on that disk, and it is gone all the same.
        assert await it.produce("t", lost[1], b"nowhere") == ErrorCode.KAFKA_STORAGE_ERROR
        for index in kept:
            assert await it.produce("t", index, b"after") == 0
            assert await it.fetch("t", index) == [b"before", b"after"]
        described = await it.describe()
        assert described["/b"].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert described["/b"].topics == []
        assert described["/a"].error_code == 0
        await it.create("later", 2)
        assert {it.places()[TopicPartition("later", index)] for index in range(2)} == {"/a"}
        assert not stopped
    station.disk.hook = None
    async with station.running() as it:
        assert it.places() | places == it.places()
        for index in kept:
            assert await it.fetch("t", index) == [b"before", b"after"]
        for index in lost:
            assert await it.fetch("t", index) == [b"before"]


async def test_a_disk_that_fails_while_its_logs_are_loaded_is_offline_for_all() -> None:
    station = Station(**{"metadata.log.dir": "/a"})
    async with station.running() as it:
        await it.create("t", 4)
        for index in range(4):
            assert await it.produce("t", index, b"before") == 0
        places = it.places()
        lost = [partition.partition for partition, place in places.items() if place == "/b"]

    list_directory = station.disk.list

    def unreadable(path: str) -> list[str]:
        if path == "/b":
            raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "/b is broken")
        return list_directory(path)

    station.disk.list = unreadable  # type: ignore[method-assign]
    async with station.running() as it:
        assert it.node.services.logs.previous_broker_epoch == -1

        def is_told() -> bool:
            (broker,) = it.node.services.image.cluster.brokers.values()
            return len(broker.log_dirs) == 1

        await until(is_told)
        image = it.node.services.image
        topic = image.topic("t")
        assert topic is not None
        for index in range(4):
            # No empty log elsewhere passes for what is on the broken disk.
            assert (TopicPartition("t", index) in it.places()) == (index not in lost)
            assert topic.partitions[index].leader == (-1 if index in lost else 1)
            if index not in lost:
                assert await it.fetch("t", index) == [b"before"]
    station.disk.list = list_directory  # type: ignore[method-assign]
    async with station.running() as it:
        assert it.places() == places
        for index in range(4):
            assert await it.fetch("t", index) == [b"before"]


async def test_a_disk_that_takes_no_new_log_goes_offline() -> None:
    station = Station(**{"metadata.log.dir": "/a"})
    async with station.running() as it:
        station.break_directory("/b")
        await it.create("t", 2)

        def is_told() -> bool:
            (broker,) = it.node.services.image.cluster.brokers.values()
            return len(broker.log_dirs) == 1

        await until(is_told)
        assert it.held() == {"/a": 1, "/b": 0}
        assert (await it.describe())["/b"].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    station.disk.hook = None


async def test_with_the_metadata_s_disk_the_node_stops() -> None:
    station = Station(**{"metadata.log.dir": "/a"})
    async with station.running() as it:
        stopped: list[bool] = []
        it.node.on_fatal = lambda: stopped.append(True)
        await it.create("t", 2)
        (index,) = [partition.partition for partition, place in it.places().items() if place == "/a"]
        station.break_directory("/a")
        assert await it.produce("t", index, b"nowhere") == ErrorCode.KAFKA_STORAGE_ERROR
        assert stopped == [True]
        station.disk.hook = None


async def test_a_cordoned_directory_gets_no_new_partitions() -> None:
    async with Station(**{"cordoned.log.dirs": "/a"}).running() as it:
        await it.create("t", 3)
        assert it.held() == {"/a": 0, "/b": 3}
        described = await it.describe()
        assert (described["/a"].is_cordoned, described["/b"].is_cordoned) == (True, False)
        change = AlterableConfig(name="cordoned.log.dirs", config_operation=0, value="/b")
        resource = AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        altered = await it.client.ask(request, IncrementalAlterConfigsResponse, 1)
        assert altered.responses[0].error_code == 0, altered.responses[0].error_message
        await it.create("u", 5)
        assert it.held() == {"/a": 5, "/b": 3}


async def test_where_all_are_cordoned_the_first_takes_what_must_go_somewhere() -> None:
    async with Station(**{"cordoned.log.dirs": "*"}).running() as it:
        await it.create("t", 2)
        assert it.held() == {"/a": 2, "/b": 0}


async def test_topics_keep_away_from_a_directory_that_is_for_metadata_alone() -> None:
    station = Station(**{"metadata.log.dir": "/metadata"})
    async with station.running() as it:
        await it.create("t", 4)
        assert it.held() == {"/a": 2, "/b": 2}
        assert set(await it.describe()) == {"/a", "/b"}
        assert "/metadata/__cluster_metadata-0" in {path.rpartition("/")[0] for path in station.disk.files()}


def assigned(it: Life, topic: str) -> dict[int, str]:
    """Where the metadata says that each partition is."""
    services = it.node.services
    paths = {
        found.properties.directory_id: path
        for path, found in services.logs.directories.items()
        if found.properties is not None
    }
    image = services.image.topic(topic)
    assert image is not None
    return {index: paths.get(partition.directory_of(1), "?") for index, partition in image.partitions.items()}


async def test_the_metadata_learns_which_partition_is_on_which_disk() -> None:
    station = Station()
    async with station.running() as it:
        await it.create("t", 4)
        really = {partition.partition: place for partition, place in it.places().items()}
        await until(lambda: assigned(it, "t") == really)
    async with station.running() as it:
        assert assigned(it, "t") == really


async def test_the_metadata_learns_of_logs_that_were_made_after_it_came() -> None:
    """A topic of very many partitions has its logs made bit by bit: each is told of when it has a place."""
    async with Station().running() as it:
        await it.create("large", AT_ONCE_MAX + 6)
        await until(lambda: len(it.places()) == AT_ONCE_MAX + 6)
        really = {partition.partition: place for partition, place in it.places().items()}
        await until(lambda: assigned(it, "large") == really)


async def test_a_node_is_not_unfenced_before_its_logs_are_made() -> None:
    """What it makes anew may be what it has lost, which the controller is to know before it elects anybody."""
    station = Station(**{"metadata.log.dir": "/a"})
    count = 2 * (AT_ONCE_MAX + 6)
    async with station.running() as it:
        await it.create("large", count)
        await until(lambda: len(it.places()) == count)
    for name in [name for name in station.disk.list("/b") if name.startswith("large-")]:
        station.disk.remove_tree(f"/b/{name}")
    node = Node(station.config, memory_runtime(station.disk, station.clock, MemoryNetwork(), seed=7))
    made: list[int] = []
    unfence = BrokerLifecycle.unfence

    async def unfence_watched(lifecycle: BrokerLifecycle) -> None:
        made.append(len(node.services.replicas.by_name["large"].partitions))
        await unfence(lifecycle)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(BrokerLifecycle, "unfence", unfence_watched)
        await node.start()
    assert made == [count]
    await node.stop()


async def test_only_the_partitions_on_a_failed_disk_lose_their_leader() -> None:
    station = Station(**{"metadata.log.dir": "/a"})
    async with station.running() as it:
        await it.create("t", 4)
        await until(lambda: "?" not in assigned(it, "t").values())
        lost = [partition.partition for partition, place in it.places().items() if place == "/b"]
        station.break_directory("/b")
        assert await it.produce("t", lost[0], b"nowhere") == ErrorCode.KAFKA_STORAGE_ERROR

        def leaders() -> dict[int, int]:
            image = it.node.services.image.topic("t")
            assert image is not None
            return {index: partition.leader for index, partition in image.partitions.items()}

        await until(lambda: leaders() == {index: -1 if index in lost else 1 for index in range(4)})
        station.disk.hook = None
