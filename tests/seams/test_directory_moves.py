"""Replicas that move from one disk of a node to another while they are written to and read (KIP-113)."""

from __future__ import annotations

import asyncio

import pytest

from ottla.errors import ErrorCode
from ottla.model import TopicPartition
from ottla.wire.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.messages.alter_replica_log_dirs_response import AlterReplicaLogDirsResponse
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.delete_topics_response import DeleteTopicsResponse
from ottla.wire.messages.describe_log_dirs_response import DescribeLogDirsPartition
from tests.log.faulty_disk import Operation
from tests.seams.test_log_dirs import Life, Station, assigned
from tests.seams.test_maintenance import until

OTHER = {"/a": "/b", "/b": "/a"}
T0 = TopicPartition("t", 0)
THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"


async def alter(it: Life, path: str, topic: str = "t", index: int = 0) -> int:
    wanted = AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[index])])
    answer = await it.client.ask(AlterReplicaLogDirsRequest(dirs=[wanted]), AlterReplicaLogDirsResponse, 2)
    (result,) = answer.results
    ((partition),) = result.partitions
    assert (result.topic_name, partition.partition_index) == (topic, index)
    return partition.error_code


async def described(it: Life) -> dict[str, list[DescribeLogDirsPartition]]:
    """What each directory says of its partitions of "t"."""
    return {
        path: [partition for topic in result.topics if topic.name == "t" for partition in topic.partitions]
        for path, result in (await it.describe()).items()
    }


async def filled(it: Life, records: int = 20, size: int = 1_000) -> str:
    """A topic with records in it; where its partition is."""
    await it.create("t", 1)
    for number in range(records):
        assert await it.produce("t", 0, b"%03d" % number + bytes(size)) == 0
    return it.places()[T0]


async def read(it: Life) -> list[int]:
    return [int(value[:3]) for value in await it.fetch("t", 0) if value is not None]


async def test_a_replica_moves_and_takes_everything_along() -> None:
    station = Station()
    async with station.running() as it:
        place = await filled(it)
        assert await alter(it, OTHER[place]) == 0
        await until(lambda: it.places()[T0] == OTHER[place])
        assert it.node.services.logs.futures == {}
        assert await read(it) == list(range(20))
        assert await it.produce("t", 0, b"020") == 0
        assert await read(it) == list(range(21))
        assert assigned(it, "t") == {0: OTHER[place]}
        ((only,),) = [found for found in (await described(it)).values() if found]
        assert (only.is_future_key, only.offset_lag) == (False, 0)
    async with station.running() as it:
        assert it.places()[T0] == OTHER[place]
        assert await read(it) == list(range(21))


async def test_it_moves_there_and_back() -> None:
    async with Station().running() as it:
        place = await filled(it)
        for target in (OTHER[place], place, OTHER[place]):
            assert await alter(it, target) == 0
            await until(lambda target=target: it.places()[T0] == target)  # type: ignore[misc]
            assert assigned(it, "t") == {0: target}
        assert await read(it) == list(range(20))


async def test_the_metadata_has_it_before_the_copy_takes_over() -> None:
    """At the moment in which the log changes its place, the controller has been told."""
    station = Station()
    async with station.running() as it:
        place = await filled(it)
        seen: list[dict[int, str]] = []

        def watch(operation: Operation) -> None:
            if operation.kind == "rename" and operation.path == f"{place}/{T0}":
                seen.append(assigned(it, "t"))

        station.disk.hook = watch
        assert await alter(it, OTHER[place]) == 0
        await until(lambda: it.places()[T0] == OTHER[place])
        assert seen == [{0: OTHER[place]}]


async def test_a_move_under_way_is_described_and_goes_on_after_a_restart() -> None:
    station = Station(**{THROTTLE: "0"})
    async with station.running() as it:
        place = await filled(it)
        # The first piece passes, since nothing was counted before it; the rest would wait for ever.
        assert await alter(it, OTHER[place]) == 0
        for number in range(20, 30):
            assert await it.produce("t", 0, b"%03d" % number) == 0
        found = await described(it)
        ((current,), (future,)) = (found[place], found[OTHER[place]])
        assert (current.is_future_key, current.offset_lag) == (False, 0)
        assert future.is_future_key
        assert future.offset_lag == 30 - it.node.services.logs.futures[T0].log_end_offset > 0
        assert await alter(it, OTHER[place]) == 0  # Said twice, it is one move.
    station.config = type(station.config)({**station.config.static, THROTTLE: "100000000"})
    async with station.running() as it:
        await until(lambda: it.places()[T0] == OTHER[place])
        assert await read(it) == list(range(30))


async def test_a_move_is_called_back() -> None:
    station = Station(**{THROTTLE: "0"})
    async with station.running() as it:
        place = await filled(it)
        assert await alter(it, OTHER[place]) == 0
        assert await it.produce("t", 0, b"020") == 0
        assert T0 in it.node.services.logs.futures
        assert await alter(it, place) == 0
        assert it.node.services.logs.futures == {}
        found = await described(it)
        assert (len(found[place]), len(found[OTHER[place]])) == (1, 0)
        await until(lambda: assigned(it, "t") == {0: place})
        assert await read(it) == list(range(21))


async def test_with_its_topic_a_move_ends() -> None:
    async with Station(**{THROTTLE: "0"}).running() as it:
        place = await filled(it)
        assert await alter(it, OTHER[place]) == 0
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
        answer = await it.client.ask(request, DeleteTopicsResponse, 6)
        assert answer.responses[0].error_code == 0
        await until(lambda: T0 not in it.places())
        assert it.node.services.logs.futures == {}
        await it.create("t", 1)
        assert await it.produce("t", 0, b"000") == 0


async def test_records_that_come_during_a_move_are_in_the_copy_too() -> None:
    async with Station(**{"log.segment.bytes": "1048576"}).running() as it:
        place = await filled(it, records=5, size=900_000)
        assert await alter(it, OTHER[place]) == 0
        number = 5
        while it.places()[T0] == place:
            assert await it.produce("t", 0, b"%03d" % number) == 0
            number += 1
            assert number < 900
            await asyncio.sleep(0.01)
        hosted = it.node.services.replicas.partition("t", 0)
        assert hosted is not None
        assert hosted.log.log_end_offset == number
        assert await it.produce("t", 0, b"%03d" % number) == 0


@pytest.mark.parametrize("flush_messages", ["1", "1000"])
async def test_what_was_acknowledged_as_flushed_is_flushed_in_the_copy(flush_messages: str) -> None:
    station = Station(**{"log.flush.interval.messages": flush_messages})
    async with station.running() as it:
        place = await filled(it)
        assert await alter(it, OTHER[place]) == 0
        await until(lambda: it.places()[T0] == OTHER[place])
        hosted = it.node.services.replicas.partition("t", 0)
        assert hosted is not None
        assert hosted.log.recovery_point == hosted.durable_offset == 20
        assert await it.produce("t", 0, b"020") == 0


async def test_a_target_that_fails_leaves_the_replica_where_it_is() -> None:
    station = Station(**{"metadata.log.dir": "/a"})
    async with station.running() as it:
        await it.create("t", 2)
        (index,) = [partition.partition for partition, place in it.places().items() if place == "/a"]
        assert await it.produce("t", index, b"000") == 0
        station.break_directory("/b")
        assert await alter(it, "/b", index=index) in (0, ErrorCode.KAFKA_STORAGE_ERROR)
        await until(lambda: it.node.services.logs.directories["/b"].offline)
        assert it.node.services.logs.futures == {}
        assert await it.produce("t", index, b"001") == 0
        assert it.places()[TopicPartition("t", index)] == "/a"
        assert await alter(it, "/b", index=index) == ErrorCode.KAFKA_STORAGE_ERROR
        station.disk.hook = None


async def test_what_is_refused() -> None:
    async with Station(**{"cordoned.log.dirs": "/b"}).running() as it:
        await it.create("t", 1)
        assert await alter(it, "/nowhere") == ErrorCode.LOG_DIR_NOT_FOUND
        assert await alter(it, "/a/../a") == ErrorCode.LOG_DIR_NOT_FOUND
        assert await alter(it, "/a", topic="nobody") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await alter(it, "/a", index=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await alter(it, "/b") == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await alter(it, "/a", topic="x" * 240) == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_wish_that_comes_before_the_partition_is_remembered() -> None:
    async with Station().running() as it:
        for index, path in enumerate(("/b", "/b", "/b")):
            assert await alter(it, path, index=index) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await it.create("t", 3)
        assert it.held() == {"/a": 0, "/b": 3}
