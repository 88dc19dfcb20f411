"""Leaders are elected because somebody asks, because the time has come, or because a topic rather loses records."""

from __future__ import annotations

import pytest

from ottla.metadata.images import NO_LEADER, RESOURCE_BROKER, RESOURCE_TOPIC
from ottla.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.controller.acting import Acting

PREFERRED, UNCLEAN = 0, 1


def alter(acting: Acting, kind: int, name: str, key: str, value: str | None) -> int:
    config = AlterableConfig(name=key, config_operation=1 if value is None else 0, value=value)
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])]
    )
    return acting.ask(lambda c, now: c.incremental_alter_configs(request, now)).responses[0].error_code


@pytest.fixture
def acting() -> Acting:
    acting = Acting()
    acting.unfenced(1, 2, 3)
    return acting


def lose_leadership(acting: Acting, *names: str) -> None:
    """Broker 1 goes and comes back, and is in the ISRs again, but leads no more."""
    acting.fence(1)
    acting.heartbeat(1)
    for name in names:
        partition = acting.partition(name)
        assert partition.leader != 1
        acting.propose(name, [*partition.isr, 1])


def test_the_preferred_replica_is_elected_when_asked_for(acting: Acting) -> None:
    acting.assigned("orders", 1, 2)
    assert acting.elect(PREFERRED, {"orders": [0]}) == {("orders", 0): "ELECTION_NOT_NEEDED"}
    acting.fence(1)
    assert acting.elect(PREFERRED, {"orders": [0]}) == {("orders", 0): "PREFERRED_LEADER_NOT_AVAILABLE"}
    acting.heartbeat(1)
    assert acting.elect(PREFERRED, {"orders": [0]}) == {("orders", 0): "PREFERRED_LEADER_NOT_AVAILABLE"}, "not in sync"
    acting.propose("orders", [2, 1])
    epoch = acting.partition("orders").leader_epoch
    assert acting.elect(PREFERRED, {"orders": [0, 0]}) == {("orders", 0): "NONE"}
    assert (acting.partition("orders").leader, acting.partition("orders").leader_epoch) == (1, epoch + 1)


def test_unknown_topics_partitions_and_kinds_of_election(acting: Acting) -> None:
    acting.assigned("orders", 1, 2)
    assert acting.elect(UNCLEAN, {"nope": [0], "orders": [0, 3]}) == {
        ("nope", 0): "UNKNOWN_TOPIC_OR_PARTITION",
        ("orders", 0): "ELECTION_NOT_NEEDED",
        ("orders", 3): "UNKNOWN_TOPIC_OR_PARTITION",
    }
    with pytest.raises(Exception, match="no election of type 2"):
        acting.elect(2, {"orders": [0]})


def test_a_topic_that_is_named_is_answered_for_though_none_of_its_partitions_are(acting: Acting) -> None:
    """As Apache Kafka does: who names topics finds each of them in the answer."""
    acting.assigned("orders", 1, 2)
    named = [TopicPartitions(topic="orders", partitions=[]), TopicPartitions(topic="nope", partitions=[])]
    request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=named)
    answer = acting.ask(lambda c, now: c.elect_leaders(request, now))
    assert [(topic.topic, topic.partition_result) for topic in answer.replica_election_results] == [
        ("orders", []),
        ("nope", []),
    ]


def test_of_all_partitions_only_those_with_news_are_named(acting: Acting) -> None:
    acting.assigned("first", 1, 2)
    acting.assigned("second", 2, 3)
    acting.assigned("third", 1, 3)
    lose_leadership(acting, "first")
    assert acting.elect(PREFERRED, None) == {("first", 0): "NONE", ("third", 0): "PREFERRED_LEADER_NOT_AVAILABLE"}


def test_an_unclean_election_is_held_when_asked_for_and_says_that_it_was(acting: Acting) -> None:
    acting.assigned("orders", 1, 2)
    acting.propose("orders", [1])
    acting.fence(1)
    assert acting.partition("orders").leader == NO_LEADER, "2 is alive, but may have lost records"
    assert acting.elect(PREFERRED, {"orders": [0]}) == {("orders", 0): "PREFERRED_LEADER_NOT_AVAILABLE"}
    assert acting.elect(UNCLEAN, {"orders": [0]}) == {("orders", 0): "NONE"}
    partition = acting.partition("orders")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), 1)
    acting.fence(2)
    assert acting.elect(UNCLEAN, {"orders": [0]}) == {("orders", 0): "ELIGIBLE_LEADERS_NOT_AVAILABLE"}


@pytest.mark.parametrize(("kind", "name"), [(RESOURCE_TOPIC, "orders"), (RESOURCE_BROKER, ""), (RESOURCE_BROKER, "1")])
def test_a_config_that_allows_unclean_elections_brings_one_about(acting: Acting, kind: int, name: str) -> None:
    acting.assigned("orders", 2, 3)
    acting.assigned("careful", 2, 3, unclean_leader_election_enable="false")
    for topic in ("orders", "careful"):
        acting.propose(topic, [2])
    acting.fence(2)
    acting.time_passes()
    assert acting.partition("orders").leader == NO_LEADER
    assert alter(acting, kind, name, "unclean.leader.election.enable", "true") == 0
    assert acting.controller.next_timed_work_ms() <= acting.now_ms, "it does not wait for the clock"
    acting.time_passes()
    assert acting.partition("orders").leader == 3
    assert acting.partition("careful").leader == NO_LEADER
    assert acting.controller.next_timed_work_ms() > acting.now_ms


def test_unclean_elections_also_come_with_the_clock(acting: Acting) -> None:
    """A broker that comes back is elected at once; a topic whose leader is gone for good is looked at now and then."""
    acting.assigned("orders", 2, 3, unclean_leader_election_enable="true")
    acting.propose("orders", [2])
    acting.fence(3)
    acting.fence(2)
    assert acting.partition("orders").leader == NO_LEADER
    acting.heartbeat(3)
    assert acting.partition("orders").leader == 3


def test_leaderships_return_to_preferred_replicas_by_themselves(acting: Acting) -> None:
    acting.assigned("first", 1, 2)
    acting.assigned("second", 1, 3)
    acting.assigned("third", 2, 3)
    lose_leadership(acting, "first", "second")
    acting.time_passes()
    assert acting.partition("first").leader == 2, "not at once"
    acting.now_ms += 300_000
    for broker in (1, 2, 3):
        acting.heartbeat(broker)
    acting.time_passes()
    assert [acting.partition(name).leader for name in ("first", "second", "third")] == [1, 1, 2]


def test_balancing_can_be_switched_off() -> None:
    acting = Acting(auto_leader_rebalance_enable="false")
    acting.unfenced(1, 2)
    acting.assigned("first", 1, 2)
    lose_leadership(acting, "first")
    acting.now_ms += 900_000
    for broker in (1, 2):
        acting.heartbeat(broker)
    acting.time_passes()
    assert acting.partition("first").leader == 2


def test_a_large_balance_goes_in_steps(monkeypatch: pytest.MonkeyPatch, acting: Acting) -> None:
    monkeypatch.setattr("ottla.controller.election_control.ELECTIONS_PER_STEP_MAX", 2)
    names = [f"topic{n}" for n in range(5)]
    for name in names:
        acting.assigned(name, 1, 2)
    lose_leadership(acting, *names)
    acting.now_ms += 300_000
    for broker in (1, 2, 3):
        acting.heartbeat(broker)
    before = len(acting.log)
    acting.time_passes()
    assert [len(batch.records) for batch in acting.log[before:]] == [2, 2, 1]
    assert all(acting.partition(name).leader == 1 for name in names)


def test_a_log_that_others_read_does_not_fall_silent(acting: Acting) -> None:
    acting.time_passes(10)
    quiet = acting.controller.next_offset
    acting.time_passes(2_000)
    assert acting.controller.next_offset == quiet, "alone, there is nobody to tell"
    acting.controller.on_listeners(present=True)
    acting.time_passes(500)
    assert acting.last_records == ["NoOpRecord"]
    assert acting.controller.next_timed_work_ms() == acting.now_ms + 500
    acting.time_passes(499)
    assert acting.controller.next_offset == quiet + 1
    acting.time_passes(1)
    assert acting.controller.next_offset == quiet + 2


def test_no_ops_can_be_switched_off() -> None:
    acting = Acting(metadata_max_idle_interval_ms="0")
    acting.controller.on_listeners(present=True)
    before = acting.controller.next_offset
    acting.time_passes(60_000)
    assert acting.controller.next_offset == before
