"""The same groups, given to Apache Kafka's server-side assignors and to ours: the same targets, partition by partition.

Groups have histories: each target is made from the one before, after somebody joined, left, changed its subscription or
came back under another id, or after topics were made, grew or went. In half of them members and replicas have racks.
What is compared are the records: which members have one, in which order, and what is in it, in which order; the next
target may hang on each of these.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

import pytest

from ottla.coordinator.consumer.assignors import ASSIGNORS, Assignment
from ottla.coordinator.consumer.group import ConsumerGroup, is_homogeneous
from ottla.coordinator.consumer.member import Member
from ottla.coordinator.consumer.metadata_hash import TopicHashes
from ottla.coordinator.consumer.target import next_target
from ottla.coordinator.timeline import Timeline
from ottla.metadata.images import (
    BrokerRegistration,
    ClusterImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
    TopicsImage,
)
from ottla.metadata.persistent import PersistentMap
from ottla.model import Uuid, uuid_to_text
from ottla.wire.messages.consumer_group_target_assignment_member_key import ConsumerGroupTargetAssignmentMemberKey
from ottla.wire.messages.consumer_group_target_assignment_member_value import ConsumerGroupTargetAssignmentMemberValue

from .apache_kafka import compiled, java

pytestmark = pytest.mark.oracle

STEPS = 12


class History:
    """One group from its beginning. `step` changes something and returns the case: a line for Kafka, and our answer."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._range = random.random() < 0.25
        self._alike = random.random() < 0.5
        """Whether all members are subscribed to the same topics."""
        self._racks = ("r1", "r2", "r3") if random.random() < 0.5 else ()
        self._topics: dict[str, tuple[Uuid, int, tuple[str, ...]]] = {}
        self._members: dict[str, Member] = {}
        self._targets: dict[str, Assignment] = {}
        self._large = random.random() < 0.1
        for _ in range(random.randint(1, 6)):
            self._make_topic()
        self._wanted = self._some_topics()
        for _ in range(random.choice([0, 0, 1, 3, 70 if self._large else 6])):
            member = self._new_member()
            self._members[member.member_id] = member

    def step(self) -> tuple[str, str]:
        updated = self._change()
        line = " ".join(
            [
                "range" if self._range else "uniform",
                self._listed(
                    f"{name}:{uuid_to_text(topic)}:{count}:{'+'.join(racks)}".rstrip(":")
                    for name, (topic, count, racks) in self._topics.items()
                ),
                self._listed(self._shown(member, with_target=True) for member in self._members.values()),
                self._shown(updated, with_target=False),
            ]
        )
        return line, self._answer(updated)

    def _answer(self, updated: Member) -> str:
        group = ConsumerGroup(Timeline(), "g")
        for member in self._members.values():
            group.set_member(member)
        for member_id, target in self._targets.items():
            group.targets[member_id] = target
        before = group.members.get(updated.member_id) or group.static_member(updated.instance_id)
        counts = group.subscribers_with(before, updated)
        found = next_target(
            group,
            updated,
            epoch=7,
            assignor=ASSIGNORS["range" if self._range else "uniform"],
            homogeneous=is_homogeneous(counts, {}, len(self._members) + (before is None)),
            image=self._image(),
            now_ms=0,
        )
        replaced = None if before is None or before.member_id == updated.member_id else before.member_id
        if replaced is not None:
            del self._members[replaced]
            self._targets.pop(replaced, None)
        self._members[updated.member_id] = updated
        shown = []
        for record in found.records:
            if isinstance(record.key, ConsumerGroupTargetAssignmentMemberKey):
                assert isinstance(record.value, ConsumerGroupTargetAssignmentMemberValue)
                target = {topic.topic_id: tuple(topic.partitions) for topic in record.value.topic_partitions}
                self._targets[record.key.member_id] = target
                parts = (f":{uuid_to_text(topic)}=[{'+'.join(map(str, had))}]" for topic, had in target.items())
                shown.append(record.key.member_id + "".join(parts))
        return " ".join(shown)

    def _change(self) -> Member:
        random = self._random
        members = list(self._members.values())
        match random.choice(["join", "join", "leave", "leave", "leave", "resubscribe", "topics", "return", "nothing"]):
            case "leave" if len(members) > 1:
                for member in random.sample(members, random.randint(1, max(1, len(members) // 3))):
                    if len(self._members) > 1:
                        del self._members[member.member_id]
                        self._targets.pop(member.member_id, None)
                return random.choice(list(self._members.values()))
            case "resubscribe" if members and not self._alike:
                return random.choice(members)._replace(topic_names=frozenset(self._some_topics()))
            case "topics" if members:
                self._change_topics()
                return random.choice(members)
            case "return" if any(member.instance_id for member in members):
                static = random.choice([member for member in members if member.instance_id])
                return static._replace(member_id=self._name())
            case "nothing" if members:
                return random.choice(members)
        return self._new_member()

    def _new_member(self) -> Member:
        random = self._random
        names = self._wanted if self._alike else self._some_topics()
        instance = f"instance-{random.randint(0, 999)}" if random.random() < 0.2 else None
        if instance in {member.instance_id for member in self._members.values()}:
            instance = None
        rack = random.choice((*self._racks, None))
        return Member(member_id=self._name(), instance_id=instance, rack_id=rack, topic_names=frozenset(names))

    def _change_topics(self) -> None:
        random = self._random
        name = random.choice(list(self._topics))
        match random.choice(["make", "grow", "drop"]):
            case "make":
                self._make_topic()
            case "grow":
                topic, count, racks = self._topics[name]
                self._topics[name] = (topic, count + random.randint(1, 5), racks)
            case "drop" if len(self._topics) > 1:
                del self._topics[name]

    def _make_topic(self) -> None:
        random = self._random
        count = random.choice([1, 2, 3, 5, 8, 16, 17, random.randint(1, 700 if self._large else 60)])
        racks = tuple(random.sample(self._racks, random.randint(0, len(self._racks))))
        self._topics[f"topic{random.randint(0, 9999)}"] = (Uuid(random.randbytes(16)), count, racks)

    def _some_topics(self) -> list[str]:
        names = [*self._topics, "missing"]
        return self._random.sample(names, self._random.randint(0 if self._random.random() < 0.1 else 1, len(names)))

    def _name(self) -> str:
        random = self._random
        while True:
            name = f"m{random.getrandbits(40):x}" if random.random() < 0.9 else f"m{random.randint(0, 200)}x"
            if name not in self._members:
                return name

    def _image(self) -> MetadataImage:
        return an_image(self._topics)

    def _shown(self, member: Member, *, with_target: bool) -> str:
        names = "+".join(sorted(member.topic_names))
        parts = [member.member_id, member.instance_id or "=", names or "=", member.rack_id or "="]
        target = self._targets.get(member.member_id, {}) if with_target else {}
        for topic, partitions in target.items():
            parts += [uuid_to_text(topic), "+".join(map(str, partitions))]
        if with_target and member.member_id in self._targets and not target:
            parts.append("=")  # It has a target, which is empty.
        return ":".join(parts)

    @staticmethod
    def _listed(parts: object) -> str:
        return ",".join(parts) or "-"  # type: ignore[arg-type]


def an_image(topics: dict[str, tuple[Uuid, int, tuple[str, ...]]]) -> MetadataImage:
    """Topics by name: their id, how many partitions they have, and the racks of each partition's replicas."""
    images: list[TopicImage] = []
    brokers: dict[int, BrokerRegistration] = {}
    for name, (topic_id, count, racks) in topics.items():
        replicas = []
        for rack in racks:
            broker_id = len(brokers) + 1
            brokers[broker_id] = BrokerRegistration(
                broker_id=broker_id,
                epoch=1,
                incarnation_id=topic_id,
                endpoints=(),
                features={},
                rack=rack,
                fenced=False,
                in_controlled_shutdown=False,
                log_dirs=(),
            )
            replicas.append(broker_id)
        partition = PartitionImage(
            replicas=tuple(replicas), isr=(), leader=-1, leader_epoch=0, partition_epoch=0, directories=()
        )
        partitions = PersistentMap((index, partition) for index in range(count))
        images.append(TopicImage(name=name, topic_id=topic_id, partitions=partitions))
    return MetadataImage(
        cluster=ClusterImage(brokers=brokers),
        topics=TopicsImage(
            by_name=PersistentMap((topic.name, topic) for topic in images),
            by_id=PersistentMap((topic.topic_id, topic) for topic in images),
        ),
    )


def asked_kafka(lines: list[str]) -> list[str]:
    done = subprocess.run(
        [java(), "-cp", compiled(Path(__file__).with_name("Assignments.java")), "Assignments"],
        input="".join(line + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    answers = done.stdout.splitlines()
    assert len(answers) == len(lines), done.stderr[-2000:]
    return answers


def compare(seed: int, histories: int) -> None:
    random = Random(seed)
    lines, ours = [], []
    for _ in range(histories):
        history = History(random)
        for _ in range(STEPS):
            line, answer = history.step()
            lines.append(line)
            ours.append(answer)
    moved = 0
    for line, answer, kafka in zip(lines, ours, asked_kafka(lines), strict=True):
        assert answer == kafka, f"{line}\nKafka: {kafka}\nours:  {answer}"
        moved += bool(answer)
    assert moved > len(lines) // 2


def test_the_same_targets() -> None:
    compare(20_261_115, histories=60)


@pytest.mark.long
def test_the_same_targets_of_thousands_of_groups() -> None:
    compare(848, histories=3_000)


def test_the_same_hash_of_topics() -> None:
    random = Random(1101)
    lines, ours = [], []
    for _ in range(300):
        topics = {
            f"topic{random.randint(0, 9999)}": (
                Uuid(random.randbytes(16)),
                random.choice([1, 2, 7, 50]),
                tuple(random.choice(["a", "rack-b", "ç", "zone/1"]) for _ in range(random.randint(0, 3))),
            )
            for _ in range(random.choice([1, 1, 2, 5, 40]))
        }
        shown = (
            f"{name}:{uuid_to_text(topic)}:{count}:{'+'.join(racks)}".rstrip(":")
            for name, (topic, count, racks) in topics.items()
        )
        lines.append(f"hash {','.join(shown)}")
        ours.append(str(TopicHashes().of_group(topics, an_image(topics))))
    assert ours == asked_kafka(lines)
