"""A map whose versions share what they have in common, so that keeping an older version costs a pointer.

Images are published whole after every committed batch, and state that runs ahead of the log must be able to step back.
Both ask the same of a map: an update leaves the old version intact and does not copy all of it. This one is an array
of small dictionaries; an update copies the array and the dictionaries that it touches, about the square root of the
size. It is quicker than a tree in plain Python, because a look-up is one hash, one index and one dictionary.

Iteration is in the order of the keys: hashes of text differ from process to process, and nothing that a node does may.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_SHARD_ENTRIES_MIN = 32
"""Below this a map is one plain dictionary: copying it is quicker than anything cleverer."""


def _shards_for(size: int) -> int:
    """A power of two near the square root of `size`: an update then copies as many pointers as entries."""
    return 1 if size <= _SHARD_ENTRIES_MIN else 1 << ((size.bit_length() + 1) // 2)


class PersistentMap(Generic[K, V]):
    """An immutable mapping; `updated` gives the next version."""

    __slots__ = ("_mask", "_shards", "_size")

    def __init__(self, items: Iterable[tuple[K, V]] = ()) -> None:
        entries = dict(items)
        self._size = len(entries)
        self._mask = _shards_for(self._size) - 1
        if self._mask:
            shards: list[dict[K, V]] = [{} for _ in range(self._mask + 1)]
            for key, value in entries.items():
                shards[hash(key) & self._mask][key] = value
            self._shards: tuple[dict[K, V], ...] = tuple(shards)
        else:
            self._shards = (entries,)

    def get(self, key: K) -> V | None:
        return self._shards[hash(key) & self._mask].get(key)

    def __getitem__(self, key: K) -> V:
        return self._shards[hash(key) & self._mask][key]

    def __contains__(self, key: K) -> bool:
        return key in self._shards[hash(key) & self._mask]

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        keys = [key for shard in self._shards for key in shard]
        keys.sort()
        return iter(keys)

    def items(self) -> Iterator[tuple[K, V]]:
        return ((key, self[key]) for key in self)

    def values(self) -> Iterator[V]:
        return (self[key] for key in self)

    def values_missing_in(self, newer: PersistentMap[K, V]) -> list[V]:
        """The values whose keys `newer` does not have. What the two versions share is not looked at."""
        if newer._mask != self._mask:
            return [value for key, value in self.items() if key not in newer]
        missing = [
            (key, value)
            for ours, theirs in zip(self._shards, newer._shards, strict=True)
            if ours is not theirs
            for key, value in ours.items()
            if key not in theirs
        ]
        missing.sort(key=itemgetter(0))
        return [value for _, value in missing]

    def has_keys_beyond(self, older: PersistentMap[K, V]) -> bool:
        """Whether there are keys that `older`, a version of this map or any other, does not have."""
        if self is older:
            return False
        alike = zip(self._shards, older._shards, strict=True) if self._mask == older._mask else None
        shards = self._shards if alike is None else [mine for mine, other in alike if mine is not other]
        return any(key not in older for shard in shards for key in shard)

    def updated(self, changes: Mapping[K, V | None]) -> PersistentMap[K, V]:
        """The next version: each key of `changes` set, or removed where its value is None."""
        if not changes:
            return self
        shards = list(self._shards)
        mask = self._mask
        size = self._size
        own: set[int] = set()
        for key, value in changes.items():
            index = hash(key) & mask
            if index not in own:
                own.add(index)
                shards[index] = shards[index].copy()
            shard = shards[index]
            before = len(shard)
            if value is None:
                shard.pop(key, None)
            else:
                shard[key] = value
            size += len(shard) - before
        if _shards_for(size) > 2 * (mask + 1):
            return PersistentMap((key, value) for shard in shards for key, value in shard.items())
        result: PersistentMap[K, V] = PersistentMap.__new__(PersistentMap)
        result._shards = tuple(shards)
        result._mask = mask
        result._size = size
        return result

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, PersistentMap):
            return NotImplemented
        if self._size != other._size:
            return False
        if self._mask == other._mask:
            return self._shards == other._shards
        return dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self.items())!r})"
