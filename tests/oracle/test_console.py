"""The console producer and consumer: what is typed on one side comes out on the other, by assignment."""

from __future__ import annotations

import re

import pytest

from .conftest import At

pytestmark = pytest.mark.oracle

_SHOW_ALL = [
    part
    for name in ("key", "headers", "timestamp", "offset", "partition")
    for part in ("--formatter-property", f"print.{name}=true")
]


def consume(at: At, topic: str, count: int, *arguments: str, offset: str = "earliest", partition: int = 0) -> list[str]:
    """Read exactly `count` records of one partition."""
    place = ["--topic", topic, "--partition", str(partition), "--offset", offset]
    limits = ["--max-messages", str(count), "--timeout-ms", "10000"]
    consumed = at("kafka-console-consumer", *place, *limits, *arguments)
    assert f"Processed a total of {count} messages" in consumed.err, consumed.err
    return consumed.out.splitlines()


def test_lines_come_back_in_order(at_node: At, topic: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic)
    lines = [f"line {number}" for number in range(500)]
    at_node("kafka-console-producer", "--topic", topic, stdin="\n".join(lines) + "\n")
    assert consume(at_node, topic, 500) == lines
    assert consume(at_node, topic, 100, offset="400") == lines[400:]


def test_keys_headers_and_nulls_survive(at_node: At, topic: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic)
    reader = ["parse.key=true", "parse.headers=true", "null.marker=NULL"]
    properties = [part for setting in reader for part in ("--reader-property", setting)]
    typed = "h1:v1,h2:v2\tk1\tvalue one\nh1:x\tk2\tNULL\nNULL\tNULL\tdrei\n"
    at_node("kafka-console-producer", "--topic", topic, *properties, stdin=typed)
    rows = [line.split("\t") for line in consume(at_node, topic, 3, *_SHOW_ALL)]
    assert all(re.fullmatch(r"CreateTime:\d{13}", row[0]) for row in rows)
    assert [row[1:] for row in rows] == [
        ["Partition:0", "Offset:0", "h1:v1,h2:v2", "k1", "value one"],
        ["Partition:0", "Offset:1", "h1:x", "k2", "null"],
        ["Partition:0", "Offset:2", "NO_HEADERS", "null", "drei"],
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_stored_and_served(at_node: At, topic: str, codec: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic)
    lines = [f"{codec} {number} " + "ab" * 50 for number in range(200)]
    at_node("kafka-console-producer", "--topic", topic, "--compression-codec", codec, stdin="\n".join(lines) + "\n")
    assert consume(at_node, topic, 200) == lines


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_topic_may_recompress_what_it_is_sent(at_node: At, topic: str, codec: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic, "--config", f"compression.type={codec}")
    lines = [f"{codec} {number} " + "ab" * 50 for number in range(200)]
    for sent in ("none", "gzip"):
        at_node("kafka-console-producer", "--topic", topic, "--compression-codec", sent, stdin="\n".join(lines) + "\n")
    assert consume(at_node, topic, 400) == lines + lines


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_level_of_acknowledgement_works(at_node: At, topic: str, acks: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic)
    settings = ["--command-property", "enable.idempotence=false", "--request-required-acks", acks]
    at_node("kafka-console-producer", "--topic", topic, *settings, stdin="a\nb\nc\n")
    assert consume(at_node, topic, 3) == ["a", "b", "c"]


def test_append_time_replaces_the_clients_time(at_node: At, topic: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic, "--config", "message.timestamp.type=LogAppendTime")
    at_node("kafka-console-producer", "--topic", topic, stdin="now\n")
    (line,) = consume(at_node, topic, 1, *_SHOW_ALL)
    assert re.match(r"LogAppendTime:\d{13}\t", line)


def test_committed_reads_see_plain_records(at_node: At, topic: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic)
    at_node("kafka-console-producer", "--topic", topic, stdin="a\nb\n")
    assert consume(at_node, topic, 2, "--isolation-level", "read_committed") == ["a", "b"]


def test_a_record_too_large_for_its_topic_is_refused(at_node: At, topic: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic, "--config", "max.message.bytes=1000")
    refused = at_node.run("kafka-console-producer", "--topic", topic, stdin="x" * 5000 + "\n")
    assert "RecordTooLargeException" in refused.printed
    at_node("kafka-console-producer", "--topic", topic, stdin="short\n")
    assert consume(at_node, topic, 1) == ["short"]


def test_a_compacted_topic_refuses_records_without_a_key(at_node: At, topic: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic, "--config", "cleanup.policy=compact")
    refused = at_node.run("kafka-console-producer", "--topic", topic, stdin="keyless\n")
    assert "InvalidRecordException" in refused.printed
    assert at_node("kafka-get-offsets", "--topic", topic).lines == [f"{topic}:0:0"]


def test_a_topic_is_created_on_first_use(at_node: At, topic: str) -> None:
    at_node("kafka-console-producer", "--topic", topic, stdin="first\n")
    assert consume(at_node, topic, 1) == ["first"]
