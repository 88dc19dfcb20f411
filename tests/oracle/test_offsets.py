"""kafka-get-offsets, kafka-delete-records and kafka-log-dirs: where a log begins, ends, and what it weighs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest

from .conftest import At, Node

pytestmark = pytest.mark.oracle


def offsets(at: At, topic: str, when: str, *arguments: str) -> list[str]:
    return at("kafka-get-offsets", "--topic", topic, "--time", when, *arguments).lines


def produce_at(at: At, topic: str, timestamps: list[int]) -> None:
    """One record for each timestamp, each in a batch of its own, to partition 0."""
    producer = confluent_kafka.Producer({"bootstrap.servers": at.bootstrap, "linger.ms": 0})
    for timestamp in timestamps:
        producer.produce(topic, value=b"x" * 100, partition=0, timestamp=timestamp)
        assert producer.flush(30) == 0


def test_a_log_begins_and_ends_where_its_records_do(at_node: At, topic: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic, "--partitions", "2")
    assert offsets(at_node, topic, "earliest") == [f"{topic}:0:0", f"{topic}:1:0"]
    assert offsets(at_node, topic, "latest") == [f"{topic}:0:0", f"{topic}:1:0"]
    produce_at(at_node, topic, [0] * 3)
    assert offsets(at_node, topic, "earliest") == [f"{topic}:0:0", f"{topic}:1:0"]
    assert offsets(at_node, topic, "latest") == [f"{topic}:0:3", f"{topic}:1:0"]
    assert offsets(at_node, topic, "earliest-local") == [f"{topic}:0:0", f"{topic}:1:0"]
    assert at_node("kafka-get-offsets", "--topic-partitions", f"{topic}:1-").lines == [f"{topic}:1:0"]


def test_offsets_by_time_find_the_first_record_not_older(at_node: At, topic: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic)
    now = int(time.time() * 1000)
    # Out of order on purpose: the third record is the newest.
    produce_at(at_node, topic, [now - 5000, now - 3000, now - 1000, now - 2000])
    assert offsets(at_node, topic, str(now - 9000)) == [f"{topic}:0:0"]
    assert offsets(at_node, topic, str(now - 5000)) == [f"{topic}:0:0"]
    assert offsets(at_node, topic, str(now - 4999)) == [f"{topic}:0:1"]
    assert offsets(at_node, topic, str(now - 2500)) == [f"{topic}:0:2"]
    assert offsets(at_node, topic, str(now)) == []
    assert offsets(at_node, topic, "max-timestamp") == [f"{topic}:0:2"]


def test_an_empty_log_has_no_newest_record(at_node: At, topic: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic)
    assert offsets(at_node, topic, "max-timestamp") == []


def delete_before(at: At, json_file: Callable[[str], str], topic: str, offset: int) -> list[str]:
    request = {"partitions": [{"topic": topic, "partition": 0, "offset": offset}], "version": 1}
    return at("kafka-delete-records", "--offset-json-file", json_file(json.dumps(request))).lines


def test_deleted_records_move_the_start_of_the_log(at_node: At, topic: str, json_file: Callable[[str], str]) -> None:
    at_node("kafka-topics", "--create", "--topic", topic)
    now = int(time.time() * 1000)
    produce_at(at_node, topic, [now] * 6)
    assert delete_before(at_node, json_file, topic, 4)[-1] == f"partition: {topic}-0\tlow_watermark: 4"
    assert offsets(at_node, topic, "earliest") == [f"{topic}:0:4"]
    # What lies before the start of the log is out of reach by time, too.
    assert offsets(at_node, topic, "1") == [f"{topic}:0:4"]
    # The start never moves back.
    assert delete_before(at_node, json_file, topic, 2)[-1] == f"partition: {topic}-0\tlow_watermark: 4"
    # -1 stands for the high watermark.
    assert delete_before(at_node, json_file, topic, -1)[-1] == f"partition: {topic}-0\tlow_watermark: 6"
    assert offsets(at_node, topic, "earliest") == offsets(at_node, topic, "latest") == [f"{topic}:0:6"]


def test_records_beyond_the_end_cannot_be_deleted(at_node: At, topic: str, json_file: Callable[[str], str]) -> None:
    at_node("kafka-topics", "--create", "--topic", topic)
    produce_at(at_node, topic, [0])
    answer = delete_before(at_node, json_file, topic, 99)
    assert "OffsetOutOfRangeException" in answer[-1]
    assert offsets(at_node, topic, "earliest") == [f"{topic}:0:0"]


def test_log_dirs_tell_the_size_of_every_partition(at_node: At, node: Node, topic: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic, "--partitions", "2")
    produce_at(at_node, topic, [0] * 5)
    answer = json.loads(at_node("kafka-log-dirs", "--describe", "--topic-list", topic).lines[-1])
    (broker,) = answer["brokers"]
    (log_dir,) = broker["logDirs"]
    assert broker["broker"] == 1
    assert log_dir["error"] is None
    assert Path(log_dir["logDir"]).resolve() == node.log_dir.resolve()
    sizes = {row["partition"]: row["size"] for row in log_dir["partitions"]}
    on_disk = {name: sum(file.stat().st_size for file in (node.log_dir / name).glob("*.log")) for name in sizes}
    assert sizes == on_disk
    assert sizes[f"{topic}-0"] > 500
    assert sizes[f"{topic}-1"] == 0
    assert all((row["offsetLag"], row["isFuture"]) == (0, False) for row in log_dir["partitions"])
