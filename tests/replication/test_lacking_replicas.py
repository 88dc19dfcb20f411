"""A replica that lacks committed records, or holds damaged ones, as its node treats it: it does not lead (E16)."""

from __future__ import annotations

import logging
from random import Random

import pytest

from ottla.broker.hosted import HostedPartition
from ottla.broker.replica_manager import ReplicaManager
from ottla.errors import ErrorCode
from ottla.log import LogManager
from ottla.metadata.images import LOST_DIRECTORY, NO_LEADER, PartitionImage
from ottla.metrics.registry import Registry
from ottla.records import ValidationRules
from ottla.runtime import DiskError, Runtime
from tests.log.faulty_disk import FaultyDisk, Operation
from tests.log.story import NOW, TOPIC_ID, TP, append, batch
from tests.log.test_future_logs import CONFIG, OLD, start
from tests.replication.test_replaced_log import DIRECTORY, NODE, OTHER, Watched
from tests.seams.surroundings import InlineOffload, LoopClock, MemoryNetwork

THIRD = 3
ADVICE = f"ottla cluster elect {TP.topic}:0 --unclean"


def image(
    leader: int,
    *isr: int,
    epoch: int = 5,
    lost: bool = False,
    other_lost: bool = False,
    replicas: tuple[int, ...] = (NODE, OTHER, THIRD),
    elr: tuple[int, ...] = (),
) -> PartitionImage:
    gone = {NODE: lost, OTHER: other_lost}
    directories = tuple(LOST_DIRECTORY if gone.get(replica, False) else DIRECTORY for replica in replicas)
    return PartitionImage(replicas, isr, leader, epoch, 1, directories, elr=elr)


class Consumer:
    """Waits for a partition to move."""

    def __init__(self) -> None:
        self.woken = 0

    def on_advance(self, partition: HostedPartition) -> None:
        self.woken += 1


class Scene:
    """Node 1 has ten records of a partition."""

    def __init__(self, first: PartitionImage, *, features_known: bool = True) -> None:
        disk = self.disk = FaultyDisk()
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
        if features_known:
            self.replicas.lacking.can_tell_lost = self.replicas.lacking.has_elr = True
        self.fetchers = self.replicas.fetchers = Watched()
        self.told: list[bool] = []
        self.replicas.lacking.on_lacking = lambda partition: self.told.append(
            self.replicas.lacking.is_to_be_told(partition)
        )
        self.partition = HostedPartition(TP.topic, TOPIC_ID, 0, self.log, ValidationRules(), first)
        self.replicas.host(self.partition)
        self.failed: list[HostedPartition] = []
        self.replicas.on_offline = lambda partition, error: self.failed.append(partition)

    def spoil_disk(self) -> None:
        """It takes nothing more."""

        def fail(operation: Operation) -> None:
            raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, f"no {operation.kind} of {operation.path}")

        self.disk.hook = fail

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
    assert "its leader was elected uncleanly" in caplog.text
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


async def test_no_feature_of_the_cluster_is_taken_for_granted() -> None:
    scene = Scene(image(NO_LEADER, lost=True), features_known=False)
    scene.replicas.follow(scene.partition, image(NO_LEADER, NODE, lost=True))
    assert scene.log.lacks_committed, "without eligible leaders, the last of an in-sync set is in it whatever it lost"
    scene.replicas.lead(scene.partition, image(NODE, NODE))
    assert scene.leads, "nobody could be told"


async def test_what_to_do_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(image(NO_LEADER))
    scene.log.missing_until = 12
    for _ in range(3):
        scene.replicas.follow(scene.partition, image(NO_LEADER, lost=True))
    assert caplog.text.count(ADVICE) == 1
    assert "committed records are missing from offset 10 on" in caplog.text


async def test_what_to_do_is_said_again_when_a_leader_went_before_it_had_helped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(image(NO_LEADER))
    scene.log.missing_until = 12
    scene.replicas.follow(scene.partition, image(NO_LEADER))
    scene.replicas.follow(scene.partition, image(OTHER, OTHER, epoch=6, lost=True))
    assert ADVICE not in caplog.text, "first nobody knows of it, and then another leads"
    for epoch in (7, 9):
        scene.replicas.follow(scene.partition, image(NO_LEADER, epoch=epoch, lost=True))
        scene.replicas.follow(scene.partition, image(OTHER, OTHER, epoch=epoch + 1, lost=True))
    assert caplog.text.count(ADVICE) == 2


async def test_nothing_is_to_be_done_for_a_replica_that_led_without_what_it_lacked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(image(NO_LEADER, lost=True))
    scene.replicas.lead(scene.partition, image(NODE, NODE, lost=True))
    # It is whole, though the news of that has not come through yet.
    scene.replicas.follow(scene.partition, image(NO_LEADER, epoch=6, lost=True))
    assert ADVICE not in caplog.text
    assert not scene.wants_to_be_lost()


async def test_while_another_leads_the_controller_need_not_know() -> None:
    scene = Scene(image(NO_LEADER))
    scene.log.missing_until = 12
    scene.replicas.follow(scene.partition, image(OTHER, OTHER))
    assert scene.log.lacks_committed
    assert not scene.wants_to_be_lost()


async def test_that_another_replica_is_lost_says_nothing_of_ours() -> None:
    scene = Scene(image(NO_LEADER))
    scene.log.missing_until = 12
    scene.replicas.lead(scene.partition, image(NODE, NODE, other_lost=True))
    assert not scene.leads


async def test_who_waits_here_hears_that_the_lead_is_not_taken() -> None:
    scene = Scene(image(NO_LEADER))
    scene.log.missing_until = 12
    consumer = Consumer()
    scene.partition.fetch_waiters[consumer] = None
    scene.replicas.lead(scene.partition, image(NODE, NODE))
    assert consumer.woken == 1


async def test_an_eligible_leader_is_whole_also_while_nobody_leads() -> None:
    scene = Scene(image(NO_LEADER, lost=True))
    scene.replicas.follow(scene.partition, image(NO_LEADER, lost=True, elr=(OTHER,)))
    assert scene.log.lacks_committed, "another is eligible"
    scene.replicas.follow(scene.partition, image(NO_LEADER, lost=True, elr=(OTHER, NODE)))
    assert not scene.log.lacks_committed


@pytest.mark.parametrize("elr", [True, False])
async def test_the_last_in_sync_is_whole_only_where_the_set_may_be_empty(elr: bool) -> None:
    scene = Scene(image(NO_LEADER, lost=True))
    scene.replicas.lacking.has_elr = elr
    scene.replicas.follow(scene.partition, image(NO_LEADER, NODE, lost=True))
    assert scene.log.lacks_committed is not elr


# Damaged, as a leader finds it.


async def test_a_whole_leader_leads_on_whoever_is_in_sync() -> None:
    scene = Scene(image(NODE, NODE))
    scene.replicas.lead(scene.partition, image(NODE, NODE))
    scene.replicas.on_partition_changed(scene.partition, image(NODE, NODE, OTHER))
    assert (scene.leads, scene.told) == (True, [])


async def test_a_damaged_leader_gives_up_and_copies_what_follows_the_damage(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(image(NODE, NODE, OTHER))
    scene.replicas.lead(scene.partition, image(NODE, NODE, OTHER))
    assert scene.replicas.lacking.on_damage(scene.partition, 4)
    assert (scene.leads, scene.told) == (False, [True])
    assert f"{TP} is damaged at offset 4: another replica is to lead it" in caplog.text
    # The metadata has other news of the same leadership first; and an election that nobody would have held.
    scene.replicas.lead(scene.partition, image(NODE, NODE, OTHER, THIRD))
    scene.replicas.lead(scene.partition, image(NODE, NODE, OTHER, THIRD, epoch=6))
    assert not scene.leads
    scene.replicas.follow(scene.partition, image(OTHER, NODE, OTHER, THIRD, epoch=7))
    assert scene.log.log_end_offset == 10, "in sync as far as the controller knows: nothing is cut yet"
    assert scene.wants_to_be_lost(), "whoever leads: else the damage would stay, and be served to whoever reads here"
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


async def test_the_first_damage_counts_in_whichever_order_it_is_found() -> None:
    scene = Scene(image(NODE, NODE))
    scene.replicas.lead(scene.partition, image(NODE, NODE))
    for offset in (6, 4, 7):
        assert not scene.replicas.lacking.on_damage(scene.partition, offset)
    assert scene.partition.damaged_at == 4


async def test_a_damaged_leader_that_is_elected_again_beside_others_in_sync_gives_up() -> None:
    scene = Scene(image(NODE, NODE))
    scene.replicas.lead(scene.partition, image(NODE, NODE))
    assert not scene.replicas.lacking.on_damage(scene.partition, 4)
    scene.replicas.lead(scene.partition, image(NODE, NODE, OTHER, epoch=6))
    assert (scene.leads, scene.told) == (False, [True])


async def test_a_damaged_replica_is_cut_though_it_is_in_sync_by_the_books() -> None:
    scene = Scene(image(NODE, NODE, OTHER))
    scene.replicas.lead(scene.partition, image(NODE, NODE, OTHER))
    assert scene.replicas.lacking.on_damage(scene.partition, 4)
    scene.replicas.follow(scene.partition, image(OTHER, OTHER, NODE, epoch=6, lost=True))
    assert (scene.log.log_end_offset, scene.log.missing_until) == (4, 10)


async def test_what_was_missing_behind_the_end_is_missing_behind_the_damage() -> None:
    scene = Scene(image(NO_LEADER))
    scene.log.missing_until = 12
    scene.partition.damaged_at = 4
    scene.replicas.follow(scene.partition, image(OTHER, OTHER, lost=True))
    assert (scene.log.log_end_offset, scene.log.missing_until) == (4, 12)


async def test_what_to_do_about_damage_names_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(image(NODE, NODE, OTHER))
    scene.replicas.lead(scene.partition, image(NODE, NODE, OTHER))
    assert scene.replicas.lacking.on_damage(scene.partition, 4)
    scene.replicas.follow(scene.partition, image(NO_LEADER, OTHER, epoch=6, lost=True))
    assert ADVICE in caplog.text
    assert "committed records are missing from offset 4 on" in caplog.text


async def test_a_disk_that_cannot_be_cut_at_the_damage_fences_the_follower() -> None:
    scene = Scene(image(NODE, NODE, OTHER))
    scene.replicas.lead(scene.partition, image(NODE, NODE, OTHER))
    assert scene.replicas.lacking.on_damage(scene.partition, 4)
    scene.spoil_disk()
    scene.replicas.follow(scene.partition, image(OTHER, OTHER, epoch=6, lost=True))
    assert (scene.failed, scene.partition.offline) == ([scene.partition], True)
    assert (scene.partition.following, scene.fetchers.told) == (None, [])


async def test_a_disk_that_cannot_be_cut_at_the_damage_fences_who_is_elected_all_the_same() -> None:
    scene = Scene(image(NODE, NODE, OTHER))
    scene.replicas.lead(scene.partition, image(NODE, NODE, OTHER))
    assert scene.replicas.lacking.on_damage(scene.partition, 4)
    scene.spoil_disk()
    scene.replicas.lead(scene.partition, image(NODE, NODE, epoch=6, lost=True))
    assert (scene.failed, scene.leads) == ([scene.partition], False)
