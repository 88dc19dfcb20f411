"""The table of offsets, where the stories do not see it."""

from __future__ import annotations

from random import Random

import pytest

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
    assert list(table.forget_empty()) == []
    assert timeline.pending == 0
    assert not table.is_committed("gone")
    timeline.revert(0)
    assert table.group_ids() == ["kept"]


def check(table: OffsetTable) -> None:
    """The index by topic and the count are those that the table itself gives."""
    places = list(table.places())
    assert table.count == len(places)
    by_topic: dict[str, set[str]] = {}
    for group_id, topic, _ in places:
        by_topic.setdefault(topic, set()).add(group_id)
    assert {topic: set(groups) for topic, groups in table._groups_of.items()} == by_topic
    for topic, groups in by_topic.items():
        assert sorted(table.groups_of(topic)) == sorted(groups)
    assert table.groups_of("never heard of") == []


@pytest.mark.parametrize("seed", range(20))
def test_the_groups_of_a_topic_are_known_whatever_is_undone(seed: int) -> None:
    random = Random(seed)
    timeline = Timeline()
    table = OffsetTable(timeline)
    committed = end = 0
    for _ in range(300):
        place = (random.choice("gh"), random.choice("tu"), random.randrange(2))
        match random.choice(("put", "put", "put", "remove", "remove", "forget", "commit", "revert")):
            case "put":
                timeline.begin(end)
                table.put(place, keep(end, b"value"))
                end += 1
            case "remove":
                timeline.begin(end)
                table.remove(*place)
                end += 1
            case "forget":
                timeline.begin(end)
                table.forget(place[0])
                end += 1
            case "commit":
                committed = random.randint(committed, end)
                timeline.commit(committed)
            case _:
                end = random.randint(committed, end)
                timeline.revert(end)
        check(table)


def test_a_load_is_counted_when_it_has_ended() -> None:
    timeline = Timeline()
    table = OffsetTable(timeline)
    timeline.loading = True
    table.partitions_to_fill("g", "t").update({0: keep(0, b"value"), 1: keep(1, b"value")})
    table.put(("h", "t", 0), keep(2, b"value"))
    timeline.loading = False
    assert list(table.forget_empty()) == []
    check(table)
