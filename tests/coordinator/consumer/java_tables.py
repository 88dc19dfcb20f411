"""Java's HashMap, bucket by bucket and key by key, as plainly as can be: what the quicker ways are held against."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K")


class JavaTable(Generic[K]):
    """`hash_of` gives a key's hash as HashMap folds it."""

    def __init__(self, hash_of: Callable[[K], int], keys: Iterable[K] = (), *, capacity: int = 16) -> None:
        self._hash_of = hash_of
        self._buckets: list[list[K]] = [[] for _ in range(capacity)]
        for key in keys:
            self.add(key)

    @classmethod
    def copied(cls, hash_of: Callable[[K], int], keys: Iterable[K]) -> JavaTable[K]:
        """`new HashSet<>(keys)`"""
        listed = list(keys)
        least = max(int(len(listed) / 0.75) + 1, 16)
        capacity = 1
        while capacity < least:
            capacity *= 2
        return cls(hash_of, listed, capacity=capacity)

    def __iter__(self) -> Iterator[K]:
        return iter([key for bucket in self._buckets for key in bucket])

    def __len__(self) -> int:
        return sum(map(len, self._buckets))

    def __contains__(self, key: object) -> bool:
        return any(key in bucket for bucket in self._buckets)

    def add(self, key: K) -> None:
        if key in self:
            return
        bucket = self._bucket(key)
        bucket.append(key)
        self._grow_if_overfull(bucket)
        self._grow_if_full()

    def compute_if_absent(self, key: K) -> None:
        self._grow_if_full()
        if key not in self:
            bucket = self._bucket(key)
            bucket.insert(0, key)
            self._grow_if_overfull(bucket)

    def remove(self, key: K) -> None:
        self._bucket(key).remove(key)

    def _bucket(self, key: K) -> list[K]:
        return self._buckets[self._hash_of(key) % len(self._buckets)]

    def _grow_if_full(self) -> None:
        if len(self) > 0.75 * len(self._buckets):
            self._grow()

    def _grow_if_overfull(self, bucket: list[K]) -> None:
        if len(bucket) > 8 and len(self._buckets) < 64:
            self._grow()

    def _grow(self) -> None:
        keys = list(self)
        self._buckets = [[] for _ in range(2 * len(self._buckets))]
        for key in keys:
            self._bucket(key).append(key)
