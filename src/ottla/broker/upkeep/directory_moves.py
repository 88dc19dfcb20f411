"""Moves replicas between the log directories of this node, while they are in use (KIP-113).

A copy of the log is made in the new directory (`log/future_logs`), follows the log in use as a follower does its
leader, by the same machine (`partition/follower`), and takes its place once it has everything and the metadata knows
(`partition/directory_move`). Clients notice nothing. A node that starts in the middle goes on where it was.

One task copies for all moves in turn, a piece at a time, within `replica.alter.log.dirs.io.max.bytes.per.second`; it is
there only while there is something to move. Driven by AlterReplicaLogDirs and by metadata.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.hosted import HostedPartition
from ottla.broker.replication.throttle import ReplicationThrottle
from ottla.errors import ErrorCode, KafkaError
from ottla.log import Log, future_logs
from ottla.metadata.features import has_directory_assignment
from ottla.metadata.images import MetadataImage
from ottla.model import TopicPartition, Uuid
from ottla.partition.directory_move import DirectoryMove, MoveStep
from ottla.partition.divergence import diverging
from ottla.partition.follower import Append, AskRange, FollowerEffect, PartitionFollower, StartOverAt, TruncateTo
from ottla.runtime import DiskError, FileSpan

if TYPE_CHECKING:
    from ottla.broker.services import Services
    from ottla.metadata.delta import MetadataDelta

_log = logging.getLogger(__name__)

PIECE_BYTES = 1 << 20
"""How much is copied before another move, and everybody else, gets its turn."""
IN_PLACE_BYTES = 1 << 16
"""So little, if it is in memory, is read without a thread: or a partition that is always written to would always be a
little ahead of its copy."""
IDLE_MS = 50
"""How long a copy that has everything waits before it looks for more, unless it is woken."""
BACKOFF_MS = 1_000


class _Move:
    __slots__ = ("directory_id", "follower", "future", "hosted", "machine", "path")

    def __init__(self, hosted: HostedPartition, future: Log, directory_id: Uuid, node_id: int) -> None:
        self.hosted = hosted
        self.future = future
        self.path = future_logs.parent(future)
        self.directory_id = directory_id
        self.machine = DirectoryMove()
        self.follower = PartitionFollower(
            leader_id=node_id, leader_epoch=hosted.leader_epoch, log=future, backoff_ms=BACKOFF_MS
        )


class DirectoryMoves:
    """One instance a node."""

    def __init__(self, services: Services, on_promise: Callable[[HostedPartition], None]) -> None:
        """`on_promise` sees to it that the controller hears what `promised` says of a partition."""
        self._services = services
        self._on_promise = on_promise
        config = services.config
        self._throttle = ReplicationThrottle(
            samples=config.get_int("alter.log.dirs.replication.quota.window.num"),
            window_ms=1000 * config.get_int("alter.log.dirs.replication.quota.window.size.seconds"),
        )
        self._moves: dict[TopicPartition, _Move] = {}
        self._running = False
        self._stopped = False
        self._wakeup = asyncio.Event()

    # What is to be moved.

    def move(self, partition: TopicPartition, directory: str) -> None:
        """Move the replica to `directory`, from wherever it is or is on its way to. Raises `KafkaError`."""
        services = self._services
        hosted = services.replicas.partition(*partition)
        if hosted is not None and hosted.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} is offline.")
        under_way = services.logs.futures.get(partition)
        if under_way is not None and services.parent_dir(under_way) != directory:
            self._give_up(partition)
        if hosted is None:
            if partition not in services.logs.logs:
                # It may be about to come: then it comes to where it is wanted.
                services.logs.preferred[partition] = directory
            raise KafkaError(services.missing_partition(*partition))
        if services.parent_dir(hosted.log) == directory or partition in services.logs.futures:
            return
        try:
            future_logs.begin(services.logs, partition, directory, services.clock.wall_ms())
        except DiskError as error:
            services.fail_directory(directory, error)
            raise
        self._resume()

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta, offset: int) -> None:
        """Told after it was acted upon: what was deleted has no future any more."""
        if self._moves or self._services.logs.futures:
            self._resume()

    def promised(self, partition: TopicPartition) -> Uuid | None:
        """The directory in which the controller is to believe the replica, before it is there."""
        move = self._moves.get(partition)
        return move.directory_id if move is not None and move.machine.promised else None

    def stop(self) -> None:
        """What was copied stays, and is gone on with at the next start."""
        self._stopped = True
        self._wakeup.set()

    def _resume(self) -> None:
        """Take up every future log that nobody sees to."""
        services = self._services
        for partition, future in services.logs.futures.items():
            hosted = services.replicas.partition(*partition)
            properties = services.logs.directories[services.parent_dir(future)].properties
            if partition not in self._moves and hosted is not None and not hosted.offline and properties is not None:
                _log.info("%s moves to %s", partition, services.parent_dir(future))
                self._moves[partition] = _Move(hosted, future, properties.directory_id, services.node_id)
        self._wakeup.set()
        if self._moves and not self._running and not self._stopped:
            self._running = True
            services.spawn(self._run())

    def _give_up(self, partition: TopicPartition) -> None:
        services = self._services
        move = self._moves.pop(partition, None)
        work = future_logs.give_up(services.logs, partition, services.clock.wall_ms())
        services.spawn(self._make_durable(work.run))
        if move is not None and move.machine.promised:
            self._on_promise(move.hosted)

    async def _make_durable(self, work: Callable[[], None]) -> None:
        try:
            await self._services.offload.run(work)
        except DiskError as error:
            _log.error("the checkpoints of a replica that moved are not durable: %s", error)

    # Copying.

    async def _run(self) -> None:
        try:
            while self._moves and not self._stopped:
                self._wakeup.clear()
                progress = False
                for move in list(self._moves.values()):
                    if not self._stopped and self._is_wanted(move):
                        progress |= await self._attempt(move)
                if not progress:
                    await self._pause()
        finally:
            self._running = False

    async def _pause(self) -> None:
        now_ms = self._services.replicas.monotonic_ms()
        wait_ms = self._throttle.wait_ms(now_ms) if self._throttle.is_exceeded(now_ms) else IDLE_MS
        timer = self._services.timers.after(wait_ms, self._wakeup.set)
        await self._wakeup.wait()
        timer.cancel()

    def _is_wanted(self, move: _Move) -> bool:
        """Not if the partition was let go, or a disk has failed: then what was copied is left to the next start."""
        partition = move.hosted.topic_partition
        if self._moves.get(partition) is not move:
            return False
        if move.hosted.forgotten or move.hosted.offline or move.future.offline:
            del self._moves[partition]
            if not move.hosted.forgotten and not move.hosted.offline and move.machine.promised:
                self._on_promise(move.hosted)
            return False
        return True

    async def _attempt(self, move: _Move) -> bool:
        """One step. Was it of use?"""
        try:
            return await self._step(move)
        except DiskError as error:
            # Reads fail where the log is, writes where it is to be.
            if move.future.offline or self._services.logs.directories[move.path].offline:
                self._services.fail_directory(move.path, error)
            elif self._is_wanted(move):
                self._services.replicas.fail(move.hosted, error)
            return True

    async def _step(self, move: _Move) -> bool:
        services = self._services
        now_ms = services.replicas.monotonic_ms()
        self._throttle.rate = services.config.get_int("replica.alter.log.dirs.io.max.bytes.per.second")
        if not move.follower.is_ready(now_ms) or self._throttle.is_exceeded(now_ms):
            return False
        while isinstance(effect := self._ask(move, now_ms), Append):
            log = move.hosted.log
            end_offset = move.future.log_end_offset
            span = log.read(end_offset, max_bytes=PIECE_BYTES, upper_bound=log.log_end_offset)
            if span is None:
                self._follow_bounds(move)
                return await self._on_caught_up(move)
            if span.size > IN_PLACE_BYTES or not services.is_warm(span):
                return await self._copy_by_thread(move, span, now_ms)
            self._append(move, span.file.read(span.position, span.size), now_ms)
            if move.future.log_end_offset == end_offset:
                return False
        return await self._cut(move, effect)

    def _ask(self, move: _Move, now_ms: int) -> FollowerEffect:
        """What the log in use says to a copy that is where this one is."""
        log, follower = move.hosted.log, move.follower
        offset, last_epoch, _ = follower.position
        code, parted = ErrorCode.NONE, None
        if not log.log_start_offset <= offset <= log.log_end_offset:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif last_epoch >= 0:
            try:
                parted = diverging(log, offset, last_epoch)
            except KafkaError as error:
                code = error.code
        effect = follower.on_response(offset, code, parted, now_ms)
        if isinstance(effect, AskRange):
            effect = follower.on_range(log.log_start_offset, log.log_end_offset, now_ms)
        return effect

    async def _copy_by_thread(self, move: _Move, span: FileSpan, now_ms: int) -> bool:
        log = move.hosted.log
        cuts, end_offset = log.cuts, move.future.log_end_offset
        try:
            data = await self._services.offload.run(partial(span.file.read, span.position, span.size))
        except DiskError:
            if log is move.hosted.log and log.read(end_offset, max_bytes=1, upper_bound=log.log_end_offset) == span:
                raise
            return True  # The segment was compacted or deleted, and its file closed, before the read began.
        if not self._is_wanted(move) or log.cuts != cuts or move.future.log_end_offset != end_offset:
            return True
        self._append(move, data, now_ms)
        if move.future.rolled:
            await self._flush(move)
        return move.future.log_end_offset > end_offset

    def _append(self, move: _Move, data: bytes, now_ms: int) -> None:
        try:
            move.future.append_replicated(memoryview(data), self._services.clock.wall_ms())
        except DiskError:
            raise
        except KafkaError as error:
            _log.error("%s cannot be moved: %s", move.hosted.topic_partition, error)
            move.follower.on_corrupt(str(error), now_ms)
            return
        self._throttle.record(len(data), now_ms)
        self._follow_bounds(move)

    def _follow_bounds(self, move: _Move) -> None:
        log, future = move.hosted.log, move.future
        bounds = move.follower.on_appended(log.high_watermark, log.log_start_offset)
        future.update_high_watermark(bounds.high_watermark)
        if bounds.log_start_offset > future.log_start_offset:
            future.advance_log_start(bounds.log_start_offset)

    async def _cut(self, move: _Move, effect: FollowerEffect) -> bool:
        """The log in use was cut, or gave up what the copy does not have yet: so does the copy."""
        match effect:
            case TruncateTo(offset):
                move.future.truncate_to(offset)
            case StartOverAt(offset):
                move.future.truncate_fully_and_start_at(offset, now_ms=self._services.clock.wall_ms())
            case _:
                return False
        if move.future.cut_unsynced:
            await self._flush(move)
        move.follower.on_truncated()
        return True

    async def _flush(self, move: _Move) -> None:
        future = move.future
        flush = future.prepare_flush()
        try:
            await self._services.offload.run(flush.run)
        except BaseException:
            future.on_flush_ended(flush)
            raise
        if future.offline:
            future.on_flush_ended(flush)
        else:
            future.on_flushed(flush, self._services.clock.wall_ms())

    # Taking over.

    async def _on_caught_up(self, move: _Move) -> bool:
        services, future = self._services, move.future
        match move.machine.on_caught_up(assigned=self._is_assigned(move), log_start_offset=future.log_start_offset):
            case MoveStep.PROMISE:
                self._on_promise(move.hosted)
                return False
            case MoveStep.WAIT:
                return False
            case MoveStep.PREPARE:
                log_start_offset = future.log_start_offset
                await self._flush(move)
                await services.offload.run(services.logs.prepare_checkpoints_of(move.path).run)
                move.machine.on_prepared(log_start_offset)
            case MoveStep.TAKE_OVER:
                self._take_over(move)
        return True

    def _is_assigned(self, move: _Move) -> bool:
        image = self._services.image
        if not has_directory_assignment(image.features.metadata_version):
            return True
        return move.hosted.image.directory_of(self._services.node_id) == move.directory_id

    def _take_over(self, move: _Move) -> None:
        """On the loop, though it waits for the disk: nothing must be appended meanwhile, and it is rare."""
        services, partition = self._services, move.hosted.topic_partition
        work = future_logs.take_over(services.logs, partition, services.clock.wall_ms())
        services.replicas.replace_log(move.hosted, move.future)
        del self._moves[partition]
        services.spawn(self._make_durable(work.run))
        _log.info("%s is in %s now", partition, move.path)
