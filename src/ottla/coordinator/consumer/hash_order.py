"""The order in which Java's hash tables give their keys.

Kafka's assignors go through members, topics and partitions as its HashMaps happen to hold them, and who gets a
partition hangs on it. So that a group has the very same assignment here and there, the order is followed: by bucket,
and within a bucket in the order of insertion. (Java turns a bucket of more than eight keys in a large table into a
tree, whose order is not followed here; it takes names made for it.)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from operator import eq
from typing import Generic, TypeVar

from ottla.coordinator.java_hash import java_hash
from ottla.model import Uuid

K = TypeVar("K")

_CAPACITY = 16
_LOAD_MAX = 0.75
_BUCKET_KEYS_MAX = 8
_TREES_FROM = 64
_SMALL_KEYS_MAX = int(_LOAD_MAX * _TREES_FROM / 2)
_TWO_LONGS = struct.Struct(">QQ")
_FIBONACCI = 0x9E3779B97F4A7C15
_M64 = 0xFFFFFFFFFFFFFFFF


# What HashMap makes of the hash code of a key: the high half is folded into the low one, which picks the bucket.


def uuid_hash(value: Uuid) -> int:
    high, low = _TWO_LONGS.unpack(value)
    mixed: int = high ^ low
    return _folded((mixed >> 32 ^ mixed) & 0xFFFFFFFF)


def int_hash(value: int) -> int:
    """Of a number that is not negative."""
    return value ^ value >> 16


@lru_cache(maxsize=65_536)
def name_hash(name: str) -> int:
    """Remembered: a group's names come again with every target."""
    return _folded(java_hash(name) & 0xFFFFFFFF)


def _folded(code: int) -> int:
    return code ^ code >> 16


def capacity_for(keys: int) -> int:
    """The table that a HashMap makes for so many keys at once: `new HashMap<>(keys)`."""
    return 1 if keys <= 1 else 1 << (keys - 1).bit_length()


def capacity_to_copy(keys: int) -> int:
    """The table of `new HashSet<>(collection)`."""
    return capacity_for(max(int(keys / _LOAD_MAX) + 1, _CAPACITY))


class HashOrder(Generic[K]):
    """A set that is gone through as Java would go through a HashSet, or a HashMap's keys."""

    __slots__ = ("_capacity", "_hash_of", "_hashes")

    def __init__(self, hash_of: Callable[[K], int], keys: Collection[K] = (), *, capacity: int = _CAPACITY) -> None:
        self._hash_of = hash_of
        self._capacity = capacity
        self._hashes: dict[K, int] = {}
        if keys:
            self.update(keys)

    def __iter__(self) -> Iterator[K]:
        hashes, mask = self._hashes, self._capacity - 1
        return iter(sorted(hashes, key=lambda key: hashes[key] & mask))

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, key: object) -> bool:
        return key in self._hashes

    def add(self, key: K) -> None:
        if key not in self._hashes:
            self._insert(key)
            if len(self._hashes) > _LOAD_MAX * self._capacity:
                self._capacity *= 2

    def update(self, keys: Collection[K]) -> None:
        """As `add` of one key after the other."""
        hash_of = self._hash_of
        hashes = {key: hash_of(key) for key in keys}
        if self._hashes:
            hashes = {**self._hashes, **hashes}
        if _may_overflow(hashes, hashes.__getitem__, self._capacity):
            for key in keys:
                self.add(key)
            return
        self._hashes = hashes
        while len(hashes) > _LOAD_MAX * self._capacity:
            self._capacity *= 2

    def add_if_absent(self, key: K) -> None:
        """As `computeIfAbsent`, which makes room before it looks, whether it inserts or not, and puts a key before the
        others of its bucket."""
        if len(self._hashes) > _LOAD_MAX * self._capacity:
            self._capacity *= 2
        if key not in self._hashes:
            self._insert(key)
            self._hashes = {key: self._hashes.pop(key), **self._hashes}

    def discard(self, key: K) -> None:
        self._hashes.pop(key, None)

    def _insert(self, key: K) -> None:
        hashed = self._hash_of(key)
        hashes = self._hashes
        hashes[key] = hashed
        if len(hashes) > _BUCKET_KEYS_MAX and self._capacity < _TREES_FROM:
            # A bucket that is too full makes a small table grow.
            mask = self._capacity - 1
            if sum((other ^ hashed) & mask == 0 for other in hashes.values()) > _BUCKET_KEYS_MAX:
                self._capacity *= 2


def _may_overflow(keys: Collection[K], hash_of: Callable[[K], int], capacity: int) -> bool:
    """Whether a full bucket may make a table of `capacity` grow, into which `keys` are put. It matters in small tables
    alone: with more keys than a small one takes, the table becomes a large one anyway."""
    if not _BUCKET_KEYS_MAX < len(keys) <= _SMALL_KEYS_MAX or capacity >= _TREES_FROM:
        return False
    mask = capacity - 1
    buckets = sorted([hash_of(key) & mask for key in keys])
    return any(map(eq, buckets, buckets[_BUCKET_KEYS_MAX:]))


# Sets of numbers that are not negative, and no number twice.


def int_order(values: Sequence[int]) -> Sequence[int]:
    """How `new HashSet<>(values)` is gone through."""
    capacity = capacity_to_copy(len(values))
    if _may_overflow(values, int_hash, capacity):
        return list(HashOrder(int_hash, values, capacity=capacity))
    return _by_bucket(values, capacity)


def int_cut(values: Sequence[int], count: int) -> tuple[Sequence[int], Sequence[int]]:
    """A copy is made of `new HashSet<>(values)`, which is then gone through, and all but the first `count` are taken
    out of the copy. How the copy is gone through then, and what was taken out."""
    capacity = capacity_to_copy(len(values))
    if _may_overflow(values, int_hash, capacity):
        ordered = list(HashOrder(int_hash, values, capacity=capacity))
        copy = HashOrder(int_hash, ordered, capacity=capacity)
        for value in ordered[count:]:
            copy.discard(value)
        return list(copy), ordered[count:]
    ordered = _by_bucket(values, capacity)  # As the copy is: its table is as large.
    return ordered[:count], ordered[count:]


def _by_bucket(values: Sequence[int], capacity: int) -> list[int]:
    mask = capacity - 1
    return sorted(values, key=lambda value: (value ^ value >> 16) & mask)


def uuid_order(values: Collection[Uuid], *, capacity: int = _CAPACITY) -> Collection[Uuid]:
    """How a HashMap of `capacity` is gone through into which `values` were put one by one."""
    return values if len(values) == 1 else HashOrder(uuid_hash, values, capacity=capacity)


@lru_cache(maxsize=65_536)
def _scattered(name: str) -> int:
    """What TimelineHashMap makes of a hash code: its highest bits pick the slot."""
    return java_hash(name) * _FIBONACCI & _M64


def timeline_order(names: Sequence[str]) -> list[str]:
    """How Kafka's TimelineHashMap gives `names`, that were put into it in this order: by the highest bits of their
    hash, and the youngest of a slot first."""
    capacity = 2
    while 0.75 * (len(names) + 1) > capacity:
        capacity *= 2
    shift = 65 - capacity.bit_length()
    youngest_first = names[::-1]
    return sorted(youngest_first, key=lambda name: _scattered(name) >> shift)
