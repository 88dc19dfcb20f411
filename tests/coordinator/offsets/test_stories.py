"""What a group commits, it finds again; what it may not commit is refused. One story a rule, on the pure machine."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

from ottla.coordinator.groups import GroupKind
from ottla.coordinator.offsets.codec import CommittedOffset, decode_value
from ottla.coordinator.offsets.expiry import SLICE_OFFSETS
from ottla.coordinator.offsets.listing import describe_groups, list_groups
from ottla.coordinator.offsets.table import value_of
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Uuid
from ottla.wire.messages.legacy_offset_commit_key import LegacyOffsetCommitKey
from ottla.wire.messages.legacy_offset_commit_value import LegacyOffsetCommitValue
from tests.coordinator.offsets.acting import MINUTE_MS, Acting, ActingGroup, Entry
from tests.metadata.making import removed, replayed, topic, uid

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
DAY_MS = 24 * 60 * MINUTE_MS
OK = ErrorCode.NONE


def refused(code: ErrorCode) -> AbstractContextManager[object]:
    return pytest.raises(KafkaError, check=lambda error: error.code is code)


# Commits.


def test_what_was_committed_is_found_again() -> None:
    acting = Acting()
    assert acting.commit("g", {A0: 7, A1: 8, B0: 9}) == {A0: OK, A1: OK, B0: OK}
    assert acting.fetch("g", A0, B0, ("a", 2)) == {A0: 7, B0: 9, ("a", 2): -1}
    assert acting.fetch("g") == {A0: 7, A1: 8, B0: 9}
    assert acting.fetch("h", A0) == {A0: -1}
    assert acting.fetch("h") == {}


def test_leader_epoch_metadata_and_topic_id_are_kept_over_a_move() -> None:
    acting = Acting()
    acting.commit("g", {A0: 7}, leader_epoch=5, metadata="über", topic_id=uid(3))
    kept = acting.moved().offsets.state.table.get("g", "a", 0)
    assert kept is not None
    assert decode_value(value_of(kept)) == CommittedOffset(7, 5, "über", acting.now_ms, -1, uid(3))


def test_metadata_that_is_null_is_empty() -> None:
    acting = Acting()
    acting.commit("g", {A0: 7}, metadata=None)
    kept = acting.offsets.state.table.get("g", "a", 0)
    assert kept is not None
    assert decode_value(value_of(kept)).metadata == ""


def test_metadata_is_measured_as_java_does() -> None:
    acting = Acting(offset_metadata_max_bytes="4")
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert acting.commit("g", {A0: 1}, metadata="abcd") == {A0: OK}
    assert acting.commit("g", {A0: 2}, metadata="abcde") == {A0: too_large}
    assert acting.commit("g", {A0: 3}, metadata="éééé") == {A0: OK}, "four characters, though eight bytes"
    assert acting.commit("g", {A0: 4}, metadata="😀😀😀") == {A0: too_large}, "three characters are six units"
    assert acting.fetch("g", A0) == {A0: 3}


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_member_of_no_group_is_refused(version: int, code: ErrorCode) -> None:
    acting = Acting()
    with refused(code):
        acting.commit("g", {A0: 7}, member_id="m", generation=3, version=version)
    assert not acting.log


def test_a_group_of_offsets_alone_has_no_members() -> None:
    acting = Acting()
    acting.commit("g", {A0: 7})
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        acting.commit("g", {A0: 8}, member_id="m", generation=3)
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        acting.stage(1, "g", {A0: 8}, generation=3)


def test_the_group_is_asked_who_may_commit_and_hears_who_did() -> None:
    acting = Acting()
    group = acting.others.add(ActingGroup("g"))
    acting.commit("g", {A0: 7}, member_id="m", generation=3)
    assert acting.timers[("classic", "m")] == 10, "a member that commits is alive"
    group.refusal = ErrorCode.REBALANCE_IN_PROGRESS
    with refused(ErrorCode.REBALANCE_IN_PROGRESS):
        acting.commit("g", {A0: 8}, member_id="m", generation=3)
    group.refusal = ErrorCode.NONE
    assert acting.fetch_newest("g", A0) == {A0: 7}


def test_one_partition_that_may_not_be_committed_refuses_all() -> None:
    """KIP-848: a member with an older epoch may commit what it owned already in that epoch."""
    acting = Acting()
    asked: list[tuple[str, Uuid, int]] = []

    def check(name: str, topic_id: Uuid, index: int) -> None:
        asked.append((name, topic_id, index))
        if index == 1:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

    acting.others.add(ActingGroup("g", kind=GroupKind.CONSUMER, partition_check=check))
    assert acting.commit("g", {A0: 7}, member_id="m", generation=3, topic_id=uid(5)) == {A0: OK}
    assert asked == [("a", uid(5), 0)]
    with refused(ErrorCode.STALE_MEMBER_EPOCH):
        acting.commit("g", {A0: 8, A1: 9}, member_id="m", generation=3, topic_id=uid(5))
    assert acting.fetch("g", A0, A1) == {A0: 7, A1: -1}
    # A producer does not know that code; nor may it name a topic that is not there.
    with refused(ErrorCode.ILLEGAL_GENERATION):
        acting.stage(1, "g", {A0: 8}, generation=3)
    acting.publish(replayed(topic("a", 5)).image)
    assert acting.stage(1, "g", {A0: 8}, generation=3) == {A0: OK}
    with refused(ErrorCode.ILLEGAL_GENERATION):
        acting.stage(1, "g", {A1: 8}, generation=3)


def test_a_commit_is_seen_when_it_is_committed() -> None:
    """C9."""
    acting = Acting()
    acting.commit("g", {A0: 7})
    acting.held = True
    acting.commit("g", {A0: 8, A1: 3})
    acting.commit("h", {A0: 1})
    assert acting.fetch("g", A0, A1) == {A0: 7, A1: -1}
    assert acting.fetch("g") == {A0: 7}
    assert acting.group_ids() == ["g"]
    assert acting.fetch_newest("g", A0, A1) == {A0: 8, A1: 3}
    acting.commit_up_to(acting.end)
    assert acting.fetch("g") == {A0: 8, A1: 3}
    assert acting.group_ids() == ["g", "h"]


def test_a_commit_whose_append_failed_never_was() -> None:
    acting = Acting()
    acting.commit("g", {A0: 7})
    acting.held = True
    before = acting.end
    acting.commit("g", {A0: 8, B0: 1})
    acting.commit("h", {A0: 1})
    acting.delete("g", A0)
    acting.revert_to(before)
    assert acting.fetch_newest("g") == {A0: 7}
    assert acting.shard.group("h") is None
    assert acting.group_ids() == ["g"]


def test_an_offset_that_a_release_from_the_future_wrote_is_stepped_over() -> None:
    acting = Acting()
    acting.commit("g", {A0: 7})
    key = acting.log[0].key
    after = Acting([*acting.log, Entry(1, key, b"\0\5" + bytes(30))])
    assert after.fetch("g", A0) == {A0: 7}


def test_offsets_of_the_oldest_kind_are_read() -> None:
    key = b"\0\0" + LegacyOffsetCommitKey(group="g", topic="a", partition=1).encode(0)
    value = b"\0\0" + LegacyOffsetCommitValue(offset=5, metadata="m", commit_timestamp=3).encode(0)
    acting = Acting([Entry(0, key, value)])
    assert acting.fetch("g") == {A1: 5}
    acting.delete("g", A1)
    assert acting.fetch("g") == {}


# Fetches.


def test_an_offset_of_an_earlier_topic_of_that_name_is_not_this_ones() -> None:
    acting = Acting()
    acting.commit("g", {A0: 7}, topic_id=uid(1))
    acting.commit("g", {A1: 8})
    assert acting.fetch("g", A0, A1, topic_id=uid(1)) == {A0: 7, A1: 8}
    assert acting.fetch("g", A0, A1, topic_id=uid(2)) == {A0: -1, A1: 8}
    assert acting.fetch("g", A0) == {A0: 7}, "who does not say which topic gets what there is"


def test_the_group_is_asked_who_may_fetch() -> None:
    acting = Acting()
    acting.others.add(ActingGroup("g", refusal=ErrorCode.STALE_MEMBER_EPOCH))
    with refused(ErrorCode.STALE_MEMBER_EPOCH):
        acting.fetch("g", A0)


# Transactions.


def test_staged_offsets_wait_for_the_marker() -> None:
    """C10, D22."""
    acting = Acting()
    acting.commit("g", {A0: 5})
    acting.stage(1, "g", {A0: 7, A1: 8})
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert acting.fetch("g", A0, A1, B0) == {A0: 5, A1: -1, B0: -1}
    assert acting.fetch("g", A0, A1, B0, require_stable=True) == {A0: unstable, A1: unstable, B0: -1}
    assert acting.fetch("g", require_stable=True) == {A0: unstable}, (
        "as Kafka: a partition with no offset yet is not told"
    )
    acting.end_transaction(1, commit=True)
    assert acting.fetch("g", A0, A1, require_stable=True) == {A0: 7, A1: 8}


def test_an_aborted_transaction_leaves_nothing() -> None:
    acting = Acting()
    acting.commit("g", {A0: 5})
    acting.stage(1, "g", {A0: 7})
    acting.stage(1, "h", {A0: 7})
    assert acting.group_ids() == ["g", "h"]
    acting.end_transaction(1, commit=False)
    assert acting.fetch("g", require_stable=True) == {A0: 5}
    assert acting.group_ids() == ["g"]


def test_a_later_plain_commit_wins_over_a_transaction_that_ends_after_it() -> None:
    """Compaction keeps the later record alone, so the earlier must not win in a shard that saw both."""
    acting = Acting()
    acting.stage(1, "g", {A0: 7, A1: 1})
    acting.commit("g", {A0: 9})
    acting.end_transaction(1, commit=True)
    assert acting.fetch("g") == {A0: 9, A1: 1}


def test_a_transaction_wins_over_plain_commits_before_it() -> None:
    acting = Acting()
    acting.commit("g", {A0: 9})
    acting.stage(1, "g", {A0: 7})
    acting.end_transaction(1, commit=True)
    assert acting.fetch("g") == {A0: 7}


def test_two_transactions_of_one_group_end_in_any_order() -> None:
    acting = Acting()
    acting.stage(1, "g", {A0: 1})
    acting.stage(2, "g", {A0: 2})
    acting.end_transaction(2, commit=True)
    assert acting.fetch("g", A0) == {A0: 2}
    assert acting.fetch("g", A0, require_stable=True) == {A0: ErrorCode.UNSTABLE_OFFSET_COMMIT}
    acting.end_transaction(1, commit=True)
    assert acting.fetch("g", A0, require_stable=True) == {A0: 2}


def test_a_marker_that_was_lost_leaves_the_transaction_open() -> None:
    acting = Acting()
    acting.stage(1, "g", {A0: 1})
    acting.held = True
    before = acting.end
    acting.end_transaction(1, commit=True)
    assert acting.fetch_newest("g", A0) == {A0: 1}
    acting.stage(1, "g", {A0: 2})
    acting.revert_to(before)
    assert acting.fetch_newest("g", A0) == {A0: ErrorCode.UNSTABLE_OFFSET_COMMIT}
    acting.end_transaction(1, commit=True)
    acting.end_transaction(1, commit=True)
    acting.commit_up_to(acting.end)
    assert acting.fetch("g", A0) == {A0: 1}


def test_an_offset_that_is_deleted_while_staged_is_gone() -> None:
    acting = Acting()
    acting.stage(1, "g", {A0: 7, A1: 8})
    assert acting.delete("g", A0) == {A0: OK}
    acting.end_transaction(1, commit=True)
    assert acting.fetch("g") == {A1: 8}
    assert acting.moved().fetch("g") == {A1: 8}


def test_a_group_whose_staged_offsets_were_all_deleted_is_free_of_its_transaction() -> None:
    acting = Acting()
    acting.stage(1, "g", {A0: 7})
    assert acting.delete_groups("g") == [OK]
    assert acting.group_ids() == []
    acting.stage(1, "g", {A1: 8})
    acting.end_transaction(1, commit=True)
    assert acting.fetch("g") == {A1: 8}


def test_a_producer_in_no_group_is_refused_as_producers_know_it() -> None:
    acting = Acting()
    with refused(ErrorCode.ILLEGAL_GENERATION):
        acting.stage(1, "g", {A0: 7}, generation=3)


# Deletion.


def test_offsets_are_deleted_unless_somebody_is_subscribed() -> None:
    acting = Acting()
    acting.commit("g", {A0: 1, B0: 2})
    acting.others.add(ActingGroup("g", subscribed=frozenset("a")))
    records = acting.end
    assert acting.delete("g", A0, B0, ("b", 1)) == {
        A0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        B0: OK,
        ("b", 1): OK,
    }
    assert acting.end == records + 1, "what was not there needs no tombstone"
    assert acting.fetch("g") == {A0: 1}
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        acting.delete("h", A0)


def test_a_group_without_members_or_offsets_is_there_until_it_is_deleted() -> None:
    """As in Kafka, whose tools delete the offsets of a group first and then the group."""
    acting = Acting()
    acting.commit("g", {A0: 1})
    acting.delete("g", A0)
    assert acting.group_ids() == ["g"]
    assert acting.delete_groups("g", "h") == [OK, ErrorCode.GROUP_ID_NOT_FOUND]
    assert acting.group_ids() == []
    assert acting.delete_groups("g") == [ErrorCode.GROUP_ID_NOT_FOUND]


def test_a_group_goes_with_its_offsets() -> None:
    acting = Acting()
    acting.commit("g", {A0: 1, A1: 2})
    acting.stage(1, "g", {A1: 3, B0: 4})
    acting.commit("h", {A0: 5})
    busy = acting.others.add(ActingGroup("busy"))
    assert acting.delete_groups("g", "busy", "g") == [OK, ErrorCode.NON_EMPTY_GROUP]
    assert acting.fetch("g") == {}
    assert acting.group_ids() == ["busy", "h"]
    acting.end_transaction(1, commit=True)
    assert acting.fetch("g") == {}
    busy.empty_since_ms = 0
    assert acting.delete_groups("busy") == [OK]
    assert acting.group_ids() == ["h"]


def test_until_a_deletion_is_committed_the_offsets_are_there() -> None:
    acting = Acting()
    acting.commit("g", {A0: 1})
    acting.held = True
    before = acting.end
    acting.delete_groups("g")
    assert acting.fetch("g") == {A0: 1}
    assert acting.fetch("g", A0) == {A0: 1}
    assert acting.fetch_newest("g") == {}
    acting.revert_to(before)
    assert acting.fetch_newest("g") == {A0: 1}
    assert acting.group_ids() == ["g"]


def test_offsets_go_with_their_topic_and_not_with_an_earlier_one_of_that_name() -> None:
    first = replayed(topic("a", 1), topic("b", 2)).image
    acting = Acting(image=first)
    acting.commit("g", {A0: 1, B0: 2}, topic_id=uid(1))
    acting.commit("h", {A0: 3})
    acting.stage(1, "g", {A1: 4})
    gone = replayed(removed(1), onto=first).image
    acting.publish(gone)
    assert acting.fetch("g") == {B0: 2}
    assert acting.fetch("h") == {}
    acting.end_transaction(1, commit=True)
    assert acting.fetch("g") == {B0: 2}
    again = replayed(topic("a", 3), onto=gone).image
    acting.publish(again)
    acting.commit("g", {A0: 5}, topic_id=uid(3))
    acting.commit("g", {A1: 6}, topic_id=uid(4))
    acting.publish(replayed(removed(3), onto=again).image)
    assert acting.fetch("g") == {B0: 2, A1: 6}


# Expiry.


def test_offsets_of_a_group_that_nobody_joins_expire_after_their_commit() -> None:
    acting = Acting()
    acting.commit("g", {A0: 1})
    acting.now_ms += 4 * DAY_MS
    acting.commit("g", {A1: 2})
    acting.now_ms += 3 * DAY_MS - 1
    acting.expire()
    assert acting.fetch("g") == {A0: 1, A1: 2}
    acting.now_ms += 1
    acting.expire()
    assert acting.fetch("g") == {A1: 2}
    assert acting.group_ids() == ["g"]
    acting.now_ms += 4 * DAY_MS
    acting.expire()
    assert acting.group_ids() == []
    assert acting.moved().group_ids() == []


def test_a_classic_groups_offsets_expire_after_it_became_empty() -> None:
    """§5.11, 110."""
    acting = Acting(offsets_retention_minutes="10")
    group = acting.others.add(ActingGroup("g"))
    acting.commit("g", {A0: 1}, member_id="m", generation=1)
    acting.now_ms += 60 * MINUTE_MS
    acting.expire()
    assert acting.fetch("g") == {A0: 1}, "there are members"
    group.empty_since_ms = acting.now_ms
    acting.now_ms += 10 * MINUTE_MS - 1
    acting.expire()
    assert acting.fetch("g") == {A0: 1}
    acting.now_ms += 1
    acting.expire()
    assert acting.group_ids() == []
    assert acting.fetch("g") == {}


def test_of_a_consumer_group_expires_what_it_is_not_subscribed_to() -> None:
    acting = Acting(offsets_retention_minutes="10")
    acting.others.add(ActingGroup("g", kind=GroupKind.CONSUMER, subscribed=frozenset("a")))
    acting.commit("g", {A0: 1, B0: 2}, member_id="m", generation=1)
    acting.now_ms += 10 * MINUTE_MS
    acting.expire()
    assert acting.fetch("g") == {A0: 1}
    assert acting.group_ids() == ["g"]


def test_a_client_may_ask_for_a_retention_of_its_own() -> None:
    acting = Acting(offsets_retention_minutes="10")
    acting.commit("g", {A0: 1}, retention_ms=MINUTE_MS, version=4)
    acting.commit("g", {A1: 1}, retention_ms=60 * MINUTE_MS, version=4)
    acting = acting.moved()
    acting.now_ms += MINUTE_MS - 1
    acting.expire()
    assert acting.fetch("g") == {A0: 1, A1: 1}
    acting.now_ms += 20 * MINUTE_MS
    acting.expire()
    assert acting.fetch("g") == {A1: 1}


def test_what_a_transaction_has_staged_does_not_expire() -> None:
    """C12: else the tombstone lies behind the staged offset, and takes away what the marker commits."""
    acting = Acting(offsets_retention_minutes="10")
    acting.commit("g", {A0: 1, A1: 1})
    acting.now_ms += 10 * MINUTE_MS
    acting.stage(1, "g", {A0: 2})
    acting.stage(1, "h", {A0: 3})
    acting.expire()
    assert acting.fetch("g") == {A0: 1}
    assert acting.group_ids() == ["g", "h"]
    acting.end_transaction(1, commit=True)
    acting.expire()
    assert acting.fetch("g") == {A0: 2}
    assert acting.fetch("h") == {A0: 3}


def test_an_empty_group_without_offsets_goes_at_the_next_look() -> None:
    acting = Acting()
    acting.others.add(ActingGroup("busy"))
    acting.others.add(ActingGroup("empty", empty_since_ms=acting.now_ms))
    acting.commit("g", {A0: 1})
    acting.delete("g", A0)
    acting.expire()
    assert acting.group_ids() == ["busy"]


def test_many_offsets_are_looked_at_a_slice_at_a_time() -> None:
    acting = Acting(offsets_retention_minutes="10", offsets_retention_check_interval_ms="60000")
    timer = ("offsets", "expiry")
    assert acting.timers[timer] == 60_000
    groups = [f"g{number}" for number in range(5)]
    for group_id in groups:
        acting.commit(group_id, {("a", index): 1 for index in range(SLICE_OFFSETS // 2)})
    acting.now_ms += 10 * MINUTE_MS
    slices: list[int] = []
    while not slices or acting.timers[timer] < 60_000:
        acting.do(acting.shard.on_timer(timer, acting.now_ms))
        slices.append(len(acting.group_ids()))
    assert slices == [3, 1, 0]


# Lists.


def test_groups_are_listed_by_state_and_by_type() -> None:
    acting = Acting()
    acting.commit("simple", {A0: 1})
    acting.commit("classic", {A0: 1})
    acting.others.add(ActingGroup("classic"))
    acting.others.add(ActingGroup("modern", kind=GroupKind.CONSUMER))

    def listed(states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[str]:
        return sorted(group.group_id for group in list_groups(acting.shard, states, types))

    assert listed() == ["classic", "modern", "simple"]
    assert listed(states=("EMPTY",)) == ["simple"]
    assert listed(states=(" stable ", "dead")) == ["classic", "modern"]
    assert listed(types=("Classic",)) == ["classic", "simple"]
    assert listed(types=("consumer", "nonsense")) == ["modern"]
    assert listed(types=("nonsense",)) == []
    assert listed(states=("Empty",), types=("consumer",)) == []


def test_only_classic_groups_are_described_so() -> None:
    acting = Acting()
    acting.commit("simple", {A0: 1})
    acting.others.add(ActingGroup("classic"))
    acting.others.add(ActingGroup("modern", kind=GroupKind.CONSUMER))
    asked = ("classic", "simple", "modern", "none")
    old = describe_groups(acting.shard, asked, 5)
    assert [(group.group_id, group.group_state, group.error_code) for group in old] == [
        ("classic", "Stable", 0),
        ("simple", "Empty", 0),
        ("modern", "Dead", 0),
        ("none", "Dead", 0),
    ]
    new = describe_groups(acting.shard, asked, 6)
    assert [group.error_code for group in new] == [0, 0, *[ErrorCode.GROUP_ID_NOT_FOUND] * 2]
    assert [group.error_message for group in new] == [
        None,
        None,
        "Group modern is not a classic group.",
        "Group none not found.",
    ]
