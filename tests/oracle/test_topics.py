"""kafka-topics: the life of a topic, and the refusals that its users know by heart."""

from __future__ import annotations

import re

import pytest

from .conftest import At

pytestmark = pytest.mark.oracle


def described(at: At, topic: str) -> list[dict[str, str]]:
    """The header line and the partition lines of `kafka-topics --describe`, as dictionaries."""
    lines = at("kafka-topics", "--describe", "--topic", topic).lines
    parsed = [dict(re.findall(r"(\w+): ([^\t]*)", line)) for line in lines]
    return [{key: value.strip() for key, value in row.items()} for row in parsed]


def test_a_topic_is_created_listed_described_grown_and_deleted(at_node: At, topic: str) -> None:
    created = at_node("kafka-topics", "--create", "--topic", topic, "--partitions", "2")
    assert f"Created topic {topic}." in created.out
    assert topic in at_node("kafka-topics", "--list").lines

    header, *partitions = described(at_node, topic)
    assert (header["PartitionCount"], header["ReplicationFactor"]) == ("2", "1")
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", header["TopicId"])
    assert [row["Partition"] for row in partitions] == ["0", "1"]
    assert all((row["Leader"], row["Replicas"], row["Isr"]) == ("1", "1", "1") for row in partitions)
    assert all(row["Elr"] == row["LastKnownElr"] == "" for row in partitions)

    at_node("kafka-topics", "--alter", "--topic", topic, "--partitions", "5")
    grown, *partitions = described(at_node, topic)
    assert grown["PartitionCount"] == "5"
    assert grown["TopicId"] == header["TopicId"]
    assert [row["Partition"] for row in partitions] == ["0", "1", "2", "3", "4"]

    at_node("kafka-topics", "--delete", "--topic", topic)
    assert topic not in at_node("kafka-topics", "--list").lines


def test_a_topic_made_anew_has_another_id(at_node: At, topic: str) -> None:
    ids = []
    for _ in range(2):
        at_node("kafka-topics", "--create", "--topic", topic)
        ids.append(described(at_node, topic)[0]["TopicId"])
        at_node("kafka-topics", "--delete", "--topic", topic)
    assert ids[0] != ids[1]


def test_configs_given_at_creation_are_described(at_node: At, topic: str) -> None:
    at_node(
        "kafka-topics",
        "--create",
        "--topic",
        topic,
        "--config",
        "cleanup.policy=compact",
        "--config",
        "segment.bytes=2097152",
    )
    configs = set(described(at_node, topic)[0]["Configs"].split(","))
    assert {"cleanup.policy=compact", "segment.bytes=2097152"} <= configs


def test_a_replica_assignment_decides_the_partitions(at_node: At, topic: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic, "--replica-assignment", "1,1,1")
    assert described(at_node, topic)[0]["PartitionCount"] == "3"


def test_if_not_exists_and_if_exists_make_commands_repeatable(at_node: At, topic: str) -> None:
    at_node("kafka-topics", "--delete", "--topic", topic, "--if-exists")
    at_node("kafka-topics", "--create", "--topic", topic)
    at_node("kafka-topics", "--create", "--topic", topic, "--if-not-exists")


@pytest.mark.parametrize(
    "filtering",
    [
        "--under-replicated-partitions",
        "--unavailable-partitions",
        "--under-min-isr-partitions",
        "--at-min-isr-partitions",
    ],
)
def test_health_filters_answer(at_node: At, topic: str, filtering: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic)
    listed = at_node("kafka-topics", "--describe", "--topic", topic, filtering).lines
    # One replica is exactly the minimum; it is neither under it, nor missing, nor behind.
    assert bool(listed) == (filtering == "--at-min-isr-partitions")


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        (
            ["--topic", "a/b"],
            "InvalidTopicException",
            "'a/b'",
        ),
        (["--topic", ".."], "InvalidTopicException", "'..' is not allowed"),
        (["--topic", "x" * 250], "InvalidTopicException", "249"),
        (["--topic", "three", "--replication-factor", "3"], "InvalidReplicationFactorException", "3 time(s)"),
        (["--topic", "far", "--replica-assignment", "7"], "InvalidReplicaAssignmentException", "7"),
        (
            ["--topic", "both", "--config", "retention.ms=-2"],
            "ConfigException",
            "Invalid value -2 for configuration retention.ms: Value must be at least -1",
        ),
        (
            ["--topic", "unknown", "--config", "no.such.key=1"],
            "InvalidConfigurationException",
            "Unknown topic config name",
        ),
    ],
)
def test_impossible_topics_are_refused(at_node: At, arguments: list[str], error: str, sentence: str) -> None:
    refused = at_node.run("kafka-topics", "--create", *arguments).check(status=1)
    assert error in refused.printed
    assert sentence in refused.out
    assert arguments[1] not in at_node("kafka-topics", "--list").lines


def test_a_second_topic_of_the_same_name_is_refused(at_node: At, topic: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic)
    refused = at_node.run("kafka-topics", "--create", "--topic", topic).check(status=1)
    assert "TopicExistsException" in refused.printed
    assert f"Topic '{topic}' already exists." in refused.out


def test_names_that_collide_in_metrics_are_refused(at_node: At) -> None:
    at_node("kafka-topics", "--create", "--topic", "collide.one")
    refused = at_node.run("kafka-topics", "--create", "--topic", "collide_one").check(status=1)
    assert "InvalidTopicException" in refused.printed
    assert "collide" in refused.out


def test_partitions_never_shrink(at_node: At, topic: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic, "--partitions", "3")
    refused = at_node.run("kafka-topics", "--alter", "--topic", topic, "--partitions", "2").check(status=1)
    assert "InvalidPartitionsException" in refused.printed
    assert topic in refused.out
    assert "3 partition(s)" in refused.out


@pytest.mark.parametrize("action", [["--describe"], ["--delete"], ["--alter", "--partitions", "2"]])
def test_a_missing_topic_is_reported(at_node: At, topic: str, action: list[str]) -> None:
    refused = at_node.run("kafka-topics", *action, "--topic", topic).check(status=1)
    assert f"Topic '{topic}' does not exist as expected" in refused.out
