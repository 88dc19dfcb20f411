"""One log directory: who it belongs to, how it was left, and the checkpoint files that speak for all of its logs.

Owns the directory's lock and its marker of a clean shutdown. Which logs are in it is known to `LogManager`, which
drives it and hands them in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.errors import StartupError
from ottla.log import checkpoints, files
from ottla.log.checkpoint_files import CheckpointFile
from ottla.log.log import Log
from ottla.runtime.seams import Disk


class LogDirectory:
    __slots__ = (
        "_disk",
        "_failed",
        "_release",
        "cleaner_offsets",
        "for_topics",
        "high_watermarks",
        "log_starts",
        "path",
        "previous_broker_epoch",
        "properties",
        "recovery_points",
        "was_clean",
    )

    def __init__(self, disk: Disk, path: str, *, for_topics: bool = True) -> None:
        self._disk = disk
        self.path = path
        self.for_topics = for_topics
        self._failed = False
        self.properties: checkpoints.MetaProperties | None = None
        self.was_clean = False
        self.previous_broker_epoch = -1
        """From the marker of the last clean shutdown: the proof that a returning broker shows (KIP-966)."""
        self.recovery_points = CheckpointFile(disk, f"{path}/{files.RECOVERY_POINT_CHECKPOINT}")
        self.log_starts = CheckpointFile(disk, f"{path}/{files.LOG_START_CHECKPOINT}")
        self.high_watermarks = CheckpointFile(disk, f"{path}/{files.HIGH_WATERMARK_CHECKPOINT}")
        self.cleaner_offsets = CheckpointFile(disk, f"{path}/{files.CLEANER_CHECKPOINT}")
        self._release: Callable[[], None] | None = None

    @property
    def offline(self) -> bool:
        return self._failed or any(
            file.failed for file in (self.recovery_points, self.log_starts, self.high_watermarks, self.cleaner_offsets)
        )

    @property
    def failed(self) -> bool:
        """Was `fail` called?"""
        return self._failed

    def fail(self) -> None:
        """The disk under it failed: nothing here is tried again until the node starts anew."""
        self._failed = True

    def lock(self) -> None:
        self._disk.make_dirs(self.path)
        try:
            self._release = self._disk.lock(f"{self.path}/{files.LOCK}")
        except BlockingIOError:
            raise in_use(self.path) from None

    def unlock(self) -> None:
        if self._release is not None:
            self._release()
            self._release = None

    # The marker of a clean shutdown.

    def read_marker(self) -> bool:
        """Was there one? Then `was_clean` and `previous_broker_epoch` say what it says."""
        try:
            marker = self._disk.read_file(f"{self.path}/{files.CLEAN_SHUTDOWN}")
        except FileNotFoundError:
            return False
        self.was_clean = True
        self.previous_broker_epoch = checkpoints.decode_clean_shutdown(marker)
        return True

    def take_marker(self) -> None:
        """Read it, once: it is gone afterwards."""
        if self.read_marker():
            self._disk.remove(f"{self.path}/{files.CLEAN_SHUTDOWN}")
            self._disk.sync_dir(self.path)

    def write_marker(self, broker_epoch: int) -> None:
        marker = checkpoints.encode_clean_shutdown(broker_epoch)
        self._disk.write_atomically(f"{self.path}/{files.CLEAN_SHUTDOWN}", marker)

    # Checkpoints: each is a write for later, of how these logs, all that are in here, stand now.

    def prepare_checkpoints(self, logs: list[Log]) -> list[Callable[[], None]]:
        """All but how far they are compacted, which moves with compaction alone."""
        return [self.prepare_recovery_points(logs), self.prepare_log_starts(logs), self.prepare_high_watermarks(logs)]

    def prepare_recovery_points(self, logs: Iterable[Log]) -> Callable[[], None]:
        return self.recovery_points.prepare({log.topic_partition: log.recovery_point for log in logs})

    def prepare_log_starts(self, logs: Iterable[Log]) -> Callable[[], None]:
        """Also where the first segment's name tells the same: a power loss may bring back a segment before it."""
        return self.log_starts.prepare(
            {log.topic_partition: log.log_start_offset for log in logs if log.log_start_offset > 0}
        )

    def prepare_high_watermarks(self, logs: Iterable[Log]) -> Callable[[], None]:
        return self.high_watermarks.prepare({log.topic_partition: log.high_watermark for log in logs})

    def prepare_cleaner_offsets(self, logs: Iterable[Log]) -> Callable[[], None]:
        return self.cleaner_offsets.prepare(
            {log.topic_partition: log.first_dirty_offset for log in logs if log.first_dirty_offset is not None}
        )


def in_use(path: str) -> StartupError:
    return StartupError(f"{path} is in use by another node: stop that one, or give this one a directory of its own")
