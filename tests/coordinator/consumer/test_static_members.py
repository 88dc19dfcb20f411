"""Static members: they leave for a while, come back as another member, and keep what they had."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode

from .stage import Stage, assigned, topic_id
from .test_heartbeats import kinds, refused


@pytest.fixture
def stage() -> Stage:
    found = Stage()
    found.topics(a=4)
    return found


def test_nobody_takes_the_place_of_one_that_is_there(stage: Stage) -> None:
    stage.heartbeat("m1", 0, topics=["a"], instance="i")
    with refused(ErrorCode.UNRELEASED_INSTANCE_ID):
        stage.heartbeat("m2", 0, topics=["a"], instance="i")
    with refused(ErrorCode.UNRELEASED_INSTANCE_ID):
        stage.heartbeat("m1", 0, topics=["a"], instance="i")


def test_one_that_left_for_a_while_is_replaced_without_a_new_target(stage: Stage) -> None:
    stage.heartbeat("m1", 0, topics=["a"], instance="i")
    stage.heartbeat("m1", -2, instance="i")
    assert stage.group().members["m1"].epoch == -2
    written = len(stage.log)
    back = stage.heartbeat("m2", 0, topics=["a"], instance="i")
    assert (back.member_epoch, assigned(back)) == (2, {"a": [0, 1, 2, 3]})
    assert kinds(stage, written) == [
        "!CurrentMemberAssignment",
        "!TargetAssignmentMember",
        "!MemberMetadata",
        "MemberMetadata",
        "TargetAssignmentMember",
        "CurrentMemberAssignment",
        "CurrentMemberAssignment",
    ]
    assert stage.group().epochs.group == 2
    # What it may commit goes back to the beginning: its predecessor is the same to the application.
    assert stage.group().members["m2"].assigned[topic_id("a")] == dict.fromkeys(range(4), 0)
    with refused(ErrorCode.FENCED_INSTANCE_ID):
        stage.heartbeat("m1", 2, instance="i")


def test_its_partitions_are_kept_until_its_session_ends(stage: Stage) -> None:
    stage.heartbeat("m1", 0, topics=["a"], instance="i")
    stage.heartbeat("m2", 0, topics=["a"])
    stage.heartbeat("m1", 2, owned={"a": [0, 1]})
    stage.heartbeat("m1", 2, owned={"a": [0, 1]})
    assert assigned(stage.heartbeat("m2", 3)) == {"a": [2, 3]}
    stage.heartbeat("m1", -2, instance="i")
    stage.advance(40_000)
    assert assigned(stage.heartbeat("m2", 3)) is None
    assert stage.advance(5_000) == ["session g m1"]
    assert assigned(stage.heartbeat("m2", 3)) == {"a": [0, 1, 2, 3]}


def test_what_it_was_giving_up_when_it_left_is_free(stage: Stage) -> None:
    stage.heartbeat("m1", 0, topics=["a"], instance="i")
    stage.heartbeat("m2", 0, topics=["a"])
    stage.heartbeat("m1", 2)
    stage.heartbeat("m1", -2, instance="i")
    assert assigned(stage.heartbeat("m2", 3)) == {"a": [2, 3]}


def test_one_that_comes_back_with_another_subscription(stage: Stage) -> None:
    stage.topics(a=4, b=2)
    stage.heartbeat("m1", 0, topics=["a"], instance="i")
    stage.heartbeat("m1", -2, instance="i")
    back = stage.heartbeat("m2", 0, topics=["b"], instance="i")
    assert (back.member_epoch, assigned(back)) == (3, {"b": [0, 1]})


def test_leaving_for_good_takes_the_instance_with_it(stage: Stage) -> None:
    stage.heartbeat("m1", 0, topics=["a"], instance="i")
    stage.heartbeat("m1", -1, instance="i")
    assert not len(stage.group().static_members)
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        stage.heartbeat("m1", -1, instance="i")
