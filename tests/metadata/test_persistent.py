"""The persistent map, beside a dictionary that does the same."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.metadata.persistent import PersistentMap

changes = st.lists(st.dictionaries(st.text("abcdef", max_size=3), st.none() | st.integers(0, 9)), max_size=12)


def plain(version: PersistentMap[str, int]) -> dict[str, int]:
    return dict(version.items())


@pytest.mark.slow
@given(changes)
def test_every_version_is_what_a_dictionary_was_at_that_time(steps: list[dict[str, int | None]]) -> None:
    expected: dict[str, int] = {}
    version: PersistentMap[str, int] = PersistentMap()
    history = [(version, dict(expected))]
    for step in steps:
        version = version.updated(step)
        for key, value in step.items():
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = value
        history.append((version, dict(expected)))
    for old, was in history:
        assert plain(old) == was
        assert len(old) == len(was)
        assert list(old) == sorted(was)
        assert old == PersistentMap(was.items())
        assert all(old.get(key) == value and key in old and old[key] == value for key, value in was.items())


@settings(max_examples=20)
@given(st.integers(0, 3000))
def test_equality_does_not_depend_on_how_a_map_grew(size: int) -> None:
    at_once = PersistentMap((n, str(n)) for n in range(size))
    one_by_one: PersistentMap[int, str] = PersistentMap()
    for n in range(size):
        one_by_one = one_by_one.updated({n: str(n)})
    assert at_once == one_by_one
    assert at_once != one_by_one.updated({-1: "more"})
    if size:
        assert at_once != one_by_one.updated({0: "other"})


@pytest.mark.slow
@given(changes, changes)
def test_what_a_later_version_lacks_is_told(
    first: list[dict[str, int | None]], then: list[dict[str, int | None]]
) -> None:
    older: PersistentMap[str, int] = PersistentMap((f"base-{n}", n) for n in range(40))
    for step in first:
        older = older.updated(step)
    newer = older
    for step in then:
        newer = newer.updated(step)
    for version in (newer, PersistentMap(newer.items()), PersistentMap((f"other-{n}", n) for n in range(500))):
        missing = [value for key, value in older.items() if key not in version]
        assert older.values_missing_in(version) == missing


def test_one_change_of_many_does_not_copy_all() -> None:
    large = PersistentMap((f"topic-{n}", n) for n in range(100_000))
    small = PersistentMap((f"topic-{n}", n) for n in range(100))

    def cost(version: PersistentMap[str, int]) -> float:
        best = float("inf")
        for _ in range(5):
            begin = time.perf_counter()
            for n in range(50):
                version.updated({f"topic-{n}": -1})
            best = min(best, time.perf_counter() - begin)
        return best

    assert cost(large) < 60 * cost(small), "a thousand times the size must cost far less than that"
    assert large.get("topic-7") == 7
