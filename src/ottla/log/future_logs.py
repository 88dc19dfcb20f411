"""A replica on its way into another log directory of its node: the future log, and how it becomes the log (KIP-113).

The future log lies in its new log directory under a name of its own (`topic-0.<id>-future`) and is filled from the log
in use by `broker/upkeep/directory_moves`. Then it takes over. The order makes every moment one that a start can deal
with: all of the future log is on the disk, with its checkpoints; the log in use loses its name; only then, and after
that is durable, does the future log get it. So there are never two logs of one name, and a start that finds a future
log alone knows that it had won.

Called by `LogManager` and by `broker/upkeep/directory_moves`; a failed disk is theirs to deal with.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.log import files
from ottla.log.checkpoint_files import PendingWork
from ottla.model import TopicPartition, Uuid
from ottla.runtime.seams import DiskError

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.manager import LogManager

_log = logging.getLogger(__name__)


def begin(manager: LogManager, partition: TopicPartition, directory: str, now_ms: int) -> Log:
    """An empty log in `directory`, which begins where the one in use does."""
    current = manager.logs[partition]
    assert partition not in manager.futures
    assert directory != parent(current)
    path = f"{directory}/{files.future_name(partition, manager.random)}"
    log = manager.create_in(path, partition, current.topic_id, current.config, now_ms)
    if current.log_start_offset:
        log.truncate_fully_and_start_at(current.log_start_offset, now_ms=now_ms)
    adopt(manager, log)
    return log


def adopt(manager: LogManager, log: Log) -> None:
    log.before_truncation = manager.before_truncation
    manager.futures[log.topic_partition] = log


def give_up(manager: LogManager, partition: TopicPartition, now_ms: int) -> PendingWork:
    """Take the future log back. The work makes that durable."""
    future = manager.futures.pop(partition)
    manager.retire_directory(future, now_ms)
    return manager.prepare_checkpoints_of(parent(future))


def take_over(manager: LogManager, partition: TopicPartition, now_ms: int) -> PendingWork:
    """Make the future log, which holds all that the log in use does, the log of the partition. Blocks.

    The checkpoints of its directory must have been written since its log start last moved. The work, which may run
    later, takes the old log out of those of the other.
    """
    current, future = manager.logs[partition], manager.futures[partition]
    assert (current.log_start_offset, current.log_end_offset) == (future.log_start_offset, future.log_end_offset)
    future.flush(now_ms)
    disk, source = manager.disk, parent(current)
    retired = manager.retired_path(current)
    disk.rename(current.directory, retired)
    disk.sync_dir(source)
    try:
        _give_name(manager, future)
    except DiskError:
        # The new disk failed, not the old one: all is there still. There must not be two of one name, if that can be
        # helped.
        future.offline = True
        if disk.is_dir(named := f"{parent(future)}/{partition}"):
            with suppress(DiskError):
                disk.rename(named, future.directory)
        disk.rename(retired, current.directory)
        disk.sync_dir(source)
        raise
    manager.doom_replaced(current, retired, now_ms)
    return PendingWork([manager.prepare_checkpoints_of(parent(log)).run for log in (current, future)])


def settle(manager: LogManager, is_assigned: Callable[[TopicPartition, Uuid], bool], now_ms: int) -> None:
    """At a start, after all logs were loaded: which future logs go on, which have won, and which are nobody's.

    One without a log beside it has won, if every directory could be read; if one could not, the log may be there, and
    only the metadata tells (KIP-858).
    """
    all_there = not any(directory.offline for directory in manager.directories.values())
    for partition, future in list(manager.futures.items()):
        current = manager.logs.get(partition)
        if current is not None:
            if current.topic_id != future.topic_id:
                give_up(manager, partition, now_ms).run()
            continue
        properties = manager.directories[parent(future)].properties
        if all_there or (properties is not None and is_assigned(partition, properties.directory_id)):
            _log.info("%s takes the place of the log that it was copied from", future.directory)
            _give_name(manager, future)
            manager.prepare_checkpoints_of(parent(future)).run()


def parent(log: Log) -> str:
    """The log directory that it is in."""
    return log.directory.rpartition("/")[0]


def _give_name(manager: LogManager, future: Log) -> None:
    partition = future.topic_partition
    directory = parent(future)
    manager.disk.rename(future.directory, f"{directory}/{partition}")
    manager.disk.sync_dir(directory)
    future.on_moved(f"{directory}/{partition}")
    manager.logs[partition] = manager.futures.pop(partition)
