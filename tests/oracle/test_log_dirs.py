"""Apache Kafka's tools move replicas between the two disks of a node."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from .apache_kafka import KafkaTools
from .conftest import At, StartNode

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return [str(tmp_path_factory.mktemp(name)) for name in ("one", "two")]


@pytest.fixture(scope="module")
def at(tools: KafkaTools, start_node: StartNode, directories: list[str]) -> At:
    return At(tools, start_node("two-disks", {"log.dirs": ",".join(directories)}).bootstrap)


def place(at: At, topic: str) -> str:
    """The directory of the topic's only partition, by kafka-log-dirs."""
    told = at("kafka-log-dirs", "--describe", "--topic-list", topic).lines
    (broker,) = json.loads(next(line for line in told if line.startswith("{")))["brokers"]
    (found,) = [each["logDir"] for each in broker["logDirs"] if each["partitions"]]
    assert isinstance(found, str)
    return found


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, f"no sign of {what}"


def test_a_partition_moves_to_the_other_disk(
    at: At, directories: list[str], topic: str, json_file: Callable[[str], str]
) -> None:
    at("kafka-topics", "--create", "--topic", topic, "--partitions", "1")
    at("kafka-console-producer", "--topic", topic, stdin="".join(f"line {number}\n" for number in range(50)))
    (target,) = {*directories} - {place(at, topic)}
    partition = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [target]}
    plan = ["--reassignment-json-file", json_file(json.dumps({"version": 1, "partitions": [partition]}))]
    done = at("kafka-reassign-partitions", "--execute", *plan, "--replica-alter-log-dirs-throttle", "10000000").out
    assert f"Successfully started moving log directory to {target} for replica {topic}-0 with broker 1" in done
    moved = f"Reassignment of replica {topic}-0-1 completed successfully."
    until(lambda: moved in at("kafka-reassign-partitions", "--verify", *plan).out, "the move's end")
    assert place(at, topic) == target
    read = at("kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "50")
    assert read.lines == [f"line {number}" for number in range(50)]
