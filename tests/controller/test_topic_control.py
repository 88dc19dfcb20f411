"""Topics are created, grown and deleted; each error code has its story."""

from __future__ import annotations

from collections import Counter

import pytest

from ottla.errors import ErrorCode
from ottla.metadata.images import RESOURCE_TOPIC, ConfigResource
from ottla.model import METADATA_TOPIC, ZERO_UUID, Uuid
from ottla.wire.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_partitions_response import CreatePartitionsTopicResult
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.delete_topics_response import DeletableTopicResult
from tests.controller.acting import Acting, uid


@pytest.fixture
def acting() -> Acting:
    acting = Acting(num_partitions="3", default_replication_factor="2")
    acting.unfenced(1, 2, 3)
    return acting


def test_a_topic_is_made_of_its_record_its_configs_and_its_partitions(acting: Acting) -> None:
    result = acting.create("orders", 2, 3, configs={"retention.ms": "1000", "cleanup.policy": "compact"})
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.num_partitions, result.replication_factor) == (2, 3)
    assert acting.last_records == ["TopicRecord"] + 2 * ["ConfigRecord"] + 2 * ["PartitionRecord"]
    topic = acting.image.topic("orders")
    assert topic is not None
    assert topic.topic_id == result.topic_id
    assert acting.image.topic_config("orders") == {"retention.ms": "1000", "cleanup.policy": "compact"}
    for partition in topic.partitions.values():
        assert sorted(partition.replicas) == [1, 2, 3]
        assert partition.isr == partition.replicas
        assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (partition.replicas[0], 0, 0)
        assert partition.directories == tuple(uid(50 + replica) for replica in partition.replicas)


def test_the_response_tells_the_effective_configs(acting: Acting) -> None:
    result = acting.create("orders", configs={"retention.ms": "1000"})
    assert result.configs is not None
    told = {config.name: (config.value, config.config_source) for config in result.configs}
    assert told["retention.ms"] == ("1000", 1)
    assert told["max.message.bytes"] == ("1048588", 5)
    assert list(told) == sorted(told)


class Stranger:
    principal = "User:stranger"
    throttle_ms = 0

    def charge(self, partitions: int) -> None:
        pass

    def may_describe_configs(self, topic: str) -> bool:
        return False


def test_configs_are_kept_from_those_who_may_not_see_them(acting: Acting) -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(name="secret", num_partitions=1, replication_factor=1)])
    (result,) = acting.ask(lambda c, now: c.create_topics(request, now, Stranger())).topics
    assert result.error_code == 0
    assert result.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, [])


def test_minus_one_stands_for_the_defaults(acting: Acting) -> None:
    result = acting.create("orders", -1, -1)
    assert (result.num_partitions, result.replication_factor) == (3, 2)


def test_validate_only_changes_nothing(acting: Acting) -> None:
    before = len(acting.log)
    assert acting.create("orders", validate_only=True).error_code == 0
    assert acting.create("orders", 0, validate_only=True).error_code == ErrorCode.INVALID_PARTITIONS
    assert len(acting.log) == before
    assert acting.image.topic("orders") is None


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/b", "../etc", "a b", "a\x00b", "ä", "a" * 250, "a:b", "a\n"],
    ids=ascii,
)
def test_names_that_no_topic_may_have(acting: Acting, name: str) -> None:
    result = acting.create(name)
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert result.error_message
    assert acting.image.topics.by_id._size == 0


def test_names_at_the_edge(acting: Acting) -> None:
    for name in ("a" * 249, "A-Z_0.9", "...", "-"):
        assert acting.create(name).error_code == 0


def test_names_that_metrics_could_not_tell_apart(acting: Acting) -> None:
    assert acting.create("a.b_c").error_code == 0
    result = acting.create("a_b.c")
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert result.error_message is not None
    assert "collides with existing topic: a.b_c" in result.error_message
    assert acting.create("a.b-c").error_code == 0
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("x.y", "x_y")]
    )
    codes = [t.error_code for t in acting.ask(lambda c, now: c.create_topics(request, now)).topics]
    assert codes == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_a_topic_exists_once(acting: Acting) -> None:
    acting.create("orders")
    assert acting.create("orders").error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert acting.create(METADATA_TOPIC).error_code == ErrorCode.INVALID_REQUEST
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("a", "b", "a")]
    )
    results = acting.ask(lambda c, now: c.create_topics(request, now)).topics
    assert [(r.name, r.error_code) for r in results] == [("a", ErrorCode.INVALID_REQUEST), ("b", 0)]


@pytest.mark.parametrize(
    ("partitions", "factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 4, ErrorCode.INVALID_REPLICATION_FACTOR),
        ((1 << 31) - 1, 1, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_counts_that_cannot_be(acting: Acting, partitions: int, factor: int, code: ErrorCode) -> None:
    assert acting.create("orders", partitions, factor).error_code == code


def test_a_request_may_not_make_too_many_records(acting: Acting) -> None:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=f"t{n}", num_partitions=6_000, replication_factor=1) for n in range(2)]
    )
    assert acting.refused(lambda c, now: c.create_topics(request, now))[0] == "POLICY_VIOLATION"


@pytest.mark.parametrize(
    ("key", "value"),
    [("retention.ms", "soon"), ("retention.ms", "-2"), ("no.such.key", "1"), ("retention.ms", None)],
)
def test_configs_that_cannot_be(acting: Acting, key: str, value: str | None) -> None:
    result = acting.create("orders", configs={key: value})
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert result.error_message is not None
    assert key in result.error_message


def test_one_bad_topic_does_not_spoil_the_others(acting: Acting) -> None:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(name="good", num_partitions=1, replication_factor=1),
            CreatableTopic(name="bad/", num_partitions=1, replication_factor=1),
            CreatableTopic(name="fine", num_partitions=1, replication_factor=1),
        ]
    )
    results = acting.ask(lambda c, now: c.create_topics(request, now)).topics
    assert [r.error_code for r in results] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION, 0]
    assert [t.name for t in acting.image.topics.by_name.values()] == ["fine", "good"]


# Assignments by hand.


def test_replicas_are_where_they_were_assigned(acting: Acting) -> None:
    result = acting.create("orders", -1, -1, assignment={1: [3, 1], 0: [2, 3]})
    assert (result.num_partitions, result.replication_factor) == (2, 2)
    assert [acting.partition("orders", n).replicas for n in (0, 1)] == [(2, 3), (3, 1)]
    assert [acting.partition("orders", n).leader for n in (0, 1)] == [2, 3]


@pytest.mark.parametrize(
    ("assignment", "part"),
    [
        ({0: []}, "empty list"),
        ({0: [1, 1]}, "more than once"),
        ({0: [1, 9]}, "broker 9, which is not registered"),
        ({0: [1, 2], 1: [3]}, "other partitions have 2"),
        ({0: [1], 2: [2]}, "without gaps"),
        ({1: [1]}, "without gaps"),
    ],
)
def test_assignments_that_cannot_be(acting: Acting, assignment: dict[int, list[int]], part: str) -> None:
    result = acting.create("orders", -1, -1, assignment=assignment)
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert result.error_message is not None
    assert part in result.error_message


def test_an_assignment_leaves_counts_open(acting: Acting) -> None:
    assert acting.create("orders", 1, -1, assignment={0: [1]}).error_code == ErrorCode.INVALID_REQUEST
    assert acting.create("orders", -1, 1, assignment={0: [1]}).error_code == ErrorCode.INVALID_REQUEST


def test_replicas_on_fenced_brokers_are_not_in_sync(acting: Acting) -> None:
    acting.heartbeat(2, fence=True)
    acting.create("orders", -1, -1, assignment={0: [2, 3]})
    partition = acting.partition("orders")
    assert (partition.replicas, partition.isr, partition.leader) == ((2, 3), (3,), 3)
    result = acting.create("lonely", -1, -1, assignment={0: [2]})
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    for broker in (1, 3):
        acting.heartbeat(broker, fence=True)
    assert acting.create("none").error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_replicas_are_spread_over_the_racks_that_brokers_register_with() -> None:
    acting = Acting()
    racks = {1: "east", 2: "east", 3: "east", 4: "west", 5: "west", 6: "north"}
    acting.unfenced(*racks, racks=racks)
    acting.create("orders", 8, 3)
    assert grow(acting, "orders", 12).error_code == 0
    for index in range(12):
        replicas = acting.partition("orders", index).replicas
        assert {racks[replica] for replica in replicas} == {"east", "west", "north"}, replicas


def test_a_broker_that_shuts_down_is_given_no_replicas() -> None:
    """Nor counted where there are too few without it."""
    acting = Acting()
    acting.unfenced(1, 2, 3)
    acting.create("pair", -1, -1, assignment={0: [1, 2]})
    acting.heartbeat(1, shut_down=True)
    leaving = acting.image.broker(1)
    assert leaving is not None
    assert (leaving.fenced, leaving.in_controlled_shutdown) == (False, True)
    acting.create("orders", 6, 2)
    assert all(set(acting.partition("orders", index).replicas) == {2, 3} for index in range(6))
    assert acting.create("wide", 1, 3).error_code == ErrorCode.INVALID_REPLICATION_FACTOR


# Growth.


def grow(
    acting: Acting, name: str, count: int, assignments: list[list[int]] | None = None
) -> CreatePartitionsTopicResult:
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None
                if assignments is None
                else [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments],
            )
        ]
    )
    return acting.ask(lambda c, now: c.create_partitions(request, now)).results[0]


def test_partitions_are_added_with_the_topics_replication_factor(acting: Acting) -> None:
    acting.create("orders", 2, 2)
    assert grow(acting, "orders", 5).error_code == 0
    topic = acting.image.topic("orders")
    assert topic is not None
    assert list(topic.partitions) == [0, 1, 2, 3, 4]
    assert {len(p.replicas) for p in topic.partitions.values()} == {2}
    assert acting.image.topics.partition_count == 5
    assert grow(acting, "orders", 6, [[3, 2]]).error_code == 0
    assert acting.partition("orders", 5).replicas == (3, 2)


def test_growth_that_cannot_be(acting: Acting) -> None:
    acting.create("orders", 2, 2)
    cases = [
        ("nothing", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("orders", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("orders", -1, None, ErrorCode.INVALID_PARTITIONS),
        ("orders", 4, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 3, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 3, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 3, [[1, 9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 1 << 30, None, ErrorCode.POLICY_VIOLATION),
    ]
    before = len(acting.log)
    for name, count, assignments, code in cases:
        assert grow(acting, name, count, assignments).error_code == code, (name, count, assignments)
    twice = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="orders", count=3, assignments=None)] * 2)
    (result,) = acting.ask(lambda c, now: c.create_partitions(twice, now)).results
    assert result.error_code == ErrorCode.INVALID_REQUEST
    only_ask = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="orders", count=3, assignments=None)], validate_only=True
    )
    (result,) = acting.ask(lambda c, now: c.create_partitions(only_ask, now)).results
    assert result.error_code == 0
    assert len(acting.log) == before


# Deletion.


def delete(acting: Acting, *topics: tuple[str | None, Uuid]) -> list[DeletableTopicResult]:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics])
    return acting.ask(lambda c, now: c.delete_topics(request, now)).responses


def test_a_topic_is_deleted_by_name_or_by_id(acting: Acting) -> None:
    a, b = acting.create("a", configs={"retention.ms": "5"}).topic_id, acting.create("b").topic_id
    acting.create("c")
    by_name, by_id = delete(acting, ("a", ZERO_UUID), (None, b))
    assert (by_name.name, by_name.topic_id, by_name.error_code) == ("a", a, 0)
    assert (by_id.name, by_id.topic_id, by_id.error_code) == ("b", b, 0)
    assert acting.last_records == 2 * ["RemoveTopicRecord"]
    assert [t.name for t in acting.image.topics.by_name.values()] == ["c"]
    assert ConfigResource(RESOURCE_TOPIC, "a") not in acting.image.configs
    old = DeleteTopicsRequest(topic_names=["c"])
    (result,) = acting.ask(lambda c, now: c.delete_topics(old, now)).responses
    assert (result.name, result.error_code) == ("c", 0)
    again = acting.create("a")
    assert again.topic_id != a


def test_deletions_that_cannot_be(acting: Acting) -> None:
    topic_id = acting.create("a").topic_id
    results = delete(acting, ("x", ZERO_UUID), (None, uid(1)), ("a", topic_id), (None, ZERO_UUID))
    assert [r.error_code for r in results] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    results = delete(acting, ("a", ZERO_UUID), (None, topic_id))
    assert [r.error_code for r in results] == 2 * [ErrorCode.INVALID_REQUEST], "the same topic, twice"
    assert acting.image.topic("a") is not None
    never = Acting(delete_topic_enable="false")
    never.unfenced(1)
    never.create("a")
    assert delete(never, ("a", ZERO_UUID))[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED
    assert never.image.topic("a") is not None


def test_an_older_metadata_version_gets_older_records() -> None:
    acting = Acting(metadata_version=16)
    acting.unfenced(1)
    acting.create("orders")
    assert [record.version for record in acting.log[-1].records] == [0, 0]
    assert Counter(acting.last_records) == {"TopicRecord": 1, "PartitionRecord": 1}


def test_a_cluster_has_only_so_many_partitions() -> None:
    acting = Acting(ottla_partitions_max="5")
    acting.unfenced(1, 2, 3)
    acting.create("orders", 4, 1)
    assert grow(acting, "orders", 6).error_code == ErrorCode.POLICY_VIOLATION
    request = CreateTopicsRequest(topics=[CreatableTopic(name="more", num_partitions=2, replication_factor=1)])
    (result,) = acting.ask(lambda c, now: c.create_topics(request, now)).topics
    assert result.error_code == ErrorCode.POLICY_VIOLATION
    assert grow(acting, "orders", 5).error_code == 0
