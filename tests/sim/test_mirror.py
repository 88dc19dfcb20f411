"""What a mirror tells of a log that moved in more than one way since the last look."""

from __future__ import annotations

from random import Random

from ottla.log import Log, LogConfig, LogManager
from ottla.sim.checkers.mirror import Mirror
from ottla.sim.disk import SimDisk
from ottla.sim.volume import Volume
from tests.log.story import NOW, append, batch, create, fill, open_manager

SEGMENT = len(batch()) * 10


class Mirrored:
    """A log, and how far somebody got who follows its mirror by the counts that it gives."""

    def __init__(self) -> None:
        self.volume = Volume(random=Random(1))
        config = LogConfig(segment_bytes=SEGMENT, retention_bytes=2 * SEGMENT, retention_ms=-1)
        self.manager: LogManager = open_manager(SimDisk(self.volume), config)
        self.log: Log = create(self.manager, config)
        self.mirror = Mirror(self.log, self.volume, "t-0")
        self.seen: list[int] = []

    def look(self) -> int | None:
        """Follow as the checker does: what was counted before is not looked at again."""
        changed = self.mirror.update()
        if changed is None:
            self.seen = self.seen[self.mirror.dropped :]
        else:
            self.seen = []
        self.seen += [batch.base for batch in self.mirror.batches[len(self.seen) :]]
        assert self.seen == list(range(self.log.log_start_offset, self.log.log_end_offset))
        return changed


def test_growth_over_segments_is_only_growth() -> None:
    it = Mirrored()
    for _ in range(7):
        fill(it.log, 6)
        assert it.look() is None


def test_a_segment_that_was_being_read_and_is_gone() -> None:
    """Retention took it, and others came: the log only grew, and its start moved."""
    it = Mirrored()
    fill(it.log, 7)
    assert it.look() is None
    fill(it.log, 50)
    it.log.update_high_watermark(it.log.log_end_offset)
    assert it.manager.apply_retention(NOW) > 1
    assert it.look() is None
    fill(it.log, 3)
    assert it.look() is None


def test_a_start_in_the_middle_of_a_segment_and_a_cut_in_one_look() -> None:
    it = Mirrored()
    fill(it.log, 27)
    assert it.look() is None
    it.log.update_high_watermark(20)
    it.log.advance_log_start(14)
    it.log.truncate_to(22)
    assert it.look() == 22
    append(it.log, batch())
    it.log.update_high_watermark(23)
    it.log.advance_log_start(18)
    assert it.look() is None


def test_a_start_that_moves_alone() -> None:
    it = Mirrored()
    fill(it.log, 27)
    it.look()
    it.log.update_high_watermark(27)
    it.log.advance_log_start(25)
    assert it.look() is None
