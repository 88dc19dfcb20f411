"""Groups that nobody is in are not kept in memory: their record says everything of them."""

from __future__ import annotations

from ottla.coordinator.classic.group import GroupState
from ottla.errors import ErrorCode
from ottla.wire.messages.join_group_response import JoinGroupResponse
from tests.coordinator.classic.bench import GROUP, Bench, settings


def answer(bench: Bench, token: int) -> JoinGroupResponse:
    found = bench.answers[token]
    assert isinstance(found, JoinGroupResponse)
    return found


def a_member(bench: Bench) -> str:
    """A group of one member, in its first generation or the next."""
    member_id = answer(bench, bench.join("a")).member_id
    token = bench.join("a", member_id)
    bench.pass_time(0)
    generation = answer(bench, token).generation_id
    bench.sync(member_id, generation, {member_id: b"all"})
    return member_id


def is_kept(bench: Bench) -> bool:
    return GROUP in bench.groups._live


def state(bench: Bench) -> tuple[GroupState, int]:
    group = bench.groups.group(GROUP)
    assert group is not None
    return group.state, group.generation


def test_a_group_rests_when_its_last_member_has_left_and_goes_on_where_it_was() -> None:
    bench = Bench(settings(0))
    member_id = a_member(bench)
    assert is_kept(bench)
    bench.leave((member_id, None))
    assert not is_kept(bench)
    assert state(bench) == (GroupState.EMPTY, 2)
    assert not is_kept(bench)
    a_member(bench)
    assert state(bench) == (GroupState.STABLE, 3)


def test_a_group_rests_when_its_last_member_is_lost() -> None:
    bench = Bench(settings(0))
    a_member(bench)
    bench.pass_time(10_000)
    assert not is_kept(bench)
    assert state(bench)[0] is GroupState.EMPTY


def test_a_group_is_kept_while_an_id_that_was_given_out_may_come_back() -> None:
    bench = Bench(settings(0))
    bench.join("a", session_ms=10_000)
    assert is_kept(bench)
    bench.pass_time(9_999)
    assert is_kept(bench)
    bench.pass_time(1)
    assert not is_kept(bench)
    assert state(bench) == (GroupState.EMPTY, 0)


def test_a_group_that_was_left_is_kept_until_that_is_committed() -> None:
    bench = Bench(settings(0))
    member_id = a_member(bench)
    bench.held = True
    bench.leave((member_id, None))
    assert is_kept(bench)
    bench.commit()
    assert not is_kept(bench)


def test_a_group_whose_end_could_not_be_written_does_not_come_back_with_members_that_nobody_watches() -> None:
    bench = Bench(settings(0))
    member_id = a_member(bench)
    bench.held = True
    bench.leave((member_id, None))
    bench.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert is_kept(bench)
    assert state(bench) == (GroupState.EMPTY, 2)


def test_who_is_refused_by_a_group_at_rest_does_not_wake_it() -> None:
    bench = Bench(settings(0))
    bench.leave((a_member(bench), None))
    assert answer(bench, bench.join("b", protocols=())).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not is_kept(bench)


def test_a_group_whose_last_generations_were_not_written_keeps_counting_them() -> None:
    bench = Bench(settings(0))
    bench.leave((a_member(bench), None))
    assert state(bench) == (GroupState.EMPTY, 2)
    bench.held = True
    member_id = answer(bench, bench.join("a")).member_id
    bench.join("a", member_id)
    bench.pass_time(0)
    bench.leave((member_id, None))
    assert state(bench) == (GroupState.EMPTY, 4)
    bench.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert is_kept(bench)
    assert state(bench) == (GroupState.EMPTY, 4)


def test_a_group_comes_back_as_it_was_if_it_could_not_be_deleted() -> None:
    """While nothing can be written its last member leaves, and somebody tries to delete it: the record has members that
    nobody watches, and would never let the group go."""
    bench = Bench(settings(0))
    member_id = a_member(bench)
    bench.held = True
    bench.leave((member_id, None))
    bench.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    bench.delete()
    assert bench.groups.group(GROUP) is None
    bench.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert state(bench) == (GroupState.EMPTY, 2)


def test_a_group_that_was_deleted_is_let_go_when_that_is_committed() -> None:
    bench = Bench(settings(0))
    bench.join("a")
    bench.held = True
    bench.delete()
    bench.join("a", group="other")
    bench.delete("other")
    assert set(bench.groups._gone) == {GROUP, "other"}
    bench.commit()
    bench.join("a", group="another")
    bench.delete("another")
    assert set(bench.groups._gone) == {"another"}


def test_a_static_member_that_waits_longer_than_its_session_is_watched_afterwards() -> None:
    bench = Bench(settings(0))
    token = bench.join("a", instance_id="i")
    bench.pass_time(0)
    member_id = answer(bench, token).member_id
    bench.sync(member_id, 1, {member_id: b"all"}, instance_id="i")
    bench.held = True
    token = bench.join("a", instance_id="i")
    bench.pass_time(10_000)
    bench.commit()
    bench.held = False
    assert answer(bench, token).error_code == ErrorCode.NONE
    bench.pass_time(10_000)
    assert state(bench)[0] is GroupState.EMPTY
