"""State that can go back: maps whose newest value costs what a dictionary costs, with the committed one beside it.

A shard applies its records before they are committed. If the append fails they must be undone; and readers that promise
durability must not see them before. So each map remembers, for a key that was changed and is not yet committed, what it
held before, and the timeline remembers in which order the changes were made.

Invariants. The journal is in the order of offsets. A key is in a map's `_before` exactly as long as the journal has an
entry for it. Values are replaced, never changed in place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar, cast

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


class _Absent:
    """Stands for "the key was not there"."""


_ABSENT = _Absent()


class Reversible(Protocol):
    """Something that remembers what its keys held, and is told by the timeline what to do with that."""

    def undo(self, key: object) -> None:
        """The newest change of `key` that was noted never was."""
        ...

    def settle(self, key: object) -> None:
        """The oldest change of `key` that was noted is committed."""
        ...


class Timeline:
    """What one shard's maps have in common: the journal of changes that are not committed yet.

    Driven by whoever applies records: `begin(offset)` before each, `commit` when the high watermark rises, `revert`
    when an append failed. Between `begin` and the first `commit` past it, the changes made are undone by `revert`.
    """

    __slots__ = ("_journal", "loading", "offset")

    def __init__(self) -> None:
        self._journal: deque[tuple[int, Reversible, object]] = deque()
        self.offset = 0
        """Of the record that is being applied, or was last; no record that is known has a later one."""
        self.loading = False
        """While a partition is replayed nothing can be undone, so nothing is remembered."""

    def begin(self, offset: int) -> None:
        """What changes from now on belongs to the record at `offset`."""
        assert not self._journal or offset >= self._journal[-1][0], "records are applied in order"
        self.offset = offset

    def commit(self, end_offset: int) -> None:
        """Everything below `end_offset` is committed."""
        journal = self._journal
        while journal and journal[0][0] < end_offset:
            _, changed, key = journal.popleft()
            changed.settle(key)

    def revert(self, end_offset: int) -> None:
        """Nothing at or above `end_offset` was written."""
        journal = self._journal
        while journal and journal[-1][0] >= end_offset:
            _, changed, key = journal.pop()
            changed.undo(key)
        self.offset = end_offset - 1

    @property
    def pending(self) -> int:
        """How many changes are not committed."""
        return len(self._journal)

    def note(self, changed: Reversible, key: object) -> None:
        """`changed` has remembered what `key` held. Not called while `loading`."""
        self._journal.append((self.offset, changed, key))


class TimelineMap(Generic[K, V]):
    """A map of one timeline. Reads see the newest state, except those that say `committed`."""

    __slots__ = ("_before", "_newest", "_timeline")

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._newest: dict[K, V] = {}
        self._before: dict[K, list[V | _Absent]] = {}
        """What each changed key held, before its oldest change that is not committed, and before each since."""

    # The newest state.

    def __getitem__(self, key: K) -> V:
        return self._newest[key]

    def get(self, key: K, default: D | None = None) -> V | D | None:
        return self._newest.get(key, default)

    def __contains__(self, key: K) -> bool:
        return key in self._newest

    def __len__(self) -> int:
        return len(self._newest)

    def __iter__(self) -> Iterator[K]:
        return iter(self._newest)

    def keys(self) -> Iterator[K]:
        return iter(self._newest)

    def values(self) -> Iterator[V]:
        return iter(self._newest.values())

    def items(self) -> Iterator[tuple[K, V]]:
        return iter(self._newest.items())

    def __setitem__(self, key: K, value: V) -> None:
        self._remember(key)
        self._newest[key] = value

    def pop(self, key: K) -> V | None:
        """Remove the key, if it is there."""
        if key not in self._newest:
            return None
        self._remember(key)
        return self._newest.pop(key)

    # The committed state.

    def committed(self, key: K) -> V | None:
        before = self._before.get(key)
        if before is None:
            return self._newest.get(key)
        oldest = before[0]
        return None if oldest is _ABSENT else cast("V", oldest)

    def is_settled(self, key: K) -> bool:
        """Is the newest state of the key the committed one? If not, what it was since may come back."""
        return key not in self._before

    def committed_items(self) -> Iterator[tuple[K, V]]:
        if not self._before:
            yield from self._newest.items()
            return
        for key, value in self._newest.items():
            if key not in self._before:
                yield key, value
        for key, before in self._before.items():
            if before[0] is not _ABSENT:
                yield key, cast("V", before[0])

    # Going back, by the timeline.

    def _remember(self, key: K) -> None:
        timeline = self._timeline
        if timeline.loading:
            return
        value = self._newest.get(key, _ABSENT)
        before = self._before.get(key)
        if before is None:
            self._before[key] = [value]
        else:
            before.append(value)
        timeline.note(cast("Reversible", self), key)

    def undo(self, key: K) -> None:
        before = self._before[key]
        value = before.pop()
        if not before:
            del self._before[key]
        if value is _ABSENT:
            self._newest.pop(key, None)
        else:
            self._newest[key] = cast("V", value)

    def settle(self, key: K) -> None:
        before = self._before[key]
        if len(before) == 1:
            del self._before[key]
        else:
            del before[0]
