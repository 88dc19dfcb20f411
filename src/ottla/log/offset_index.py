"""The sparse map from offsets to file positions of one segment (`.index`).

An entry of 8 bytes is written for about every `index.interval.bytes`: the last offset of a batch, relative to the
segment's base, and the batch's position. A look-up gives a position at or before the batch that holds an offset; the
rest is a short scan of headers. Kept in machine arrays, so that a look-up is one C bisection.

Of a compacted log a sealed segment's index ends with its last batch, wherever that is. Compaction leaves gaps between
segments, so that nothing else would tell a file that was compacted from one that has lost its end.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right

ENTRY_SIZE = 8
ANY_SIZE = 1 << 32
"""Of a log file: no position is beyond it."""


class OffsetIndex:
    __slots__ = ("positions", "relative_offsets")

    def __init__(self) -> None:
        self.relative_offsets = array("I")
        self.positions = array("I")

    def __len__(self) -> int:
        return len(self.positions)

    def append(self, relative_offset: int, position: int) -> None:
        self.relative_offsets.append(relative_offset)
        self.positions.append(position)

    def note_last(self, relative_offset: int, position: int) -> None:
        """The last batch of all, whether or not it is time for an entry."""
        if not self.positions or position > self.positions[-1]:
            self.append(relative_offset, position)

    @property
    def last_position(self) -> int:
        return self.positions[-1] if self.positions else 0

    def floor_position(self, relative_offset: int) -> int:
        """Where to start scanning for `relative_offset`: the batch that holds it starts here or later."""
        slot = bisect_right(self.relative_offsets, relative_offset) - 1
        return self.positions[slot] if slot >= 0 else 0

    def around(self, relative_offset: int) -> tuple[int, int]:
        """The two known boundaries between which the batch that holds `relative_offset` starts: after the first, or at
        it, and at the second or before; -1 for the second where the index ends earlier."""
        slot = bisect_left(self.relative_offsets, relative_offset)
        positions = self.positions
        return positions[slot - 1] if slot else 0, positions[slot] if slot < len(positions) else -1

    def boundary_at_or_before(self, position: int) -> int:
        """The highest known batch boundary that is not beyond `position`."""
        slot = bisect_right(self.positions, position) - 1
        return self.positions[slot] if slot >= 0 else 0

    def offset_at_or_after(self, position: int) -> int | None:
        """The first known relative offset that is not before `position`; None where the index ends earlier."""
        slot = bisect_left(self.positions, position)
        return self.relative_offsets[slot] if slot < len(self.positions) else None

    def is_beyond(self, log_size: int) -> bool:
        """Does it tell of a batch that begins where a file of `log_size` bytes has ended?"""
        return bool(self.positions) and self.positions[-1] >= log_size

    def truncate(self, relative_offset: int) -> None:
        """Forget everything at or above `relative_offset`."""
        keep = bisect_left(self.relative_offsets, relative_offset)
        del self.relative_offsets[keep:]
        del self.positions[keep:]

    def copy(self) -> OffsetIndex:
        other = OffsetIndex()
        other.relative_offsets = self.relative_offsets[:]
        other.positions = self.positions[:]
        return other

    def encode(self) -> bytes:
        words = array("I", bytes(ENTRY_SIZE * len(self)))
        words[0::2] = self.relative_offsets
        words[1::2] = self.positions
        if sys.byteorder == "little":
            words.byteswap()
        return words.tobytes()

    @classmethod
    def decode(cls, data: bytes, log_size: int) -> OffsetIndex | None:
        """None if the bytes cannot be the index of a segment of `log_size` bytes: it is then built anew.

        Besides torn files this catches the zeros that a preallocated index ends in after a crash.
        """
        if len(data) % ENTRY_SIZE:
            return None
        words = array("I", data)
        if sys.byteorder == "little":
            words.byteswap()
        index = cls()
        index.relative_offsets = words[0::2]
        index.positions = words[1::2]
        return index if index._is_sound(log_size) else None

    def _is_sound(self, log_size: int) -> bool:
        """A glance at both ends: whatever was synced is whole, and a full check would stall a first read."""
        offsets, positions = self.relative_offsets, self.positions
        if not positions:
            return True
        if len(positions) > 1 and (positions[-1] <= positions[0] or offsets[-1] <= offsets[0]):
            return False
        return not self.is_beyond(log_size)
