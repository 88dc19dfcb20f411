"""Both protocols in one group: classic members of consumer groups, and groups that become of the other kind."""

from __future__ import annotations

import pytest

from ottla.coordinator.consumer.member import MemberState
from ottla.errors import ErrorCode
from ottla.wire.message import Message
from ottla.wire.messages.group_metadata_value import GroupMetadataValue
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.wire.messages.sync_group_response import SyncGroupResponse
from tests.group_plans import planned

from .stage import Reply, Stage, assigned, topic_id
from .test_heartbeats import kinds, refused

PROPERTIES = {"group.initial.rebalance.delay.ms": "0"}


@pytest.fixture
def stage() -> Stage:
    found = Stage(PROPERTIES)
    found.topics(a=4)
    return found


def joined(reply: Reply) -> tuple[str, int]:
    assert isinstance(reply.response, JoinGroupResponse), reply
    assert reply.response.error_code == 0, ErrorCode(reply.response.error_code).name
    return reply.response.member_id, reply.response.generation_id


def code(reply: Reply) -> str:
    if reply.error is not None:
        return reply.error.name
    assert isinstance(reply.response, JoinGroupResponse | SyncGroupResponse | HeartbeatResponse)
    return ErrorCode(reply.response.error_code).name


def synced(reply: Reply) -> dict[str, list[int]]:
    assert isinstance(reply.response, SyncGroupResponse), reply
    assert reply.response.error_code == 0, ErrorCode(reply.response.error_code).name
    return planned(reply.response.assignment)


def a_classic_group(stage: Stage) -> None:
    """Two members of the classic protocol, o1 and o2, at generation 2 with two partitions each."""
    stage.join("", ["a"], fresh="o1")
    first = stage.join("old-o1", ["a"])
    stage.advance(0)
    generation = joined(first)[1]
    stage.sync("old-o1", generation, assignments={"old-o1": {"a": [0, 1, 2, 3]}})
    stage.join("", ["a"], fresh="o2")
    second = stage.join("old-o2", ["a"])
    first = stage.join("old-o1", ["a"], owned={"a": [0, 1, 2, 3]})
    assert joined(second)[1] == generation + 1
    waiting = stage.sync("old-o2", generation + 1)
    stage.sync("old-o1", generation + 1, assignments={"old-o1": {"a": [0, 1]}, "old-o2": {"a": [2, 3]}})
    assert synced(waiting) == {"a": [2, 3]}


def test_a_classic_group_becomes_a_consumer_group_when_a_new_client_joins(stage: Stage) -> None:
    a_classic_group(stage)
    written = len(stage.log)
    response = stage.heartbeat("n1", 0, topics=["a"])
    assert (response.member_epoch, assigned(response)) == (3, {})
    assert kinds(stage, written) == [
        "!GroupMetadata",
        "MemberMetadata",
        "MemberMetadata",
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
        "CurrentMemberAssignment",
        "MemberMetadata",
        "Metadata",
        *["TargetAssignmentMember"] * 2,
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
    ]
    group = stage.group()
    assert stage.shard.classic.group("g") is None
    assert {member_id: member.uses_classic for member_id, member in group.members.items()} == {
        "old-o1": True,
        "old-o2": True,
        "n1": False,
    }
    # A classic member hears of it, comes again with what it has, and is told what it keeps.
    givers = [member_id for member_id in ("old-o1", "old-o2") if len(group.targets[member_id][topic_id("a")]) == 1]
    (giver,) = givers
    had = [0, 1] if giver == "old-o1" else [2, 3]
    assert code(stage.beat(giver, 2)) == "REBALANCE_IN_PROGRESS"
    assert joined(stage.join(giver, ["a"], owned={"a": had})) == (giver, 2)
    kept = synced(stage.sync(giver, 2))
    assert len(kept["a"]) == 1
    assert group.members[giver].state is MemberState.UNREVOKED_PARTITIONS
    assert assigned(stage.heartbeat("n1", 3)) is None
    assert code(stage.beat(giver, 2)) == "REBALANCE_IN_PROGRESS"
    assert joined(stage.join(giver, ["a"], owned=kept)) == (giver, 3)
    assert synced(stage.sync(giver, 3)) == kept
    assert code(stage.beat(giver, 3)) == "NONE"
    assert assigned(stage.heartbeat("n1", 3)) == {"a": [index for index in had if index not in kept["a"]]}


def test_a_new_client_that_is_refused_leaves_the_classic_group_as_it_was(stage: Stage) -> None:
    a_classic_group(stage)
    waiting = stage.join("old-o1", ["a"], owned={"a": [0, 1]})
    with refused(ErrorCode.INVALID_REGULAR_EXPRESSION):
        stage.heartbeat("n1", 0, regex="(")
    assert not waiting.done
    assert joined(stage.join("old-o2", ["a"], owned={"a": [2, 3]})) == ("old-o2", 3)
    assert joined(waiting) == ("old-o1", 3)


def test_an_upgrade_that_could_not_be_written_leaves_the_classic_group_as_it_was(stage: Stage) -> None:
    """Its record is of the generation before, with a member that has left and that nobody watches."""
    a_classic_group(stage)
    stage.leave(("old-o2", None))
    assert joined(stage.join("old-o1", ["a"], owned={"a": [0, 1]})) == ("old-o1", 3)
    stage.auto_commit = False
    stage.heartbeat("n1", 0, topics=["a"])
    assert stage.shard.classic.group("g") is None
    stage.revert()
    stage.auto_commit = True
    group = stage.shard.classic.group("g")
    assert group is not None
    assert (list(group.members), group.generation) == (["old-o1"], 3)
    plan = {"a": [0, 1, 2, 3]}
    assert synced(stage.sync("old-o1", 3, assignments={"old-o1": plan})) == plan
    assert "session g old-o1" in stage.advance(20_000)
    assert group.is_empty()


def test_a_plan_that_is_committed_before_an_upgrade_that_could_not_be_written_holds(stage: Stage) -> None:
    a_classic_group(stage)
    stage.leave(("old-o2", None))
    stage.join("old-o1", ["a"], owned={"a": [0, 1]})
    stage.auto_commit = False
    plan = {"a": [0, 1, 2, 3]}
    waiting = stage.sync("old-o1", 3, assignments={"old-o1": plan})
    planned_to = len(stage.log)
    stage.heartbeat("n1", 0, topics=["a"])
    stage.commit(planned_to)
    stage.revert()
    stage.auto_commit = True
    assert code(waiting) == "COORDINATOR_NOT_AVAILABLE"
    assert joined(stage.join("old-o1", ["a"], owned=plan)) == ("old-o1", 4)
    assert synced(stage.sync("old-o1", 4, assignments={"old-o1": plan})) == plan


def test_who_waits_for_others_is_watched_again_after_an_upgrade_that_could_not_be_written(stage: Stage) -> None:
    """Static members, whom nothing but the end of their sessions removes."""
    first = stage.join("", ["a"], instance="s1", fresh="1")
    stage.advance(0)
    assert joined(first) == ("s1-1", 1)
    stage.sync("s1-1", 1, instance="s1", assignments={})
    stage.join("", ["a"], instance="s2", fresh="2")
    assert joined(stage.join("s1-1", ["a"], instance="s1")) == ("s1-1", 2)
    stage.sync("s1-1", 2, instance="s1", assignments={})
    stage.sync("s2-2", 2, instance="s2")
    stage.join("s1-1", ["a"], instance="s1")
    stage.advance(15_000)
    stage.beat("s2-2", 2, instance="s2")
    assert "session g s1-1" in stage.advance(10_000)
    stage.auto_commit = False
    stage.heartbeat("n1", 0, topics=["a"])
    stage.revert()
    stage.auto_commit = True
    stage.advance(120_000)
    group = stage.shard.classic.group("g")
    assert group is not None
    assert group.is_empty()


def test_the_last_new_client_leaves_and_the_group_is_classic_again(stage: Stage) -> None:
    stage.heartbeat("n1", 0, topics=["a"])
    stage.join("", ["a"], fresh="o1")
    assert joined(stage.join("o1", ["a"])) == ("o1", 3)
    assert synced(stage.sync("o1", 3)) == {}
    written = len(stage.log)
    stage.heartbeat("n1", -1)
    assert kinds(stage, written) == [
        *["!CurrentMemberAssignment"] * 2,
        *["!TargetAssignmentMember"] * 2,
        "!TargetAssignmentMetadata",
        *["!MemberMetadata"] * 2,
        "!PartitionMetadata",
        "!Metadata",
        "GroupMetadata",
    ]
    value = stage.log[-1].value
    assert isinstance(value, GroupMetadataValue)
    assert (value.generation, value.protocol, value.protocol_type) == (3, "cooperative-sticky", "consumer")
    assert [member.member_id for member in value.members] == ["o1"]
    # Nobody is told of that assignment before all have come again.
    assert code(stage.sync("o1", 3)) == "REBALANCE_IN_PROGRESS"
    assert code(stage.beat("o1", 3)) == "REBALANCE_IN_PROGRESS"
    assert joined(stage.join("o1", ["a"])) == ("o1", 4)


def test_not_even_between_the_write_and_its_commit(stage: Stage) -> None:
    stage.heartbeat("n1", 0, topics=["a"])
    stage.join("", ["a"], fresh="o1")
    stage.join("o1", ["a"])
    stage.auto_commit = False
    stage.heartbeat("n1", -1)
    early = stage.sync("o1", 3)
    stage.commit()
    assert code(early) == "REBALANCE_IN_PROGRESS"


def test_a_downgrade_that_could_not_be_written_never_was(stage: Stage) -> None:
    stage.heartbeat("n1", 0, topics=["a"])
    stage.join("", ["a"], fresh="o1")
    stage.join("o1", ["a"])
    stage.auto_commit = False
    stage.heartbeat("n1", -1)
    stage.revert()
    stage.auto_commit = True
    assert sorted(stage.group().members) == ["n1", "o1"]
    assert synced(stage.sync("o1", 3)) == {}
    # And a silent member is still out after its session.
    assert "session g n1" in stage.advance(45_000)


def test_an_empty_group_makes_way_for_either_kind(stage: Stage) -> None:
    stage.heartbeat("n1", 0, topics=["a"])
    stage.heartbeat("n1", -1)
    stage.join("", ["a"], fresh="o1")
    assert stage.groups.group("g") is None
    stage.join("old-o1", ["a"])
    stage.advance(0)
    stage.leave(("old-o1", None))
    written = len(stage.log)
    assert assigned(stage.heartbeat("n2", 0, topics=["a"])) == {"a": [0, 1, 2, 3]}
    assert kinds(stage, written)[0] == "!GroupMetadata"
    assert stage.shard.classic.group("g") is None


def test_a_static_member_goes_over_from_one_protocol_to_the_other(stage: Stage) -> None:
    """Rolled one by one, each takes the place that its predecessor had."""
    stage.heartbeat("n1", 0, topics=["a"])
    stage.join("", ["a"], fresh="o1", instance="i")
    assert list(stage.group().members) == ["n1", "o1"]
    back = stage.heartbeat("n2", 0, topics=["a"], instance="i")
    assert (back.error_code, list(stage.group().members)) == (0, ["n1", "n2"])
    assert code(stage.beat("o1", 3, instance="i")) == "FENCED_INSTANCE_ID"
    member_id, generation = joined(stage.join("", ["a"], fresh="o2", instance="i"))
    assert (member_id, generation) == ("o2", 3)
    assert stage.group().members["o2"].uses_classic


def test_the_last_new_client_is_replaced_by_a_classic_one(stage: Stage) -> None:
    stage.heartbeat("n1", 0, topics=["a"], instance="i")
    member_id, generation = joined(stage.join("", ["a"], fresh="o1", instance="i"))
    assert stage.groups.group("g") is None
    classic = stage.shard.classic.group("g")
    assert classic is not None
    assert (member_id, generation, classic.state_name()) == ("o1", 2, "Stable")
    assert synced(stage.sync("o1", 2, instance="i")) == {"a": [0, 1, 2, 3]}


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [
        ("disabled", False, False),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("bidirectional", True, True),
    ],
)
def test_the_policy_says_which_way_is_open(policy: str, up: bool, down: bool) -> None:
    stage = Stage({**PROPERTIES, "group.consumer.migration.policy": policy})
    stage.topics(a=4)
    a_classic_group(stage)
    if up:
        stage.heartbeat("n1", 0, topics=["a"])
    else:
        with refused(ErrorCode.GROUP_ID_NOT_FOUND):
            stage.heartbeat("n1", 0, topics=["a"])
    other = Stage({**PROPERTIES, "group.consumer.migration.policy": policy})
    other.topics(a=4)
    other.heartbeat("n1", 0, topics=["a"])
    other.join("", ["a"], fresh="o1")
    reply = other.join("o1", ["a"])
    if policy == "disabled":
        assert code(reply) == "INCONSISTENT_GROUP_PROTOCOL"
        return
    assert code(reply) == "NONE"
    other.heartbeat("n1", -1)
    assert (other.groups.group("g") is None) == down


def test_what_cannot_become_a_consumer_group(stage: Stage) -> None:
    stage.join("", ["a"], fresh="o1")
    reply = stage.join("old-o1", ["a"])
    stage.advance(0)
    generation = joined(reply)[1]
    stage.sync("old-o1", generation, assignments={"old-o1": {"a": [0]}})
    classic = stage.shard.classic.group("g")
    assert classic is not None
    member = classic.members["old-o1"]
    for broken in (b"\x00", b"\xff\xff", b"\x00\x03\x00\x00\x00\x01", member.assignment[:-4] + b"\x00\x00\x00\x01x"):
        kept, member.assignment = member.assignment, broken
        with refused(ErrorCode.GROUP_ID_NOT_FOUND):
            stage.heartbeat("n1", 0, topics=["a"])
        member.assignment = kept
    assert stage.groups.group("g") is None
    stage.heartbeat("n1", 0, topics=["a"])


def test_refusals_of_classic_members(stage: Stage) -> None:
    stage.heartbeat("n1", 0, topics=["a"])
    assert code(stage.join("o1", ["a"], protocols=())) == "INCONSISTENT_GROUP_PROTOCOL"
    required = stage.join("", ["a"], fresh="o1")
    assert code(required) == "MEMBER_ID_REQUIRED"
    assert isinstance(required.response, JoinGroupResponse)
    assert required.response.member_id == "o1"
    joined(stage.join("o1", ["a"], protocols=("range", "sticky")))
    assert code(stage.join("o2", ["a"], protocols=("roundrobin",))) == "INCONSISTENT_GROUP_PROTOCOL"
    assert code(stage.sync("o1", 2, protocol="range")) == "ILLEGAL_GENERATION"
    assert code(stage.sync("o1", 3, protocol="sticky")) == "INCONSISTENT_GROUP_PROTOCOL"
    assert code(stage.sync("nobody", 3)) == "UNKNOWN_MEMBER_ID"
    assert code(stage.sync("n1", 2)) == "UNKNOWN_MEMBER_ID"
    assert code(stage.beat("o1", 9)) == "ILLEGAL_GENERATION"
    assert code(stage.beat("n1", 2)) == "UNKNOWN_MEMBER_ID"
    assert code(stage.beat("o1", 3, instance="nobody")) == "UNKNOWN_MEMBER_ID"


def test_leaving_by_an_administrators_hand(stage: Stage) -> None:
    stage.heartbeat("n1", 0, topics=["a"])
    stage.heartbeat("n2", 0, topics=["a"], instance="i")
    reply = stage.leave(("n1", None), ("", "i"), ("nobody", None), ("other", "i"), ("", "unknown"))
    response: Message | None = reply.response
    assert isinstance(response, LeaveGroupResponse)
    assert [ErrorCode(member.error_code).name for member in response.members] == [
        "NONE",
        "NONE",
        "UNKNOWN_MEMBER_ID",
        "FENCED_INSTANCE_ID",
        "UNKNOWN_MEMBER_ID",
    ]
    assert stage.group().is_empty()


def test_a_classic_member_that_does_not_come_again_or_sync_is_out(stage: Stage) -> None:
    stage.heartbeat("n1", 0, topics=["a"])
    stage.join("", ["a"], fresh="o1")
    joined(stage.join("o1", ["a"]))
    for _ in range(3):
        stage.advance(10_000 - 1)
        stage.heartbeat("n1", 2 if stage.group().members["n1"].epoch == 2 else 3, owned={"a": [0, 1]})
        stage.beat("o1", 3)
    assert "sync g o1" in stage.advance(10)
    assert list(stage.group().members) == ["n1"]
    joined(stage.join("o1", ["a"]))
    stage.sync("o1", stage.group().members["o1"].epoch)
    stage.topics(a=5)
    stage.heartbeat("n1", stage.group().members["n1"].epoch)
    ended: list[str] = []
    for _ in range(4):
        epoch = stage.group().members["o1"].epoch if "o1" in stage.group().members else 0
        stage.beat("o1", epoch)
        stage.heartbeat("n1", stage.group().members["n1"].epoch)
        ended += stage.advance(10_000)
    assert "join g o1" in ended


def test_who_was_dropped_unheard_does_not_come_back_with_what_it_had(stage: Stage) -> None:
    stage.heartbeat("n1", 0, topics=["a"])
    stage.join("", ["a"], fresh="o1")
    stage.join("o1", ["a"])
    stage.advance(60_000)  # Nobody is heard of, and both are out.
    assert assigned(stage.heartbeat("n1", 0, topics=["a"])) == {"a": [0, 1, 2, 3]}
    written = len(stage.log)
    assert code(stage.join("o1", ["a"], owned={"a": [2, 3]})) == "UNKNOWN_MEMBER_ID"
    assert len(stage.log) == written
    # Having dropped all that, it is welcome, under any id.
    assert joined(stage.join("o1", ["a"], owned={"a": []}))[0] == "o1"
