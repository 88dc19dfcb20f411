"""Any sequence of appends, rolls, truncations, deletions, flushes, crashes and restarts, against a list."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.log import Log, LogConfig

from .faulty_disk import FaultyDisk
from .story import NOW, TP, all_batches, append, batch, create, open_manager

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=120, retention_bytes=1500, retention_ms=-1)


class LogModel(RuleBasedStateMachine):
    """The model is the list of batches; an offset is where a batch begins in it."""

    @initialize()
    def begin(self) -> None:
        self.disk = FaultyDisk()
        self.manager = open_manager(self.disk, CONFIG)
        self.log: Log = create(self.manager, CONFIG)
        self.batches: list[tuple[int, int, bytes]] = []
        self.start = self.end = 0
        self.epoch = 0
        self.now = NOW

    @rule(count=st.integers(1, 4), size=st.integers(0, 60), new_epoch=st.booleans(), step=st.integers(-5, 5))
    def append(self, count: int, size: int, new_epoch: bool, step: int) -> None:
        self.epoch += new_epoch
        self.now += 3
        data = batch(count, value=b"x" * size, timestamp=self.now, step=step)
        info = append(self.log, data, epoch=self.epoch)
        assert (info.first_offset, info.last_offset) == (self.end, self.end + count - 1)
        self.batches.append((self.end, self.epoch, bytes(data)))
        self.end += count
        self.log.update_high_watermark(self.end)

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW)

    @rule()
    def flush(self) -> None:
        self.log.flush(NOW)
        self.manager.prepare_checkpoints().run()

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        offset = max(self.start, self.end - back)
        self.log.truncate_to(offset)
        self.batches = [item for item in self.batches if item[0] + _count(item[2]) <= offset]
        self.end = (
            self.batches[-1][0] + _count(self.batches[-1][2]) if self.batches else min(offset, self.log.log_end_offset)
        )
        self.start = min(self.start, self.end)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = self.start + int((self.end - self.start) * share)
        self.log.advance_log_start(offset)
        self.start = max(self.start, offset)

    @rule()
    def retention(self) -> None:
        self.manager.apply_retention(NOW)
        self.start = max(self.start, self.log.log_start_offset)

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.manager.prepare_checkpoints().run()
        if clean:
            self.manager.close(NOW)
        self.disk = self.disk.copy()
        self.manager = open_manager(self.disk, CONFIG)
        self.log = self.manager.logs[TP]
        self.log.update_high_watermark(self.end)

    @invariant()
    def the_log_holds_what_the_list_holds(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        visible = [data for base, _, data in self.batches if base + _count(data) > self.start]
        assert [data for _, data in all_batches(log)] == visible

    @invariant()
    def epochs_are_those_of_the_batches(self) -> None:
        firsts: dict[int, int] = {}
        for base, epoch, data in self.batches:
            if base + _count(data) > self.start:
                firsts.setdefault(epoch, max(base, self.start))
        entries = [entry for entry in self.log.epochs.entries if entry[1] < self.end]
        assert entries == sorted(firsts.items())

    @precondition(lambda self: self.end > self.start)
    @rule(share=st.floats(0, 0.999), upper_share=st.floats(0, 1), max_bytes=st.integers(1, 2000))
    def read(self, share: float, upper_share: float, max_bytes: int) -> None:
        offset = self.start + int((self.end - self.start) * share)
        upper = self.start + int((self.end - self.start) * upper_share)
        span = self.log.read(offset, max_bytes=max_bytes, upper_bound=upper)
        allowed = [
            data for base, _, data in self.batches if base + _count(data) > offset and base + _count(data) <= upper
        ]
        if offset >= upper or not allowed:
            assert span is None
        else:
            assert span is not None
            got = span.file.read(span.position, span.size)
            assert b"".join(allowed).startswith(got)
            assert len(allowed[0]) <= len(got) <= max(max_bytes, len(allowed[0]))


def _count(data: bytes) -> int:
    return int.from_bytes(data[23:27], "big") + 1


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
