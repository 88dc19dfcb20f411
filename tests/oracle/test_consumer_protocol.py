"""The Java client in groups of KIP-848 and in cooperative ones (KIP-429), and Apache Kafka's tools on such groups."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .apache_kafka import KafkaTools, compiled, java
from .conftest import At, Node, StartNode

pytestmark = pytest.mark.oracle

QUICK = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}
"""So that nobody waits seconds to be told."""


@pytest.fixture(scope="module")
def quick_node(start_node: StartNode) -> Node:
    return start_node("quick", QUICK)


@pytest.fixture(scope="module")
def at_quick(tools: KafkaTools, quick_node: Node) -> At:
    return At(tools, quick_node.bootstrap)


class Members:
    """Java consumers, in one JVM."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def join(self, name: str, group: str, topic: str, *, protocol: str = "consumer", instance: str = "-") -> None:
        assert self._say(f"join {name} {group} {protocol} {instance} {topic}") == "ok"

    def leave(self, name: str) -> None:
        assert self._say(f"leave {name}") == "ok"

    def die(self, name: str) -> None:
        """It is not heard of any more, and its group is to find out."""
        assert self._say(f"die {name}") == "ok"

    def revoked(self) -> dict[str, int]:
        """How many partitions each had to give up until now."""
        return {name: int(count) for name, _, count in (part.partition("=") for part in self._say("revoked").split())}

    def overlaps(self) -> list[str]:
        """What somebody was given while another member still had it."""
        return self._say("overlaps").split()

    def assigned(self) -> dict[str, set[str]]:
        shown = {}
        for part in self._say("assigned").split():
            name, _, state = part.partition("=")
            assert not state.startswith("!"), f"{name} failed: {state}"
            owned = state.partition(":")[2]
            shown[name] = set(owned.split(",")) if owned else set()
        return shown

    def until_shared(self, topic: str, partitions: int, *names: str) -> dict[str, set[str]]:
        """Until `names` have everything among them, evenly."""
        return self.until(lambda found: self._is_shared(found, topic, partitions, names))

    @staticmethod
    def _is_shared(found: dict[str, set[str]], topic: str, partitions: int, names: tuple[str, ...]) -> bool:
        owned = [found[name] for name in names]
        everything = sorted(partition for some in owned for partition in some)
        sizes = [len(some) for some in owned]
        return everything == sorted(f"{topic}-{index}" for index in range(partitions)) and max(sizes) - min(sizes) <= 1

    def until(self, good: Callable[[dict[str, set[str]]], bool], seconds: float = 60) -> dict[str, set[str]]:
        deadline = time.monotonic() + seconds
        while not good(found := self.assigned()):
            assert time.monotonic() < deadline, f"still {found} after {seconds} s"
            time.sleep(0.05)
        return found

    def _say(self, command: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@pytest.fixture(scope="module")
def members(quick_node: Node) -> Iterator[Members]:
    source = Path(__file__).with_name("GroupMembers.java")
    command = [java(), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    with subprocess.Popen(
        [*command, "-cp", compiled(source), "GroupMembers", quick_node.bootstrap],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        yield Members(process)
        assert process.stdin is not None
        process.stdin.write("quit\n")
        process.stdin.close()
        assert process.wait(60) == 0


def created(at: At, topic: str, partitions: int) -> None:
    at("kafka-topics", "--create", "--topic", topic, "--partitions", str(partitions))


def test_members_come_share_and_go(members: Members, at_quick: At, topic: str) -> None:
    created(at_quick, topic, 6)
    members.join("one", topic, topic)
    members.until_shared(topic, 6, "one")
    members.join("two", topic, topic)
    members.join("three", topic, topic)
    found = members.until_shared(topic, 6, "one", "two", "three")
    described = at_quick("kafka-consumer-groups", "--describe", "--group", topic, "--members", "--verbose").lines
    header, *rows = described
    assert "CURRENT-EPOCH" in header.split()
    assert "TARGET-ASSIGNMENT" in header.split()
    assert len(rows) == 3
    for name in found:
        (row,) = [row for row in rows if name in row]
        assert row.split()[0] == topic
    state = at_quick("kafka-consumer-groups", "--describe", "--group", topic, "--state", "--verbose").lines[-1].split()
    assert "uniform" in state
    assert "Stable" in state
    members.leave("two")
    members.until_shared(topic, 6, "one", "three")
    at_quick("kafka-topics", "--alter", "--topic", topic, "--partitions", "8")
    members.until_shared(topic, 8, "one", "three")
    listed = at_quick("kafka-consumer-groups", "--list", "--type", "consumer").lines
    assert any(line.split()[0] == topic for line in listed)
    members.leave("one")
    members.leave("three")
    refused = at_quick.run("kafka-consumer-groups", "--describe", "--group", topic, "--state")
    assert "Empty" in refused.printed
    at_quick("kafka-consumer-groups", "--delete", "--group", topic)


def test_a_pattern_is_the_coordinators_business(members: Members, at_quick: At, topic: str) -> None:
    created(at_quick, topic, 2)
    members.join("one", f"{topic}-group", f"~{topic[:-1]}[{topic[-1]}]")
    members.until_shared(topic, 2, "one")
    members.leave("one")


def test_a_group_changes_its_protocol_and_back_while_it_works(members: Members, at_quick: At, topic: str) -> None:
    created(at_quick, topic, 6)

    def kind() -> str:
        for line in at_quick("kafka-groups", "--list").lines:
            columns = line.split()
            if columns[0] == topic:
                return columns[1].lower()
        return "none"

    members.join("old-1", topic, topic, protocol="classic")
    members.join("old-2", topic, topic, protocol="classic")
    members.until_shared(topic, 6, "old-1", "old-2")
    assert kind() == "classic"
    members.join("new-1", topic, topic)
    members.until_shared(topic, 6, "old-1", "old-2", "new-1")
    assert kind() == "consumer"
    members.leave("old-1")
    members.leave("old-2")
    members.until_shared(topic, 6, "new-1")
    members.join("old-3", topic, topic, protocol="classic")
    members.until_shared(topic, 6, "old-3", "new-1")
    members.leave("new-1")
    members.until_shared(topic, 6, "old-3")
    assert kind() == "classic"
    members.leave("old-3")


def test_static_members_keep_what_they_had(members: Members, at_quick: At, topic: str) -> None:
    created(at_quick, topic, 4)
    members.join("one", topic, topic, instance="first")
    members.join("two", topic, topic, instance="second")
    had = members.until_shared(topic, 4, "one", "two")
    members.leave("one")
    members.join("one", topic, topic, instance="first")
    assert members.until_shared(topic, 4, "one", "two") == had
    members.leave("one")
    members.leave("two")


def test_cooperative_members_give_up_only_what_moves(members: Members, at_quick: At, topic: str) -> None:
    """KIP-429: in two rebalances, and nothing is anybody's twice. Who dies is replaced when its session ends."""
    created(at_quick, topic, 6)
    members.join("one", topic, topic, protocol="cooperative:45000")
    members.until_shared(topic, 6, "one")
    members.join("two", topic, topic, protocol="cooperative:6000")
    members.until_shared(topic, 6, "one", "two")
    assert members.revoked() == {"one": 3, "two": 0}
    members.join("three", topic, topic, protocol="cooperative:45000")
    had = members.until_shared(topic, 6, "one", "two", "three")
    assert members.revoked() == {"one": 4, "two": 1, "three": 0}
    members.die("two")
    found = members.until_shared(topic, 6, "one", "three")
    assert found["one"] > had["one"]
    assert found["three"] > had["three"]
    assert members.revoked() == {"one": 4, "three": 0}
    assert [each for each in members.overlaps() if each.startswith(topic)] == []
    members.leave("one")
    members.leave("three")
