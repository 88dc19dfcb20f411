"""All logs of a node, in one or several log directories, and the files that speak for a whole directory.

Owns the logs: creates, loads, retires and removes them, and tells each directory (`log_directory`) when to write what
it says of all that are in it. Driven by the node at start and stop, and by timers in between, which call what is due. A
directory whose disk failed is offline until the node starts again; the others go on.

The marker of a clean shutdown is honest: it is written last, after every log of its directory was closed and the
checkpoints were written, and it is gone, for good, before the first append.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from random import Random

from ottla.errors import ErrorCode, KafkaError, StartupError
from ottla.log import checkpoints, files, future_logs
from ottla.log.checkpoint_files import PendingWork
from ottla.log.epochs import LeaderEpochCache
from ottla.log.index_cache import IndexCache
from ottla.log.log import Log
from ottla.log.log_config import LogConfig
from ottla.log.log_directory import LogDirectory
from ottla.log.producers import DEFAULT_EXPIRATION_MS, DEFAULT_PRODUCERS_MAX, ProducerStates
from ottla.log.recovery import load_log
from ottla.log.segment import Segment
from ottla.log.segments import Segments
from ottla.log.snapshots import SnapshotFiles
from ottla.model import METADATA_TOPIC, METADATA_TOPIC_ID, ZERO_UUID, TopicPartition, Uuid
from ottla.runtime.seams import Disk, DiskError

_log = logging.getLogger(__name__)

METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)


class LogManager:
    def __init__(
        self,
        disk: Disk,
        directories: Iterable[str],
        *,
        random: Random,
        metadata_directory: str | None = None,
        producer_expiration_ms: int = DEFAULT_EXPIRATION_MS,
        producers_max: int = DEFAULT_PRODUCERS_MAX,
        verify_transactions: bool = True,
        index_cache_bytes: int = 64 << 20,
    ) -> None:
        self.disk = disk
        self.random = random
        self._producer_expiration_ms = producer_expiration_ms
        self._producers_max = producers_max
        self._verify_transactions = verify_transactions
        self._cache = IndexCache(index_cache_bytes)
        self.directories = {path: LogDirectory(disk, path) for path in directories}
        if metadata_directory is not None and metadata_directory not in self.directories:
            # `metadata.log.dir` apart from `log.dirs`: locked, identified and closed like them, but not for topics.
            self.directories[metadata_directory] = LogDirectory(disk, metadata_directory, for_topics=False)
        self.logs: dict[TopicPartition, Log] = {}
        """By partition; the metadata log is not among them."""
        self.futures: dict[TopicPartition, Log] = {}
        """Replicas on their way into another directory (`future_logs`), each beside the one in use."""
        self.preferred: dict[TopicPartition, str] = {}
        """Directories that were asked for before there was a log to put there."""
        self.metadata_log: Log | None = None
        self.cordoned: frozenset[str] = frozenset()
        """Directories that get no new logs while there is another (KIP-1066)."""
        self.gone: dict[TopicPartition, int] = {}
        """Logs that were here once and are nowhere now, and how far they were committed."""
        self._missing: dict[tuple[Uuid, int], int] = {}
        """The same of topics that there are still."""
        self.strays: list[str] = []
        """Directories that were set apart as belonging to no partition of this node."""
        self._doomed: list[tuple[int, str]] = []
        """When to remove which retired directory."""
        self._replaced: list[tuple[int, Log]] = []
        """Logs that another has taken the place of, and when to close their files: readers may be at them."""
        self._loaded = False

    # Starting.

    def lock(self) -> None:
        """Take every directory for this process. Raises `StartupError`."""
        taken: list[LogDirectory] = []
        for directory in self.directories.values():
            try:
                directory.lock()
            except StartupError:
                for other in taken:
                    other.unlock()
                raise
            taken.append(directory)

    def read_identities(self) -> list[checkpoints.MetaProperties | None]:
        """Read each directory's `meta.properties`. Raises `StartupError` if two contradict each other."""
        found = []
        for directory in self.directories.values():
            directory.properties = properties = checkpoints.read_meta_properties(self.disk, directory.path)
            found.append(properties)
        known = [properties for properties in found if properties is not None]
        for field in ("cluster_id", "node_id"):
            if len({getattr(properties, field) for properties in known}) > 1:
                raise StartupError(f"the log directories belong to different nodes: their {field} differ")
        if len({properties.directory_id for properties in known}) < len(known):
            raise StartupError("two log directories have the same directory.id: one is a copy of the other")
        return found

    def load(
        self,
        config_of: Callable[[str], LogConfig],
        now_ms: int,
        has_copies: Callable[[TopicPartition], bool] = lambda partition: False,
        is_assigned: Callable[[TopicPartition, Uuid], bool] = lambda partition, directory_id: False,
    ) -> None:
        """Bring back every log; `config_of` gives a topic's, `has_copies` says which have other replicas, and
        `is_assigned` whether the metadata places one in a directory. Blocks, for long after a crash of a large log.

        A directory that cannot be read is offline; raises `StartupError` if that leaves none.
        """
        known: list[tuple[LogDirectory, Mapping[TopicPartition, int]]] = []
        for directory in self.directories.values():
            try:
                known.append((directory, self._load_directory(directory, config_of, now_ms, has_copies)))
            except DiskError as error:
                self.fail_directory(directory.path)
                directory.previous_broker_epoch = -1  # Whatever the marker said: not all of it can be read.
                if all(other.offline for other in self.directories.values()):
                    raise StartupError(f"no log directory can be used: {error.told}") from error
        future_logs.settle(self, is_assigned, now_ms)
        for directory, high_watermarks in known:
            self._look_for_lost(directory, high_watermarks)
        self._loaded = True

    def _load_directory(
        self,
        directory: LogDirectory,
        config_of: Callable[[str], LogConfig],
        now_ms: int,
        has_copies: Callable[[TopicPartition], bool],
    ) -> Mapping[TopicPartition, int]:
        """Returns how far the logs that were here when it was last checkpointed were committed."""
        disk, path = self.disk, directory.path
        disk.make_dirs(path)
        directory.take_marker()
        recovery_points = directory.recovery_points.read()
        log_starts = directory.log_starts.read()
        high_watermarks = directory.high_watermarks.read()
        cleaner_offsets = directory.cleaner_offsets.read()
        for name in disk.list(path):
            if not disk.is_dir(f"{path}/{name}"):
                continue
            if name.endswith(files.DELETE_DIRECTORY):
                self._doomed.append((now_ms, f"{path}/{name}"))
                continue
            if name.endswith(files.STRAY_DIRECTORY):
                self.strays.append(f"{path}/{name}")
                continue
            future = files.parse_future(name)
            partition = files.parse_directory(name) if future is None else future
            if partition is None or partition == METADATA_PARTITION:
                continue
            if future is None and partition in self.logs:
                raise StartupError(
                    f"{partition} is in two log directories, {self.logs[partition].directory} and {path}/{name}: "
                    "remove the older one"
                )
            log = load_log(
                disk,
                f"{path}/{name}",
                partition,
                config_of(partition.topic),
                clean=directory.was_clean,
                log_start_offset=log_starts.get(partition, 0),
                recovery_point=recovery_points.get(partition, 0),
                high_watermark=high_watermarks.get(partition, 0),
                first_dirty_offset=cleaner_offsets.get(partition),
                producers=self._new_producers(),
                cache=self._cache,
                random=self.random,
                now_ms=now_ms,
                has_copies=future is not None or has_copies(partition),
            )
            if log.topic_id == ZERO_UUID and not log.log_end_offset:
                # A crash came between the directory and the identity in it: there never was such a log.
                log.abandon()
                disk.remove_tree(log.directory)
                continue
            if future is None and (log.cut_at_load or log.lacks_committed):
                # The marker said that everything is there, and it is not: it proves nothing any more (KIP-966). The
                # controller then takes this broker's replicas out of the in-sync sets until they have caught up.
                directory.previous_broker_epoch = -1
            if future is None:
                self._adopt(log)
            elif partition in self.futures:
                # The move was given another target, and a crash came before the first was taken back.
                self.retire_directory(log, now_ms)
            else:
                future_logs.adopt(self, log)
        if not directory.was_clean:
            # What was recovered is flushed; the next start need not read it again, whatever happens now. Writing the
            # checkpoints also syncs the directory.
            logs = self._in(directory)
            directory.prepare_recovery_points(logs)()
            directory.prepare_log_starts(logs)()
        return high_watermarks

    def _look_for_lost(self, directory: LogDirectory, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Logs that were here when the marker was written, and are nowhere now: whoever removed them, a replica without
        its records is not to be taken for one that has everything, as if it had lost only some of them (E16)."""
        lost = [partition for partition, offset in high_watermarks.items() if offset > 0 and partition not in self.logs]
        self.gone.update((partition, high_watermarks[partition]) for partition in lost)
        if lost and directory.was_clean:
            directory.previous_broker_epoch = -1
            _log.error(
                "%d logs of %s are gone, and are to be copied from other replicas: %s",
                len(lost),
                directory.path,
                ", ".join(map(str, lost[:10])),
            )

    def identify_gone(self, topic_id_of: Callable[[TopicPartition], Uuid | None]) -> None:
        """Which topics the logs were of that are gone, as the metadata says: it may be another of that name that is
        created later, and lacks nothing."""
        for partition, high_watermark in self.gone.items():
            topic_id = topic_id_of(partition)
            if topic_id is not None:
                self._missing[topic_id, partition.partition] = high_watermark

    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch of the last shutdown if it was clean in every directory and `load` found all that it should
        have left; -1 otherwise. To be asked after `load`."""
        return min(directory.previous_broker_epoch for directory in self.directories.values())

    def _new_producers(self) -> ProducerStates:
        return ProducerStates(
            expiration_ms=self._producer_expiration_ms,
            verify_transactions=self._verify_transactions,
            producers_max=self._producers_max,
        )

    def _adopt(self, log: Log) -> None:
        log.before_truncation = self.before_truncation
        self.logs[log.topic_partition] = log

    def before_truncation(self, log: Log, high_watermark_fell: bool) -> None:
        directory = self.directories[_parent(log.directory)]
        logs = self._in(directory)
        directory.prepare_recovery_points(logs)()
        if log.first_dirty_offset == log.recovery_point:
            directory.prepare_cleaner_offsets(logs)()
        if high_watermark_fell:
            directory.prepare_high_watermarks(logs)()

    def load_metadata_log(self, directory: str, config: LogConfig, now_ms: int) -> Log:
        """The log of `__cluster_metadata` in `directory`, made if it is not there. Comes before `load`: it says which
        topics there are, and their configs.

        It has no checkpoints: its start follows its snapshots, and after a crash all of it is read. Whoever reads it
        says so (`accept_metadata_log`) before anything is written. Raises `StartupError` where it was closed cleanly
        and is not all there: this node has told others that it keeps it.
        """
        path = f"{directory}/{METADATA_PARTITION}"
        known = self.directories.get(directory)
        if known is not None:
            known.read_marker()
        if self.disk.is_dir(path):
            log = load_log(
                self.disk,
                path,
                METADATA_PARTITION,
                config,
                clean=known is not None and known.was_clean,
                producers=self._new_producers(),
                cache=self._cache,
                random=self.random,
                now_ms=now_ms,
                must_be_whole=True,
            )
            self.disk.sync_dir(directory)
            if log.topic_id != METADATA_TOPIC_ID:
                self._write_identity(path, METADATA_TOPIC_ID)
                log.topic_id = METADATA_TOPIC_ID
        else:
            log = self.create_in(path, METADATA_PARTITION, METADATA_TOPIC_ID, config, now_ms)
        self.metadata_log = log
        return log

    def accept_metadata_log(self) -> None:
        """It was read, and is what was written. Only now does the marker of the last shutdown go: where it is not, and
        the node refuses to start, the next start must refuse as well, and not take the log for one that a crash left
        and cut it where it is damaged."""
        assert self.metadata_log is not None
        known = self.directories.get(_parent(self.metadata_log.directory))
        if known is not None:
            known.take_marker()

    # Logs come and go.

    def place(self, partition: TopicPartition) -> str:
        """Where a new log would go: to the online directory that holds the fewest and is not cordoned, unless an
        earlier wish (`preferred`) names one."""
        preferred = self.preferred.pop(partition, None)
        if preferred is not None and not self.directories[preferred].offline:
            return preferred
        online = [path for path, known in self.directories.items() if known.for_topics and not known.offline]
        if not online:
            raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "Every log directory is offline.")
        online = [path for path in online if path not in self.cordoned] or online[:1]
        counts = dict.fromkeys(online, 0)
        if len(online) > 1:
            for log in self.logs.values():
                counts[_parent(log.directory)] = counts.get(_parent(log.directory), 0) + 1
        return min(online, key=counts.__getitem__)

    def create(
        self, partition: TopicPartition, topic_id: Uuid, config: LogConfig, now_ms: int, *, directory: str | None = None
    ) -> Log:
        """A new, empty log, in `directory` or where it is to be placed."""
        assert partition not in self.logs
        if directory is None:
            directory = self.place(partition)
        log = self.create_in(f"{directory}/{partition}", partition, topic_id, config, now_ms)
        log.missing_until = self._missing.pop((topic_id, partition.partition), 0)
        self._adopt(log)
        return log

    def create_in(self, path: str, partition: TopicPartition, topic_id: Uuid, config: LogConfig, now_ms: int) -> Log:
        """Three files' worth of work and no sync: a topic may have a thousand partitions. The first flush syncs."""
        disk = self.disk
        disk.make_dirs(path)
        self._write_identity(path, topic_id)
        segment = Segment.create(disk, path, 0, config, self.random, now_ms)
        return Log(
            disk,
            path,
            partition,
            topic_id,
            config,
            segments=Segments([segment], self._cache),
            log_start_offset=0,
            log_end_offset=0,
            recovery_point=0,
            high_watermark=0,
            epochs=LeaderEpochCache(),
            epochs_file=None,
            producers=self._new_producers(),
            snapshots=SnapshotFiles(disk, path),
            random=self.random,
            now_ms=now_ms,
            unsealed_from=0,
            new=True,
        )

    def _write_identity(self, path: str, topic_id: Uuid) -> None:
        file = self.disk.open(f"{path}/{files.PARTITION_METADATA}", create=True)
        try:
            file.write(0, checkpoints.encode_partition_metadata(topic_id))
        finally:
            file.close()

    def delete(self, partitions: Iterable[TopicPartition], now_ms: int) -> PendingWork:
        """Retire logs for good: their directories are renamed at once and removed after `file.delete.delay.ms`.

        The work makes that durable, and must have run before a log of the same name is created: then a new one finds
        nothing of the old one, not even in the checkpoints.
        """
        return self._retire(partitions, files.DELETE_DIRECTORY, now_ms)

    def set_apart(self, partitions: Iterable[TopicPartition], now_ms: int) -> PendingWork:
        """Rename the directories of logs that the metadata does not place here to strays, and keep their data."""
        return self._retire(partitions, files.STRAY_DIRECTORY, now_ms)

    def _retire(self, partitions: Iterable[TopicPartition], suffix: str, now_ms: int) -> PendingWork:
        touched: dict[str, None] = {}
        compacted: set[str] = set()
        for partition in partitions:
            log = self.logs.pop(partition)
            log.abandon()
            parent = _parent(log.directory)
            if (future := self.futures.pop(partition, None)) is not None:
                # It is nobody's future any more. Were its directory to stay, a start would take it for the log.
                self.retire_directory(future, now_ms)
                touched[_parent(future.directory)] = None
            if self.directories[parent].offline:
                continue
            target = self.retired_path(log, suffix)
            self.disk.rename(log.directory, target)
            if suffix == files.DELETE_DIRECTORY:
                self._doomed.append((now_ms + log.config.file_delete_delay_ms, target))
            else:
                self.strays.append(target)
            touched[parent] = None
            if log.first_dirty_offset is not None:
                compacted.add(parent)
        steps: list[Callable[[], None]] = []
        for parent in touched:
            # The first checkpoint written syncs the directory, and so the renames.
            directory = self.directories[parent]
            logs = self._in(directory)
            steps += directory.prepare_checkpoints(logs)
            if parent in compacted:
                steps.append(directory.prepare_cleaner_offsets(logs))
        return PendingWork(steps)

    def doom_replaced(self, log: Log, directory: str, now_ms: int) -> None:
        """Another has taken the place of `log`, whose directory is called `directory` now: both go later."""
        log.set_aside()
        remove_at_ms = now_ms + log.config.file_delete_delay_ms
        self._doomed.append((remove_at_ms, directory))
        self._replaced.append((remove_at_ms, log))

    def retire_directory(self, log: Log, now_ms: int) -> None:
        """Close a log and rename its directory, so that it is removed later: the caller makes that durable."""
        log.abandon()
        parent = _parent(log.directory)
        if not self.directories[parent].offline:
            target = self.retired_path(log)
            self.disk.rename(log.directory, target)
            self._doomed.append((now_ms + log.config.file_delete_delay_ms, target))

    def retired_path(self, log: Log, suffix: str = files.DELETE_DIRECTORY) -> str:
        return f"{_parent(log.directory)}/{files.retired_name(log.topic_partition, suffix, self.random)}"

    def fail_directory(self, path: str) -> list[TopicPartition]:
        """The disk under `path` failed: its logs are offline until the node starts again. Which they are."""
        self.directories[path].fail()
        for partition, future in list(self.futures.items()):
            if _parent(future.directory) == path:
                self.futures.pop(partition).abandon()
        lost = [partition for partition, log in self.logs.items() if _parent(log.directory) == path]
        for partition in lost:
            self.logs[partition].abandon()
        return lost

    # What timers call.

    def begin_retention(self, now_ms: int) -> PendingWork:
        """Give up what the topics' retention says. The work, which blocks, puts the new log starts on the disk; only
        then may `finish_retention` take files away: a deletion that a power loss half undoes leaves no hole above them.
        """
        parents: dict[str, None] = {}
        for log in self.logs.values():
            if log.delete_expired(now_ms):
                parents[_parent(log.directory)] = None
        directories = [self.directories[parent] for parent in parents]
        return PendingWork(directory.prepare_log_starts(self._in(directory)) for directory in directories)

    def finish_retention(self, now_ms: int) -> int:
        """Mark the files of what was given up as deleted; how many segments went."""
        return sum(log.delete_detached(now_ms) for log in self.logs.values() if not log.offline)

    def apply_retention(self, now_ms: int) -> int:
        """Both halves at once. Blocks if anything goes."""
        self.begin_retention(now_ms).run()
        return self.finish_retention(now_ms)

    def begin_removal(self, now_ms: int) -> PendingWork:
        """What takes away the files and directories whose delay is over."""
        for _, replaced in [item for item in self._replaced if item[0] <= now_ms]:
            replaced.abandon()
        self._replaced = [item for item in self._replaced if item[0] > now_ms]
        steps = [step for log in self.logs.values() for step in log.begin_removal(now_ms)]
        steps += [partial(_remove_log, self.disk, path) for at, path in self._doomed if at <= now_ms]
        self._doomed = [item for item in self._doomed if item[0] > now_ms]
        return PendingWork(steps)

    def remove_deleted(self, now_ms: int) -> None:
        """The same, here and now. Blocks for as long as that takes."""
        self.begin_removal(now_ms).run()

    def set_producer_expiration(self, expiration_ms: int) -> None:
        """For every log, those to come as well."""
        self._producer_expiration_ms = expiration_ms
        for log in (*self.logs.values(), *self.futures.values()):
            log.producers.expiration_ms = expiration_ms

    def set_transaction_verification(self, enabled: bool) -> None:
        """For every log, those to come as well."""
        self._verify_transactions = enabled
        for log in (*self.logs.values(), *self.futures.values()):
            log.producers.verify_transactions = enabled

    def expire_producers(self, now_ms: int) -> int:
        return sum(log.producers.remove_expired(now_ms) for log in self.logs.values() if not log.offline)

    # Checkpoints.

    def prepare_checkpoints(self) -> PendingWork:
        """Every checkpoint of every online directory, as of now."""
        return PendingWork(
            step for directory in self._online() for step in directory.prepare_checkpoints(self._in(directory))
        )

    def prepare_checkpoints_of(self, path: str) -> PendingWork:
        """Those of one directory, as of now; nothing if it is offline."""
        directory = self.directories[path]
        if directory.offline:
            return PendingWork([])
        logs = self._in(directory)
        return PendingWork([*directory.prepare_checkpoints(logs), directory.prepare_cleaner_offsets(logs)])

    def prepare_recovery_point_checkpoints(self) -> PendingWork:
        return PendingWork(directory.prepare_recovery_points(self._in(directory)) for directory in self._online())

    def prepare_log_start_checkpoints(self) -> PendingWork:
        return PendingWork(directory.prepare_log_starts(self._in(directory)) for directory in self._online())

    def prepare_high_watermark_checkpoints(self) -> PendingWork:
        return PendingWork(directory.prepare_high_watermarks(self._in(directory)) for directory in self._online())

    def prepare_cleaner_checkpoint(self, log: Log) -> PendingWork:
        """How far the logs of `log`'s directory are compacted."""
        directory = self.directories[_parent(log.directory)]
        return PendingWork([directory.prepare_cleaner_offsets(self._in(directory))])

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories.values() if not directory.offline]

    def _in(self, directory: LogDirectory) -> list[Log]:
        if len(self.directories) == 1:
            return list(self.logs.values())
        logs = [*self.logs.values(), *self.futures.values()]
        return [log for log in logs if _parent(log.directory) == directory.path]

    # Stopping.

    def close(self, now_ms: int, broker_epoch: int = -1) -> None:
        """Shut down cleanly: close every log, write the checkpoints, and last, where all went well, the marker.

        No flush may be under way. Blocks. Where a log cannot be closed, or was never loaded, there is no marker, and
        the next start recovers.
        """
        for directory in self.directories.values():
            honest = self._loaded
            for log in self._in(directory):
                honest = _close(log, now_ms) and honest
            metadata_log = self.metadata_log
            if metadata_log is not None and _parent(metadata_log.directory) == directory.path:
                honest = _close(metadata_log, now_ms) and honest
            if not self._loaded or directory.offline:
                continue
            try:
                for write in directory.prepare_checkpoints(self._in(directory)):
                    write()
                if honest:
                    directory.write_marker(broker_epoch)
            except DiskError:
                directory.fail()
        metadata_log = self.metadata_log
        if metadata_log is not None and _parent(metadata_log.directory) not in self.directories:
            _close(metadata_log, now_ms)
            self.disk.sync_dir(_parent(metadata_log.directory))
        for _, replaced in self._replaced:
            replaced.abandon()
        for directory in self.directories.values():
            directory.unlock()


def _close(log: Log, now_ms: int) -> bool:
    if log.offline:
        log.abandon()
        return False
    try:
        log.close(now_ms)
    except KafkaError:
        log.abandon()
        return False
    return True


def _remove_log(disk: Disk, directory: str) -> None:
    if disk.exists(directory):
        for name in disk.list(directory):
            disk.forget_pages(f"{directory}/{name}")
    disk.remove_tree(directory)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
