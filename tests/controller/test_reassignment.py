"""Replicas move: added ones first, removed ones last, and never at the cost of what is in sync (A24)."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode
from ottla.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.controller.acting import Acting, uid


@pytest.fixture
def acting() -> Acting:
    acting = Acting()
    acting.unfenced(1, 2, 3, 4, 5, 6)
    acting.assigned("orders", 1, 2, 3, min_insync_replicas="2")
    return acting


def listed(acting: Acting, topics: list[str] | None = None) -> dict[str, tuple[list[int], list[int], list[int]]]:
    request = ListPartitionReassignmentsRequest(
        topics=None
        if topics is None
        else [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 9]) for name in topics]
    )
    answer = acting.ask(lambda c, now: c.list_partition_reassignments(request, now))
    return {
        topic.name: (partition.replicas, partition.adding_replicas, partition.removing_replicas)
        for topic in answer.topics
        for partition in topic.partitions
    }


def test_a_replica_is_replaced(acting: Acting) -> None:
    assert acting.reassign("orders", [1, 2, 4]) == ("NONE", None)
    begun = acting.partition("orders")
    assert (begun.replicas, begun.adding_replicas, begun.removing_replicas) == ((1, 2, 4, 3), (4,), (3,))
    assert begun.isr == (1, 2, 3), "nobody is in sync because it was asked for"
    assert begun.directory_of(4) == uid(54)
    assert (begun.leader_epoch, begun.partition_epoch) == (0, 1)
    assert listed(acting) == {"orders": ([1, 2, 4, 3], [4], [3])}
    answer = acting.propose("orders", [1, 2, 3, 4])
    assert (answer.error_code, answer.leader_epoch, answer.isr) == (0, 1, [1, 2, 4]), "and with that it is complete"
    done = acting.partition("orders")
    assert (done.replicas, done.isr, done.leader, done.leader_epoch) == ((1, 2, 4), (1, 2, 4), 1, 1)
    assert (done.adding_replicas, done.removing_replicas) == ((), ())
    assert done.directories == (uid(51), uid(52), uid(54))
    assert listed(acting) == {}


def test_it_waits_until_all_of_the_new_replicas_are_in_sync(acting: Acting) -> None:
    acting.reassign("orders", [4, 5, 6])
    for isr in ([1, 2, 3, 4], [1, 4], [1, 4, 5]):
        assert acting.propose("orders", isr).error_code == 0
        assert acting.partition("orders").replicas == (4, 5, 6, 1, 2, 3)
    assert ErrorCode(acting.propose("orders", [1, 4, 5, 6]).error_code).name == "NEW_LEADER_ELECTED"
    done = acting.partition("orders")
    assert (done.replicas, done.isr, done.leader) == ((4, 5, 6), (4, 5, 6), 4)


def test_a_dead_broker_that_stays_does_not_hold_up_the_move_of_another(acting: Acting) -> None:
    acting.fence(2)
    acting.reassign("orders", [1, 2, 4])
    acting.propose("orders", [1, 3, 4])
    done = acting.partition("orders")
    assert (done.replicas, done.isr, done.removing_replicas) == ((1, 2, 4), (1, 4), ())


def test_it_waits_while_those_that_go_are_what_keeps_the_topic_writable(acting: Acting) -> None:
    """3 and 4 are in sync, 1 and 2 are not: without 3 the topic would have one in sync, and it asks for two."""
    acting.fence(2)
    acting.reassign("orders", [1, 2, 4])
    acting.propose("orders", [1, 3])
    acting.fence(1)
    assert acting.propose("orders", [3, 4]).error_code == 0
    waiting = acting.partition("orders")
    assert (waiting.isr, waiting.removing_replicas) == ((3, 4), (3,))
    acting.heartbeat(1)
    acting.propose("orders", [3, 4, 1])
    assert acting.partition("orders").isr == (4, 1)


def test_a_larger_factor_raises_the_leader_epoch_when_it_is_reached(acting: Acting) -> None:
    acting.reassign("orders", [1, 2, 3, 4])
    assert acting.partition("orders").leader_epoch == 0
    acting.propose("orders", [1, 2, 3, 4])
    done = acting.partition("orders")
    assert (done.replicas, done.adding_replicas, done.leader, done.leader_epoch) == ((1, 2, 3, 4), (), 1, 1)


def test_a_smaller_factor_and_another_order_are_done_at_once(acting: Acting) -> None:
    assert acting.reassign("orders", [3, 2, 1]) == ("NONE", None)
    turned = acting.partition("orders")
    assert (turned.replicas, turned.leader, turned.leader_epoch) == ((3, 2, 1), 1, 0), "order alone moves no leader"
    assert turned.directories == (uid(53), uid(52), uid(51))
    assert acting.reassign("orders", [3, 2]) == ("NONE", None)
    done = acting.partition("orders")
    assert (done.replicas, done.isr, done.leader, done.leader_epoch) == ((3, 2), (2, 3), 3, 1)
    assert acting.reassign("orders", [3, 2]) == ("NONE", None)
    assert acting.partition("orders").partition_epoch == done.partition_epoch, "nothing to do is no news"


def test_a_smaller_factor_waits_for_who_is_to_stay(acting: Acting) -> None:
    acting.propose("orders", [1, 2])
    acting.reassign("orders", [3])
    waiting = acting.partition("orders")
    assert (waiting.replicas, waiting.removing_replicas, waiting.isr) == ((3, 1, 2), (1, 2), (1, 2))
    acting.propose("orders", [1, 2, 3])
    assert (acting.partition("orders").replicas, acting.partition("orders").leader) == ((3,), 3)


def test_a_running_one_is_cancelled(acting: Acting) -> None:
    acting.reassign("orders", [4, 5, 3])
    acting.propose("orders", [1, 2, 3, 4])
    assert acting.reassign("orders", None) == ("NONE", None)
    back = acting.partition("orders")
    assert sorted(back.replicas) == [1, 2, 3]
    assert (back.isr, back.leader, back.adding_replicas, back.removing_replicas) == ((1, 2, 3), 1, (), ())
    assert back.leader_epoch == 1, "4 and 5 must not be taken for followers of this epoch"
    code, _ = acting.reassign("orders", None)
    assert code == "NO_REASSIGNMENT_IN_PROGRESS"


def test_a_running_one_is_replaced_and_a_cancel_goes_back_to_before_both(acting: Acting) -> None:
    acting.reassign("orders", [1, 2, 4])
    acting.propose("orders", [1, 2, 3])
    assert acting.reassign("orders", [1, 4, 5]) == ("NONE", None)
    assert listed(acting, ["orders", "nope"]) == {"orders": ([1, 4, 5, 2, 3], [4, 5], [2, 3])}
    assert acting.reassign("orders", [1, 2, 3]) == ("NONE", None)
    reverted = acting.partition("orders")
    assert (reverted.replicas, reverted.isr) == ((1, 2, 3), (1, 2, 3)), "who was to be added goes at once"
    acting.reassign("orders", [1, 4, 5])
    acting.reassign("orders", [1, 6, 5])
    acting.reassign("orders", None)
    assert set(acting.partition("orders").replicas) >= {1, 2, 3}


def test_a_cancel_does_not_take_away_what_keeps_records_safe(acting: Acting) -> None:
    """2 and 3 are behind; 4 and 5, which are being added, hold what was acknowledged."""
    acting.reassign("orders", [4, 5, 6])
    acting.propose("orders", [1, 4, 5])
    before = acting.partition("orders")
    code, message = acting.reassign("orders", None)
    assert code == "INVALID_REPLICA_ASSIGNMENT"
    assert message is not None
    assert "only 1 are in sync" in message
    assert acting.partition("orders") == before
    acting.propose("orders", [1, 2, 4])
    assert acting.reassign("orders", None) == ("NONE", None)
    assert acting.partition("orders").isr == (1, 2)


def test_a_cancel_may_be_an_unclean_election_where_the_topic_allows_it() -> None:
    acting = Acting()
    acting.unfenced(1, 2, 3)
    acting.assigned("reckless", 1, unclean_leader_election_enable="true")
    acting.assigned("careful", 1)
    for name in ("reckless", "careful"):
        acting.reassign(name, [2, 3])
        acting.propose(name, [1, 2])
    acting.fence(1)
    for name in ("reckless", "careful"):
        assert (acting.partition(name).leader, acting.partition(name).isr) == (2, (2,))
        assert acting.reassign(name, None)[0] == "INVALID_REPLICA_ASSIGNMENT", "there is nowhere to go back to"
    acting.heartbeat(1)
    assert acting.reassign("careful", None)[0] == "INVALID_REPLICA_ASSIGNMENT"
    assert acting.reassign("reckless", None) == ("NONE", None)
    back = acting.partition("reckless")
    assert (back.replicas, back.isr, back.leader, back.leader_recovery_state) == ((1,), (1,), 1, 1)


def test_what_is_refused(acting: Acting) -> None:
    cases = [
        (acting.reassign("orders", []), "INVALID_REPLICA_ASSIGNMENT"),
        (acting.reassign("orders", [1, 1]), "INVALID_REPLICA_ASSIGNMENT"),
        (acting.reassign("orders", [1, 99]), "INVALID_REPLICA_ASSIGNMENT"),
        (acting.reassign("orders", [1, -1]), "INVALID_REPLICA_ASSIGNMENT"),
        (acting.reassign("nope", [1]), "UNKNOWN_TOPIC_OR_PARTITION"),
        (acting.reassign("orders", [1, 2], allow=False), "INVALID_REPLICATION_FACTOR"),
        (acting.reassign("orders", None), "NO_REASSIGNMENT_IN_PROGRESS"),
        (acting.reassign("orders", [1, 2, 6], allow=False), "NONE"),
        (acting.reassign("orders", [1, 2, 6, 5], allow=False), "INVALID_REPLICATION_FACTOR"),
    ]
    assert [code for (code, _), _ in cases] == [expected for _, expected in cases]


def test_a_broker_may_die_in_the_middle(acting: Acting) -> None:
    acting.reassign("orders", [4, 2, 3])
    acting.propose("orders", [1, 2, 3])
    acting.fence(1)
    moved = acting.partition("orders")
    assert (moved.leader, moved.isr, moved.adding_replicas) == (2, (2, 3), (4,))
    acting.propose("orders", [2, 3, 4])
    assert acting.partition("orders").replicas == (4, 2, 3)
    assert acting.partition("orders").leader == 2, "the leader stays where it can"
