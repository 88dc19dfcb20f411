"""The sparse map from timestamps to offsets of one segment (`.timeindex`).

An entry of 12 bytes is (t, o): the largest timestamp so far is t, in the batch whose last offset is o (relative to the
segment's base), so every record beyond o found later may be newer but nothing up to o is. Both columns only rise. A
sealed segment's last entry is its largest timestamp, which retention and look-ups by time go by.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right

from ottla.model import NO_TIMESTAMP

ENTRY_SIZE = 12


class TimeIndex:
    __slots__ = ("relative_offsets", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.relative_offsets = array("I")

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def last(self) -> tuple[int, int]:
        """The last entry, or (no timestamp, 0)."""
        if not self.timestamps:
            return NO_TIMESTAMP, 0
        return self.timestamps[-1], self.relative_offsets[-1]

    def append(self, timestamp: int, relative_offset: int) -> None:
        """Note that the largest timestamp is now `timestamp`; nothing to note if it has not grown."""
        if timestamp > (self.timestamps[-1] if self.timestamps else NO_TIMESTAMP):
            self.timestamps.append(timestamp)
            self.relative_offsets.append(relative_offset)

    def floor(self, timestamp: int) -> int:
        """The relative offset from which to look for the first record stamped `timestamp` or later."""
        slot = bisect_right(self.timestamps, timestamp) - 1
        return self.relative_offsets[slot] if slot >= 0 else 0

    def truncate(self, relative_offset: int) -> None:
        """Forget everything at or above `relative_offset`."""
        keep = bisect_left(self.relative_offsets, relative_offset)
        del self.timestamps[keep:]
        del self.relative_offsets[keep:]

    def copy(self) -> TimeIndex:
        other = TimeIndex()
        other.timestamps = self.timestamps[:]
        other.relative_offsets = self.relative_offsets[:]
        return other

    def encode(self) -> bytes:
        count = len(self)
        stamps = array("q", self.timestamps)
        offsets = array("I", self.relative_offsets)
        if sys.byteorder == "little":
            stamps.byteswap()
            offsets.byteswap()
        halves = array("I", stamps.tobytes())
        words = array("I", bytes(ENTRY_SIZE * count))
        words[0::3] = halves[0::2]
        words[1::3] = halves[1::2]
        words[2::3] = offsets
        return words.tobytes()

    @classmethod
    def decode(cls, data: bytes) -> TimeIndex | None:
        """None if the bytes cannot be a time index: it is then built anew."""
        if len(data) % ENTRY_SIZE:
            return None
        words = array("I", data)
        count = len(data) // ENTRY_SIZE
        halves = array("I", bytes(8 * count))
        halves[0::2] = words[0::3]
        halves[1::2] = words[1::3]
        index = cls()
        index.timestamps = array("q", halves.tobytes())
        index.relative_offsets = words[2::3]
        if sys.byteorder == "little":
            index.timestamps.byteswap()
            index.relative_offsets.byteswap()
        if count > 1 and index.timestamps[-1] <= index.timestamps[0]:
            return None
        return index
