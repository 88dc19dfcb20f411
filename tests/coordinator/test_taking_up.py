"""What a shard of groups has read is taken up in steps, none of which has to do with very many groups."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from ottla.config.node import NodeConfig
from ottla.coordinator.classic import classic_groups
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.records import group_from
from ottla.coordinator.consumer import records
from ottla.coordinator.consumer.member import Member
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.outcome import SetTimer
from ottla.coordinator.stored import StoredRecord
from ottla.metadata.images import EMPTY_IMAGE
from ottla.wire.messages.group_metadata_key import GroupMetadataKey
from ottla.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from tests.coordinator.offsets.acting import NODE
from tests.coordinator.offsets.test_expiry import an_offset

COUNT = 5_000
STEP_MAX = 1_000

Fill = Callable[[GroupShard, str], None]


def a_classic_group(shard: GroupShard, group_id: str) -> None:
    member = MemberMetadata(member_id="m", session_timeout=10_000, rebalance_timeout=10_000)
    value = GroupMetadataValue(protocol_type="consumer", protocol="range", leader="m", members=[member])
    shard.replay(StoredRecord(GroupMetadataKey(group=group_id), value, 3), -1, -1)


def a_consumer_group(shard: GroupShard, group_id: str) -> None:
    shard.replay(records.group_epoch(group_id, 1, 0), -1, -1)
    shard.replay(records.member_metadata(group_id, Member(member_id="m", rebalance_timeout_ms=10_000)), -1, -1)


def filled(fill: Fill) -> GroupShard:
    config = NodeConfig(NODE)
    shard = GroupShard.empty(lambda: config)
    shard.timeline.loading = True
    for number in range(COUNT):
        fill(shard, f"group-{number}")
    shard.timeline.loading = False
    return shard


@pytest.mark.parametrize("fill", [a_classic_group, a_consumer_group], ids=["classic", "consumer"])
def test_every_member_has_a_session_and_few_are_given_one_in_a_step(
    fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = filled(fill)
    made: list[str] = []

    def make(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        made.append(group_id)
        return group_from(group_id, value)

    monkeypatch.setattr(classic_groups, "group_from", make)
    waited_for: set[tuple[str, ...]] = set()
    before = 0
    for step in shard.take_up(EMPTY_IMAGE):
        assert len(step) <= STEP_MAX
        assert len(made) - before <= STEP_MAX
        before = len(made)
        waited_for |= {effect.key for effect in step if isinstance(effect, SetTimer)}
    assert {key[2] for key in waited_for if key[1] == "session"} == {f"group-{number}" for number in range(COUNT)}
    assert len(shard.on_loaded(EMPTY_IMAGE, 1).effects) < 10


def test_groups_without_offsets_are_dropped_and_the_others_counted_in_steps() -> None:
    def fill(shard: GroupShard, group_id: str) -> None:
        shard.replay(an_offset(group_id), -1, -1)
        if int(group_id.removeprefix("group-")) % 2:
            shard.replay(an_offset(group_id)._replace(value=None), -1, -1)

    shard = filled(fill)
    table = shard.offsets.state.table
    left = [len(table.group_ids())]
    left += [len(table.group_ids()) for _ in shard.take_up(EMPTY_IMAGE)]
    left.append(len(table.group_ids()))
    assert max(before - after for before, after in pairwise(left)) <= STEP_MAX
    assert left.count(COUNT) >= COUNT // STEP_MAX
    assert (len(table.group_ids()), table.count) == (COUNT // 2, COUNT // 2)
