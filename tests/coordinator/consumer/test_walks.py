"""Random histories of groups, judged after every step: see walking.py."""

from __future__ import annotations

import pytest

from ottla.coordinator.consumer import group, records

from .walking import Walk


def walk(seeds: range, steps: int) -> dict[str, int]:
    seen: dict[str, int] = {}
    for seed in seeds:
        walked = Walk(seed)
        try:
            for _ in range(steps):
                walked.step()
        except BaseException as failure:
            failure.add_note(f"seed {seed}")
            raise
        for name, count in walked.seen.items():
            seen[name] = seen.get(name, 0) + count
    return seen


def test_a_few_walks() -> None:
    seen = walk(range(12), steps=120)
    assert min(seen.values()) > 50, seen


@pytest.mark.long
def test_many_walks() -> None:
    walk(range(1_000, 2_500), steps=400)


def test_walks_notice_a_partition_that_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA-16147: what a member has yet to give up had no owner."""
    monkeypatch.setattr(group, "_partitions", lambda member: group._pairs(member.assigned if member else {}))
    with pytest.raises(AssertionError):
        walk(range(25), steps=150)


def test_walks_notice_an_owner_that_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group.ConsumerGroup, "is_owned", lambda self, topic, partition: False)
    with pytest.raises(AssertionError):
        walk(range(25), steps=150)


@pytest.mark.slow
def test_walks_notice_what_is_not_in_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "no_regex", lambda group_id, pattern: records.no_partition_metadata(group_id))
    with pytest.raises(AssertionError):
        walk(range(25), steps=150)
