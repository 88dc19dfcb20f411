"""Offsets that a transaction commits: staged until its marker, and in force or forgotten then. invariants §5.8."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.errors import ErrorCode
from tests.behaviour.client import Client, Topic, eventually
from tests.behaviour.conftest import Node, StartNode
from tests.behaviour.groups import Groups, Member, new_group
from tests.behaviour.transactions import V1, V2, Transactional

OK = ErrorCode.NONE
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
IMPLICIT = 5
"""The first version whose clients leave it to the broker to add the group to the transaction (KIP-890)."""


@pytest.fixture
def groups(client: Client) -> Groups:
    return Groups(client)


@pytest.fixture
def group(groups: Groups) -> str:
    return groups.ready(new_group())


@pytest.fixture
def producer(client: Client) -> Transactional:
    return Transactional.begun(client)


def begin(producer: Transactional, group: str, version: int) -> int:
    """Older clients say which group it will be; the version in which such a client ends its transactions."""
    if version >= IMPLICIT:
        return V2
    assert producer.add_offsets(group) is OK
    return V1


@pytest.mark.parametrize("version", range(6))
def test_staged_offsets_come_into_force_with_the_transaction(
    groups: Groups, group: str, topic: Topic, producer: Transactional, version: int
) -> None:
    groups.commit_one(group, topic, 1)
    end_version = begin(producer, group, version)
    assert groups.stage_one(producer, group, topic, 7, version=version, metadata="mark") is OK
    assert groups.fetch(group, (topic, 0)) == {(topic.name, 0): 1}
    assert groups.fetch(group, (topic, 0), require_stable=True) == {(topic.name, 0): UNSTABLE}
    producer.ended(commit=True, version=end_version)
    assert groups.fetch(group, (topic, 0), require_stable=True) == {(topic.name, 0): 7}
    assert groups.fetch_one(group, topic).metadata == "mark"


@pytest.mark.parametrize("version", [3, 5])
def test_an_aborted_transaction_leaves_nothing(
    groups: Groups, group: str, topic: Topic, producer: Transactional, version: int
) -> None:
    groups.commit_one(group, topic, 1)
    end_version = begin(producer, group, version)
    assert groups.stage_one(producer, group, topic, 7, version=version) is OK
    producer.ended(commit=False, version=end_version)
    assert groups.fetch(group, (topic, 0), require_stable=True) == {(topic.name, 0): 1}


@pytest.mark.parametrize("version", [7, 8, 9, 10])
def test_who_requires_stable_offsets_is_told_to_wait(
    groups: Groups, group: str, topic: Topic, producer: Transactional, version: int
) -> None:
    """§5.11, 108. A partition that has only a staged offset is unstable, too; but not told among all of a group."""
    groups.stage_one(producer, group, topic, 7)
    found = groups.fetch_one(group, topic, version=version, require_stable=True)
    assert (found.error_code, found.committed_offset, found.metadata) == (UNSTABLE, -1, "")
    assert groups.fetch_one(group, topic, version=version).committed_offset == -1
    assert groups.fetch(group, version=version, require_stable=True) == {}
    producer.ended(commit=True)
    assert groups.fetch_one(group, topic, version=version, require_stable=True).committed_offset == 7


def test_a_group_that_has_staged_offsets_alone_is_there(
    groups: Groups, group: str, topic: Topic, producer: Transactional
) -> None:
    groups.stage_one(producer, group, topic, 7)
    assert groups.list_groups()[group].group_state == "Empty"
    producer.ended(commit=True)
    assert groups.list_groups()[group].group_state == "Empty"


def test_a_plain_commit_after_a_staged_one_stays(
    groups: Groups, group: str, topic: Topic, producer: Transactional
) -> None:
    """The later record wins, whichever came into force last: compaction keeps only that."""
    groups.stage_one(producer, group, topic, 7)
    groups.commit_one(group, topic, 3)
    producer.ended(commit=True)
    assert groups.fetch(group, (topic, 0)) == {(topic.name, 0): 3}


def test_offsets_that_are_deleted_while_staged_stay_away(
    groups: Groups, group: str, topic: Topic, producer: Transactional
) -> None:
    groups.stage_one(producer, group, topic, 7)
    assert groups.delete_offsets(group, (topic, 0)) == {(topic.name, 0): OK}
    producer.ended(commit=True)
    assert groups.fetch(group, (topic, 0)) == {(topic.name, 0): -1}


def test_a_group_may_be_deleted_with_what_is_staged(
    groups: Groups, group: str, topic: Topic, producer: Transactional
) -> None:
    groups.stage_one(producer, group, topic, 7)
    assert groups.delete(group) == {group: OK}
    producer.ended(commit=True)
    assert groups.fetch(group, (topic, 0)) == {(topic.name, 0): -1}
    assert group not in groups.list_groups()


def test_a_transaction_may_commit_several_times_and_for_several_groups(
    groups: Groups, client: Client, name: str, producer: Transactional
) -> None:
    topic = client.create_topic(name, 2)
    first, second = (groups.ready(new_group()) for _ in range(2))
    assert groups.stage(producer, first, {(topic, 0): 1, (topic, 1): 2}) == {(name, 0): OK, (name, 1): OK}
    assert groups.stage(producer, first, {(topic, 0): 3}) == {(name, 0): OK}
    assert groups.stage(producer, second, {(topic, 0): 4}) == {(name, 0): OK}
    producer.ended(commit=True)
    assert groups.fetch(first, version=9) == {(name, 0): 3, (name, 1): 2}
    assert groups.fetch(second, version=9) == {(name, 0): 4}


# Refusals.


def test_topics_that_do_not_exist_are_refused_and_others_are_not(
    groups: Groups, group: str, topic: Topic, producer: Transactional
) -> None:
    stranger = Topic("no-such-topic")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert groups.stage(producer, group, {(topic, 0): 1, (topic, 5): 2, (stranger, 0): 3}) == {
        (topic.name, 0): OK,
        (topic.name, 5): unknown,
        (stranger.name, 0): unknown,
    }
    producer.ended(commit=True)
    assert groups.fetch(group, version=9) == {(topic.name, 0): 1}


def test_metadata_has_a_longest_length(groups: Groups, group: str, topic: Topic, producer: Transactional) -> None:
    code = groups.stage_one(producer, group, topic, 1, metadata="m" * 4097)
    assert code is ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_the_empty_group_id_is_refused(groups: Groups, group: str, topic: Topic, producer: Transactional) -> None:
    assert groups.stage_one(producer, "", topic, 1) is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_member_of_no_group_is_refused(
    groups: Groups, group: str, topic: Topic, producer: Transactional, version: int
) -> None:
    begin(producer, group, version)
    code = groups.stage_one(producer, group, topic, 1, version=version, member=Member("stranger", 1))
    assert code is ErrorCode.ILLEGAL_GENERATION
    assert group not in groups.list_groups()


def test_members_of_a_classic_group_are_checked(
    groups: Groups, group: str, topic: Topic, producer: Transactional
) -> None:
    """KIP-447: a zombie of an earlier generation does not commit."""
    member = groups.join(group, topic)

    def code(asking: Member, instance_id: str | None = None) -> ErrorCode:
        return groups.stage_one(producer, group, topic, 1, member=asking, instance_id=instance_id)

    assert code(member._replace(generation=0)) is ErrorCode.ILLEGAL_GENERATION
    assert code(Member("stranger", member.generation)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(Member("", member.generation)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(member, "mine") is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(member) is OK
    assert code(Member("", -1)) is OK, "older producers do not say who they are"
    groups.leave(group, member)
    assert code(member) is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_of_a_consumer_group_are_checked(
    groups: Groups, group: str, topic: Topic, producer: Transactional
) -> None:
    member = groups.join_modern(group, topic)

    def code(asking: Member) -> ErrorCode:
        return groups.stage_one(producer, group, topic, 1, member=asking)

    assert code(member._replace(generation=member.generation + 1)) is ErrorCode.ILLEGAL_GENERATION
    assert code(member._replace(generation=member.generation - 1)) is ErrorCode.ILLEGAL_GENERATION
    assert code(Member("stranger", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(member) is OK
    assert code(Member("", -1)) is OK
    groups.leave_modern(group, member)


@pytest.mark.parametrize("version", [0, 3, 4, 5])
def test_a_producer_with_an_older_epoch_is_fenced(
    groups: Groups, group: str, topic: Topic, producer: Transactional, version: int
) -> None:
    begin(producer, group, version)
    zombie = producer.as_producer(producer.producer_id, producer.epoch)
    producer.take()
    assert groups.stage_one(zombie, group, topic, 1, version=version) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert groups.fetch(group, (topic, 0), require_stable=True) == {(topic.name, 0): -1}


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_producer_that_nobody_knows_is_refused(
    groups: Groups, group: str, topic: Topic, producer: Transactional, version: int
) -> None:
    stranger = producer.as_producer(producer.producer_id + 1_000_000, 0)
    assert groups.stage_one(stranger, group, topic, 1, version=version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(
    ("version", "code"),
    [(0, ErrorCode.INVALID_TXN_STATE), (3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_a_group_that_is_not_part_of_the_transaction_is_refused(
    groups: Groups, group: str, topic: Topic, producer: Transactional, version: int, code: ErrorCode
) -> None:
    """KIP-890."""
    assert groups.stage_one(producer, group, topic, 1, version=version) is code


# While time passes.


@pytest.fixture(scope="module")
def hasty(start_node: StartNode) -> Node:
    return start_node(
        {
            "offsets.retention.check.interval.ms": "200",
            "offsets.topic.num.partitions": "2",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
        }
    )


@pytest.fixture
def hasty_groups(hasty: Node) -> Iterator[Groups]:
    with Client((hasty.host, hasty.port)) as client:
        yield Groups(client)


def test_what_is_staged_does_not_expire(hasty_groups: Groups, name: str) -> None:
    """C12."""
    groups, client = hasty_groups, hasty_groups.client
    topic = client.create_topic(name)
    group, witness = (groups.ready(new_group()) for _ in range(2))
    producer = Transactional.begun(client)
    groups.stage_one(producer, group, topic, 7)
    groups.commit_one(group, topic, 5, version=4, retention_ms=1)
    groups.stage_one(producer, group, topic, 8)
    groups.commit_one(witness, topic, 5, version=4, retention_ms=1)
    eventually(lambda: witness in groups.list_groups(), lambda there: not there)
    assert groups.fetch(group, (topic, 0)) == {(name, 0): 5}
    producer.ended(commit=True)
    assert groups.fetch(group, (topic, 0)) == {(name, 0): 8}


def test_a_group_that_has_staged_offsets_does_not_expire(hasty_groups: Groups, name: str) -> None:
    """Else its generations would begin anew, and a commit of a member of long ago might pass for one of today."""
    groups, client = hasty_groups, hasty_groups.client
    topic = client.create_topic(name)
    group, witness = (groups.ready(new_group()) for _ in range(2))
    generations: dict[str, int] = {}
    producer = Transactional.begun(client)
    for each in (group, witness):
        member = groups.join(each, topic)
        generations[each] = member.generation
        if each == group:
            assert groups.stage_one(producer, group, topic, 7, member=member) is OK
        groups.leave(each, member)
    eventually(lambda: witness in groups.list_groups(), lambda there: not there)
    assert groups.list_groups()[group].protocol_type == "consumer"
    producer.ended(commit=True)
    assert groups.fetch(group, (topic, 0)) == {(name, 0): 7}
    # That of nobody lies between.
    assert groups.join(group, topic).generation == generations[group] + 2
    assert groups.join(witness, topic).generation == generations[witness]


def test_what_somebody_staged_who_died_holds_nobody_up_beyond_its_timeout(hasty_groups: Groups, name: str) -> None:
    groups, client = hasty_groups, hasty_groups.client
    topic = client.create_topic(name)
    group = groups.ready(new_group())
    groups.commit_one(group, topic, 5)
    producers: list[Transactional] = []

    def stage() -> ErrorCode:
        producers.append(Transactional.begun(client, timeout_ms=500))
        return groups.stage_one(producers[-1], group, topic, 7)

    eventually(stage, lambda code: code is OK)  # Unless it takes so long that its time is up.
    eventually(
        lambda: groups.fetch(group, (topic, 0), require_stable=True), lambda found: found == {(topic.name, 0): 5}
    )
    assert producers[-1].settle() == "CompleteAbort"
    assert groups.stage_one(producers[-1], group, topic, 8) is ErrorCode.INVALID_PRODUCER_EPOCH
