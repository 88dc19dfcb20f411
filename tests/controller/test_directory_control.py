"""Brokers with several directories say where their replicas are, and which of their disks are gone (KIP-858)."""

from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.metadata.images import NO_LEADER, UNASSIGNED_DIRECTORY
from ottla.model import Uuid
from ottla.wire.messages.assign_replicas_to_dirs_request import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)
from tests.controller.acting import Acting, uid

TWO = [uid(70), uid(71)]


def acting_with_two_disks() -> Acting:
    acting = Acting()
    acting.register(1, log_dirs=TWO)
    acting.heartbeat(1)
    acting.unfenced(2)
    acting.assigned("orders", 1, 2)
    return acting


def assign(acting: Acting, *places: tuple[Uuid, Uuid, int], broker: int = 1) -> list[str]:
    request = AssignReplicasToDirsRequest(
        broker_id=broker,
        broker_epoch=acting.epoch(broker),
        directories=[
            DirectoryData(
                id=directory,
                topics=[TopicData(topic_id=topic_id, partitions=[PartitionData(partition_index=index)])],
            )
            for directory, topic_id, index in places
        ],
    )
    answer = acting.ask(lambda c, now: c.assign_replicas_to_dirs(request, now))
    return [
        ErrorCode(partition.error_code).name
        for directory in answer.directories
        for topic in directory.topics
        for partition in topic.partitions
    ]


def topic_id(acting: Acting, name: str = "orders") -> Uuid:
    topic = acting.image.topic(name)
    assert topic is not None
    return topic.topic_id


def test_the_broker_chooses_and_says() -> None:
    acting = acting_with_two_disks()
    assert acting.partition("orders").directories == (UNASSIGNED_DIRECTORY, uid(52))
    assert assign(acting, (TWO[1], topic_id(acting), 0)) == ["NONE"]
    placed = acting.partition("orders")
    assert (placed.directories, placed.leader_epoch, placed.partition_epoch) == ((TWO[1], uid(52)), 0, 1)
    before = len(acting.log)
    assert assign(acting, (TWO[1], topic_id(acting), 0)) == ["NONE"]
    assert len(acting.log) == before
    assert assign(acting, (TWO[1], topic_id(acting), 0), (TWO[0], topic_id(acting), 0)) == ["NONE", "NONE"]
    assert acting.partition("orders").directory_of(1) == TWO[0], "the last word counts"


def test_what_is_not_its_own_is_not_placed() -> None:
    acting = acting_with_two_disks()
    acting.assigned("foreign", 2)
    got = assign(
        acting,
        (TWO[0], uid(999), 0),
        (TWO[0], topic_id(acting), 4),
        (TWO[0], topic_id(acting, "foreign"), 0),
        (TWO[0], topic_id(acting), 0),
    )
    assert got == ["UNKNOWN_TOPIC_ID", "UNKNOWN_TOPIC_OR_PARTITION", "NOT_LEADER_OR_FOLLOWER", "NONE"]
    request = AssignReplicasToDirsRequest(broker_id=1, broker_epoch=12345)
    assert acting.refused(lambda c, now: c.assign_replicas_to_dirs(request, now))[0] == "STALE_BROKER_EPOCH"


def test_before_3_7_there_is_nothing_to_say() -> None:
    acting = Acting(metadata_version=16)
    acting.unfenced(1)
    request = AssignReplicasToDirsRequest(broker_id=1, broker_epoch=acting.epoch(1))
    assert acting.refused(lambda c, now: c.assign_replicas_to_dirs(request, now))[0] == "UNSUPPORTED_VERSION"


def test_a_failed_disk_takes_its_leaderships_and_nothing_else() -> None:
    acting = acting_with_two_disks()
    acting.assigned("kept", 1, 2)
    assign(acting, (TWO[0], topic_id(acting), 0), (TWO[1], topic_id(acting, "kept"), 0))
    acting.heartbeat(1, offline=[TWO[0]])
    assert (acting.partition("orders").leader, acting.partition("orders").isr) == (2, (2,))
    assert acting.partition("kept").leader == 1
    broker = acting.image.broker(1)
    assert broker is not None
    assert (broker.log_dirs, broker.fenced) == ((TWO[1],), False)
    before = len(acting.log)
    acting.heartbeat(1, offline=[TWO[0]])
    assert len(acting.log) == before, "said once"


def test_a_replica_that_was_on_a_failed_disk_is_found_out_late() -> None:
    acting = acting_with_two_disks()
    acting.heartbeat(1, offline=[TWO[0]])
    assert acting.partition("orders").leader == 1, "nobody knew where the replica was"
    assert assign(acting, (TWO[0], topic_id(acting), 0)) == ["NONE"]
    after = acting.partition("orders")
    assert (after.leader, after.isr, after.directory_of(1)) == (2, (2,), TWO[0])


def test_a_broker_that_comes_back_without_a_disk_leads_nothing_that_was_on_it() -> None:
    acting = Acting()
    acting.register(1, log_dirs=TWO)
    acting.heartbeat(1)
    acting.assigned("single", 1)
    assign(acting, (TWO[0], topic_id(acting, "single"), 0))
    acting.fence(1)
    response = acting.heartbeat(1, offline=[TWO[0]])
    assert response.is_fenced, "first the directory goes"
    assert not acting.heartbeat(1, offline=[TWO[0]]).is_fenced
    assert acting.partition("single").leader == NO_LEADER


def test_a_broker_without_any_disk_left_is_fenced() -> None:
    acting = acting_with_two_disks()
    assert acting.heartbeat(1, offline=TWO).is_fenced
    assert (acting.partition("orders").leader, acting.partition("orders").isr) == (2, (2,))
    before = len(acting.log)
    assert acting.heartbeat(1, offline=TWO).is_fenced
    assert len(acting.log) == before
