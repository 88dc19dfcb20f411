"""A shard that is easy to see through, on the real driver of a real node whose surroundings are in memory.

It keeps a number for each name. What is in the log is all that it knows, so that two shards which replayed the same log
are the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ottla.broker.coordinators.runtime import CoordinatorRuntime
from ottla.broker.hosted import HostedPartition
from ottla.coordinator.outcome import AnyEffect, Effect, Outcome
from ottla.coordinator.stored import AnyRecord, EncodedRecord, RecordKinds
from ottla.coordinator.timeline import Timeline, TimelineMap
from ottla.errors import ErrorCode
from ottla.metadata.images import MetadataImage, PartitionImage
from ottla.partition import Heard
from ottla.wire.message import Message
from tests.seams.test_maintenance import Stage, stage

TOPIC = "t"
KINDS = RecordKinds({1: "OffsetCommit"}, encoded=frozenset({1}))
OTHER = 2


@dataclass(frozen=True, slots=True)
class Ring(Effect):
    """A toy's own effect."""

    name: str


class Told(Message):
    """What a toy answers those who waited."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number
        self.unknown_tagged_fields = ()


def record(name: str, number: int | None) -> AnyRecord:
    return EncodedRecord(b"\0\1" + name.encode(), None if number is None else b"\0\0%d" % number)


@dataclass(slots=True)
class Toy:
    """`numbers` by name; of an open transaction they lie in `staged` until its marker decides."""

    partition: int = 0
    leader_epoch: int = 0
    timeline: Timeline = field(default_factory=Timeline)
    numbers: TimelineMap[str, int] = field(init=False)
    staged: TimelineMap[int, tuple[tuple[str, int], ...]] = field(init=False)
    heard: list[object] = field(default_factory=list)
    """What it was told beside records, in order."""
    steps: list[list[AnyEffect]] = field(default_factory=list)
    """In which it takes up what was read."""
    on_loaded_outcome: Outcome[None] = field(default_factory=Outcome)
    answers: dict[object, Outcome[None]] = field(default_factory=dict)
    """What it does when it is told of a tag or a timer."""

    def __post_init__(self) -> None:
        self.numbers = TimelineMap(self.timeline)
        self.staged = TimelineMap(self.timeline)

    # Requests.

    def set(
        self, name: str, number: int, *, effects: list[AnyEffect] | None = None, tag: object = None
    ) -> Outcome[int]:
        return Outcome(number, [record(name, number)], effects or [], tag)

    def add(self, name: str, number: int) -> Outcome[int]:
        """To what is there now, committed or not."""
        return self.set(name, (self.numbers.get(name) or 0) + number)

    def state(self) -> dict[str, int]:
        return dict(self.numbers.items())

    def committed(self) -> dict[str, int]:
        return dict(self.numbers.committed_items())

    # Records.

    def replay(self, record: AnyRecord, producer_id: int, producer_epoch: int) -> None:
        assert type(record) is EncodedRecord
        name = record.key[2:].decode()
        if record.value is None:
            self.numbers.pop(name)
        elif producer_id >= 0:
            staged = self.staged.get(producer_id) or ()
            self.staged[producer_id] = (*staged, (name, int(record.value[2:])))
        else:
            self.numbers[name] = int(record.value[2:])

    def replay_marker(self, producer_id: int, producer_epoch: int, commit: bool) -> None:
        for name, number in self.staged.pop(producer_id) or ():
            if commit:
                self.numbers[name] = number

    # Facts.

    def take_up(self, image: MetadataImage) -> Iterator[list[AnyEffect]]:
        for number, step in enumerate(self.steps):
            self.heard.append(number)
            yield step

    def on_loaded(self, image: MetadataImage, now_ms: int) -> Outcome[None]:
        self.heard.append("loaded")
        return self.on_loaded_outcome

    def on_metadata(self, image: MetadataImage, now_ms: int) -> Outcome[None]:
        self.heard.append(image)
        return Outcome()

    def on_timer(self, key: tuple[str, ...], now_ms: int) -> Outcome[None]:
        self.heard.append(key)
        return self.answers.get(key, Outcome())

    def on_written(self, tag: object, error: ErrorCode, now_ms: int) -> Outcome[None]:
        self.heard.append((tag, error))
        return self.answers.get(tag, Outcome())


@dataclass(slots=True)
class Play:
    """A node that leads the toy's partition, and what a test may do to it."""

    it: Stage
    runtime: CoordinatorRuntime[Toy]
    partition: HostedPartition
    made: list[Toy]
    rung: list[tuple[int, int, Effect]] = field(default_factory=list)
    unloaded: list[int] = field(default_factory=list)
    follower_log_end: int = 0

    @property
    def toy(self) -> Toy:
        """The shard that is served now, or was last."""
        return self.made[-1]

    def lead(self, *, isr: tuple[int, ...] = (1,), epoch: int | None = None, replicas: tuple[int, ...] = (1,)) -> None:
        before = self.partition.image
        image = PartitionImage(
            replicas, isr, 1, before.leader_epoch + 1 if epoch is None else epoch, before.partition_epoch + 1, ()
        )
        self.it.node.services.replicas.lead(self.partition, image)

    def lead_two(self) -> None:
        """From now on a second replica is in sync, and nothing is committed that it does not have."""
        self.lead(isr=(1, OTHER), replicas=(1, OTHER))

    def resign(self) -> None:
        before = self.partition.image
        image = PartitionImage(
            before.replicas, before.isr, OTHER, before.leader_epoch + 1, before.partition_epoch + 1, ()
        )
        self.it.node.services.replicas.follow(self.partition, image)

    def replicate(self, offset: int | None = None) -> None:
        """The second replica has fetched everything before `offset`."""
        replicas, end_offset = self.it.node.services.replicas, self.partition.log.log_end_offset
        heard = Heard()
        heard.ms = replicas.monotonic_ms()
        fetched = end_offset if offset is None else offset
        replicas.on_follower_fetch(self.partition, OTHER, -1, fetched, end_offset, 0, heard)


@asynccontextmanager
async def play(partitions: int = 1, timeout_ms: int = 5_000) -> AsyncIterator[Play]:
    async with stage() as it:
        services = it.node.services
        made: list[Toy] = []

        def make(partition: int, leader_epoch: int) -> Toy:
            made.append(Toy(partition, leader_epoch))
            return made[-1]

        runtime = CoordinatorRuntime(
            services, TOPIC, KINDS, make, partitions=partitions, timeout_ms=timeout_ms, load_bytes=1 << 20
        )
        services.replicas.leaderships[TOPIC] = runtime
        services.control.add_publisher(runtime.on_metadata)
        await it.create(partitions=partitions)
        partition = services.replicas.partition(TOPIC, 0)
        assert partition is not None
        playing = Play(it, runtime, partition, made)
        runtime.carry_out = lambda *effect: playing.rung.append(effect)
        runtime.on_unloaded = playing.unloaded.append
        yield playing
