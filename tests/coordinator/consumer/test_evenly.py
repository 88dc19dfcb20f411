"""`uniform` of a homogeneous group, held against the same written down plainly: Kafka's steps, a partition at a time.

(Against Kafka's own: tests/oracle/test_assignments.py.)
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinator.consumer.assignors import Assignment, GroupSpec, MemberSpec
from ottla.coordinator.consumer.assignors.evenly import assign_evenly
from ottla.coordinator.consumer.assignors.spec import as_read
from ottla.coordinator.consumer.hash_order import int_hash, uuid_hash
from ottla.model import Uuid

from .java_tables import JavaTable


class PlainMember:
    """A HashMap of HashSets, and the copy that is made of it before it is changed."""

    def __init__(self, stored: Assignment) -> None:
        self.topics = JavaTable(uuid_hash, stored)
        self.partitions = {topic: JavaTable.copied(int_hash, stored[topic]) for topic in self.topics}
        self._copied = False

    def copy(self) -> None:
        if not self._copied:
            self._copied = True
            capacity = 1
            while capacity < len(self.topics):
                capacity *= 2
            self.topics = JavaTable(uuid_hash, self.topics, capacity=capacity)
            self.partitions = {topic: JavaTable.copied(int_hash, had) for topic, had in self.partitions.items()}

    def add(self, topic: Uuid, partition: int) -> None:
        self.copy()
        self.topics.compute_if_absent(topic)
        self.partitions.setdefault(topic, JavaTable(int_hash)).add(partition)

    def remove(self, topic: Uuid, partition: int) -> None:
        self.copy()
        self.partitions[topic].remove(partition)
        if not self.partitions[topic]:
            self.remove_topic(topic)

    def remove_topic(self, topic: Uuid) -> None:
        self.copy()
        self.topics.remove(topic)
        del self.partitions[topic]

    @property
    def result(self) -> list[tuple[Uuid, list[int]]]:
        return [(topic, list(self.partitions[topic])) for topic in self.topics]


def plainly(spec: GroupSpec) -> dict[str, PlainMember]:
    """As UniformHomogeneousAssignmentBuilder does it."""
    members = {member_id: PlainMember(member.assignment) for member_id, member in spec.members.items()}
    topics = JavaTable.copied(uuid_hash, next(iter(spec.members.values())).topics)
    free = [
        (topic, partition)
        for topic in topics
        for partition in range(spec.partitions[topic])
        if not any(partition in held for held in spec.assigned.get(topic, ()))
    ]
    least, extra = divmod(sum(spec.partitions[topic] for topic in topics), len(members))
    below = []
    for index, member in enumerate(members.values()):
        quota = least + (extra > 0)
        for topic in list(member.topics):
            if topic not in topics:
                member.remove_topic(topic)
                continue
            for partition in list(member.partitions[topic]):
                if quota:
                    quota -= 1
                else:
                    member.remove(topic, partition)
                    free.append((topic, partition))
        if quota and extra > 0 and len(members) - index > extra:
            quota -= 1
        elif extra > 0:
            extra -= 1
        if quota:
            below.append((member, quota))
    for member, quota in below:
        member.copy()
        for topic, partition in free[:quota]:
            member.add(topic, partition)
        del free[:quota]
    assert not free
    return members


@st.composite
def groups(draw: st.DrawFn) -> GroupSpec:
    """What a few members hold that joined one after another, of topics that came, grew and went meanwhile."""
    counts = draw(st.lists(st.sampled_from([1, 2, 5, 9, 17, 40, 130]), min_size=1, max_size=9))
    topics = {Uuid(draw(st.binary(min_size=16, max_size=16)) or bytes(16)): count for count in counts}
    random = draw(st.randoms(use_true_random=False))
    holders = draw(st.integers(1, 7))
    held: list[dict[Uuid, tuple[int, ...]]] = [{} for _ in range(holders)]
    for topic, count in topics.items():
        known = list(range(random.randint(0, count)))
        random.shuffle(known)
        step = random.choice([1, 1, 16, 32])
        for holder in held:
            taken = [partition for partition in known if partition % step == 0][: random.randint(0, count)]
            known = [partition for partition in known if partition not in taken]
            if taken:
                holder[topic] = tuple(taken)
    wanted = tuple(topic for topic in topics if random.random() < 0.8) or tuple(topics)
    joining: list[dict[Uuid, tuple[int, ...]]] = [{} for _ in range(random.randint(0, 2))]
    stored = [*held, *joining]
    random.shuffle(stored)
    return GroupSpec(
        members={f"m{index}": MemberSpec(None, wanted, len(wanted), target) for index, target in enumerate(stored)},
        homogeneous=True,
        partitions=topics,
        assigned={topic: [target[topic] for target in stored if topic in target] for topic in topics},
    )


@settings(max_examples=300)
@given(groups())
def test_the_same_as_plainly(spec: GroupSpec) -> None:
    result = assign_evenly(spec)
    for member_id, plain in plainly(spec).items():
        given_to_it = result[member_id]
        if given_to_it is spec.members[member_id].assignment:
            given_to_it = as_read(given_to_it)
        assert [(topic, list(partitions)) for topic, partitions in given_to_it.items()] == plain.result
