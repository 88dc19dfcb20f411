"""How the leader epochs of a log reach the disk (`leader-epoch-checkpoint`): called by `Log` and by what changes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log import files

if TYPE_CHECKING:
    from ottla.log.log import Log


def begin(log: Log, leader_epoch: int, first_offset: int) -> None:
    """The first batch of an epoch is about to be written."""
    if leader_epoch < 0:
        return
    if log.cut_unsynced:
        log.settle_cut()
    log.epochs.assign(leader_epoch, first_offset)
    log.epochs.dirty = True
    if log.recovery_point > log.log_start_offset and log._flush is None:
        # On flushed data the entry goes first (KAFKA-16541). On a log of which nothing is flushed recovery reads every
        # header anyway, so that a new partition's first append need not wait for the disk. A flush under way may be
        # writing the file; the next one writes it again, and only then moves the recovery point on.
        write(log, first_offset + 1)
    log._settled_epoch = leader_epoch


def settle(log: Log) -> None:
    """The epochs were changed: which of them appends need not look at any more."""
    latest = log.epochs.latest_epoch
    log._settled_epoch = -1 if latest is None or log.cut_unsynced else latest


def write(log: Log, end_offset: int) -> None:
    data = changed(log, end_offset)
    if data is not None:
        log._disk.write_atomically(f"{log.directory}/{files.LEADER_EPOCH_CHECKPOINT}", data)


def changed(log: Log, end_offset: int) -> bytes | None:
    """What the checkpoint is to hold, if that is not what it holds; the caller writes it."""
    if not log.epochs.dirty:
        return None
    log.epochs.dirty = False
    data = log.epochs.encode(end_offset)
    if data == log._epochs_file:
        return None
    log._epochs_file = data
    return data
