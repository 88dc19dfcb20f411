"""The round that looks for what has expired takes its time."""

from __future__ import annotations

import pytest

from ottla.config.node import NodeConfig
from ottla.coordinator.classic import classic_groups
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.records import group_from, new_group_record
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.groups import Group
from ottla.coordinator.offsets.expiry import SLICE_OFFSETS, TIMER, Expiry
from ottla.coordinator.outcome import SetTimer
from ottla.coordinator.stored import GROUP_KINDS, AnyRecord, EncodedRecord, StoredRecord
from ottla.wire.messages.group_metadata_value import GroupMetadataValue
from ottla.wire.messages.offset_commit_key import OffsetCommitKey
from ottla.wire.messages.offset_commit_value import OffsetCommitValue
from tests.coordinator.offsets.acting import NODE


def an_offset(group_id: str) -> EncodedRecord:
    value = OffsetCommitValue(offset=5, commit_timestamp=0)
    return EncodedRecord(*GROUP_KINDS.encode(StoredRecord(OffsetCommitKey(group=group_id, topic="t"), value, 3)))


def test_a_round_begins_with_no_look_at_all_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is any looked at twice: most groups have offsets, and are known to two parts of the shard."""
    shard = GroupShard.empty(lambda: NodeConfig(NODE))
    count = SLICE_OFFSETS
    shard.timeline.loading = True
    for number in range(count):
        group_id = f"group-{number}"
        shard.replay(new_group_record(ClassicGroup(group_id=group_id, state_timestamp_ms=0)), -1, -1)
        shard.replay(an_offset(group_id), -1, -1)
    shard.replay(an_offset("simple"), -1, -1)
    shard.replay(an_offset("staged"), 7, 0)
    shard.replay(an_offset("simple"), 7, 0)
    shard.timeline.loading = False
    looks: list[str] = []
    by_id = GroupShard.group
    looked_at: list[str] = []
    look = Expiry._expire

    def find(self: GroupShard, group_id: str) -> Group | None:
        looks.append(group_id)
        return by_id(self, group_id)

    def expire(self: Expiry, group: Group, now_ms: int, records: list[AnyRecord]) -> int:
        looked_at.append(group.group_id)
        return look(self, group, now_ms, records)

    monkeypatch.setattr(GroupShard, "group", find)
    monkeypatch.setattr(Expiry, "_expire", expire)
    slices = 0
    while not slices or len(looked_at) < count + 2:
        before = len(looked_at) + len(looks)
        shard.on_timer(TIMER, 1)
        slices += 1
        assert len(looked_at) + len(looks) - before <= SLICE_OFFSETS + 2
    assert sorted(looked_at) == sorted([*(f"group-{number}" for number in range(count)), "simple", "staged"])


def test_a_turn_looks_at_no_more_than_a_slice_and_keeps_no_group_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = GroupShard.empty(lambda: NodeConfig(NODE))
    count = SLICE_OFFSETS + 100
    shard.timeline.loading = True
    for number in range(count):
        group = ClassicGroup(group_id=f"group-{number}", state_timestamp_ms=0)
        shard.replay(new_group_record(group), -1, -1)
    shard.timeline.loading = False
    made: list[str] = []

    def make(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        made.append(group_id)
        return group_from(group_id, value)

    monkeypatch.setattr(classic_groups, "group_from", make)
    outcome = shard.on_timer(TIMER, 1)
    assert len(made) == SLICE_OFFSETS
    [again] = [effect for effect in outcome.effects if isinstance(effect, SetTimer)]
    assert again.delay_ms < 100
    shard.on_timer(TIMER, 2)
    assert len(made) == count
    assert not shard.classic._live
