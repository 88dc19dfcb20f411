"""Orders of Java's tables: what is worked out at once is what comes of one key after the other."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinator.consumer.hash_order import (
    HashOrder,
    int_cut,
    int_hash,
    int_order,
    name_hash,
    timeline_order,
    uuid_hash,
    uuid_order,
)
from ottla.coordinator.java_hash import java_hash
from ottla.model import Uuid

from .java_tables import JavaTable

CAPACITIES = st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128])
SIZES = st.one_of(st.integers(0, 70), st.integers(8, 25))
"""Those at which a full bucket may make a table grow come often."""


@st.composite
def colliding(draw: st.DrawFn) -> list[int]:
    """Numbers of which many fall into the same bucket of a small table."""
    step = draw(st.sampled_from([1, 2, 8, 16, 16, 32, 32, 48, 1 << 16]))
    odd = draw(st.sets(st.integers(0, 1 << 20), max_size=10))
    count = draw(SIZES)
    return draw(st.permutations(sorted({step * number for number in range(count)} | odd)))


@settings(max_examples=500)
@given(first=colliding(), second=colliding(), capacity=CAPACITIES, data=st.data())
def test_many_keys_at_once(first: list[int], second: list[int], capacity: int, data: st.DataObject) -> None:
    plain = JavaTable(int_hash, first, capacity=capacity)
    order = HashOrder(int_hash, first, capacity=capacity)
    assert list(order) == list(plain)
    for key in first[: data.draw(st.integers(0, len(first)))]:
        plain.remove(key)
        order.discard(key)
    for key in second:
        plain.add(key)
    order.update(second)
    assert list(order) == list(plain)


@settings(max_examples=500)
@given(colliding())
def test_numbers(values: list[int]) -> None:
    assert list(int_order(values)) == list(JavaTable.copied(int_hash, values))


@given(st.sets(st.integers(0, (1 << 31) - 1), max_size=70))
def test_any_numbers(values: set[int]) -> None:
    listed = list(values)
    assert list(int_order(listed)) == list(JavaTable.copied(int_hash, listed))


@settings(max_examples=500)
@given(values=colliding(), data=st.data())
def test_numbers_that_are_cut_off(values: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(values) + 1))
    read = list(JavaTable.copied(int_hash, values))
    copy = JavaTable.copied(int_hash, read)
    for value in read[count:]:
        copy.remove(value)
    kept, above = int_cut(values, count)
    assert (list(kept), list(above)) == (list(copy), read[count:])


def test_the_order_of_insertion_may_make_a_copy_grow_otherwise() -> None:
    """Nine that share a bucket of 32, and a tenth that shares it of 16 only: put in last, and gone through first."""
    values = [*(16 + 32 * number for number in range(9)), 32]
    read = list(int_order(values))
    kept, _ = int_cut(values, len(values))
    assert list(kept) == list(JavaTable.copied(int_hash, read)) != read


@given(values=st.lists(st.binary(min_size=16, max_size=16).map(Uuid), max_size=30, unique=True), capacity=CAPACITIES)
def test_ids(values: list[Uuid], capacity: int) -> None:
    assert list(uuid_order(values, capacity=capacity)) == list(JavaTable(uuid_hash, values, capacity=capacity))


@given(st.lists(st.text(st.sampled_from("Aa#B"), max_size=6), max_size=60, unique=True))
def test_names(names: list[str]) -> None:
    """Many of them have the same hash: "Aa", "BB" and "C#" do."""
    assert list(HashOrder(name_hash, names)) == list(JavaTable(name_hash, names))
    capacity = 2
    while 0.75 * (len(names) + 1) > capacity:
        capacity *= 2
    slots: list[list[str]] = [[] for _ in range(capacity)]
    for name in names:
        scattered = java_hash(name) * 0x9E3779B97F4A7C15 % (1 << 64)
        slots[scattered * capacity >> 64].insert(0, name)
    assert timeline_order(names) == [name for slot in slots for name in slot]
