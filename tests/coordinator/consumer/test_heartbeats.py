"""Members join, share, give up and leave: what each is told, and what is written."""

from __future__ import annotations

import pytest

from ottla.coordinator.consumer.member import MemberState
from ottla.errors import ErrorCode, KafkaError

from .stage import Stage, assigned, topic_id


def refused(code: ErrorCode) -> pytest.RaisesExc[KafkaError]:
    return pytest.RaisesExc(KafkaError, check=lambda error: error.code == code)


@pytest.fixture
def stage() -> Stage:
    found = Stage()
    found.topics(a=4)
    return found


def kinds(stage: Stage, since: int) -> list[str]:
    """The records since then: an exclamation mark is a tombstone."""
    return [
        ("" if record.value is not None else "!")
        + type(record.key).__name__.removeprefix("ConsumerGroup").removesuffix("Key")
        for record in stage.log[since:]
    ]


def test_the_first_member_gets_everything_at_once(stage: Stage) -> None:
    response = stage.heartbeat("m1", 0, topics=["a"])
    assert (response.member_id, response.member_epoch, assigned(response)) == ("m1", 2, {"a": [0, 1, 2, 3]})
    assert response.heartbeat_interval_ms == 5_000
    assert kinds(stage, 0) == [
        "MemberMetadata",
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
    ]
    assert stage.group().state_name() == "Stable"


def test_a_heartbeat_without_news_writes_nothing_and_is_told_nothing(stage: Stage) -> None:
    stage.heartbeat("m1", 0, topics=["a"])
    written = len(stage.log)
    response = stage.heartbeat("m1", 2)
    assert (response.member_epoch, assigned(response)) == (2, None)
    assert len(stage.log) == written


def test_a_second_member_waits_until_the_first_has_given_up(stage: Stage) -> None:
    stage.heartbeat("m1", 0, topics=["a"])
    second = stage.heartbeat("m2", 0, topics=["a"])
    assert (second.member_epoch, assigned(second)) == (3, {})
    assert stage.group().members["m2"].state is MemberState.UNRELEASED_PARTITIONS
    first = stage.heartbeat("m1", 2)
    assert (first.member_epoch, assigned(first)) == (2, {"a": [0, 1]})
    assert stage.group().members["m1"].state is MemberState.UNREVOKED_PARTITIONS
    # Not yet: the first has not said that it gave anything up.
    assert assigned(stage.heartbeat("m2", 3)) is None
    first = stage.heartbeat("m1", 2, owned={"a": [0, 1]})
    assert first.member_epoch == 3
    assert assigned(stage.heartbeat("m2", 3)) == {"a": [2, 3]}
    assert stage.group().state_name() == "Stable"


def test_a_lost_answer_does_no_harm(stage: Stage) -> None:
    """KIP-848: the epoch before is taken from whoever owns no more than it was given."""
    stage.heartbeat("m1", 0, topics=["a"])
    stage.heartbeat("m2", 0, topics=["a"])
    stage.heartbeat("m1", 2)
    stage.heartbeat("m1", 2, owned={"a": [0, 1]})
    again = stage.heartbeat("m1", 2, owned={"a": [0, 1]}, topics=["a"], rebalance_timeout_ms=60_000)
    assert (again.member_epoch, assigned(again)) == (3, {"a": [0, 1]})
    with refused(ErrorCode.FENCED_MEMBER_EPOCH):
        stage.heartbeat("m1", 2, owned={"a": [0, 1, 2]})
    with refused(ErrorCode.FENCED_MEMBER_EPOCH):
        stage.heartbeat("m1", 2)


def test_epochs_that_never_were_are_fenced(stage: Stage) -> None:
    stage.heartbeat("m1", 0, topics=["a"])
    for epoch in (1, 3):
        with refused(ErrorCode.FENCED_MEMBER_EPOCH):
            stage.heartbeat("m1", epoch, owned={})


def test_strangers_are_unknown(stage: Stage) -> None:
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        stage.heartbeat("m1", 5)
    stage.heartbeat("m1", 0, topics=["a"])
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        stage.heartbeat("m2", 2)
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        stage.heartbeat("m2", -1)


def test_a_member_that_leaves_frees_its_partitions(stage: Stage) -> None:
    stage.heartbeat("m1", 0, topics=["a"])
    stage.heartbeat("m2", 0, topics=["a"])
    written = len(stage.log)
    response = stage.heartbeat("m1", -1)
    assert (response.member_id, response.member_epoch) == ("m1", -1)
    assert kinds(stage, written) == [
        "!CurrentMemberAssignment",
        "!TargetAssignmentMember",
        "!MemberMetadata",
        "Metadata",
    ]
    assert assigned(stage.heartbeat("m2", 3)) == {"a": [0, 1, 2, 3]}


def test_a_silent_member_is_out_after_its_session(stage: Stage) -> None:
    stage.heartbeat("m1", 0, topics=["a"])
    stage.heartbeat("m2", 0, topics=["a"])
    assert stage.advance(44_999) == []
    stage.heartbeat("m2", 3)
    assert stage.advance(1) == ["session g m1"]
    assert list(stage.group().members) == ["m2"]
    assert stage.advance(45_000) == ["session g m2"]
    assert stage.group().state_name() == "Empty"


def test_who_does_not_give_up_in_time_is_out(stage: Stage) -> None:
    stage.heartbeat("m1", 0, topics=["a"], rebalance_timeout_ms=10_000)
    stage.heartbeat("m2", 0, topics=["a"])
    stage.heartbeat("m1", 2)
    for _ in range(3):
        stage.advance(3_000)
        stage.heartbeat("m1", 2, owned={"a": [0, 1, 2, 3]})
        stage.heartbeat("m2", 3)
    assert stage.advance(1_000) == ["rebalance g m1"]
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        stage.heartbeat("m1", 2, owned={"a": [0, 1, 2, 3]})
    assert assigned(stage.heartbeat("m2", 3)) == {"a": [0, 1, 2, 3]}


def test_a_partition_that_comes_back_before_it_was_given_up(stage: Stage) -> None:
    """KAFKA-16147: what is being revoked stays owned, when the target gives it back and when it does not."""
    stage.heartbeat("m1", 0, topics=["a"])
    stage.heartbeat("m2", 0, topics=["a"])
    stage.heartbeat("m1", 2)  # Asked to give up 2 and 3.
    stage.heartbeat("m2", -1)
    back = stage.heartbeat("m1", 2, owned={"a": [0, 1, 2, 3]})
    # It has yet to say that it gave them up, so that it is still at the old epoch.
    assert (back.member_epoch, assigned(back)) == (2, None)
    back = stage.heartbeat("m1", 2, owned={"a": [0, 1]})
    assert (back.member_epoch, assigned(back)) == (4, {"a": [0, 1, 2, 3]})
    third = stage.heartbeat("m3", 0, topics=["a"])
    assert assigned(third) == {}
    assert stage.group().owners[topic_id("a"), 3] == "m1"


def test_topics_that_grow_or_come_or_go_are_noticed(stage: Stage) -> None:
    stage.heartbeat("m1", 0, topics=["a", "b"])
    stage.topics(a=5)
    assert assigned(stage.heartbeat("m1", 2)) == {"a": [0, 1, 2, 3, 4]}
    stage.topics(a=5, b=1)
    assert assigned(stage.heartbeat("m1", 3)) == {"a": [0, 1, 2, 3, 4], "b": [0]}
    stage.topics(b=1)
    gone = stage.heartbeat("m1", 4, owned={"a": [0, 1, 2, 3, 4], "b": [0]})
    assert assigned(gone) == {"b": [0]}
    assert stage.heartbeat("m1", 4, owned={"b": [0]}).member_epoch == 5
    stage.topics(b=1, c=7)
    assert stage.heartbeat("m1", 5).member_epoch == 5, "c is nobody's"


def test_targets_are_not_made_more_often_than_the_interval_allows() -> None:
    stage = Stage({"group.consumer.assignment.interval.ms": "1000"})
    stage.topics(a=4)
    stage.heartbeat("m1", 0, topics=["a"])
    second = stage.heartbeat("m2", 0, topics=["a"])
    assert (second.member_epoch, assigned(second)) == (2, {})
    assert stage.group().state_name() == "Assigning"
    stage.advance(999)
    assert stage.heartbeat("m2", 2).member_epoch == 2
    stage.advance(1)
    assert stage.heartbeat("m2", 2).member_epoch == 3


def test_a_target_of_a_coordinator_whose_clock_was_ahead_holds_nobody_up() -> None:
    stage = Stage({"group.consumer.assignment.interval.ms": "1000"})
    stage.topics(a=4)
    stage.heartbeat("m1", 0, topics=["a"])
    stage.advance(-3_600_000)
    second = stage.heartbeat("m2", 0, topics=["a"])
    assert (second.member_epoch, stage.group().state_name()) == (3, "Reconciling")


def test_a_group_may_have_timeouts_of_its_own(stage: Stage) -> None:
    stage.configure("g", consumer_session_timeout_ms="50000", consumer_heartbeat_interval_ms="6000")
    assert stage.heartbeat("m1", 0, topics=["a"]).heartbeat_interval_ms == 6_000
    assert stage.advance(49_999) == []
    assert stage.advance(1) == ["session g m1"]


def test_the_assignor_that_most_members_ask_for(stage: Stage) -> None:
    stage.topics(a=3, b=3)
    stage.heartbeat("m1", 0, topics=["a", "b"], assignor="range")
    stage.heartbeat("m2", 0, topics=["a", "b"], assignor="range")
    targets = {member: dict(target) for member, target in stage.group().targets.items()}
    assert targets == {
        "m1": {topic_id("a"): (0, 1), topic_id("b"): (0, 1)},
        "m2": {topic_id("a"): (2,), topic_id("b"): (2,)},
    }


def test_a_group_that_is_full(stage: Stage) -> None:
    stage = Stage({"group.consumer.max.size": "2"})
    stage.topics(a=4)
    stage.heartbeat("m1", 0, topics=["a"])
    stage.heartbeat("m2", 0, topics=["a"])
    with refused(ErrorCode.GROUP_MAX_SIZE_REACHED):
        stage.heartbeat("m3", 0, topics=["a"])
    stage.heartbeat("m2", 0, topics=["a"])


def test_a_new_subscription_takes_effect_at_once(stage: Stage) -> None:
    stage.topics(a=2, b=2)
    stage.heartbeat("m1", 0, topics=["a", "b"])
    changed = stage.heartbeat("m1", 2, topics=["b"])
    assert (changed.member_epoch, assigned(changed)) == (2, {"b": [0, 1]})
    assert stage.heartbeat("m1", 2, owned={"b": [0, 1]}).member_epoch == 3


def test_unwritable_records_leave_no_trace(stage: Stage) -> None:
    stage.heartbeat("m1", 0, topics=["a"])
    stage.auto_commit = False
    stage.heartbeat("m2", 0, topics=["a"])
    stage.heartbeat("m1", 2)
    assert len(stage.group().members) == 2
    assert [member.member_id for member in stage.groups.describe("g").members] == ["m1"]
    stage.revert()
    assert list(stage.group().members) == ["m1"]
    assert stage.heartbeat("m1", 2).member_epoch == 2
    # The topics are looked at again, since what was written then is gone.
    assert stage.heartbeat("m2", 0, topics=["a"]).member_epoch == 3


def test_who_does_not_give_up_in_time_is_out_though_that_cannot_be_written_at_first(stage: Stage) -> None:
    stage.heartbeat("m1", 0, topics=["a"], rebalance_timeout_ms=10_000)
    stage.heartbeat("m2", 0, topics=["a"])
    stage.heartbeat("m1", 2)
    stage.auto_commit = False
    assert stage.advance(10_000) == ["rebalance g m1"]
    stage.revert()
    assert sorted(stage.group().members) == ["m1", "m2"]
    stage.auto_commit = True
    # The driver calls a timer again whose records could not be written.
    stage.timers["consumer", "rebalance", "g", "m1"] = stage.now_ms + 500
    assert stage.advance(500) == ["rebalance g m1"]
    assert list(stage.group().members) == ["m2"]


def test_who_says_that_it_gave_up_has_no_more_time_for_it_if_that_cannot_be_written(stage: Stage) -> None:
    stage.heartbeat("m1", 0, topics=["a"], rebalance_timeout_ms=10_000)
    stage.heartbeat("m2", 0, topics=["a"])
    stage.heartbeat("m1", 2)
    stage.auto_commit = False
    stage.heartbeat("m1", 2, owned={"a": [0, 1]})
    stage.revert()
    stage.auto_commit = True
    stage.advance(9_999)
    stage.heartbeat("m1", 2)
    assert stage.advance(1) == ["rebalance g m1"]
    assert list(stage.group().members) == ["m2"]


def test_a_member_that_was_never_asked_to_give_up_is_not_out_for_it(stage: Stage) -> None:
    stage.heartbeat("m1", 0, topics=["a"], rebalance_timeout_ms=10_000)
    stage.heartbeat("m2", 0, topics=["a"])
    stage.auto_commit = False
    stage.heartbeat("m1", 2)
    stage.revert()
    stage.auto_commit = True
    assert stage.advance(10_000) == ["rebalance g m1"]
    assert list(stage.group().members) == ["m1", "m2"]


def test_a_new_coordinator_waits_a_whole_session_for_everybody(stage: Stage) -> None:
    stage.heartbeat("m1", 0, topics=["a"], rebalance_timeout_ms=10_000)
    stage.heartbeat("m2", 0, topics=["a"])
    stage.heartbeat("m1", 2)
    stage.advance(9_000)
    moved = stage.moved()
    assert moved.advance(9_999) == []
    assert moved.advance(1) == ["rebalance g m1"]
    assert moved.advance(34_999) == []
    assert "session g m2" in moved.advance(1)
    assert moved.group().state_name() == "Empty"
