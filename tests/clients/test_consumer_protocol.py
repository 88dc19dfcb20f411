"""librdkafka's consumers in groups of KIP-848 (`group.protocol=consumer`), alone and beside classic ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.node_process import NodeProcess, running_node

QUICK = (
    "group.consumer.min.heartbeat.interval.ms=100",
    "group.consumer.heartbeat.interval.ms=200",
    "group.consumer.assignment.interval.ms=0",
    "group.initial.rebalance.delay.ms=0",
)
"""So that nobody waits seconds to be told."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(
        tmp_path_factory.mktemp("node"), *(part for setting in QUICK for part in ("--set", setting))
    ) as node:
        yield node


class Group:
    """Consumers of one group, polled together so that none is thought dead."""

    def __init__(self, node: NodeProcess, group_id: str) -> None:
        self._node = node
        self.group_id = group_id
        self.members: dict[str, Consumer] = {}
        self.seen: list[bytes] = []

    def join(self, name: str, topics: list[str], *, classic: bool = False, **config: object) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._node.bootstrap,
                "group.id": self.group_id,
                "client.id": name,
                "auto.offset.reset": "earliest",
                **(
                    {"group.protocol": "classic", "heartbeat.interval.ms": 200, "session.timeout.ms": 6000}
                    if classic
                    else {"group.protocol": "consumer"}
                ),
                **{key.replace("_", "."): value for key, value in config.items()},
            }
        )
        consumer.subscribe(topics)
        self.members[name] = consumer

    def leave(self, name: str) -> None:
        self.members.pop(name).close()

    def poll(self) -> None:
        for consumer in list(self.members.values()):
            message = consumer.poll(0.02)
            if message is not None:
                assert message.error() is None, message.error()
                self.seen.append(message.value())

    def assigned(self) -> dict[str, list[int]]:
        return {
            name: sorted(partition.partition for partition in consumer.assignment())
            for name, consumer in self.members.items()
        }

    def until(self, good: Callable[[], bool], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not good():
            assert time.monotonic() < deadline, f"still {self.assigned()} after {seconds} s"
            self.poll()

    def shared(self, partitions: int) -> bool:
        """Everything is owned once, and evenly."""
        assigned = self.assigned().values()
        sizes = [len(owned) for owned in assigned]
        everything = sorted(partition for owned in assigned for partition in owned)
        return everything == list(range(partitions)) and max(sizes) - min(sizes) <= 1

    def close(self) -> None:
        for consumer in self.members.values():
            consumer.close()


@pytest.fixture
def group(node: NodeProcess, request: pytest.FixtureRequest) -> Iterator[Group]:
    found = Group(node, f"group-{request.node.name}")
    yield found
    found.close()


def test_members_come_share_and_go(node: NodeProcess, group: Group, new_topic: Callable[..., str]) -> None:
    topic = new_topic(6)
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(60):
        producer.produce(topic, str(number).encode(), partition=number % 6)
    producer.flush()
    group.join("one", [topic])
    group.until(lambda: group.shared(6) and len(group.seen) == 60)
    group.join("two", [topic])
    group.join("three", [topic])
    group.until(lambda: group.shared(6))
    group.members["one"].commit(offsets=[TopicPartition(topic, partition, 10) for partition in group.assigned()["one"]],
                                asynchronous=False)  # fmt: skip
    group.leave("two")
    group.until(lambda: group.shared(6))
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_partitions([NewPartitions(topic, 8)])[topic].result(30)
    group.until(lambda: group.shared(8))
    members = admin.describe_consumer_groups([group.group_id])[group.group_id].result(30).members
    assert sorted(member.client_id for member in members) == ["one", "three"]


def test_a_pattern_is_the_coordinators_business(node: NodeProcess, group: Group, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    group.join("one", [f"^{topic[:-1]}[{topic[-1]}]"])
    group.until(lambda: group.shared(2))


def test_a_static_member_comes_back_to_what_it_had(group: Group, new_topic: Callable[..., str]) -> None:
    topic = new_topic(4)
    group.join("one", [topic], group_instance_id="first")
    group.join("two", [topic], group_instance_id="second")
    group.until(lambda: group.shared(4))
    had = group.assigned()
    group.leave("one")
    for _ in range(20):
        group.poll()
    assert group.assigned() == {"two": had["two"]}
    group.join("one", [topic], group_instance_id="first")
    group.until(lambda: group.assigned() == had)


@pytest.mark.slow
def test_a_group_changes_its_protocol_and_back_while_it_works(group: Group, new_topic: Callable[..., str]) -> None:
    topic = new_topic(6)
    # Not librdkafka's cooperative-sticky: its plans may carry data of its own, and with such Kafka moves no group.
    strategy = "range"
    group.join("old-1", [topic], classic=True, partition_assignment_strategy=strategy)
    group.join("old-2", [topic], classic=True, partition_assignment_strategy=strategy)
    group.until(lambda: group.shared(6))
    group.join("new-1", [topic])
    group.until(lambda: group.shared(6))
    group.leave("old-1")
    group.join("new-2", [topic])
    group.until(lambda: group.shared(6))
    group.leave("old-2")
    group.until(lambda: group.shared(6))
    group.join("old-3", [topic], classic=True, partition_assignment_strategy=strategy)
    group.until(lambda: group.shared(6))
    group.leave("new-1")
    group.leave("new-2")
    group.join("old-4", [topic], classic=True, partition_assignment_strategy=strategy)
    group.until(lambda: group.shared(6))
