"""What a partition goes through when its log is replaced: the replica has moved to another directory of its node."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import TypeVar

from ottla.broker.hosted import HostedPartition
from ottla.broker.replica_manager import ReplicaManager
from ottla.log import Log, LogConfig, LogManager, future_logs
from ottla.metadata.images import MetadataImage, PartitionImage
from ottla.metrics.registry import Registry
from ottla.model import TopicPartition, Uuid
from ottla.partition.follower import PartitionFollower
from ottla.records import ValidationRules
from ottla.runtime import Runtime
from tests.log.faulty_disk import FaultyDisk
from tests.log.story import NOW, TOPIC_ID, TP, append, batch
from tests.log.test_future_logs import CONFIG, NEW, OLD, copy, start
from tests.seams.surroundings import InlineOffload, LoopClock, MemoryNetwork

T = TypeVar("T")
NODE, OTHER = 1, 2
DIRECTORY = Uuid(bytes(15) + b"d")


class SlowOffload(InlineOffload):
    """Blocking work that ends when the test says so."""

    def __init__(self) -> None:
        self.held: list[Callable[[], None]] = []

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def end() -> None:
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)

        self.held.append(end)
        return future


class Watched:
    """Fetchers that note what they are told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Log]] = []

    def follow(self, partition: HostedPartition, leader_id: int, leader_epoch: int) -> None:
        self.told.append((f"follow {leader_id} in {leader_epoch}", partition.log))

    def unfollow(self, partition: HostedPartition) -> None:
        self.told.append(("unfollow", partition.log))

    def on_metadata(self, image: MetadataImage) -> None:
        pass

    def followed(self) -> Iterator[tuple[TopicPartition, PartitionFollower]]:
        return iter(())

    @property
    def lag_max(self) -> int:
        return 0


class Waiting:
    """A producer that waits."""

    waiting = True

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_safe(self, partition: HostedPartition, offset: int) -> None:
        self.told.append(f"safe at {offset}")

    def on_lost(self, partition: HostedPartition, offset: int) -> None:
        self.told.append("lost")


class Scene:
    def __init__(self, config: LogConfig = CONFIG) -> None:
        disk = FaultyDisk()
        for directory in (OLD, NEW):
            disk.make_dirs(directory)
        self.offload = SlowOffload()
        runtime = Runtime(clock=LoopClock(), disk=disk, network=MemoryNetwork(), random=Random(1), offload=self.offload)
        self.logs: LogManager = start(disk)
        self.old = self.logs.create(TP, TOPIC_ID, config, NOW, directory=OLD)
        self.replicas = ReplicaManager(NODE, runtime, Registry())
        self.fetchers = self.replicas.fetchers = Watched()
        self.partition = HostedPartition(TP.topic, TOPIC_ID, 0, self.old, ValidationRules(), image(NODE))
        self.replicas.host(self.partition)

    def move(self) -> Log:
        """The whole of it, in one turn."""
        future = future_logs.begin(self.logs, TP, NEW, NOW)
        copy(self.old, future)
        self.logs.prepare_checkpoints_of(NEW).run()
        future_logs.take_over(self.logs, TP, NOW).run()
        self.replicas.replace_log(self.partition, future)
        return future


def image(leader: int, epoch: int = 5) -> PartitionImage:
    return PartitionImage(
        replicas=(NODE, OTHER),
        isr=(NODE, OTHER),
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=1,
        directories=(DIRECTORY, DIRECTORY),
    )


async def test_what_the_old_log_lacked_the_new_one_lacks() -> None:
    scene = Scene()
    scene.old.missing_until = 7
    assert scene.move().missing_until == 7


async def test_a_follower_goes_on_copying_into_the_new_log() -> None:
    scene = Scene()
    scene.replicas.follow(scene.partition, image(OTHER))
    scene.old.append_replicated(batch(3, leader_epoch=5), NOW)
    scene.old.update_high_watermark(2)
    new = scene.move()
    assert scene.partition.log is new
    assert scene.partition.following == (OTHER, 5)
    assert [what for what, _ in scene.fetchers.told] == ["follow 2 in 5", "unfollow", "follow 2 in 5"]
    assert scene.fetchers.told[-1][1] is new
    assert (new.high_watermark, new.log_end_offset, new.last_epoch) == (2, 3, 5)


async def test_a_leader_leads_on_in_its_epoch() -> None:
    scene = Scene()
    scene.replicas.lead(scene.partition, image(NODE))
    new = scene.move()
    leader = scene.partition.leader
    assert leader is not None
    assert leader.leader_epoch == 5
    assert new.epochs.latest_epoch == 5  # Begun, and not used yet (KIP-279).
    append(new, batch(), epoch=5)
    assert new.log_end_offset == 1


async def test_who_waits_for_a_flush_of_the_old_log_is_served_by_the_new_one() -> None:
    scene = Scene(LogConfig(flush_messages=1))
    scene.replicas.lead(scene.partition, image(NODE))
    scene.replicas.produce(scene.partition, batch(), -1, 12)
    waiter = Waiting()
    scene.partition.durable_waiters.append((1, waiter))
    assert (scene.partition.flushing, waiter.told) == (True, [])
    new = scene.move()
    assert waiter.told == ["safe at 1"]
    assert new.recovery_point == scene.partition.durable_offset == 1
    # The flush of the old log ends later, finds its directory gone, and concerns nobody.
    for ended in scene.offload.held:
        ended()
    await scene.replicas.drain()
    assert (scene.partition.failed, scene.partition.flushing, new.offline) == (False, False, False)


async def test_a_verification_under_way_is_good_for_the_new_log() -> None:
    scene = Scene()
    scene.replicas.lead(scene.partition, image(NODE))
    guard = scene.old.producers.start_verification(9, 0, 0, NOW)
    new = scene.move()
    data = batch(producer_id=9, producer_epoch=0, sequence=0, transactional=True)
    scene.replicas.produce(scene.partition, data, 1, 11, guard=guard)
    assert new.log_end_offset == 1
