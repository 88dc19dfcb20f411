"""The table of offsets, where the stories do not see it."""

from __future__ import annotations

from ottla.coordinator.offsets.table import OffsetTable, keep
from ottla.coordinator.timeline import Timeline


def test_groups_that_a_load_left_empty_are_gone_at_once_and_for_good() -> None:
    timeline = Timeline()
    table = OffsetTable(timeline)
    timeline.loading = True
    table.put(("gone", "t", 0), keep(0, b"value"))
    table.put(("kept", "t", 0), keep(1, b"value"))
    table.remove("gone", "t", 0)
    timeline.loading = False
    table.forget_empty()
    assert timeline.pending == 0
    assert not table.is_committed("gone")
    timeline.revert(0)
    assert table.group_ids() == ["kept"]
