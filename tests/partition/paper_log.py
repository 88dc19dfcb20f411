"""A log on paper: the epoch of each offset, and the lineage that the real one keeps."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.log import LeaderEpochCache


class PaperLog:
    """Obeys the same rules as `Log` where a follower can see them."""

    def __init__(self, start: int = 0) -> None:
        self.log_start_offset = start
        self.base = start
        self.records: list[tuple[int, object]] = []
        """(epoch, value) of each offset from `base` on."""
        self.high_watermark = start
        self.epochs = LeaderEpochCache()

    @property
    def log_end_offset(self) -> int:
        return self.base + len(self.records)

    @property
    def last_epoch(self) -> int:
        return self.records[-1][0] if self.records else -1

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def append(self, epoch: int, value: object = None) -> None:
        self.epochs.assign(epoch, self.log_end_offset)
        self.records.append((epoch, value))

    def extend(self, epochs: Iterable[int]) -> None:
        for epoch in epochs:
            self.append(epoch)

    def begin_epoch(self, epoch: int) -> None:
        self.epochs.assign(epoch, self.log_end_offset)

    def truncate_to(self, offset: int) -> None:
        if offset < self.base:
            self.start_over_at(offset)
            return
        del self.records[offset - self.base :]
        self.epochs.truncate_from_end(self.log_end_offset)
        self.high_watermark = min(self.high_watermark, self.log_end_offset)
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)

    def start_over_at(self, offset: int) -> None:
        self.base = self.log_start_offset = self.high_watermark = offset
        self.records = []
        self.epochs.clear()
