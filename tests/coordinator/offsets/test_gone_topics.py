"""The offsets of a topic go with it, a slice at a time, whoever leads the partition meanwhile."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ottla.coordinator.offsets import gone_topics
from ottla.coordinator.offsets.gone_topics import AGAIN_MS, PAUSE_MS, TIMER
from ottla.metadata.images import MetadataImage
from ottla.model import GROUP_TOPIC
from tests.coordinator.offsets.acting import Acting, Partition
from tests.metadata.making import removed, replayed, topic, uid

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
OF_A, OF_B, OF_A_AGAIN = uid(1), uid(2), uid(3)
SLICE_OFFSETS = 40
HALF = SLICE_OFFSETS // 2
GROUPS = [f"g{number}" for number in range(5)]
WIDE: dict[Partition, int] = {("a", index): index for index in range(HALF)}

BEFORE = replayed(topic(GROUP_TOPIC, 9), topic("a", 1), topic("b", 2)).image
GONE = replayed(removed(1), onto=BEFORE).image
AGAIN = replayed(topic("a", 3), onto=GONE).image


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gone_topics, "SLICE_OFFSETS", SLICE_OFFSETS)


@pytest.fixture
def acting() -> Acting:
    """Five groups have come half a slice far in a topic, and one of them a little in another."""
    acting = Acting(image=BEFORE)
    for group_id in GROUPS:
        acting.commit(group_id, WIDE, topic_id=OF_A)
    acting.commit("g0", {B0: 7}, topic_id=OF_B)
    return acting


def with_offsets(acting: Acting) -> list[str]:
    """The groups that have any of the wide topic."""
    return [group_id for group_id in GROUPS if any(name == "a" for name, _ in acting.fetch(group_id))]


def go_on(acting: Acting) -> bool:
    """The next slice, if there is one."""
    if acting.timers.pop(TIMER, None) is None:
        return False
    acting.do(acting.shard.on_timer(TIMER, acting.now_ms))
    return True


def finish(acting: Acting) -> int:
    """In how many slices."""
    count = 0
    while go_on(acting):
        count += 1
    return count


def test_a_slice_at_a_time_with_others_between(acting: Acting) -> None:
    ends = [acting.end]
    acting.publish(GONE)
    ends.append(acting.end)
    assert with_offsets(acting) == ["g2", "g3", "g4"]
    acting.commit("g0", {B0: 8}, topic_id=OF_B)
    ends[-1] += 1
    while go_on(acting):
        ends.append(acting.end)
    assert [after - before for before, after in pairwise(ends)] == [2 * HALF + 1, 2 * HALF, HALF]
    assert with_offsets(acting) == []
    assert acting.fetch("g0") == {B0: 8}
    assert acting.moved().fetch("g0") == {B0: 8}


def test_the_next_slice_waits_until_this_one_is_committed(acting: Acting) -> None:
    acting.held = True
    acting.publish(GONE)
    assert TIMER not in acting.timers
    assert with_offsets(acting) == GROUPS, "what is not committed is not seen"
    acting.commit_up_to(acting.end)
    assert acting.timers[TIMER] == PAUSE_MS
    assert with_offsets(acting) == ["g2", "g3", "g4"]


@pytest.mark.parametrize("slices", range(4))
def test_whoever_leads_next_finishes_it(acting: Acting, slices: int) -> None:
    """A coordinator that dies before, between and after the slices."""
    acting.image = GONE
    if slices:
        acting.publish(GONE)
        for _ in range(slices - 1):
            assert go_on(acting)
    heir = acting.moved()
    finish(heir)
    assert with_offsets(heir) == []
    assert heir.fetch("g0") == {B0: 7}
    assert finish(heir.moved()) == 0, "and then there is nothing left to do"


def test_a_slice_that_was_not_written_is_written_later(acting: Acting) -> None:
    acting.held = True
    end = acting.end
    acting.publish(GONE)
    acting.revert_to(end)
    assert with_offsets(acting) == GROUPS
    assert acting.timers[TIMER] == AGAIN_MS
    acting.held = False
    finish(acting)
    assert with_offsets(acting) == []
    # The same of the last slice, after which no group is left to look at.
    last = Acting(image=BEFORE)
    last.commit("g0", {A0: 1}, topic_id=OF_A)
    last.held = True
    end = last.end
    last.publish(GONE)
    last.revert_to(end)
    last.held = False
    finish(last)
    assert last.fetch("g0") == {}


def test_a_new_topic_of_the_same_name_keeps_its_own(acting: Acting) -> None:
    """Also an offset that does not say of which topic it is, as those of transactions do not."""
    acting.publish(GONE)
    acting.publish(AGAIN)
    acting.commit("g2", {A0: 100}, topic_id=OF_A_AGAIN)
    acting.commit("g3", {A0: 101})
    acting.stage(1, "g4", {A1: 102})
    finish(acting)
    acting.end_transaction(1, commit=True)
    assert acting.fetch("g2") == {A0: 100}
    assert acting.fetch("g3") == {A0: 101}
    assert acting.fetch("g4") == {A1: 102}
    heir = acting.moved()
    assert finish(heir) == 0
    assert [heir.fetch(group_id) for group_id in ("g2", "g3", "g4")] == [{A0: 100}, {A0: 101}, {A1: 102}]


def test_what_was_written_where_a_failed_write_lay_is_new() -> None:
    acting = Acting(image=BEFORE)
    acting.commit("x", {("a", index): 1 for index in range(SLICE_OFFSETS)}, topic_id=uid(4))
    acting.commit("h", {A1: 1}, topic_id=OF_A)
    acting.held = True
    end = acting.end
    acting.commit("y", {A0: 1})
    acting.revert_to(end)
    acting.held = False
    acting.publish(GONE)
    assert acting.end == end, "the first slice finds nothing"
    acting.commit("h", {A0: 100})
    assert finish(acting)
    assert acting.fetch("h") == {A0: 100}


def loaded(acting: Acting, image: MetadataImage) -> dict[Partition, object]:
    """What one who loads the log finds, and leaves, of a group."""
    acting.image = image
    heir = acting.moved()
    finish(heir)
    return dict(heir.fetch("g"))


def test_who_loads_the_log_finds_what_is_of_no_topic() -> None:
    acting = Acting(image=BEFORE)
    acting.commit("g", {A0: 1, A1: 2}, topic_id=OF_A)
    acting.commit("g", {A1: 3})
    acting.commit("g", {B0: 4}, topic_id=OF_B)
    assert loaded(acting, BEFORE) == {A0: 1, A1: 3, B0: 4}
    assert loaded(acting, GONE) == {B0: 4}
    # Of which topic it is that says nothing, nobody knows.
    assert loaded(acting, AGAIN) == {A1: 3, B0: 4}
    # Whoever does not even know the partition's own topic knows nothing of topics.
    assert loaded(acting, replayed(topic("b", 2)).image) == {A0: 1, A1: 3, B0: 4}


def test_who_loads_the_log_finds_what_is_staged_of_no_topic() -> None:
    acting = Acting(image=BEFORE)
    acting.stage(1, "g", {A0: 1, B0: 2})
    acting.image = GONE
    heir = acting.moved()
    finish(heir)
    heir.end_transaction(1, commit=True)
    assert heir.fetch("g") == {B0: 2}
