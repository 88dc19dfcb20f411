"""kafka-consumer-groups lists, describes, resets and deletes; Kafka's formatters read what groups have written."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

import confluent_kafka
import pytest

from .apache_kafka import KafkaTools, ToolResult
from .conftest import At, Node, StartNode

pytestmark = pytest.mark.oracle

RECORDS = 10
"""In each partition."""
FIRST_HOUR = datetime(2025, 3, 1, tzinfo=UTC)
"""Record n is of n hours later."""


class Message(TypedDict):
    version: int
    data: dict[str, object]


class Printed(TypedDict):
    """A record as Kafka's formatters print it."""

    key: Message
    value: Message | None


@pytest.fixture
def group() -> str:
    """A group id that no other test uses."""
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def filled(at_node: At, topic: str) -> str:
    """A topic of two partitions with records of ten hours."""
    at_node("kafka-topics", "--create", "--topic", topic, "--partitions", "2")
    producer = confluent_kafka.Producer({"bootstrap.servers": at_node.bootstrap})
    began_ms = int(FIRST_HOUR.timestamp() * 1000)
    for partition in range(2):
        for hour in range(RECORDS):
            producer.produce(topic, value=b"x", partition=partition, timestamp=began_ms + hour * 3_600_000)
    assert producer.flush(30) == 0
    return topic


def groups(at: At, *arguments: str) -> ToolResult:
    return at("kafka-consumer-groups", *arguments)


def commit(at: At, group: str, topic: str, *offsets: int, metadata: str = "") -> None:
    """As a consumer that assigns its partitions itself; one offset for each partition from 0 on."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": at.bootstrap, "group.id": group})
    places = [
        confluent_kafka.TopicPartition(topic, partition, offset, metadata) for partition, offset in enumerate(offsets)
    ]
    deadline = time.monotonic() + 60
    while True:
        try:
            consumer.commit(offsets=places, asynchronous=False)
            break
        except confluent_kafka.KafkaException as error:
            # The coordinator's topic may be a moment old.
            if error.args[0].code() != confluent_kafka.KafkaError.NOT_COORDINATOR or time.monotonic() > deadline:
                raise
    consumer.close()


@contextmanager
def joined(at: At, group: str, topic: str, protocol: str) -> Iterator[confluent_kafka.Consumer]:
    """A member with an assignment, which has committed 4 for each partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": at.bootstrap,
            "group.id": group,
            "client.id": "teller",
            "group.protocol": protocol,
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + 60
    while len(consumer.assignment()) < 2:
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    consumer.commit(
        offsets=[confluent_kafka.TopicPartition(topic, partition, 4) for partition in range(2)], asynchronous=False
    )
    try:
        yield consumer
    finally:
        consumer.close()


def table(result: ToolResult) -> list[dict[str, str]]:
    """The rows of what a tool printed as a table, by column."""
    rows = [re.split(r"\s{2,}|(?<=\S)\s+(?=\S)", line.strip()) for line in result.out.splitlines() if line.strip()]
    heads = [number for number, row in enumerate(rows) if row[0] == "GROUP"]
    assert heads, result.printed
    head = rows[heads[0]]
    return [dict(zip(head, row, strict=False)) for row in rows[heads[0] + 1 :]]


def committed(at: At, group: str) -> dict[tuple[str, int], str]:
    rows = table(groups(at, "--describe", "--offsets", "--group", group))
    return {(row["TOPIC"], int(row["PARTITION"])): row["CURRENT-OFFSET"] for row in rows}


# Lists and descriptions.


def test_groups_are_listed_by_state_and_by_type(at_node: At, filled: str, group: str) -> None:
    commit(at_node, group, filled, 3, 4)
    assert group in groups(at_node, "--list").out.splitlines()
    by_state = {row["GROUP"]: row["STATE"] for row in table(groups(at_node, "--list", "--state"))}
    assert by_state[group] == "Empty"
    assert group in groups(at_node, "--list", "--state", "Empty").out
    assert group not in groups(at_node, "--list", "--state", "Stable").out
    by_type = {row["GROUP"]: row["TYPE"] for row in table(groups(at_node, "--list", "--type"))}
    assert by_type[group] == "Classic"
    assert group not in groups(at_node, "--list", "--type", "consumer").out


def test_offsets_are_described_with_their_lag(at_node: At, filled: str, group: str) -> None:
    commit(at_node, group, filled, 3, 10)
    rows = table(groups(at_node, "--describe", "--group", group))
    assert {
        (row["TOPIC"], row["PARTITION"]): (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in rows
    } == {(filled, "0"): ("3", "10", "7"), (filled, "1"): ("10", "10", "0")}
    assert {row["CONSUMER-ID"] for row in rows} == {"-"}
    answer = groups(at_node, "--describe", "--group", group)
    assert f"Consumer group '{group}' has no active members." in answer.printed


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_are_described(at_node: At, filled: str, group: str, protocol: str) -> None:
    with joined(at_node, group, filled, protocol):
        rows = table(groups(at_node, "--describe", "--group", group))
        assert {(row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) for row in rows} == {
            ("0", "4", "6"),
            ("1", "4", "6"),
        }
        assert {row["CLIENT-ID"] for row in rows} == {"teller"}
        assert {row["HOST"] for row in rows} == {"/127.0.0.1"}
        (member,) = table(groups(at_node, "--describe", "--members", "--group", group))
        assert (member["CLIENT-ID"], member["#PARTITIONS"]) == ("teller", "2")
        verbose = groups(at_node, "--describe", "--members", "--verbose", "--group", group).out
        assert f"{filled}:0,1" in verbose
        (state,) = table(groups(at_node, "--describe", "--state", "--group", group))
        assert "Stable" in state.values()
        assert "1" in state.values()
        deleted = at_node.run("kafka-consumer-groups", "--delete", "--group", group)
        assert "GroupNotEmptyException" in deleted.printed
        # Nobody moves the offsets of a group under its members.
        reset = ("--reset-offsets", "--group", group, "--topic", filled, "--to-earliest", "--execute")
        refused = at_node.run("kafka-consumer-groups", *reset)
        assert "current state is Stable" in refused.printed
    (state,) = table(groups(at_node, "--describe", "--state", "--group", group))
    assert "Empty" in state.values()


def test_all_groups_are_described(at_node: At, filled: str, group: str) -> None:
    commit(at_node, group, filled, 3)
    answer = groups(at_node, "--describe", "--all-groups", "--state")
    assert group in answer.out


def test_a_group_that_is_not_there_is_an_error(at_node: At, group: str) -> None:
    groups(at_node, "--list")
    answer = at_node.run("kafka-consumer-groups", "--describe", "--group", group)
    assert f"GroupIdNotFoundException: Group {group} not found." in answer.printed


# Resets, by every scenario.

SCENARIOS = {
    ("--to-earliest",): (0, 0),
    ("--to-latest",): (10, 10),
    ("--to-offset", "7"): (7, 7),
    ("--to-offset", "99"): (10, 10),
    ("--shift-by", "2"): (5, 6),
    ("--shift-by", "-2"): (1, 2),
    ("--shift-by", "-9"): (0, 0),
    ("--to-datetime", "2025-03-01T05:30:00.000"): (6, 6),
    ("--by-duration", "P0DT0H10M0S"): (10, 10),
    ("--to-current",): (3, 4),
}


def test_offsets_are_reset_by_every_scenario(at_node: At, filled: str, group: str, tmp_path: Path) -> None:
    target = ("--reset-offsets", "--group", group, "--topic", filled)
    for scenario, expected in SCENARIOS.items():
        commit(at_node, group, filled, 3, 4)
        plan = table(groups(at_node, *target, *scenario, "--dry-run"))
        assert {(row["PARTITION"], row["NEW-OFFSET"]) for row in plan} == {
            (str(partition), str(offset)) for partition, offset in enumerate(expected)
        }, scenario
        assert committed(at_node, group) == {(filled, 0): "3", (filled, 1): "4"}, "a dry run changes nothing"
        groups(at_node, *target, *scenario, "--execute")
        found = committed(at_node, group)
        assert found == {(filled, index): str(offset) for index, offset in enumerate(expected)}, scenario
    # One partition alone; and a plan that goes by way of a file.
    groups(at_node, "--reset-offsets", "--group", group, "--topic", f"{filled}:1", "--to-offset", "8", "--execute")
    assert committed(at_node, group) == {(filled, 0): "3", (filled, 1): "8"}
    exported = groups(at_node, *target, "--to-offset", "2", "--dry-run", "--export").out
    plan_file = tmp_path / "plan.csv"
    plan_file.write_text(exported)
    assert sorted(exported.split()) == [f"{filled},0,2", f"{filled},1,2"]
    groups(at_node, "--reset-offsets", "--group", group, "--from-file", str(plan_file), "--execute")
    assert committed(at_node, group) == {(filled, 0): "2", (filled, 1): "2"}


def test_a_reset_of_all_topics_begins_a_group(at_node: At, filled: str, group: str) -> None:
    groups(at_node, "--reset-offsets", "--group", group, "--topic", filled, "--to-earliest", "--execute")
    assert committed(at_node, group) == {(filled, 0): "0", (filled, 1): "0"}
    groups(at_node, "--reset-offsets", "--group", group, "--all-topics", "--to-latest", "--execute")
    assert committed(at_node, group) == {(filled, 0): "10", (filled, 1): "10"}


# Deletions.


def test_offsets_and_groups_are_deleted(at_node: At, filled: str, group: str) -> None:
    commit(at_node, group, filled, 3, 4)
    answer = groups(at_node, "--delete-offsets", "--group", group, "--topic", f"{filled}:0")
    assert "Successful" in answer.out
    assert committed(at_node, group) == {(filled, 1): "4"}
    groups(at_node, "--delete-offsets", "--group", group, "--topic", filled)
    assert group in groups(at_node, "--list").out.splitlines()
    answer = groups(at_node, "--delete", "--group", group)
    assert "was successful" in answer.out
    assert group not in groups(at_node, "--list").out.splitlines()
    again = at_node.run("kafka-consumer-groups", "--delete", "--group", group)
    assert "GroupIdNotFoundException" in again.printed


# What lies in the log.


def objects(printed: str) -> list[Printed]:
    """Those that a formatter printed, one right behind the other."""
    found: list[Printed] = []
    at = printed.find("{")
    while at >= 0:
        entry, end = json.JSONDecoder().raw_decode(printed, at)
        found.append(entry)
        at = printed.find("{", end)
    return found


@pytest.fixture(scope="module")
def stopped(start_node: StartNode, tools: KafkaTools) -> tuple[Node, list[Printed], list[Printed]]:
    """A node that has groups of each kind, a deleted one and a deleted offset, stopped; and what Kafka's formatters of
    offsets and of groups read from it before."""
    node = start_node("groups", {"offsets.topic.num.partitions": "1"})
    at = At(tools, node.bootstrap)
    at("kafka-topics", "--create", "--topic", "told", "--partitions", "2")
    commit(at, "simple", "told", 3, 4, metadata="mark")
    commit(at, "doomed", "told", 5)
    groups(at, "--delete-offsets", "--group", "simple", "--topic", "told:1")
    groups(at, "--delete", "--group", "doomed")
    with joined(at, "members", "told", "classic"):
        pass
    with joined(at, "modern", "told", "consumer"):
        pass
    place = ("--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", "5000")
    offsets, metadata = (
        at("kafka-console-consumer", *place, "--formatter", f"org.apache.kafka.tools.consumer.{kind}MessageFormatter")
        for kind in ("Offsets", "GroupMetadata")
    )
    node.stop()
    return node, objects(offsets.out), objects(metadata.out)


def test_kafkas_formatter_reads_our_groups(stopped: tuple[Node, list[Printed], list[Printed]]) -> None:
    """Those of the classic protocol, which are all that it knows."""
    _, _, printed = stopped
    values = [entry["value"] for entry in printed if entry["key"]["data"]["group"] == "members"]
    told = [value["data"] for value in values if value is not None]
    # A group that is new is written before anybody has said what its members speak.
    assert [value["protocolType"] for value in told] == ["", "consumer", "consumer"]
    before, meanwhile, after = (value["members"] for value in told)
    assert (before, after) == ([], [])
    assert isinstance(meanwhile, list)
    (member,) = meanwhile
    assert member["memberId"]
    assert member["assignment"]


def test_kafkas_formatter_reads_our_offsets(stopped: tuple[Node, list[Printed], list[Printed]]) -> None:
    _, printed, _ = stopped
    offsets = [(entry["key"]["data"]["group"], entry["key"]["data"]["partition"], entry["value"]) for entry in printed]
    mine = [(partition, value) for group, partition, value in offsets if group == "simple"]
    assert [partition for partition, _ in mine] == [0, 1, 1]
    written = mine[0][1]
    assert written is not None
    assert written["version"] == 4
    # librdkafka sends the end of its C string along.
    assert (written["data"]["offset"], written["data"]["metadata"]) == (3, "mark\0")
    assert written["data"]["topicId"] != "AAAAAAAAAAAAAAAAAAAAAA"
    assert mine[2][1] is None
    assert [value is None for group, _, value in offsets if group == "doomed"] == [False, True]
    assert {group for group, _, value in offsets if value is not None} == {"simple", "doomed", "members", "modern"}


def test_kafka_dump_log_decodes_our_offsets(
    stopped: tuple[Node, list[Printed], list[Printed]], tools: KafkaTools
) -> None:
    node, _, _ = stopped
    (log,) = (node.log_dir / "__consumer_offsets-0").glob("*.log")
    dumped = tools.check("kafka-dump-log", "--files", str(log), "--offsets-decoder")
    kinds = set(re.findall(r'key: \{"type":"(\d+)"', dumped.out))
    assert {"1", "2", "3"} <= kinds, dumped.out[:4000]
    assert '"group":"simple"' in dumped.out
    assert "isvalid: false" not in dumped.out
    assert "exception" not in dumped.printed.lower()
