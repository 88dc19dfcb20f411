"""What records do to an image, and what publishers are told."""

from __future__ import annotations

import time

import pytest

from ottla.metadata.images import NO_LEADER, RESOURCE_TOPIC, ConfigResource
from ottla.wire.messages.clear_elr_record import ClearElrRecord
from ottla.wire.messages.fence_broker_record import FenceBrokerRecord
from ottla.wire.messages.partition_change_record import PartitionChangeRecord
from ottla.wire.messages.producer_ids_record import ProducerIdsRecord
from ottla.wire.messages.unfence_broker_record import UnfenceBrokerRecord
from ottla.wire.messages.unregister_broker_record import UnregisterBrokerRecord
from tests.metadata.making import (
    broker,
    broker_change,
    change,
    config,
    latest,
    level,
    partition,
    removed,
    replayed,
    topic,
    uid,
)


def test_a_topic_is_found_by_name_and_by_id() -> None:
    image, delta = replayed(topic("orders", 1), partition(1, 0, (1, 2)), partition(1, 1, (2, 1)))
    orders = image.topic("orders")
    assert orders is not None
    assert orders is image.topic_by_id(uid(1))
    assert [p.leader for p in orders.partitions.values()] == [1, 2]
    assert image.partition("orders", 1) == orders.partitions[1]
    assert image.partition("orders", 2) is None
    assert image.partition("payments", 0) is None
    assert image.topics.partition_count == 2
    assert [(c.topic, c.partition, c.before) for c in delta.partition_changes()] == [
        ("orders", 0, None),
        ("orders", 1, None),
    ]


def test_a_new_leader_begins_a_leader_epoch_and_every_change_a_partition_epoch() -> None:
    image, _ = replayed(topic("orders", 1), partition(1, 0, (1, 2)))
    image, delta = replayed(change(1, 0, isr=[1]), onto=image)
    shrunk = image.partition("orders", 0)
    assert shrunk is not None
    assert (shrunk.isr, shrunk.leader, shrunk.leader_epoch, shrunk.partition_epoch) == ((1,), 1, 0, 1)
    image, delta = replayed(change(1, 0, leader=NO_LEADER), change(1, 0, leader=1), onto=image)
    back = image.partition("orders", 0)
    assert back is not None
    assert (back.leader, back.leader_epoch, back.partition_epoch) == (1, 2, 3)
    (seen,) = delta.partition_changes()
    assert (seen.before, seen.after) == (shrunk, back), "publishers see the last state only"


def test_replicas_that_move_take_their_directories_with_them() -> None:
    image, _ = replayed(topic("orders", 1), partition(1, 0, (1, 2)))
    moved = PartitionChangeRecord(topic_id=uid(1), partition_id=0, replicas=[3, 1], adding_replicas=[3])
    after = replayed(latest(moved), onto=image).image.partition("orders", 0)
    assert after is not None
    assert after.directories == (uid(0), uid(1001))
    assert after.adding_replicas == (3,)
    assert after.directory_of(1) == uid(1001)


def test_a_deleted_topic_takes_its_configs_and_its_name_is_free_again() -> None:
    image, _ = replayed(
        topic("a.b", 1),
        config(RESOURCE_TOPIC, "a.b", "retention.ms", "5"),
        partition(1, 0),
        topic("c", 2),
        partition(2, 0),
    )
    assert image.topics.collisions.get("a_b") == ("a.b",)
    gone, delta = replayed(removed(1), onto=image)
    assert gone.topic("a.b") is None
    assert gone.topic_by_id(uid(1)) is None
    assert gone.topic_config("a.b") == {}
    assert gone.topics.collisions.get("a_b") is None
    assert gone.topics.partition_count == 1
    assert delta.configs_changed == [ConfigResource(RESOURCE_TOPIC, "a.b")]
    assert delta.local_changes(1).deleted == [("a.b", uid(1), 0)]
    assert image.topic("a.b") is not None, "the older image is untouched"


def test_delete_and_create_again_in_one_batch_is_another_topic() -> None:
    image, _ = replayed(
        topic("a", 1),
        config(RESOURCE_TOPIC, "a", "retention.ms", "5"),
        config(RESOURCE_TOPIC, "a", "x", "1"),
        partition(1, 0),
    )
    image, delta = replayed(
        removed(1),
        topic("a", 9),
        config(RESOURCE_TOPIC, "a", "x", "2"),
        partition(9, 0, (2,)),
        onto=image,
    )
    again = image.topic("a")
    assert again is not None
    assert again.topic_id == uid(9)
    assert image.topic_by_id(uid(1)) is None
    assert image.topic_config("a") == {"x": "2"}
    assert image.topics.partition_count == 1
    assert delta.local_changes(1).deleted == [("a", uid(1), 0)]
    assert [c.topic_id for c in delta.local_changes(2).leaders] == [uid(9)]


def test_create_and_delete_in_one_batch_leaves_nothing() -> None:
    image, delta = replayed(topic("a", 1), config(RESOURCE_TOPIC, "a", "x", "1"), partition(1, 0), removed(1))
    assert image.topic("a") is None
    assert image.topic_config("a") == {}
    assert not delta.topics_deleted
    assert not list(delta.partition_changes())


def test_a_broker_is_told_what_to_lead_what_to_follow_and_what_to_drop() -> None:
    image, delta = replayed(
        topic("a", 1),
        partition(1, 0, (1, 2)),
        partition(1, 1, (2, 1)),
        partition(1, 2, (3,)),
        topic("b", 2),
        partition(2, 0, (1,)),
    )
    mine = delta.local_changes(1)
    assert [(c.topic, c.partition) for c in mine.leaders] == [("a", 0), ("b", 0)]
    assert [(c.topic, c.partition) for c in mine.followers] == [("a", 1)]
    assert mine.deleted == []
    moved = PartitionChangeRecord(topic_id=uid(1), partition_id=0, replicas=[2], isr=[2], leader=2)
    _, delta = replayed(latest(moved), removed(2), onto=image)
    assert delta.local_changes(1).deleted == [("b", uid(2), 0), ("a", uid(1), 0)]
    assert [(c.topic, c.partition) for c in delta.local_changes(2).leaders] == [("a", 0)]
    assert delta.local_changes(3) == ([], [], [])


def test_brokers_come_and_go() -> None:
    image, delta = replayed(level(), broker(2, 5, rack="r2"), broker(1, 6))
    assert list(image.cluster.brokers) == [1, 2]
    assert image.alive_brokers() == []
    assert list(delta.brokers_changed) == [2, 1]
    image, _ = replayed(broker_change(1, 6, fenced=-1), onto=image)
    first = image.broker(1)
    assert first is not None
    assert first.active
    assert first.endpoint("PLAINTEXT") is not None
    assert first.endpoint("SSL") is None
    image, _ = replayed(broker_change(1, 6, shutting_down=1), onto=image)
    assert [(b.broker_id, b.active) for b in image.alive_brokers()] == [(1, False)]
    image, _ = replayed(broker_change(1, 6, fenced=1), onto=image)
    assert image.alive_brokers() == []
    image, _ = replayed(latest(UnfenceBrokerRecord(id=2, epoch=5)), onto=image)
    assert [b.broker_id for b in image.alive_brokers()] == [2]
    image, _ = replayed(latest(FenceBrokerRecord(id=2, epoch=5)), onto=image)
    assert image.alive_brokers() == []
    image, delta = replayed(latest(UnregisterBrokerRecord(broker_id=2, broker_epoch=5)), onto=image)
    assert list(image.cluster.brokers) == [1]
    assert delta.brokers_changed == {2: None}


def test_a_change_for_an_older_incarnation_stops_the_node() -> None:
    image, _ = replayed(broker(1, 6))
    with pytest.raises(AssertionError, match="broker 1 has epoch 6, not 5"):
        replayed(broker_change(1, 5, fenced=-1), onto=image)
    with pytest.raises(AssertionError, match="broker 2 is not registered"):
        replayed(broker_change(2, 5, fenced=-1), onto=image)


def test_configs_are_set_and_unset() -> None:
    image, delta = replayed(config(4, "", "a", "1"), config(4, "1", "b", "2"), config(16, "metrics", "c", "3"))
    assert len(delta.configs_changed) == 3
    assert image.config(ConfigResource(4, "")) == {"a": "1"}
    image, _ = replayed(config(4, "", "a", None), config(4, "1", "x", "y"), onto=image)
    assert image.config(ConfigResource(4, "")) == {}
    assert ConfigResource(4, "") not in image.configs
    assert image.config(ConfigResource(4, "1")) == {"b": "2", "x": "y"}


def test_eligible_leaders_are_cleared_for_one_topic_or_all() -> None:
    elr = PartitionChangeRecord(topic_id=uid(1), partition_id=0, eligible_leader_replicas=[2], last_known_elr=[3])
    image, _ = replayed(topic("a", 1), partition(1, 0, (1, 2, 3)), latest(elr))
    before = image.partition("a", 0)
    assert before is not None
    assert (before.elr, before.last_known_elr) == ((2,), (3,))
    for name in ("a", ""):
        after = replayed(latest(ClearElrRecord(topic_name=name)), onto=image).image.partition("a", 0)
        assert after is not None
        assert (after.elr, after.last_known_elr) == ((), ())
        assert after.partition_epoch == before.partition_epoch + 1, "it is a change of the partition"


def test_clearing_what_nobody_has_changes_nothing() -> None:
    image, _ = replayed(topic("a", 1), partition(1, 0, (1, 2, 3)), topic("b", 2), partition(2, 0, (1, 2)))
    for name in ("a", "", "unknown"):
        after, delta = replayed(latest(ClearElrRecord(topic_name=name)), onto=image)
        assert not delta.topics_changed
        assert after.topics == image.topics
    elr = PartitionChangeRecord(topic_id=uid(1), partition_id=0, eligible_leader_replicas=[2])
    after, delta = replayed(latest(elr), latest(ClearElrRecord(topic_name="")), onto=image)
    changed = after.partition("a", 0)
    assert changed is not None
    assert (changed.elr, changed.partition_epoch) == ((), 2)
    after, delta = replayed(removed(1), latest(ClearElrRecord(topic_name="")), onto=image)
    assert list(delta.topics_deleted) == [uid(1)]
    assert not delta.topics_changed


def test_producer_ids_and_features() -> None:
    image, delta = replayed(level(29), latest(ProducerIdsRecord(broker_id=1, broker_epoch=3, next_producer_id=1000)))
    assert image.next_producer_id == 1000
    assert image.features.metadata_version == 29
    assert delta.producer_ids_changed == 1000


def test_a_batch_without_effect_is_an_empty_delta_that_moves_the_offset() -> None:
    image, delta = replayed()
    assert delta.empty
    assert image.last_offset == 0


@pytest.mark.slow
def test_a_change_to_a_large_image_is_cheap() -> None:
    records = [topic("large", 1)] + [partition(1, n, (1, 2, 3)) for n in range(10_000)]
    image, _ = replayed(*records)
    small, _ = replayed(topic("small", 1), *[partition(1, n, (1, 2, 3)) for n in range(10)])

    def cost(at: int, onto: object) -> float:
        begin = time.perf_counter()
        for _ in range(100):
            replayed(change(1, at, isr=[1, 2]), onto=onto)  # type: ignore[arg-type]
        return time.perf_counter() - begin

    assert min(cost(9_000, image) for _ in range(3)) < 10 * min(cost(9, small) for _ in range(3))
