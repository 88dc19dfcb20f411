"""A replica that lacks committed records, or holds damaged ones, as its node treats it: it does not lead (E16)."""

from __future__ import annotations

import logging
from random import Random

import pytest

from ottla.broker.hosted import HostedPartition
from ottla.broker.replica_manager import ReplicaManager
from ottla.log import LogManager
from ottla.metadata.images import LOST_DIRECTORY, NO_LEADER, PartitionImage
from ottla.metrics.registry import Registry
from ottla.records import ValidationRules
from ottla.runtime import Runtime
from tests.log.faulty_disk import FaultyDisk
from tests.log.story import NOW, TOPIC_ID, TP, append, batch
from tests.log.test_future_logs import CONFIG, OLD, start
from tests.replication.test_replaced_log import DIRECTORY, NODE, OTHER, Watched
from tests.seams.surroundings import InlineOffload, LoopClock, MemoryNetwork

THIRD = 3


def image(
    leader: int, *isr: int, epoch: int = 5, lost: bool = False, replicas: tuple[int, ...] = (NODE, OTHER, THIRD)
) -> PartitionImage:
    directories = tuple(LOST_DIRECTORY if lost and replica == NODE else DIRECTORY for replica in replicas)
    return PartitionImage(replicas, isr, leader, epoch, 1, directories)


class Scene:
    """Node 1 has ten records of a partition."""

    def __init__(self, first: PartitionImage) -> None:
        disk = FaultyDisk()
        disk.make_dirs(OLD)
        runtime = Runtime(
            clock=LoopClock(), disk=disk, network=MemoryNetwork(), random=Random(1), offload=InlineOffload()
        )
        self.logs: LogManager = start(disk)
        self.log = self.logs.create(TP, TOPIC_ID, CONFIG, NOW, directory=OLD)
        for _ in range(10):
            append(self.log, batch(), epoch=1)
        self.log.update_high_watermark(8)
        self.replicas = ReplicaManager(NODE, runtime, Registry())
        self.replicas.lacking.can_tell_lost = self.replicas.lacking.has_elr = True
        self.fetchers = self.replicas.fetchers = Watched()
        self.told: list[bool] = []
        self.replicas.lacking.on_lacking = lambda partition: self.told.append(
            self.replicas.lacking.is_to_be_told(partition)
        )
        self.partition = HostedPartition(TP.topic, TOPIC_ID, 0, self.log, ValidationRules(), first)
        self.replicas.host(self.partition)

    @property
    def leads(self) -> bool:
        return self.partition.leader is not None

    def wants_to_be_lost(self) -> bool:
        return self.replicas.lacking.is_to_be_told(self.partition)


# Lacking, as a start finds it.


async def test_the_lead_is_not_taken_before_the_controller_knows() -> None:
    scene = Scene(image(NO_LEADER))
    scene.log.missing_until = 12
    scene.replicas.lead(scene.partition, image(NODE, NODE))
    assert (scene.leads, scene.told) == (False, [True])
    # It has been heard of: somebody else leads, and has what was missing.
    scene.replicas.follow(scene.partition, image(OTHER, OTHER, epoch=6, lost=True))
    assert scene.wants_to_be_lost(), "until it has caught up"
    assert scene.partition.following == (OTHER, 6)
    scene.replicas.follow(scene.partition, image(OTHER, OTHER, NODE, epoch=6, lost=True))
    assert not scene.log.lacks_committed, "also if the leader, elected uncleanly, never had the last two"
    assert not scene.wants_to_be_lost()
    scene.replicas.lead(scene.partition, image(NODE, OTHER, NODE, epoch=7))
    assert scene.leads


async def test_who_knew_and_elected_it_all_the_same_is_obeyed(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(image(NO_LEADER, lost=True))
    assert scene.log.lacks_committed, "a former self said so, and the log shows nothing of it any more"
    assert scene.wants_to_be_lost()
    with caplog.at_level(logging.ERROR):
        scene.replicas.lead(scene.partition, image(NODE, NODE, lost=True))
    assert scene.leads
    assert "is led from offset 10 on without committed records" in caplog.text
    assert not scene.wants_to_be_lost(), "it leads: its place is known again"
    assert not scene.log.lacks_committed


async def test_a_replica_without_peers_leads_what_it_has(caplog: pytest.LogCaptureFixture) -> None:
    alone = image(NODE, NODE, replicas=(NODE,))
    scene = Scene(alone)
    scene.log.missing_until = 12
    scene.replicas.lead(scene.partition, alone)
    assert (scene.leads, scene.told) == (True, [])
    assert "no other replica has them" in caplog.text


async def test_metadata_that_cannot_say_so_changes_nothing() -> None:
    scene = Scene(image(NO_LEADER))
    scene.replicas.lacking.can_tell_lost = False
    scene.log.missing_until = 12
    scene.replicas.lead(scene.partition, image(NODE, NODE))
    assert scene.leads


async def test_what_to_do_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(image(NO_LEADER))
    scene.log.missing_until = 12
    for _ in range(3):
        scene.replicas.follow(scene.partition, image(NO_LEADER, lost=True))
    assert caplog.text.count(f"ottla cluster elect {TP.topic}:0 --unclean") == 1


# Damaged, as a leader finds it.


async def test_a_damaged_leader_gives_up_and_copies_what_follows_the_damage() -> None:
    scene = Scene(image(NODE, NODE, OTHER))
    scene.replicas.lead(scene.partition, image(NODE, NODE, OTHER))
    assert scene.replicas.lacking.on_damage(scene.partition, 4)
    assert (scene.leads, scene.told) == (False, [True])
    # The metadata has other news of the same leadership first; and an election that nobody would have held.
    scene.replicas.lead(scene.partition, image(NODE, NODE, OTHER, THIRD))
    scene.replicas.lead(scene.partition, image(NODE, NODE, OTHER, THIRD, epoch=6))
    assert not scene.leads
    scene.replicas.follow(scene.partition, image(OTHER, NODE, OTHER, THIRD, epoch=7))
    assert scene.log.log_end_offset == 10, "in sync as far as the controller knows: nothing is cut yet"
    scene.replicas.follow(scene.partition, image(OTHER, OTHER, THIRD, epoch=7, lost=True))
    assert (scene.log.log_end_offset, scene.log.missing_until) == (4, 10)
    assert [what for what, _ in scene.fetchers.told][-2:] == ["unfollow", "follow 2 in 7"]
    assert scene.wants_to_be_lost()
    scene.replicas.follow(scene.partition, image(OTHER, OTHER, THIRD, NODE, epoch=7, lost=True))
    assert not scene.wants_to_be_lost()


async def test_while_nobody_else_is_in_sync_a_damaged_leader_leads_on() -> None:
    scene = Scene(image(NODE, NODE))
    scene.replicas.lead(scene.partition, image(NODE, NODE))
    assert not scene.replicas.lacking.on_damage(scene.partition, 4)
    scene.replicas.lead(scene.partition, image(NODE, NODE, epoch=6))
    assert (scene.leads, scene.told, scene.wants_to_be_lost()) == (True, [], False)
    assert scene.log.log_end_offset == 10
    # One that was past the damage has caught up.
    scene.replicas.on_partition_changed(scene.partition, image(NODE, NODE, OTHER, epoch=6))
    assert (scene.leads, scene.told) == (False, [True])


async def test_a_damaged_log_is_cut_where_its_replica_is_elected_all_the_same() -> None:
    scene = Scene(image(NODE, NODE, OTHER))
    scene.replicas.lead(scene.partition, image(NODE, NODE, OTHER))
    assert scene.replicas.lacking.on_damage(scene.partition, 4)
    scene.replicas.follow(scene.partition, image(NO_LEADER, OTHER, epoch=6, lost=True))
    assert scene.log.log_end_offset == 10, "nobody has more than this yet"
    scene.replicas.lead(scene.partition, image(NODE, NODE, epoch=7, lost=True))
    assert scene.leads
    assert (scene.log.log_end_offset, scene.partition.damaged_at) == (4, None)
