"""Members of classic groups: who joins, who leads, who is sent away, and with which code."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from ottla.errors import ErrorCode
from ottla.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.wire.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from ottla.wire.messages.leave_group_request import MemberIdentity
from ottla.wire.messages.sync_group_response import SyncGroupResponse
from tests.behaviour.client import Client, Topic, eventually
from tests.behaviour.conftest import Node, StartNode
from tests.behaviour.groups import Groups, Member
from tests.group_member import JOIN_VERSIONS, GroupMember, find_coordinator, subscription

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.max.session.timeout.ms": "60000",
    "group.max.size": "5",
    "offsets.topic.num.partitions": "3",
}

NEWS = subscription("news")
BEFORE_OR_DURING = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
"""What a heartbeat may be told while somebody's JoinGroup is on its way."""

MakeMember = Callable[..., GroupMember]
"""A member of the test's own group; options as of `GroupMember`."""


@pytest.fixture(scope="module")
def coordinator(start_node: StartNode) -> Node:
    return start_node(SETTINGS)


@pytest.fixture
def member(coordinator: Node, name: str) -> Iterator[MakeMember]:
    with ExitStack() as stack:

        def make(**options: object) -> GroupMember:
            address = (coordinator.host, coordinator.port)
            return stack.enter_context(GroupMember(address, name, **options))  # type: ignore[arg-type]

        await_coordinator(make())
        yield make


def await_coordinator(client: GroupMember) -> None:
    eventually(lambda: find_coordinator(client, client.group), lambda error: error is ErrorCode.NONE)
    eventually(client.beat, lambda error: error is ErrorCode.UNKNOWN_MEMBER_ID)


def stable(first: GroupMember, *others: GroupMember) -> GroupMember:
    """All are members of one generation, and each is given its own number; the leader, which is the first."""
    first.join()
    if others:
        assign(first, leader=first.member_id)
        static = [other for other in others if other.instance_id is not None]
        assert len(static) <= 1, "one can be seen to have come, more cannot"
        for other in static:
            other.start_join()
            eventually(first.beat, lambda error: error is ErrorCode.REBALANCE_IN_PROGRESS)
        # Those who have an id are waited for.
        dynamic = [other for other in others if other.instance_id is None]
        for other in dynamic:
            other.get_id()
        for other in (first, *dynamic):
            other.start_join()
        assert rebalanced(first, *others) == first.member_id
    return assign(first, *others, leader=first.member_id)


def assign(*members: GroupMember, leader: str) -> GroupMember:
    """Each gets its own number, in order; the leader."""
    (leading,) = (member for member in members if member.member_id == leader)
    plan = {member.member_id: b"%d" % index for index, member in enumerate(members)}
    for member in members:
        member.start_sync(plan if member is leading else None)
    for index, member in enumerate(members):
        response = member.synced()
        assert (response.error_code, response.assignment) == (0, b"%d" % index)
    return leading


def rebalanced(*members: GroupMember) -> str:
    """All answers of a rebalance that is under way; who leads."""
    responses = [member.joined() for member in members]
    assert {response.error_code for response in responses} == {0}
    assert len({(response.generation_id, response.leader) for response in responses}) == 1
    return responses[0].leader


def rejoin(leading: GroupMember, *others: GroupMember) -> None:
    """The leader of a stable group wants a rebalance, and the others hear of it and come."""
    leading.start_join()
    eventually(others[0].beat, lambda error: error is ErrorCode.REBALANCE_IN_PROGRESS)
    for other in others:
        other.start_join()
    assert rebalanced(leading, *others) == leading.member_id


# One member.


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_a_member_joins_syncs_beats_and_leaves_in_every_version(member: MakeMember, version: int) -> None:
    alone = member(version=version, client_id="somebody")
    if version >= 4:
        first = alone.try_join()
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert (first.generation_id, first.leader, first.members) == (-1, "", [])
        assert first.member_id.startswith("somebody-")
    joined = alone.try_join()
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("somebody-")
    assert len(joined.member_id) == len("somebody-") + 36
    assert not joined.skip_assignment
    assert [(m.member_id, m.group_instance_id, m.metadata) for m in joined.members] == [
        (joined.member_id, None, subscription("t"))
    ]
    synced = alone.try_sync({alone.member_id: b"everything"})
    assert (synced.error_code, synced.assignment) == (0, b"everything")
    if alone.sync_version >= 5:
        assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")
    assert alone.beat() is ErrorCode.NONE
    assert alone.leave() is ErrorCode.NONE
    assert alone.beat() is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_member_joins_at_once_in_every_version(member: MakeMember, version: int) -> None:
    static = member(version=version, instance_id="the-instance")
    joined = static.try_join()
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert joined.member_id.startswith("the-instance-")
    assert [m.group_instance_id for m in joined.members] == ["the-instance"]
    assert static.sync({static.member_id: b"x"}) == b"x"
    assert static.beat() is ErrorCode.NONE


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_a_group_without_a_name_is_refused(member: MakeMember, version: int) -> None:
    nameless = member(version=version)
    nameless.group = ""
    nameless.member_id = "somebody"
    refused = nameless.try_join()
    assert (refused.error_code, refused.member_id) == (ErrorCode.INVALID_GROUP_ID, "somebody")
    assert nameless.try_sync().error_code == ErrorCode.INVALID_GROUP_ID
    assert nameless.beat() is ErrorCode.INVALID_GROUP_ID
    assert nameless.leave_response().error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("session_ms", [-1, 0, 99, 60_001])
def test_a_session_timeout_out_of_bounds_is_refused(member: MakeMember, session_ms: int) -> None:
    hasty = member(session_ms=session_ms)
    refused = hasty.try_join(member_id="somebody")
    assert (refused.error_code, refused.member_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, "somebody")


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_nobody_is_a_member_of_a_group_that_does_not_exist(member: MakeMember, version: int) -> None:
    stranger = member(version=version)
    stranger.member_id = "stranger"
    refused = stranger.try_join()
    assert (refused.error_code, refused.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "stranger")
    assert stranger.try_sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave() is ErrorCode.UNKNOWN_MEMBER_ID
    left = stranger.leave_response()
    assert left.error_code == (ErrorCode.UNKNOWN_MEMBER_ID if version < 3 else ErrorCode.NONE)


def test_strangers_are_told_so(member: MakeMember) -> None:
    alone, stranger = member(), member()
    stable(alone)
    stranger.member_id, stranger.generation = "stranger", alone.generation
    assert stranger.try_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.try_sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave() is ErrorCode.UNKNOWN_MEMBER_ID
    stranger.instance_id = "stranger"
    assert stranger.try_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave() is ErrorCode.UNKNOWN_MEMBER_ID
    assert alone.beat() is ErrorCode.NONE


def test_another_generation_is_refused(member: MakeMember) -> None:
    alone = member()
    alone.join()
    for generation in (-1, 0, 2):
        alone.generation = generation
        assert alone.beat() is ErrorCode.ILLEGAL_GENERATION
        assert alone.try_sync().error_code == ErrorCode.ILLEGAL_GENERATION
    alone.generation = 1
    assert alone.sync({}) == b""


# Protocols.


def test_a_member_must_offer_a_protocol(member: MakeMember) -> None:
    assert member().try_join([]).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert member(protocol_type="").try_join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    stable(member())
    assert member().try_join([]).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_members_must_have_a_protocol_in_common(member: MakeMember) -> None:
    first, second = member(), member()
    stable(first)
    assert second.try_join([("sticky", b"")]).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    second.protocol_type = "connect"
    assert second.try_join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    # A member that would leave the group with nothing in common stays what it was.
    assert first.try_join([("sticky", b"")]).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert first.beat() is ErrorCode.NONE


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        ((["a", "b"], ["b", "a"], ["b", "a"]), "b"),
        ((["a", "b", "c"], ["c", "b"], ["c", "b", "a"]), "c"),
        ((["a", "b"], ["b", "a"]), "a"),
        ((["range", "roundrobin"], ["roundrobin", "range"]), "range"),
        ((["sticky", "cooperative-sticky"], ["cooperative-sticky", "sticky"]), "sticky"),
        ((["sessioned", "compatible"], ["compatible", "sessioned"]), "compatible"),
        ((["eager", "x"], ["x", "eager"], ["eager", "x"], ["x", "eager"]), "eager"),
    ],
)
def test_the_protocol_that_most_like_best_is_taken(
    member: MakeMember, offers: tuple[list[str], ...], chosen: str
) -> None:
    protocols = [[(name, subscription()) for name in names] for names in offers]
    first, *others = members = [member() for _ in offers]
    joined = first.join(protocols[0])
    first.protocol_name = joined.protocol_name
    first.sync({})
    for other, offered in zip(others, protocols[1:], strict=True):
        other.get_id(offered)
    for each, offered in zip(members, protocols, strict=True):
        each.start_join(offered)
    rebalanced(*members)
    assert {each.protocol_name for each in members} == {chosen}


def test_sync_group_is_of_the_chosen_protocol(member: MakeMember) -> None:
    alone = member()
    alone.join()
    for protocol_type, protocol_name in (
        ("connect", "range"),
        ("consumer", "sticky"),
        ("consumer", None),
        (None, "range"),
    ):
        request = alone.sync_request({})
        request.protocol_type, request.protocol_name = protocol_type, protocol_name
        assert alone.call(request, SyncGroupResponse).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert alone.sync({alone.member_id: b"x"}) == b"x"


def test_protocols_other_than_consumers_are_the_members_own_affair(member: MakeMember) -> None:
    worker = member(protocol_type="connect")
    joined = worker.join([("sessioned", b"\0\1state"), ("default", b"")])
    assert (joined.protocol_type, joined.protocol_name) == ("connect", "sessioned")
    assert joined.members[0].metadata == b"\0\1state"
    worker.protocol_name = "sessioned"
    assert worker.sync({worker.member_id: b"tasks"}) == b"tasks"


@pytest.mark.ottla_only
def test_a_consumer_may_say_what_nobody_can_read(member: MakeMember) -> None:
    """Apache Kafka 4.3.1 never ends such a rebalance: its timer fails, and nobody sets another."""
    alone = member()
    alone.join([("range", b"\0\1this is no subscription")])
    assert alone.sync({alone.member_id: b"x"}) == b"x"


# Rebalances.


def test_a_second_member_makes_the_first_join_again(member: MakeMember) -> None:
    first, second = member(), member()
    stable(first)
    second.enter()
    eventually(first.beat, lambda error: error is ErrorCode.REBALANCE_IN_PROGRESS)
    assert first.try_sync().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.is_silent(0.2)
    first.start_join()
    leader = rebalanced(first, second)
    assert (leader, first.generation) == (first.member_id, 2)
    second.start_sync()
    # Members may beat before they know what they own.
    assert first.beat() is ErrorCode.NONE
    assert second.is_silent(0.2)
    assert first.sync({first.member_id: b"0", second.member_id: b"1"}) == b"0"
    assert second.synced().assignment == b"1"
    # Asked again, it is told again; a follower that joins again disturbs nobody, and the leader everybody.
    assert second.sync() == b"1"
    again = second.join()
    assert (again.generation_id, again.leader, again.members) == (2, first.member_id, [])
    assert first.beat() is ErrorCode.NONE
    rejoin(first, second)
    assert first.generation == 3


def test_only_the_leader_is_told_of_the_others(member: MakeMember) -> None:
    members = [member(client_id=f"c{index}") for index in range(3)]
    stable(*members)
    leading = members[0]
    for each in members:
        # The followers have news, so that the group rebalances whoever joins first.
        each.start_join([("range", subscription(each.member_id))])
    responses = [each.joined() for each in members]
    for each, response in zip(members, responses, strict=True):
        told = {other.member_id: other.metadata for other in response.members}
        expected = {other.member_id: subscription(other.member_id) for other in members}
        assert told == (expected if each is leading else {})


def test_a_follower_with_something_new_to_say_makes_all_join_again(member: MakeMember) -> None:
    first, second = member(), member()
    stable(first, second)
    second.start_join([("range", NEWS)])
    eventually(first.beat, lambda error: error is ErrorCode.REBALANCE_IN_PROGRESS)
    first.start_join()
    assert {m.metadata for m in first.joined().members} == {subscription("t"), NEWS}
    second.joined()
    # In the sync phase too, for who says the same again is only told again.
    again = second.join([("range", NEWS)])
    assert again.generation_id == first.generation
    second.start_join([("range", subscription("more", "news"))])
    eventually(first.beat, lambda error: error is ErrorCode.REBALANCE_IN_PROGRESS)
    first.start_join()
    rebalanced(first, second)


def test_who_waits_for_a_plan_is_sent_back_when_somebody_joins(member: MakeMember) -> None:
    first, second, third = member(), member(), member()
    stable(first, second)
    rejoin(first, second)
    second.start_sync()
    assert second.is_silent(0.2)
    third.enter()
    assert second.synced().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert first.try_sync({}).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    first.start_join()
    second.start_join()
    assign(first, second, third, leader=rebalanced(first, second, third))


def test_five_members_share_three_partitions_and_take_over(member: MakeMember) -> None:
    members = [member() for _ in range(5)]
    stable(*members)
    partitions = [b"p0", b"p1", b"p2"]

    def share(*those: GroupMember) -> list[bytes]:
        for each in those:
            each.start_join([("range", subscription(str(each.generation)))])
        leader = rebalanced(*those)
        plan = {each.member_id: own for each, own in zip(those, partitions, strict=False)}
        for each in those:
            each.start_sync(plan if each.member_id == leader else None)
        return [each.synced().assignment for each in those]

    assert share(*members) == [b"p0", b"p1", b"p2", b"", b""]
    assert members[0].leave() is ErrorCode.NONE
    assert share(*members[1:]) == [b"p0", b"p1", b"p2", b""]
    assert members[1].leave() is ErrorCode.NONE
    assert members[2].leave() is ErrorCode.NONE
    assert share(*members[3:]) == [b"p0", b"p1"]


def test_a_group_has_a_most_of_members(member: MakeMember) -> None:
    members = [member() for _ in range(5)]
    stable(*members)
    sixth = member()
    refused = sixth.try_join()
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    sixth.instance_id = "sixth"
    assert sixth.try_join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert members[4].leave() is ErrorCode.NONE
    sixth.enter()
    for each in members[:4]:
        each.start_join()
    rebalanced(*members[:4], sixth)


# Members that are lost.


def test_a_silent_member_is_lost_and_the_others_go_on(member: MakeMember) -> None:
    first, second = member(session_ms=10_000), member(session_ms=300)
    stable(first, second)
    # The second says nothing for its session.
    eventually(first.beat, lambda error: error is ErrorCode.REBALANCE_IN_PROGRESS)
    assert second.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert [m.member_id for m in first.join().members] == [first.member_id]


def test_the_last_silent_member_leaves_an_empty_group(member: MakeMember) -> None:
    lost = member(session_ms=200)
    stable(lost)
    # To ask what it owns does not keep it alive.
    eventually(lambda: lost.try_sync().error_code, lambda error: error == ErrorCode.UNKNOWN_MEMBER_ID)
    assert lost.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    # Its generation counts on: one was the lost member's, and one that of nobody.
    lost.member_id = ""
    assert lost.join().generation_id == 3


def test_a_heartbeat_during_a_rebalance_says_so_and_counts(member: MakeMember) -> None:
    """§5.11, 103. Whoever is slower than its own session has shown nothing, and begins anew."""
    for attempt in range(50):
        if beats_through_a_rebalance(member, session_ms=400 + 100 * attempt):
            return
    pytest.fail("this machine is too slow for sessions of five seconds")


def beats_through_a_rebalance(member: MakeMember, *, session_ms: int) -> bool:
    """Two members whose sessions began at one moment are asked to join again, and neither does: one says nothing, the
    other sends heartbeats, and outlives it. Were all of these in time?"""
    first, silent, third, watcher = (member() for _ in range(4))
    for each in (first, silent, third):
        each.group = f"{watcher.group}-{session_ms}"
    await_coordinator(first)
    stable(first, silent)
    first.session_ms = silent.session_ms = session_ms
    sent_s = time.monotonic()
    rejoin(first, silent)
    third.enter()
    is_rebalancing = is_silent_out = False
    while not (is_rebalancing and is_silent_out):
        group = described(watcher, first.group)
        is_rebalancing = group.group_state == "PreparingRebalance"
        is_silent_out = silent.member_id not in {each.member_id for each in group.members}
        before_s, sent_s = sent_s, time.monotonic()
        answer = first.beat()
        if time.monotonic() - before_s > 0.9 * session_ms / 1000:
            return False
        assert answer in ((ErrorCode.REBALANCE_IN_PROGRESS,) if is_rebalancing else BEFORE_OR_DURING)
    assert silent.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    first.start_join()
    rebalanced(first, third)
    return True


def test_a_commit_counts_as_a_heartbeat(coordinator: Node, member: MakeMember, name: str) -> None:
    """Whoever is slower than its own session has shown nothing, and begins anew."""
    with Client((coordinator.host, coordinator.port)) as client:
        topic = client.create_topic(name)
        for attempt in range(50):
            if commits_outlive_sessions(member, Groups(client), topic, session_ms=400 + 100 * attempt):
                return
    pytest.fail("this machine is too slow for sessions of five seconds")


def commits_outlive_sessions(member: MakeMember, groups: Groups, topic: Topic, *, session_ms: int) -> bool:
    """A member commits, and sends no heartbeat, for three sessions. Were all commits in time?"""
    only = member(session_ms=session_ms)
    only.group = f"{only.group}-{session_ms}"
    await_coordinator(only)
    sent_s = time.monotonic()
    stable(only)
    until_s = time.monotonic() + 3 * session_ms / 1000
    while sent_s < until_s:
        before_s, sent_s = sent_s, time.monotonic()
        code = groups.commit_one(only.group, topic, 1, member=Member(only.member_id, only.generation))
        if time.monotonic() - before_s > 0.9 * session_ms / 1000:
            return False
        assert code is ErrorCode.NONE
        time.sleep(0.1 * session_ms / 1000)
    return True


def described(client: GroupMember, group: str) -> DescribedGroup:
    (found,) = client.call(DescribeGroupsRequest(groups=[group]), DescribeGroupsResponse).groups
    return found


def test_who_does_not_join_again_in_time_is_removed(member: MakeMember) -> None:
    first, second = member(rebalance_ms=700), member(rebalance_ms=700)
    stable(first, second)
    first.start_join()
    # It sends heartbeats, which are no excuse.
    eventually(second.beat, lambda error: error is ErrorCode.UNKNOWN_MEMBER_ID)
    assert [m.member_id for m in first.joined().members] == [first.member_id]
    assert second.try_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_leader_may_be_the_one_who_does_not_come(member: MakeMember) -> None:
    first, second = member(rebalance_ms=700), member(rebalance_ms=700)
    leading, following = stable(first, second), second
    following.start_join([("range", NEWS)])
    eventually(leading.beat, lambda error: error is ErrorCode.UNKNOWN_MEMBER_ID)
    joined = following.joined()
    assert (joined.leader, len(joined.members)) == (following.member_id, 1)


def test_who_does_not_sync_in_time_is_removed(member: MakeMember) -> None:
    first, second = member(rebalance_ms=700), member(rebalance_ms=700)
    stable(first, second)
    rejoin(first, second)
    leading, following = first, second
    following.start_sync()
    # The leader beats, and makes no plan.
    eventually(leading.beat, lambda error: error is ErrorCode.UNKNOWN_MEMBER_ID)
    assert following.synced().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert [m.member_id for m in following.join().members] == [following.member_id]


def test_a_follower_that_never_asks_what_it_owns_is_removed(member: MakeMember) -> None:
    first, second = member(rebalance_ms=700), member(rebalance_ms=700)
    stable(first, second)
    rejoin(first, second)
    leading, following = first, second
    leading.sync({leading.member_id: b"x", following.member_id: b"y"})
    eventually(following.beat, lambda error: error is ErrorCode.UNKNOWN_MEMBER_ID)
    assert leading.beat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_id_that_was_given_out_is_waited_for_as_long_as_a_session(member: MakeMember) -> None:
    first, second = member(), member(session_ms=700)
    stable(first)
    assert second.try_join().error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert first.beat() is ErrorCode.NONE
    first.start_join()
    # The group is not complete without the one that has an id.
    assert first.is_silent(0.2)
    assert [m.member_id for m in first.joined().members] == [first.member_id]
    assert second.try_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_given_out_may_be_given_back(member: MakeMember) -> None:
    first, second = member(), member()
    stable(first)
    assert second.try_join().error_code == ErrorCode.MEMBER_ID_REQUIRED
    first.start_join()
    assert first.is_silent(0.2)
    assert second.leave() is ErrorCode.NONE
    assert first.joined().error_code == ErrorCode.NONE
    assert second.try_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_given_out_is_no_static_members(member: MakeMember) -> None:
    confused = member()
    assert confused.try_join().error_code == ErrorCode.MEMBER_ID_REQUIRED
    confused.instance_id = "i"
    assert confused.try_join().error_code == ErrorCode.UNKNOWN_SERVER_ERROR


# Leaving.


def test_several_leave_at_once_and_each_hears_how_it_went(member: MakeMember) -> None:
    first, second, static = member(), member(), member(instance_id="i")
    stable(first, second, static)
    left = first.leave_response(
        MemberIdentity(member_id=second.member_id),
        MemberIdentity(member_id="stranger"),
        MemberIdentity(member_id="", group_instance_id="i"),
        MemberIdentity(member_id="", group_instance_id="stranger"),
        MemberIdentity(member_id=""),
        MemberIdentity(member_id=second.member_id),
    )
    assert left.error_code == ErrorCode.NONE
    assert [(m.member_id, m.group_instance_id, ErrorCode(m.error_code)) for m in left.members] == [
        (second.member_id, None, ErrorCode.NONE),
        ("stranger", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "i", ErrorCode.NONE),
        ("", "stranger", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", None, ErrorCode.UNKNOWN_MEMBER_ID),
        (second.member_id, None, ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert static.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert first.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert [m.member_id for m in first.join().members] == [first.member_id]


def test_who_is_removed_while_it_waits_is_told(member: MakeMember) -> None:
    first, second = member(), member()
    stable(first)
    second.enter()
    eventually(first.beat, lambda error: error is ErrorCode.REBALANCE_IN_PROGRESS)
    first.leave_response(MemberIdentity(member_id=second.member_id))
    gone = second.joined()
    assert (gone.error_code, gone.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")


# Static members (KIP-345).


def test_a_static_member_that_returns_has_what_it_had_and_disturbs_nobody(member: MakeMember) -> None:
    first, static = member(), member(instance_id="i")
    leader = stable(first, static).member_id
    again = member(instance_id="i")
    joined = again.try_join()
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, static.generation, leader)
    assert joined.member_id != static.member_id
    assert (joined.members, joined.skip_assignment) == ([], False)
    assert again.sync() == b"1"
    assert first.beat() is ErrorCode.NONE
    assert again.beat() is ErrorCode.NONE
    # Whoever had the name before is fenced, whatever it asks.
    assert static.beat() is ErrorCode.FENCED_INSTANCE_ID
    assert static.try_sync().error_code == ErrorCode.FENCED_INSTANCE_ID
    fenced = static.try_join()
    assert (fenced.error_code, fenced.member_id) == (ErrorCode.FENCED_INSTANCE_ID, static.member_id)
    assert static.leave() is ErrorCode.FENCED_INSTANCE_ID
    # Without the name it is a stranger.
    static.instance_id = None
    assert static.beat() is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_leader_that_returns_leaves_the_assignments_alone(member: MakeMember, version: int) -> None:
    static = member(instance_id="i")
    stable(static)
    again = member(instance_id="i", version=version)
    joined = again.try_join()
    assert (joined.error_code, joined.generation_id) == (0, 1)
    if version >= 9:
        # It is told whom it leads, and that there is nothing to do (KIP-814).
        assert (joined.leader, joined.skip_assignment) == (again.member_id, True)
        assert [m.member_id for m in joined.members] == [again.member_id]
    else:
        assert (joined.leader, joined.skip_assignment, joined.members) == (static.member_id, False, [])
    assert again.sync() == b"0"
    # It leads nevertheless: when it joins again all do.
    assert again.join().generation_id == 2


def test_a_static_member_that_returns_with_other_favourites_makes_all_join_again(member: MakeMember) -> None:
    static = member(instance_id="i")
    static.join([("range", subscription()), ("sticky", subscription())])
    static.sync({static.member_id: b"x"})
    again = member(instance_id="i")
    joined = again.try_join([("sticky", subscription()), ("range", subscription())])
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 2, "sticky")
    # Something else to say under the same protocol does not.
    again.sync({again.member_id: b"y"})
    third = member(instance_id="i")
    joined = third.try_join([("sticky", NEWS), ("range", subscription())])
    assert (joined.generation_id, [m.metadata for m in joined.members]) == (2, [NEWS])
    assert third.sync() == b"y"


def test_a_static_member_that_waits_is_fenced_by_its_successor(member: MakeMember) -> None:
    first, static = member(), member(instance_id="i")
    stable(first, static)
    static.start_join([("range", NEWS)])
    eventually(first.beat, lambda error: error is ErrorCode.REBALANCE_IN_PROGRESS)
    again = member(instance_id="i")
    again.start_join()
    fenced = static.joined()
    assert (fenced.error_code, fenced.member_id) == (ErrorCode.FENCED_INSTANCE_ID, static.member_id)
    first.start_join()
    rebalanced(first, again)
    # The same in the sync phase, which begins anew: the leader may have planned for the old id.
    again.start_sync()
    third = member(instance_id="i")
    assert again.is_silent(0.2)
    third.start_join()
    assert again.synced().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert first.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    first.start_join()
    rebalanced(first, third)


def test_a_static_member_stays_until_its_session_ends(member: MakeMember) -> None:
    first, static = member(rebalance_ms=500), member(instance_id="i", rebalance_ms=500, session_ms=8_000)
    stable(first, static)
    first.start_join()
    joined = first.joined()
    # It did not come, and is a member of the next generation nevertheless.
    assert {m.group_instance_id for m in joined.members} == {None, "i"}
    assert static.beat() is ErrorCode.ILLEGAL_GENERATION


def test_a_static_member_may_have_but_one_name(member: MakeMember) -> None:
    static = member(instance_id="i")
    stable(static)
    static.instance_id = "k"
    assert static.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert static.try_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    # Without the name it is the same member, as Kafka has it.
    static.instance_id = None
    assert static.beat() is ErrorCode.NONE


# The coordinator.


@pytest.mark.slow
def test_members_are_still_members_after_a_restart(start_node: StartNode, name: str) -> None:
    node = start_node({**SETTINGS, "offsets.topic.num.partitions": "1"})
    address = (node.host, node.port)
    with GroupMember(address, name) as first, GroupMember(address, name, instance_id="i") as static:
        await_coordinator(first)
        leading = stable(first, static)
        ids = [first.member_id, static.member_id]
        generation = first.generation
        node.kill()
        node.spawn()
        node.wait_ready()
    address = (node.host, node.port)
    with GroupMember(address, name) as first, GroupMember(address, name, instance_id="i") as static:
        first.member_id, static.member_id = ids
        first.generation = static.generation = generation
        eventually(
            first.beat, lambda error: error not in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        )
        eventually(static.beat, lambda error: error is ErrorCode.NONE)
        assert first.beat() is ErrorCode.NONE
        assert [first.sync(), static.sync()] == [b"0", b"1"]
        # The leader still leads: it makes all join again.
        again = first if leading.instance_id is None else static
        other = static if again is first else first
        again.start_join()
        eventually(other.beat, lambda error: error is ErrorCode.REBALANCE_IN_PROGRESS)
        other.start_join()
        rebalanced(first, static)
        assert first.generation == generation + 1


@pytest.mark.slow
def test_the_first_members_wait_for_more(start_node: StartNode, name: str) -> None:
    node = start_node({"group.initial.rebalance.delay.ms": "1500", "offsets.topic.num.partitions": "1"})
    address = (node.host, node.port)
    with GroupMember(address, name) as first, GroupMember(address, name) as second:
        await_coordinator(first)
        first.enter()
        second.enter()
        rebalanced(first, second)
        assert first.generation == 1
