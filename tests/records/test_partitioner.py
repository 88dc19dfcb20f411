"""Java's choice of a partition, in whole columns and one by one; taking turns; a function of the user's."""

from __future__ import annotations

from array import array
from collections import Counter
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records import _pure
from ottla.records.partitioner import Murmur2, RoundRobin, murmur2, partition_of_key, partitioner

from .columns_of import strings
from .crafting import NATIVE

KEYS = st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=50)


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        # As Kafka's own tests of its hash have them.
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_the_hash_is_javas(key: str, hashed: int) -> None:
    assert murmur2(key.encode()) == hashed & 0xFFFFFFFF


SIDES: list[ModuleType] = [_pure] if NATIVE is None else [NATIVE, _pure]


@settings(derandomize=True, max_examples=200, deadline=None)
@given(keys=KEYS, count=st.integers(1, 2**31 - 1))
def test_a_column_is_placed_as_its_rows_are(keys: list[bytes | None], count: int) -> None:
    expected = [-1 if key is None else partition_of_key(key, count) for key in keys]
    for side in SIDES:
        assert array("q", side.place_keys(strings(keys).raw(), count)).tolist() == expected


@pytest.mark.parametrize("side", SIDES, ids=lambda side: side.__name__.rpartition(".")[2])
def test_keys_that_lie_outside_their_column_are_refused(side: ModuleType) -> None:
    for offsets in ([0, 5], [-1, 1], [2, 1]):
        with pytest.raises(ValueError, match="do not hold that row"):
            side.place_keys((array("i", offsets).tobytes(), b"ab", None), 3)
    with pytest.raises(ValueError, match="at least one partition"):
        side.place_keys((array("i", [0, 1]).tobytes(), b"ab", None), 0)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(keys=KEYS, count=st.integers(1, 200))
def test_rows_with_a_key_go_where_java_sends_them(keys: list[bytes | None], count: int) -> None:
    chosen = Murmur2()("topic", strings(keys), len(keys), count)
    assert all(0 <= partition < count for partition in chosen)
    for key, partition in zip(keys, chosen, strict=True):
        if key is not None:
            assert partition == partition_of_key(key, count)


def test_rows_without_a_key_are_spread_in_stretches_and_go_on_where_they_stopped() -> None:
    choose = Murmur2(turn=1)
    chosen = np.concatenate([choose("topic", None, 700, 3), choose("topic", strings([None] * 836), 836, 3)])
    assert Counter(chosen.tolist()) == {0: 512, 1: 512, 2: 512}
    assert chosen[0] == 1
    assert (np.diff(chosen) != 0).sum() == 2


def test_round_robin_takes_turns_whatever_the_keys() -> None:
    choose = RoundRobin()
    assert choose("topic", strings([b"same"] * 4), 4, 3).tolist() == [0, 1, 2, 0]
    assert choose("topic", strings([b"same"] * 2), 2, 3).tolist() == [1, 2]
    assert choose("another", None, 2, 3).tolist() == [0, 1], "each topic has turns of its own"


def by_length(key: bytes | None, topic: str, count: int) -> int:
    return len(key or b"") % count


def out_of_range(key: bytes | None, topic: str, count: int) -> int:
    return count


def test_a_function_of_the_users_chooses() -> None:
    choose = partitioner(f"{__name__}:by_length")
    assert choose("topic", strings([b"", b"a", None, b"abc"]), 4, 3).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("murmur3", "choose murmur2, roundrobin or module:function"),
        ("no_such_module:function", "cannot be loaded"),
        ("json:no_such_function", "cannot be loaded"),
        ("json:__name__", "is no function"),
    ],
)
def test_a_partitioner_that_is_not_there_is_refused(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        partitioner(name)


def test_a_function_that_chooses_a_partition_which_is_not_there_is_told() -> None:
    with pytest.raises(ValueError, match="must return a number from 0 to 2"):
        partitioner(f"{__name__}:out_of_range")("topic", None, 1, 3)
