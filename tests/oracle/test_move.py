"""A node's directory moves to Apache Kafka and back: files, metadata log and identity are Kafka's own, both ways."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from .apache_kafka import ApacheKafka, KafkaTools
from .conftest import At, StartNode

pytestmark = pytest.mark.oracle

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def type_in(at: At, codec: str, values: list[str]) -> None:
    at("kafka-console-producer", "--topic", "moving", "--compression-codec", codec, stdin="\n".join(values) + "\n")


def read_all(at: At, count: int) -> list[str]:
    place = ["--topic", "moving", "--partition", "0", "--offset", "earliest"]
    read = at("kafka-console-consumer", *place, "--max-messages", str(count), "--timeout-ms", "10000")
    return read.out.splitlines()


def identity(at: At) -> tuple[str, str]:
    described = at("kafka-topics", "--describe", "--topic", "moving").out
    topic_id = re.search(r"TopicId: (\S+)", described)
    assert topic_id
    assert "segment.bytes=1048576" in described
    return at("kafka-cluster", "cluster-id").out, topic_id[1]


def test_a_directory_moves_to_apache_kafka_and_back(start_node: StartNode, tools: KafkaTools, tmp_path: Path) -> None:
    first = start_node("before", {})
    at = At(tools, first.bootstrap)
    at("kafka-topics", "--create", "--topic", "moving", "--config", "segment.bytes=1048576")
    written: list[str] = []
    for codec in CODECS:
        values = [f"first {codec} {number} " + "x" * 900 for number in range(500)]
        type_in(at, codec, values)
        written += values
    known_as = identity(at)
    first.stop()

    taken = ApacheKafka(tmp_path / "taken", heap=("-Xmx512M",))
    shutil.copytree(first.log_dir, taken.data)
    taken.spawn()
    try:
        taken.wait_ready()
        at = At(tools, taken.bootstrap)
        assert identity(at) == known_as
        assert read_all(at, len(written)) == written
        values = [f"second {number}" for number in range(100)]
        type_in(at, "none", values)
        written += values
        at("kafka-topics", "--create", "--topic", "made-by-kafka", "--partitions", "3")
    finally:
        taken.stop()
    assert "ERROR" not in taken.log_file.read_text()

    back = start_node("after", {}, log_dir=taken.data)
    at = At(tools, back.bootstrap)
    assert identity(at) == known_as
    assert read_all(at, len(written)) == written
    assert at("kafka-topics", "--list").lines == ["made-by-kafka", "moving"]
    type_in(at, "none", ["third"])
    assert read_all(at, len(written) + 1)[-1] == "third"
    back.stop()
