"""Lists, descriptions and deletions of groups, in every version."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode
from tests.behaviour.client import Client, Topic
from tests.behaviour.groups import Groups, new_group

OK = ErrorCode.NONE
NO_OPERATIONS = -(1 << 31)
ALL_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""Read, delete, describe, and the configs' two."""


@pytest.fixture
def groups(client: Client) -> Groups:
    return Groups(client)


@pytest.fixture
def group(groups: Groups) -> str:
    return groups.ready(new_group())


# ListGroups.


@pytest.mark.parametrize("version", range(6))
def test_every_version_lists_a_group_of_offsets_alone(groups: Groups, group: str, topic: Topic, version: int) -> None:
    assert group not in groups.list_groups(version=version)
    groups.commit_one(group, topic, 1)
    listed = groups.list_groups(version=version)[group]
    assert listed.protocol_type == ""
    assert listed.group_state == ("Empty" if version >= 4 else "")
    assert listed.group_type == ("classic" if version >= 5 else "")


def test_groups_are_listed_by_state_and_type(groups: Groups, topic: Topic) -> None:
    simple, classic, modern = (groups.ready(new_group()) for _ in range(3))
    groups.commit_one(simple, topic, 1)
    in_classic = groups.join(classic, topic)
    in_modern = groups.join_modern(modern, topic)
    ours = {simple, classic, modern}

    def listed(states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> set[str]:
        return ours & groups.list_groups(states=states, types=types).keys()

    assert listed() == ours
    assert listed(states=("Empty",)) == {simple}
    assert listed(states=("stable", "EMPTY")) == ours
    assert listed(states=("nonsense",)) == set()
    assert listed(types=("classic",)) == {simple, classic}
    assert listed(types=("Consumer",)) == {modern}
    assert listed(types=("consumer", "nonsense")) == {modern}
    assert listed(types=("nonsense",)) == set()
    assert listed(states=("Stable",), types=("classic",)) == {classic}
    found = groups.list_groups()
    assert (found[classic].protocol_type, found[classic].group_state, found[classic].group_type) == (
        "consumer",
        "Stable",
        "classic",
    )
    assert (found[modern].protocol_type, found[modern].group_state, found[modern].group_type) == (
        "consumer",
        "Stable",
        "consumer",
    )
    groups.leave(classic, in_classic)
    groups.leave_modern(modern, in_modern)
    assert listed(states=("Empty",)) == ours


# DescribeGroups.


@pytest.mark.parametrize("version", range(7))
def test_every_version_describes_a_group_of_offsets_alone(
    groups: Groups, group: str, topic: Topic, version: int
) -> None:
    groups.commit_one(group, topic, 1)
    (described,) = groups.describe(group, version=version)
    assert (described.group_id, described.error_code, described.group_state) == (group, 0, "Empty")
    assert (described.protocol_type, described.protocol_data, described.members) == ("", "", [])
    assert described.authorized_operations == NO_OPERATIONS


@pytest.mark.parametrize("version", range(7))
def test_every_version_describes_a_classic_group(groups: Groups, group: str, topic: Topic, version: int) -> None:
    member = groups.join(group, topic)
    (described,) = groups.describe(group, version=version)
    assert (described.group_id, described.error_code, described.group_state) == (group, 0, "Stable")
    assert (described.protocol_type, described.protocol_data) == ("consumer", "range")
    (only,) = described.members
    assert (only.member_id, only.group_instance_id, only.client_id) == (member.member_id, None, "test")
    assert only.client_host == "/127.0.0.1"
    assert only.member_metadata[:2] == b"\0\0"
    assert only.member_assignment == b"mine"
    groups.leave(group, member)
    (described,) = groups.describe(group, version=version)
    assert (described.group_state, described.protocol_type, described.members) == ("Empty", "consumer", [])


@pytest.mark.parametrize("version", range(7))
def test_a_group_that_is_not_there_is_dead(groups: Groups, group: str, version: int) -> None:
    (described,) = groups.describe(group, version=version)
    assert (described.group_id, described.group_state) == (group, "Dead")
    if version >= 6:
        assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert described.error_message == f"Group {group} not found."
    else:
        assert described.error_code == 0


@pytest.mark.parametrize("version", [5, 6])
def test_a_consumer_group_is_described_elsewhere(groups: Groups, group: str, topic: Topic, version: int) -> None:
    member = groups.join_modern(group, topic)
    (described,) = groups.describe(group, version=version)
    assert described.group_state == "Dead"
    assert described.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    if version >= 6:
        assert described.error_message == f"Group {group} is not a classic group."
    groups.leave_modern(group, member)


def test_many_groups_are_described_with_what_the_client_may_do(groups: Groups, group: str, topic: Topic) -> None:
    groups.commit_one(group, topic, 1)
    other = new_group()
    described = {each.group_id: each for each in groups.describe(group, other, operations=True)}
    assert described[group].authorized_operations == ALL_OPERATIONS
    assert described[other].authorized_operations == NO_OPERATIONS


# DeleteGroups.


@pytest.mark.parametrize("version", range(3))
def test_every_version_deletes_groups(groups: Groups, topic: Topic, version: int) -> None:
    group, stranger = groups.ready(new_group()), groups.ready(new_group())
    groups.commit_one(group, topic, 1)
    assert groups.delete(group, stranger, group, version=version) == {
        group: OK,
        stranger: ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert group not in groups.list_groups()
    assert groups.fetch(group, (topic, 0)) == {(topic.name, 0): -1}
    assert groups.delete(group, version=version) == {group: ErrorCode.GROUP_ID_NOT_FOUND}


def test_a_group_with_members_is_not_deleted(groups: Groups, topic: Topic) -> None:
    classic, modern = (groups.ready(new_group()) for _ in range(2))
    in_classic = groups.join(classic, topic)
    in_modern = groups.join_modern(modern, topic)
    assert groups.delete(classic, modern) == {
        classic: ErrorCode.NON_EMPTY_GROUP,
        modern: ErrorCode.NON_EMPTY_GROUP,
    }
    groups.commit_one(classic, topic, 1, member=in_classic)
    groups.commit_one(modern, topic, 1, member=in_modern)
    groups.leave(classic, in_classic)
    groups.leave_modern(modern, in_modern)
    assert groups.delete(classic, modern) == {classic: OK, modern: OK}
    assert not {classic, modern} & groups.list_groups().keys()
