"""A node with three log directories, one of them cordoned: replicas move between them, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.errors import ErrorCode
from ottla.wire.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.messages.alter_replica_log_dirs_response import AlterReplicaLogDirsResponse
from ottla.wire.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse
from tests.behaviour.client import Client, Topic, eventually, values_of
from tests.behaviour.conftest import StartNode


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return [str(tmp_path_factory.mktemp(name)) for name in ("first", "second", "cordoned")]


@pytest.fixture(scope="module")
def client(start_node: StartNode, directories: list[str]) -> Iterator[Client]:
    node = start_node({"log.dirs": ",".join(directories), "cordoned.log.dirs": directories[2]})
    with Client((node.host, node.port)) as connected:
        yield connected


def alter(client: Client, path: str, topic: str, partition: int = 0, version: int = 2) -> int:
    wanted = AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[partition])])
    answer = client.call(AlterReplicaLogDirsRequest(dirs=[wanted]), AlterReplicaLogDirsResponse, version)
    ((result,),) = (each.partitions for each in answer.results)
    assert (answer.results[0].topic_name, result.partition_index) == (topic, partition)
    return result.error_code


def places(client: Client, topic: Topic) -> dict[str, bool]:
    """The directories that hold the partition, and whether it is only on its way there."""
    asked = DescribableLogDirTopic(topic=topic.name, partitions=[0])
    answer = client.call(DescribeLogDirsRequest(topics=[asked]), DescribeLogDirsResponse)
    return {
        result.log_dir: partition.is_future_key
        for result in answer.results
        for found in result.topics
        for partition in found.partitions
    }


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_moves_and_moves_back(client: Client, directories: list[str], topic: Topic, version: int) -> None:
    for number in range(10):
        client.append(topic, b"%d" % number)
    (place,) = places(client, topic)
    (other,) = {*directories[:2]} - {place}
    for target in (other, place):
        assert alter(client, target, topic.name, version=version) == 0
        eventually(lambda: places(client, topic), lambda found, target=target: found == {target: False})  # type: ignore[misc]
        assert values_of(client.fetch(topic, 0)) == [b"%d" % number for number in range(10)]
    client.append(topic, b"10")
    assert client.append(topic, b"11") == 11


def test_it_stays_where_it_is_if_it_is_there(client: Client, topic: Topic) -> None:
    (place,) = before = places(client, topic)
    assert alter(client, place, topic.name) == 0
    assert places(client, topic) == before


def test_a_directory_that_the_node_does_not_have(client: Client, topic: Topic) -> None:
    assert alter(client, "/nowhere", topic.name) == ErrorCode.LOG_DIR_NOT_FOUND
    assert alter(client, "", topic.name) == ErrorCode.LOG_DIR_NOT_FOUND


def test_a_cordoned_directory_takes_nothing(client: Client, directories: list[str], topic: Topic) -> None:
    before = places(client, topic)
    assert alter(client, directories[2], topic.name) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert places(client, topic) == before


def test_a_partition_that_does_not_exist(client: Client, directories: list[str], topic: Topic, name: str) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(client, directories[0], topic.name, partition=7) == unknown
    assert alter(client, directories[0], f"{name}-nobody") == unknown


def test_a_wish_that_comes_before_the_topic_is_remembered(client: Client, directories: list[str], name: str) -> None:
    for number, directory in enumerate(directories[:2]):
        alter(client, directory, f"{name}-{number}")
        assert places(client, client.create_topic(f"{name}-{number}")) == {directory: False}


def test_a_name_that_is_too_long_for_a_second_directory(client: Client, directories: list[str], name: str) -> None:
    topic = client.create_topic(name.ljust(230, "x"))
    assert alter(client, directories[0], topic.name) == ErrorCode.INVALID_TOPIC_EXCEPTION
