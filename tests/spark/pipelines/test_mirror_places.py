"""Where a group stands in a mirror's target: the search against a plain walk through many small logs."""

from __future__ import annotations

from random import Random

import pytest

from ottla.spark.pipelines.mirror_places import Mirrored, Place, offset_in, place_of


def plain_place(wanted: int, start: int, end: int, log: list[Mirrored]) -> Place | None:
    """After the last record that is older, and at the beginning if there is none."""
    visible = [each for each in log if start <= each.offset < end]
    if not visible:
        return None
    older = [each.offset for each in visible if each.source_offset < wanted]
    return Place(max(older) + 1 if older else start, len(older) < len(visible))


@pytest.mark.parametrize("seed", range(40))
def test_the_search_finds_what_a_walk_finds(seed: int) -> None:
    random = Random(seed)
    log: list[Mirrored] = []
    offset = source_offset = random.randrange(5)
    for _ in range(random.randrange(30)):
        offset += random.choice((1, 1, 1, 2, 9))  # Others' records, marks of transactions, compaction.
        source_offset += random.choice((1, 1, 3))
        log.append(Mirrored(offset, source_offset))
    start, end = random.randrange(4), offset + 1 + random.randrange(3)

    def look(first: int, last: int) -> Mirrored | None:
        return next((each for each in log if first <= each.offset < last), None)

    for wanted in range(source_offset + 3):
        assert place_of(wanted, start, end, look) == plain_place(wanted, start, end, log)


def test_the_search_looks_a_few_times_only() -> None:
    looks = 0

    def look(first: int, last: int) -> Mirrored | None:
        nonlocal looks
        looks += 1
        return Mirrored(first, first + 7)

    assert place_of(500_007, 0, 1_000_000, look) == Place(500_000, True)
    assert looks <= 21


def test_a_header_tells_the_offset_in_one_cluster() -> None:
    def header(key: str, value: bytes | None) -> dict[str, object]:
        return {"key": key, "value": value}

    headers = [header("a", b"A:1"), header("m", None), header("m", b"A:2"), header("m", b"B:C:3"), header("m", b"D:x")]
    assert offset_in("A", "m", headers) == 2
    assert offset_in("B:C", "m", headers) == 3
    assert offset_in("C", "m", headers) is None
    assert offset_in("D", "m", headers) is None
