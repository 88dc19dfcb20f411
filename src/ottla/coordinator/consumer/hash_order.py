"""The order in which Java's hash tables give their keys.

Kafka's assignors go through members, topics and partitions as its HashMaps happen to hold them, and who gets a
partition hangs on it. So that a group has the very same assignment here and there, the order is followed: by bucket,
and within a bucket in the order of insertion. (Java turns a bucket of more than eight keys in a large table into a
tree, whose order is not followed here; it takes names made for it.)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

from ottla.coordinator.java_hash import java_hash
from ottla.model import Uuid

K = TypeVar("K")

_CAPACITY = 16
_BUCKET_KEYS_MAX = 8
_TREES_FROM = 64
_TWO_LONGS = struct.Struct(">QQ")
_FIBONACCI = 0x9E3779B97F4A7C15
_M64 = 0xFFFFFFFFFFFFFFFF


def uuid_hash(value: Uuid) -> int:
    """`Uuid.hashCode` of Kafka, without its sign."""
    high, low = _TWO_LONGS.unpack(value)
    mixed: int = high ^ low
    return (mixed >> 32 ^ mixed) & 0xFFFFFFFF


def int_hash(value: int) -> int:
    return value


@lru_cache(maxsize=65_536)
def name_hash(name: str) -> int:
    """`String.hashCode`, remembered: a group's names come again with every target."""
    return java_hash(name)


def capacity_for(keys: int) -> int:
    """The table that a HashMap makes for so many keys at once: `new HashMap<>(keys)`."""
    return 1 if keys <= 1 else 1 << (keys - 1).bit_length()


def capacity_to_copy(keys: int) -> int:
    """The table of `new HashSet<>(collection)`."""
    return capacity_for(max(int(keys / 0.75) + 1, _CAPACITY))


class HashOrder(Generic[K]):
    """A set that is gone through as Java would go through a HashSet, or a HashMap's keys."""

    __slots__ = ("_capacity", "_hash_of", "_hashes")

    def __init__(self, hash_of: Callable[[K], int], keys: Iterable[K] = (), *, capacity: int = _CAPACITY) -> None:
        self._hash_of = hash_of
        self._capacity = capacity
        self._hashes: dict[K, int] = {}
        for key in keys:
            self.add(key)

    def __iter__(self) -> Iterator[K]:
        hashes, mask = self._hashes, self._capacity - 1
        return iter(sorted(hashes, key=lambda key: hashes[key] & mask))

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, key: K) -> bool:
        return key in self._hashes

    def add(self, key: K) -> None:
        if key not in self._hashes:
            self._insert(key)
            if len(self._hashes) > 0.75 * self._capacity:
                self._capacity *= 2

    def add_if_absent(self, key: K) -> None:
        """As `computeIfAbsent`, which makes room before it looks, whether it inserts or not, and puts a key before the
        others of its bucket."""
        if len(self._hashes) > 0.75 * self._capacity:
            self._capacity *= 2
        if key not in self._hashes:
            self._insert(key)
            self._hashes = {key: self._hashes.pop(key), **self._hashes}

    def discard(self, key: K) -> None:
        self._hashes.pop(key, None)

    def _insert(self, key: K) -> None:
        hashed = self._hash_of(key) & 0xFFFFFFFF
        hashed ^= hashed >> 16
        hashes = self._hashes
        hashes[key] = hashed
        if len(hashes) > _BUCKET_KEYS_MAX and self._capacity < _TREES_FROM:
            # A bucket that is too full makes a small table grow.
            mask = self._capacity - 1
            if sum((other ^ hashed) & mask == 0 for other in hashes.values()) > _BUCKET_KEYS_MAX:
                self._capacity *= 2


def int_order(values: Sequence[int]) -> Sequence[int]:
    """How `new HashSet<>(values)` is gone through."""
    capacity = capacity_to_copy(len(values))
    if len(values) > _BUCKET_KEYS_MAX and capacity < _TREES_FROM:
        return list(HashOrder(int_hash, values, capacity=capacity))
    mask = capacity - 1
    return sorted(values, key=lambda value: (value ^ value >> 16) & mask)


def timeline_order(names: Sequence[str]) -> list[str]:
    """How Kafka's TimelineHashMap gives `names`, that were put into it in this order: by the highest bits of their
    hash, and the youngest of a slot first."""
    capacity = 2
    while 0.75 * (len(names) + 1) > capacity:
        capacity *= 2
    shift = 65 - capacity.bit_length()
    slots: dict[int, list[str]] = {}
    for name in names:
        slots.setdefault((name_hash(name) * _FIBONACCI & _M64) >> shift, []).append(name)
    return [name for slot in sorted(slots) for name in reversed(slots[slot])]
