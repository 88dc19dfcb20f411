"""The round that looks for what has expired takes its time."""

from __future__ import annotations

from ottla.config.node import NodeConfig
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.records import new_group_record
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.offsets.expiry import SLICE_OFFSETS, TIMER
from ottla.coordinator.outcome import SetTimer
from tests.coordinator.offsets.acting import NODE


def test_a_turn_makes_no_more_groups_than_it_looks_at() -> None:
    shard = GroupShard.empty(lambda: NodeConfig(NODE))
    count = SLICE_OFFSETS + 100
    shard.timeline.loading = True
    for number in range(count):
        group = ClassicGroup(group_id=f"group-{number}", state_timestamp_ms=0)
        shard.replay(new_group_record(group), -1, -1)
    shard.timeline.loading = False
    outcome = shard.on_timer(TIMER, 1)
    assert len(shard.classic._live) == SLICE_OFFSETS
    [again] = [effect for effect in outcome.effects if isinstance(effect, SetTimer)]
    assert again.delay_ms < 100
    shard.on_timer(TIMER, 2)
    assert len(shard.classic._live) == count
