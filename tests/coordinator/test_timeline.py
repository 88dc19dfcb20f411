"""Maps that can go back, against a model that keeps a copy of everything after every record."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.coordinator.timeline import Timeline, TimelineMap

KEYS = st.integers(0, 4)
VALUES = st.integers(0, 100)
CHANGES = st.lists(st.tuples(st.booleans(), KEYS, st.one_of(st.none(), VALUES)), max_size=5)
"""Of the first map or the second; a key; its new value, or None to remove it."""

State = tuple[dict[int, int], dict[int, int]]


class GoingBack(RuleBasedStateMachine):
    """Records are applied one after the other; the high watermark rises, and appends fail at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.timeline = Timeline()
        self.maps: tuple[TimelineMap[int, int], TimelineMap[int, int]] = (
            TimelineMap(self.timeline),
            TimelineMap(self.timeline),
        )
        self.copies: list[State] = [({}, {})]
        """After each record that is there, from the committed state on."""
        self.committed_offset = 0

    @property
    def next_offset(self) -> int:
        return self.committed_offset + len(self.copies) - 1

    def change(self, changes: list[tuple[bool, int, int | None]], state: State) -> None:
        for second, key, value in changes:
            changed, model = self.maps[second], state[second]
            if value is None:
                assert changed.pop(key) == model.pop(key, None)
            else:
                changed[key] = model[key] = value

    @rule(changes=CHANGES)
    def apply(self, changes: list[tuple[bool, int, int | None]]) -> None:
        first, second = self.copies[-1]
        state = dict(first), dict(second)
        self.timeline.begin(self.next_offset)
        self.change(changes, state)
        self.copies.append(state)

    @rule(changes=CHANGES)
    @precondition(lambda self: len(self.copies) == 1)
    def load(self, changes: list[tuple[bool, int, int | None]]) -> None:
        """A committed record is replayed: there is nothing to go back to."""
        self.timeline.loading = True
        self.timeline.begin(self.next_offset)
        self.change(changes, self.copies[0])
        self.timeline.loading = False
        self.committed_offset += 1

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(0, len(self.copies) - 1))
        self.committed_offset += count
        del self.copies[:count]
        self.timeline.commit(self.committed_offset)

    @rule(data=st.data())
    def revert(self, data: st.DataObject) -> None:
        keep = data.draw(st.integers(1, len(self.copies)))
        del self.copies[keep:]
        self.timeline.revert(self.next_offset)

    @invariant()
    def the_newest_and_the_committed_state_are_the_model_s(self) -> None:
        for index, changed in enumerate(self.maps):
            newest, committed = self.copies[-1][index], self.copies[0][index]
            assert dict(changed.items()) == newest
            assert dict(changed.committed_items()) == committed
            assert len(changed) == len(newest)
            assert sorted(changed) == sorted(changed.keys()) == sorted(newest)
            assert sorted(changed.values()) == sorted(newest.values())
            for key in range(5):
                assert changed.get(key) == newest.get(key)
                assert changed.committed(key) == committed.get(key)
                assert (key in changed) == (key in newest)
        if len(self.copies) == 1:
            assert self.timeline.pending == 0


TestGoingBack = GoingBack.TestCase
TestGoingBack.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_what_is_loaded_leaves_no_trace() -> None:
    timeline = Timeline()
    numbers: TimelineMap[str, int] = TimelineMap(timeline)
    timeline.loading = True
    for number in range(1000):
        timeline.begin(number)
        numbers["a"] = number
    timeline.loading = False
    assert timeline.pending == 0
    assert numbers.committed("a") == 999


def test_records_are_applied_in_order() -> None:
    timeline = Timeline()
    numbers: TimelineMap[str, int] = TimelineMap(timeline)
    timeline.begin(5)
    numbers["a"] = 1
    with pytest.raises(AssertionError):
        timeline.begin(4)
    timeline.revert(3)
    timeline.begin(3)
    assert "a" not in numbers
