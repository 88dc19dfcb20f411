"""Offsets that groups commit, fetch and delete: who may, in every version, and what comes back. invariants §5.11."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from ottla.coordinator.java_hash import partition_for
from ottla.coordinator.stored import GROUP_KINDS, StoredRecord
from ottla.errors import ErrorCode
from ottla.model import GROUP_TOPIC, Uuid
from ottla.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from ottla.wire.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from ottla.wire.messages.group_metadata_key import GroupMetadataKey
from ottla.wire.messages.group_metadata_value import GroupMetadataValue
from ottla.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.list_offsets_response import ListOffsetsResponse
from ottla.wire.messages.offset_commit_key import OffsetCommitKey
from ottla.wire.messages.offset_commit_value import OffsetCommitValue
from ottla.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.offset_fetch_response import OffsetFetchResponse
from tests.behaviour.client import Client, Topic, batch, eventually, now_ms
from tests.behaviour.conftest import Node, StartNode
from tests.behaviour.groups import COMMIT_VERSIONS, FETCH_VERSIONS, Groups, Member, new_group

OK = ErrorCode.NONE
LONGEST_METADATA = 4096
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def groups(client: Client) -> Groups:
    return Groups(client)


@pytest.fixture
def group(groups: Groups) -> str:
    return groups.ready(new_group())


@pytest.fixture
def wide(client: Client, name: str) -> Topic:
    """A topic of three partitions."""
    return client.create_topic(name, 3)


# Commit and fetch.


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_a_commit_of_every_version_is_found_again(groups: Groups, group: str, wide: Topic, version: int) -> None:
    codes = groups.commit(group, {(wide, 0): 5, (wide, 2): 7}, version=version, leader_epoch=3, metadata="mark")
    assert codes == {(wide.name, 0): OK, (wide.name, 2): OK}
    assert groups.fetch(group, (wide, 0), (wide, 1), (wide, 2)) == {
        (wide.name, 0): 5,
        (wide.name, 1): -1,
        (wide.name, 2): 7,
    }
    found = groups.fetch_one(group, wide)
    assert found.committed_leader_epoch == (3 if version >= 6 else -1)
    assert found.metadata == "mark"


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_every_version_of_fetch_finds_it(groups: Groups, group: str, wide: Topic, version: int) -> None:
    groups.commit(group, {(wide, 0): 5}, leader_epoch=3, metadata="mark")
    answer = groups.fetch_group(group, [(wide, 0), (wide, 1)], version=version)
    assert answer.error_code == 0
    (found,) = answer.topics
    assert found.name == ("" if version >= 10 else wide.name)
    assert found.topic_id == (wide.topic_id if version >= 10 else Uuid(bytes(16)))
    first, second = sorted(found.partitions, key=lambda each: each.partition_index)
    epoch = 3 if version >= 5 else -1
    assert (first.committed_offset, first.committed_leader_epoch, first.metadata, first.error_code) == (
        5,
        epoch,
        "mark",
        0,
    )
    # §5.11, 108: a partition for which nothing was committed is no error.
    assert (second.committed_offset, second.committed_leader_epoch, second.metadata, second.error_code) == (
        -1,
        -1,
        "",
        0,
    )


@pytest.mark.parametrize("version", [version for version in FETCH_VERSIONS if version >= 2])
def test_who_names_no_topic_gets_all(groups: Groups, client: Client, group: str, wide: Topic, version: int) -> None:
    other = client.create_topic(f"{wide.name}-other")
    groups.commit(group, {(wide, 0): 5, (wide, 2): 7, (other, 0): 9})
    answer = groups.fetch_group(group, None, version=version)
    found = {
        (topic.topic_id if version >= 10 else topic.name): {
            partition.partition_index: partition.committed_offset for partition in topic.partitions
        }
        for topic in answer.topics
    }
    keys = (wide.topic_id, other.topic_id) if version >= 10 else (wide.name, other.name)
    assert found == {keys[0]: {0: 5, 2: 7}, keys[1]: {0: 9}}
    nobody = groups.fetch_group(new_group(), None, version=version)
    assert (nobody.error_code, nobody.topics) == (0, [])


@pytest.mark.slow
def test_all_offsets_of_very_many_groups_are_told_in_one_answer(groups: Groups, client: Client, name: str) -> None:
    topic = client.create_topic(name, 100)
    many = [groups.ready(new_group()) for _ in range(210)]
    for number, each in enumerate(many):
        groups.commit(each, {(topic, index): 1000 * number + index for index in range(100)})
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=each, topics=None) for each in many])
    answer = client.call(request, OffsetFetchResponse, 9)
    found = {
        group.group_id: {each.partition_index: each.committed_offset for each in group.topics[0].partitions}
        for group in answer.groups
        if not group.error_code
    }
    assert found == {each: {index: 1000 * number + index for index in range(100)} for number, each in enumerate(many)}


def test_so_many_partitions_are_asked_for_at_once(groups: Groups, client: Client, group: str, wide: Topic) -> None:
    """As tools do that describe a group which has come far in all partitions of a node."""
    groups.commit(group, {(wide, 0): 5, (wide, 2): 7})
    many = list(range(30_000))
    topics = [OffsetFetchRequestTopics(name=wide.name, partition_indexes=many)]
    for require_stable in (False, True):
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=require_stable
        )
        (told,) = client.call(request, OffsetFetchResponse, 9).groups[0].topics
        assert {each.error_code for each in told.partitions} == {0}
        offsets = {each.partition_index: each.committed_offset for each in told.partitions}
        assert offsets == dict.fromkeys(many, -1) | {0: 5, 2: 7}
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in many]
    asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=wide.name, partitions=partitions)])
    (listed,) = client.call(asked, ListOffsetsResponse, 7).topics
    assert [each.partition_index for each in listed.partitions if not each.error_code] == [0, 1, 2]
    assert {each.error_code for each in listed.partitions} == {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(listed.partitions) == len(many)


@pytest.mark.parametrize("version", [8, 9, 10])
def test_many_groups_are_fetched_at_once(groups: Groups, client: Client, topic: Topic, version: int) -> None:
    first, second, third = (groups.ready(new_group()) for _ in range(3))
    groups.commit(first, {(topic, 0): 1})
    groups.commit(second, {(topic, 0): 2})
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=each, topics=None) for each in (first, second, third)]
    )
    response = client.call(request, OffsetFetchResponse, version)
    assert {
        each.group_id: [partition.committed_offset for found in each.topics for partition in found.partitions]
        for each in response.groups
    } == {first: [1], second: [2], third: []}


def test_a_commit_may_go_back(groups: Groups, group: str, topic: Topic) -> None:
    groups.commit_one(group, topic, 100)
    assert groups.commit_one(group, topic, 3) is OK
    assert groups.fetch_one(group, topic).committed_offset == 3


def test_metadata_may_be_null_and_is_empty_then(groups: Groups, group: str, topic: Topic) -> None:
    assert groups.commit_one(group, topic, 1, metadata=None) is OK
    assert groups.fetch_one(group, topic).metadata == ""


def test_metadata_has_a_longest_length(groups: Groups, group: str, wide: Topic) -> None:
    """§5.11, 109; the other partitions of the request are committed."""
    assert groups.commit_one(group, wide, 1, metadata="m" * LONGEST_METADATA) is OK
    assert groups.commit_one(group, wide, 2, metadata="m" * (LONGEST_METADATA + 1)) is (
        ErrorCode.OFFSET_METADATA_TOO_LARGE
    )
    assert groups.commit_one(group, wide, 3, metadata="ü" * LONGEST_METADATA) is OK, "characters are counted, not bytes"
    assert groups.commit_one(group, wide, 4, metadata="😀" * (LONGEST_METADATA // 2)) is OK
    assert groups.commit_one(group, wide, 5, metadata="😀" * (LONGEST_METADATA // 2 + 1)) is (
        ErrorCode.OFFSET_METADATA_TOO_LARGE
    )
    assert groups.fetch_one(group, wide).committed_offset == 4


@pytest.mark.parametrize("version", [2, 9, 10])
def test_partitions_that_do_not_exist_are_refused_and_others_are_not(
    groups: Groups, group: str, wide: Topic, version: int
) -> None:
    codes = groups.commit(group, {(wide, 1): 5, (wide, 3): 7, (wide, -1): 8}, version=version)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {(wide.name, 1): OK, (wide.name, 3): unknown, (wide.name, -1): unknown}
    assert groups.fetch(group, (wide, 1), (wide, 3)) == {(wide.name, 1): 5, (wide.name, 3): -1}


@pytest.mark.parametrize("version", [2, 9])
def test_topics_that_do_not_exist_are_refused_by_name(groups: Groups, group: str, topic: Topic, version: int) -> None:
    stranger = Topic("no-such-topic")
    codes = groups.commit(group, {(stranger, 0): 1, (topic, 0): 2}, version=version)
    assert codes == {(stranger.name, 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, (topic.name, 0): OK}
    assert groups.fetch(group, (stranger, 0), version=version) == {(stranger.name, 0): -1}


def test_topics_that_do_not_exist_are_refused_by_id(groups: Groups, group: str, topic: Topic) -> None:
    stranger = Topic("stranger", Uuid(b"no such topic id"))
    codes = groups.commit(group, {(stranger, 0): 1, (topic, 0): 2}, version=10)
    assert codes == {(stranger.name, 0): ErrorCode.UNKNOWN_TOPIC_ID, (topic.name, 0): OK}
    found = groups.fetch(group, (stranger, 0), (topic, 0), version=10)
    assert found == {(stranger.name, 0): ErrorCode.UNKNOWN_TOPIC_ID, (topic.name, 0): 2}


def test_a_request_without_topics_commits_nothing_and_is_no_error(groups: Groups, group: str) -> None:
    assert groups.commit(group, {}) == {}
    assert group not in groups.list_groups()


def test_the_empty_group_id_may_commit_and_fetch(groups: Groups, group: str, topic: Topic) -> None:
    """Old clients that had no group did so."""
    assert groups.commit_one("", topic, 8) is OK
    assert groups.fetch_one("", topic).committed_offset == 8
    assert groups.delete_offsets("", (topic, 0)) is ErrorCode.INVALID_GROUP_ID
    assert groups.delete("") == {"": OK}


# Offsets and topics that come again.


def test_offsets_go_with_their_topic(groups: Groups, client: Client, group: str, topic: Topic, name: str) -> None:
    kept = client.create_topic(f"{name}-kept")
    groups.commit(group, {(topic, 0): 5, (kept, 0): 6})
    client.delete_topic(topic)
    eventually(lambda: groups.fetch(group, version=9), lambda found: found == {(kept.name, 0): 6})
    again = client.create_topic(name)
    assert groups.fetch(group, (again, 0), version=10) == {(name, 0): -1}
    groups.commit_one(group, again, 1)
    assert groups.fetch(group, (again, 0), version=10) == {(name, 0): 1}


# Who may commit.


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_a_member_of_no_group_is_refused(groups: Groups, group: str, topic: Topic, version: int) -> None:
    code = groups.commit_one(group, topic, 1, version=version, member=Member("stranger", 1))
    assert code is (ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION)
    assert group not in groups.list_groups()


def test_a_group_of_offsets_alone_knows_no_member(groups: Groups, group: str, topic: Topic) -> None:
    groups.commit_one(group, topic, 1)
    assert groups.commit_one(group, topic, 2, member=Member("stranger", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.commit_one(group, topic, 2, member=Member("stranger", -1)) is OK
    assert groups.commit_one(group, topic, 3, instance_id="instance", version=7) is OK


def test_members_of_a_classic_group_commit_with_their_generation(groups: Groups, group: str, topic: Topic) -> None:
    """§5.11, 104."""
    member = groups.join(group, topic)
    assert groups.commit_one(group, topic, 1, member=member) is OK
    assert groups.commit_one(group, topic, 2, member=member._replace(generation=0)) is ErrorCode.ILLEGAL_GENERATION
    assert groups.commit_one(group, topic, 2, member=member._replace(generation=2)) is ErrorCode.ILLEGAL_GENERATION
    assert groups.commit_one(group, topic, 2, member=Member("stranger", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.commit_one(group, topic, 2) is ErrorCode.UNKNOWN_MEMBER_ID, "nobody outside while there are members"
    assert groups.commit_one(group, topic, 2, member=member, instance_id="mine") is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.fetch_one(group, topic).committed_offset == 1
    groups.leave(group, member)
    assert groups.commit_one(group, topic, 3) is OK


def test_while_a_group_waits_for_its_assignment_nobody_commits(groups: Groups, group: str, topic: Topic) -> None:
    """§5.11, 104."""
    member = groups.join(group, topic, sync=False)
    assert groups.commit_one(group, topic, 1, member=member) is ErrorCode.REBALANCE_IN_PROGRESS
    groups.leave(group, member)


def test_members_of_a_consumer_group_commit_with_their_epoch(groups: Groups, group: str, topic: Topic) -> None:
    """§5.11, 106."""
    member = groups.join_modern(group, topic)
    assert groups.commit_one(group, topic, 1, member=member) is OK
    newer = member._replace(generation=member.generation + 1)
    assert groups.commit_one(group, topic, 2, member=newer) is ErrorCode.STALE_MEMBER_EPOCH
    older = member._replace(generation=member.generation - 1)
    assert groups.commit_one(group, topic, 2, member=older) is ErrorCode.STALE_MEMBER_EPOCH
    assert groups.commit_one(group, topic, 2, member=Member("stranger", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.commit_one(group, topic, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.commit_one(group, topic, 2, member=member, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert groups.fetch_one(group, topic).committed_offset == 1
    groups.leave_modern(group, member)
    assert groups.commit_one(group, topic, 3) is OK


# Who may fetch.


@pytest.mark.parametrize("version", [9, 10])
@pytest.mark.parametrize("require_stable", [False, True])
def test_members_of_a_consumer_group_fetch_with_their_epoch(
    groups: Groups, group: str, topic: Topic, version: int, require_stable: bool
) -> None:
    member = groups.join_modern(group, topic)
    groups.commit_one(group, topic, 1, member=member)

    def code(asking: Member | None) -> int:
        answer = groups.fetch_group(group, [(topic, 0)], version=version, member=asking, require_stable=require_stable)
        assert not answer.error_code or not answer.topics
        return answer.error_code

    assert code(member) == 0
    assert code(None) == 0
    assert code(member._replace(generation=9)) == ErrorCode.STALE_MEMBER_EPOCH
    assert code(Member("stranger", 1)) == ErrorCode.UNKNOWN_MEMBER_ID
    groups.leave_modern(group, member)


def test_a_classic_group_answers_whoever_asks(groups: Groups, group: str, topic: Topic) -> None:
    groups.commit_one(group, topic, 1)
    answer = groups.fetch_group(group, [(topic, 0)], member=Member("stranger", 7))
    assert answer.error_code == 0


# Deletion.


def test_offsets_are_deleted(groups: Groups, group: str, wide: Topic) -> None:
    groups.commit(group, {(wide, 0): 5, (wide, 1): 6})
    stranger = Topic("no-such-topic")
    codes = groups.delete_offsets(group, (wide, 0), (wide, 2), (wide, 9), (stranger, 0))
    assert codes == {
        (wide.name, 0): OK,
        (wide.name, 2): OK,
        (wide.name, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (stranger.name, 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert groups.fetch(group) == {(wide.topic_id.hex(), 1): 6}


def test_offsets_of_a_group_that_is_not_there_are_not_deleted(groups: Groups, group: str, topic: Topic) -> None:
    assert groups.delete_offsets(group, (topic, 0)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert groups.delete_offsets("", (topic, 0)) is ErrorCode.INVALID_GROUP_ID


def test_a_group_whose_offsets_were_deleted_is_still_there(groups: Groups, group: str, topic: Topic) -> None:
    groups.commit_one(group, topic, 1)
    assert groups.delete_offsets(group, (topic, 0)) == {(topic.name, 0): OK}
    assert groups.list_groups()[group].group_state == "Empty"
    assert groups.delete(group) == {group: OK}


def test_offsets_that_somebody_consumes_are_not_deleted(
    groups: Groups, client: Client, group: str, topic: Topic, name: str
) -> None:
    other = client.create_topic(f"{name}-other")
    member = groups.join(group, topic)
    groups.commit(group, {(topic, 0): 1, (other, 0): 2}, member=member)
    assert groups.delete_offsets(group, (topic, 0), (other, 0)) == {
        (topic.name, 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        (other.name, 0): OK,
    }
    assert groups.fetch(group, version=9) == {(topic.name, 0): 1}
    groups.leave(group, member)
    assert groups.delete_offsets(group, (topic, 0)) == {(topic.name, 0): OK}


def test_offsets_that_a_consumer_group_is_subscribed_to_are_not_deleted(
    groups: Groups, client: Client, group: str, topic: Topic, name: str
) -> None:
    other = client.create_topic(f"{name}-other")
    member = groups.join_modern(group, topic)
    groups.commit(group, {(topic, 0): 1, (other, 0): 2}, member=member)
    assert groups.delete_offsets(group, (topic, 0), (other, 0)) == {
        (topic.name, 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        (other.name, 0): OK,
    }
    groups.leave_modern(group, member)


def test_a_group_of_another_protocol_must_be_empty(groups: Groups, group: str, topic: Topic) -> None:
    """What a Connect worker is subscribed to, nobody can tell."""
    groups.commit_one(group, topic, 1)
    member = groups.join(group, topic, protocol_type="connect")
    assert groups.delete_offsets(group, (topic, 0)) is ErrorCode.NON_EMPTY_GROUP
    groups.leave(group, member)
    assert groups.delete_offsets(group, (topic, 0)) == {(topic.name, 0): OK}


# Expiry, on a node that looks often.


@pytest.fixture(scope="module")
def hasty(start_node: StartNode) -> Node:
    return start_node({"offsets.retention.check.interval.ms": "200", "offsets.topic.num.partitions": "2"})


@pytest.fixture
def hasty_groups(hasty: Node) -> Iterator[Groups]:
    with Client((hasty.host, hasty.port)) as client:
        yield Groups(client)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_an_offset_with_a_retention_of_its_own_expires(hasty_groups: Groups, name: str, version: int) -> None:
    groups, client = hasty_groups, hasty_groups.client
    topic = client.create_topic(name, 2)
    group = groups.ready(new_group())
    groups.commit(group, {(topic, 0): 5}, version=version, retention_ms=1)
    groups.commit(group, {(topic, 1): 6}, version=version, retention_ms=600_000)
    eventually(lambda: groups.fetch(group, version=9), lambda found: found == {(name, 1): 6})
    assert group in groups.list_groups()
    groups.commit(group, {(topic, 1): 6}, version=version, retention_ms=1)
    # With its last offset the group goes, too.
    eventually(lambda: group in groups.list_groups(), lambda there: not there)


def test_offsets_of_a_group_with_members_stay(hasty_groups: Groups, name: str) -> None:
    """§5.11, 110."""
    groups, client = hasty_groups, hasty_groups.client
    topic = client.create_topic(name)
    group, witness = groups.ready(new_group()), groups.ready(new_group())
    member = groups.join(group, topic)
    groups.commit(group, {(topic, 0): 5}, version=4, member=member, retention_ms=1)
    groups.commit(witness, {(topic, 0): 5}, version=4, retention_ms=1)
    eventually(lambda: witness in groups.list_groups(), lambda there: not there)
    assert groups.fetch(group, (topic, 0)) == {(name, 0): 5}
    groups.leave(group, member)
    eventually(lambda: group in groups.list_groups(), lambda there: not there)


def test_of_a_group_with_members_expires_what_they_are_not_subscribed_to(hasty_groups: Groups, name: str) -> None:
    """§5.11, 110."""
    groups, client = hasty_groups, hasty_groups.client
    topic, other = client.create_topic(name), client.create_topic(f"{name}-other")
    group = groups.ready(new_group())
    member = groups.join(group, topic)
    groups.commit(group, {(topic, 0): 5, (other, 0): 6}, version=4, member=member, retention_ms=1)
    eventually(lambda: groups.fetch(group, version=9), lambda found: found == {(name, 0): 5})
    assert groups.list_groups()[group].group_state == "Stable"
    groups.leave(group, member)


def test_the_time_of_offsets_runs_from_when_their_group_became_empty(hasty: Node, name: str, on_apache: bool) -> None:
    """§5.11, 110: for seven days, and not from the commit. Nobody waits for so long: the records are written as a
    coordinator would have, days ago, and the next coordinator finds them.

    Where nobody ever joined there is but the commit to go by; and groups of KIP-848 have no record of when they became
    empty. Offsets of a topic that went while nobody coordinated the group stay with Kafka until they expire; here they
    go when they are loaded.
    """
    long_ago, lately = now_ms() - 8 * DAY_MS, now_ms() - DAY_MS
    with Client((hasty.host, hasty.port), client_id="__admin_client") as admin:
        groups = Groups(admin)
        topic = admin.create_topic(name)
        groups.ready(new_group())
        found = admin.describe_topic(GROUP_TOPIC)
        internal, count = Topic(GROUP_TOPIC, found.topic_id), len(found.partitions)
        # All in one partition, so that who looks at one of them looks at all.
        ids = list(islice(in_partition(0, count), 7))
        left_lately, left_long_ago, of_nobody, of_nobody_lately, modern, modern_lately, orphaned = ids
        gone = Topic(f"{name}-gone", topic.topic_id)
        records = [
            became_empty(left_lately, lately),
            committed(left_lately, topic, long_ago),
            became_empty(left_long_ago, long_ago),
            committed(left_long_ago, topic, lately),
            committed(of_nobody, topic, long_ago),
            committed(of_nobody_lately, topic, lately),
            StoredRecord(ConsumerGroupMetadataKey(group_id=modern), ConsumerGroupMetadataValue(epoch=1)),
            committed(modern, topic, long_ago),
            StoredRecord(ConsumerGroupMetadataKey(group_id=modern_lately), ConsumerGroupMetadataValue(epoch=1)),
            committed(modern_lately, topic, lately),
            committed(orphaned, gone, lately),
        ]
        for key, value in map(GROUP_KINDS.encode, records):
            assert admin.produce(internal, batch(value, key=key)).error_code == 0
    hasty.stop()
    hasty.spawn()
    hasty.wait_ready()
    with Client((hasty.host, hasty.port)) as client:
        groups = Groups(client)
        for index in range(count):
            groups.ready(next(in_partition(index, count)))
        stay = {left_lately, of_nobody_lately, modern_lately, *([orphaned] if on_apache else [])}
        assert eventually(lambda: groups.list_groups().keys() & {*ids}, lambda there: len(there) <= len(stay)) == stay
        for group in ids:
            of = gone if group == orphaned else topic
            assert groups.fetch(group, (of, 0), version=9) == {(of.name, 0): 7 if group in stay else -1}


def in_partition(index: int, count: int) -> Iterator[str]:
    """Ids of groups that are coordinated there."""
    while True:
        group = new_group()
        if partition_for(group, count) == index:
            yield group


def became_empty(group: str, timestamp_ms: int) -> StoredRecord:
    value = GroupMetadataValue(
        protocol_type="consumer", generation=3, protocol=None, leader=None, current_state_timestamp=timestamp_ms
    )
    return StoredRecord(GroupMetadataKey(group=group), value, 3)


def committed(group: str, topic: Topic, timestamp_ms: int) -> StoredRecord:
    value = OffsetCommitValue(offset=7, commit_timestamp=timestamp_ms)
    return StoredRecord(OffsetCommitKey(group=group, topic=topic.name, partition=0), value, 3)
