"""The round that looks for what has expired takes its time."""

from __future__ import annotations

import pytest

from ottla.config.node import NodeConfig
from ottla.coordinator.classic import classic_groups
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.records import group_from, new_group_record
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.offsets.expiry import SLICE_OFFSETS, TIMER
from ottla.coordinator.outcome import SetTimer
from ottla.wire.messages.group_metadata_value import GroupMetadataValue
from tests.coordinator.offsets.acting import NODE


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
