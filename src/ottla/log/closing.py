"""The last writes of a log that is closed cleanly, so that a start after it reads no batch; called by `Log`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log import files, rolling

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.runtime.seams import Disk


def write_out(log: Log, now_ms: int) -> None:
    """Everything that is held in memory, and then a flush. What did not change since it was loaded is not written."""
    log.settle_swap(now_ms)
    disk, active = log._disk, log._active
    if active.preallocated:
        active.trim()
        log.cut_unsynced = True
    if log.log_end_offset > (log.snapshots.offsets[-1] if log.snapshots.offsets else log.log_start_offset):
        rolling.take_snapshot(log, log.log_end_offset)
    active.note_largest_timestamp()
    for suffix, data in active.encode_indexes():
        if not log._loaded_clean or _differs(disk, active.path(suffix), data):
            _write(disk, active.path(suffix), data, sync=bool(data))
            log._new_files = True
    if not active.aborted:
        disk.remove(active.path(files.TXN_INDEX))
    if log._epochs_file is None:
        # An empty log's is not worth a sync: if it is lost, there are no epochs to find.
        log._epochs_file = log.epochs.encode(log.log_start_offset)
        _write(disk, f"{log.directory}/{files.LEADER_EPOCH_CHECKPOINT}", log._epochs_file, sync=False)
        log._new_files = log.epochs.dirty = True
    log.flush(now_ms, sync_parent=False)


def _differs(disk: Disk, path: str, data: bytes) -> bool:
    try:
        return disk.read_file(path) != data
    except FileNotFoundError:
        return True


def _write(disk: Disk, path: str, data: bytes, *, sync: bool) -> None:
    file = disk.open(path, create=True)
    try:
        file.truncate(len(data))
        file.write(0, data)
        if sync:
            file.sync()
    finally:
        file.close()
