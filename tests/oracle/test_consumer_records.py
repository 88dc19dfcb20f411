"""What consumer groups write, beside what Apache Kafka writes when it is asked the very same: record by record.

Both nodes get the same heartbeats of the same members. Then their logs are read and compared: kinds, keys, tombstones
and values, in order. What must differ is left out: topic ids are named, and neither times nor the hash over ids is
looked at.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator

import pytest

from ottla.coordinator.stored import GROUP_KINDS, StoredRecord
from ottla.errors import ErrorCode
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from tests.behaviour.client import Topic, eventually
from tests.behaviour.test_consumer_groups import GroupClient, told

from .apache_kafka import ApacheKafka, KafkaTools
from .conftest import Node, StartNode

pytestmark = pytest.mark.oracle

SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}
_UNEQUAL = re.compile(r"(metadata_hash|timestamp|assignment_timestamp|version|current_state_timestamp)=-?\d+")


class Log:
    """A node, a group on it, and what the group wrote."""

    def __init__(self, node: Node, group_id: str, topic: str) -> None:
        self.client = GroupClient((node.host, node.port), client_id="same")
        self.client.group_id = group_id
        self.topic = self.client.create_topic(topic, 4)
        self._wait_for_coordinator()

    def _wait_for_coordinator(self) -> None:
        def ask() -> int:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.client.group_id])
            found = self.client.call(request, FindCoordinatorResponse).coordinators[0]
            return found.error_code or self.client.describe().error_code

        eventually(ask, lambda code: code == ErrorCode.GROUP_ID_NOT_FOUND, seconds=30)

    def written(self) -> list[str]:
        """The records of this group, with what must differ made equal."""
        described = self.client.describe_topic("__consumer_offsets")
        offsets = Topic("__consumer_offsets", described.topic_id)
        shown = []
        for record in self.client.read_all(offsets):
            assert record.key is not None
            stored = GROUP_KINDS.decode(record.key, record.value)
            if isinstance(stored, StoredRecord) and self.client.group_id in repr(stored.key):
                text = f"{stored.key!r} → {_sorted_partitions(stored)!r}"
                shown.append(_UNEQUAL.sub(r"\1=…", text.replace(repr(self.topic.topic_id), "TOPIC")))
        return shown


def _sorted_partitions(record: StoredRecord) -> object:
    """The order of what a member holds hangs on nothing, and nothing hangs on it."""
    value = record.value
    for name in ("assigned_partitions", "partitions_pending_revocation"):
        for topic in getattr(value, name, ()):
            pairs = sorted(zip(topic.partitions, topic.assignment_epochs, strict=True))
            topic.partitions = [partition for partition, _ in pairs]
            topic.assignment_epochs = [epoch for _, epoch in pairs]
    return value


@pytest.fixture(scope="module")
def nodes(
    tools: KafkaTools, start_node: StartNode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Node, Node]]:
    """Ours (or whichever is under test) and Apache Kafka's."""
    ours = start_node("records", SETTINGS)
    kafka = ApacheKafka(tmp_path_factory.mktemp("kafka"), overrides=SETTINGS, heap=("-Xmx512M",)).start(tools)
    yield ours, kafka
    kafka.stop()


@pytest.fixture
def compare(nodes: tuple[Node, Node], topic: str) -> Callable[[Callable[[Log], None]], list[str]]:
    """Act on both nodes; what was written is the same, and is returned."""

    def run(act: Callable[[Log], None]) -> list[str]:
        group_id = f"group-{uuid.uuid4().hex[:8]}"
        written = []
        for node in nodes:
            log = Log(node, group_id, topic)
            act(log)
            written.append(log.written())
            log.client.close()
        ours, kafka = written
        assert ours == kafka
        return ours

    return run


Compare = Callable[[Callable[[Log], None]], list[str]]


def test_members_that_share_and_leave(compare: Compare) -> None:
    def act(log: Log) -> None:
        group, name = log.client, log.topic.name
        group.join("m1", topics=[name], rack="r", assignor="uniform")
        group.join("m2", topics=[name])
        kept = told(group.heartbeat("m1", 2))
        group.heartbeat("m2", 3)
        group.heartbeat("m1", 2, owned=kept)
        group.heartbeat("m2", 3)
        group.heartbeat("m2", 3, topics=[name, "missing"])
        group.heartbeat("m1", 3)
        group.heartbeat("m2", -1)
        group.heartbeat("m1", 3)
        group.heartbeat("m1", -1)

    written = compare(act)
    assert len(written) > 25


def test_static_members(compare: Compare) -> None:
    def act(log: Log) -> None:
        group, name = log.client, log.topic.name
        group.join("m1", topics=[name], instance="i")
        group.join("m2", topics=[name], instance="j")
        group.heartbeat("m1", 2)
        group.heartbeat("m1", -2, instance="i")
        group.heartbeat("m2", 3)
        group.join("m3", topics=[name], instance="i")
        group.heartbeat("m3", -1, instance="i")

    compare(act)


def test_regular_expressions(compare: Compare) -> None:
    def act(log: Log) -> None:
        group = log.client
        group.join("m1", regex=f"{log.topic.name}.*")
        eventually(lambda: told(group.heartbeat("m1", 1)), lambda got: got is not None)
        group.heartbeat("m1", 2, regex="", topics=[log.topic.name])
        group.heartbeat("m1", 2, owned={log.topic.topic_id: [0, 1, 2, 3]})
        group.heartbeat("m1", -1)

    written = compare(act)
    assert any("ConsumerGroupRegularExpressionKey" in record for record in written)


def test_classic_members_and_the_way_there_and_back(compare: Compare) -> None:
    def act(log: Log) -> None:
        group, name = log.client, log.topic.name
        group.join("m1", topics=[name])
        group.classic_join("o1", name)
        group.classic_sync("o1", 3)
        group.heartbeat("m1", 2, owned={log.topic.topic_id: [0, 1]})
        group.heartbeat("m1", 2, owned={log.topic.topic_id: [0, 1]})
        group.classic_join("o1", name)
        group.heartbeat("m1", -1)
        group.classic_join("o1", name)
        group.classic_sync("o1", 4, plan={"o1": {name: [0, 1, 2, 3]}})
        group.join("m2", topics=[name])

    written = compare(act)
    assert any("GroupMetadataKey" in record and "members=[MemberMetadata" in record for record in written)
