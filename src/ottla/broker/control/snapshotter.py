"""Writes snapshots of the metadata, and lets the log before them go. Every node does, whatever its role.

A snapshot is due when enough has been appended since the last one, or enough time has passed with anything appended at
all. It is encoded and written off the loop: the image never changes. Older snapshots, and the log before the oldest
that stays, go when the directory has grown beyond its bounds; one snapshot always stays, and the log begins exactly at
the end of one.
"""

from __future__ import annotations

import asyncio
from functools import partial

from ottla.broker.control.raft_driver import RaftDriver
from ottla.errors import KafkaError, Malformed
from ottla.metadata.images import MetadataImage
from ottla.metadata.records import encode_record
from ottla.metadata.snapshot import image_records
from ottla.raft.checkpoint import SnapshotId, encode_checkpoint
from ottla.runtime.seams import DiskError, Runtime


class Snapshotter:
    def __init__(
        self,
        *,
        runtime: Runtime,
        raft: RaftDriver,
        bytes_between: int,
        interval_ms: int,
        retention_bytes: int,
        retention_ms: int,
    ) -> None:
        """`interval_ms` 0 leaves the bytes alone to decide; negative retentions are without limit."""
        self._runtime = runtime
        self._raft = raft
        self._bytes_between = bytes_between
        self._interval_ms = interval_ms
        self._retention_bytes = retention_bytes
        self._retention_ms = retention_ms
        self._last_offset = -1
        self._last_bytes = 0
        self._last_ms = 0
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def on_loaded(self, latest: SnapshotId | None, now_ms: int) -> None:
        """The log goes on from `latest`, which was read from the disk or fetched."""
        self._last_offset = -1 if latest is None else latest.end_offset - 1
        self._last_bytes = 0
        self._last_ms = now_ms

    def maybe_start(self, image: MetadataImage) -> None:
        """`image` has been committed; called after every commit."""
        if self._task is not None or self._stopped or image.last_offset <= self._last_offset:
            return
        now_ms = self._runtime.clock.wall_ms()
        grown = self._raft.log.size_bytes() - self._last_bytes
        if grown >= self._bytes_between or (self._interval_ms > 0 and now_ms - self._last_ms >= self._interval_ms):
            self._task = asyncio.get_running_loop().create_task(self._run(image, now_ms), name="metadata-snapshot")

    async def _run(self, image: MetadataImage, now_ms: int) -> None:
        try:
            await self.write(image, now_ms)
        except DiskError:
            # Nothing is lost: the log is whole. A disk that is really gone fails the next append.
            self._last_ms = now_ms
        finally:
            self._task = None

    async def write(self, image: MetadataImage, now_ms: int) -> SnapshotId:
        """Write a snapshot of `image` now."""
        machine, store = self._raft.machine, self._raft.metadata_log.snapshots
        offset, epoch, timestamp_ms = image.provenance
        snapshot = SnapshotId(offset + 1, epoch)
        if snapshot in store.sizes:
            return snapshot
        voters = machine.voters.at(snapshot.end_offset)
        level = machine.kraft_version

        def work() -> int:
            return store.write(
                snapshot,
                encode_checkpoint(
                    (encode_record(record) for record in image_records(image)),
                    last_contained_log_timestamp=timestamp_ms,
                    now_ms=now_ms,
                    kraft_version=level,
                    voters=voters,
                ),
            )

        before = self._raft.log.size_bytes()
        size = await self._runtime.offload.run(work)
        if snapshot.end_offset < self._raft.log.log_start_offset:
            # A newer one was fetched meanwhile, and the log begins with that.
            await self._runtime.offload.run(partial(store.remove, snapshot))
            return snapshot
        store.on_added(snapshot, size)
        self._last_offset, self._last_ms = offset, now_ms
        await self._clean(now_ms)
        self._last_bytes = min(before, self._raft.log.size_bytes())
        self._raft.on_snapshot_taken(snapshot)
        return snapshot

    async def _clean(self, now_ms: int) -> None:
        log, store = self._raft.log, self._raft.metadata_log.snapshots
        run = self._runtime.offload.run
        while len(store.sizes) > 1:
            oldest, following = list(store.sizes)[:2]
            if not await self._is_too_much(oldest, now_ms):
                break
            if following.end_offset > log.high_watermark or list(store.sizes)[:2] != [oldest, following]:
                return
            try:
                # The log first: a snapshot must not go while the log still begins with it.
                log.advance_log_start(following.end_offset)
                log.delete_expired(now_ms)
                log.delete_detached(now_ms)
            except KafkaError:
                return
            store.on_removed(oldest)
            await run(partial(store.remove, oldest))
        for remove in log.begin_removal(now_ms):
            await run(remove)

    async def _is_too_much(self, oldest: SnapshotId, now_ms: int) -> bool:
        store = self._raft.metadata_log.snapshots
        if 0 <= self._retention_bytes < self._raft.log.size_bytes() + sum(store.sizes.values()):
            return True
        if self._retention_ms < 0:
            return False
        try:
            checkpoint = await self._runtime.offload.run(partial(store.read, oldest))
        except Malformed:
            return True  # Nobody can use it.
        return self._retention_ms < now_ms - checkpoint.last_contained_log_timestamp

    async def stop(self) -> None:
        self._stopped = True
        if self._task is not None:
            await self._task
