"""Which leader epoch began at which offset: the lineage by which replicas find where they diverge (KIP-101, KIP-279).

Owned by a `Log`, which tells it of appends, truncation and retention. The cache never lacks the epoch of a batch in the
log: the log writes it out (`leader-epoch-checkpoint`, atomically) before the first batch of a new epoch lands on
flushed data, and otherwise before the recovery point passes that batch, so that recovery can always fill in what is
missing from the batches' own headers. An epoch without batches can only be the last entry, and may be lost in a crash:
no replica can then hold anything of it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from ottla.log.checkpoints import encode_epochs
from ottla.model import NO_LEADER_EPOCH, NO_OFFSET


class LeaderEpochCache:
    """Entries (epoch, start offset), both rising strictly."""

    __slots__ = ("_epochs", "_starts", "dirty")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.dirty = False
        """Has it changed since its file was last thought of?"""
        for epoch, start in entries:
            self.assign(epoch, start)
        self.dirty = False

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest_epoch(self) -> int | None:
        return self._epochs[-1] if self._epochs else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """`epoch` begins at `start_offset`. True if that was news.

        Entries that contradict it go: a newer or equal epoch, and one that begins no earlier, which has no records.
        """
        assert epoch >= 0
        assert start_offset >= 0
        epochs, starts = self._epochs, self._starts
        if epochs and epoch == epochs[-1] and start_offset >= starts[-1]:
            return False
        keep = bisect_left(starts, start_offset)
        if 0 < keep < len(epochs) and epochs[keep - 1] == epoch:
            # Only epochs without records were begun since: we led, wrote nothing, and follow again (KIP-279).
            del epochs[keep:]
            del starts[keep:]
            self.dirty = True
            return True
        keep = min(bisect_left(epochs, epoch), keep)
        del epochs[keep:]
        del starts[keep:]
        epochs.append(epoch)
        starts.append(start_offset)
        self.dirty = True
        return True

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at `end_offset`: no epoch begins there or later."""
        keep = bisect_left(self._starts, end_offset)
        if keep < len(self._starts):
            del self._epochs[keep:]
            del self._starts[keep:]
            self.dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now starts at `start_offset`: the epoch that holds it begins there, and older ones are gone."""
        holding = bisect_right(self._starts, start_offset) - 1
        if holding < 0 or (holding == 0 and self._starts[0] == start_offset):
            return
        del self._epochs[:holding]
        del self._starts[:holding]
        self._starts[0] = start_offset
        self.dirty = True

    def clear(self) -> None:
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self.dirty = True

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch whose leader wrote `offset`; None below the first entry."""
        slot = bisect_right(self._starts, offset) - 1
        return self._epochs[slot] if slot >= 0 else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch not above `epoch`, and where it ends (exclusive); (-1, -1) if that is undefined.

        The latest epoch ends at the log's end. For an epoch older than all that are known, the answer is where the
        first known one starts, under the epoch that was asked: its data is gone from the log, and the follower begins
        there.
        """
        epochs = self._epochs
        if epoch < 0 or not epochs or epoch > epochs[-1]:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == epochs[-1]:
            return epoch, log_end_offset
        higher = bisect_right(epochs, epoch)
        return (epochs[higher - 1] if higher else epoch), self._starts[higher]

    def encode(self, log_end_offset: int) -> bytes:
        """The checkpoint of a log that ends there. An epoch that has no batches yet is left out: it decides nothing."""
        count = bisect_left(self._starts, log_end_offset)
        return encode_epochs(zip(self._epochs[:count], self._starts[:count], strict=True))
