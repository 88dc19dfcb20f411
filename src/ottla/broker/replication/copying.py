"""What an answer means for one partition's log: the effects of its follower machine, carried out.

Owns nothing but the way: the machine decides, the log is changed, and those who wait for the partition are told. What a
leader sent is appended as it came, many batches with one write (`log/replicated`). Driven by `pipeline`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ottla.broker.hosted import HostedPartition
from ottla.broker.replication.session import PartitionKey
from ottla.broker.replication.throttle import ReplicationThrottle
from ottla.client.peer import Peer
from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.instruments import Meter
from ottla.partition.follower import (
    Append,
    AskRange,
    FollowerEffect,
    PartitionFollower,
    StartOverAt,
    Stop,
    TruncateTo,
    Wait,
    is_expected,
)
from ottla.runtime import Clock, DiskError
from ottla.wire.messages.fetch_request import FetchPartition

if TYPE_CHECKING:
    from ottla.broker.replication.pipeline import FetchSettings
    from ottla.wire.messages.fetch_response import PartitionData

_log = logging.getLogger(__name__)


class Replicas(Protocol):
    """What copying needs of the `ReplicaManager`."""

    def flush(self, partition: HostedPartition) -> None: ...

    def fail(self, partition: HostedPartition, error: BaseException) -> None: ...

    def on_follower_advanced(self, partition: HostedPartition) -> None: ...


class Followed:
    """One partition that is copied, in one leader epoch."""

    __slots__ = (
        "asked",
        "entry",
        "follower",
        "key",
        "let_go",
        "partition",
        "settling",
        "throttled",
        "wake",
        "wants_range",
    )

    def __init__(self, partition: HostedPartition, follower: PartitionFollower, *, throttled: bool) -> None:
        self.partition = partition
        self.follower = follower
        self.throttled = throttled
        """Does it count against `follower.replication.throttled.rate`?"""
        self.key = PartitionKey(partition.topic_id, partition.index)
        self.entry = FetchPartition(partition=partition.index)
        """What the leader was last asked."""
        self.asked = 0
        """The first request that asked so; 0 if the leader is not asked for it."""
        self.settling = False
        """Waits for its log to be on the disk."""
        self.wants_range = False
        self.let_go = False
        """It has another leader epoch by now, or is not followed at all."""
        self.wake: Callable[[], None] = lambda: None
        """It may be asked for again."""

    def __repr__(self) -> str:
        return f"{self.partition.topic_partition} in epoch {self.follower.leader_epoch}"


class _Settled:
    """Waits, in line with producers, until a follower's log is on the disk."""

    __slots__ = ("_copier", "_followed", "waiting")

    def __init__(self, copier: Copier, followed: Followed) -> None:
        self._copier = copier
        self._followed = followed
        self.waiting = True

    def on_safe(self, partition: HostedPartition, offset: int) -> None:
        self._copier.on_settled(self._followed)

    def on_lost(self, partition: HostedPartition, offset: int) -> None:
        """It is no longer followed, or its disk failed."""


class Copier:
    """One instance a node."""

    def __init__(
        self, node_id: int, clock: Clock, replicas: Replicas, throttle: ReplicationThrottle, bytes_in: Meter
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._replicas = replicas
        self._throttle = throttle
        self._bytes_in = bytes_in
        self.truncations = 0

    def on_data(self, followed: Followed, data: PartitionData, now_ms: int) -> int:
        """The leader's answer for one partition. How many bytes were appended."""
        follower = followed.follower
        code = ErrorCode(data.error_code)
        diverging = data.diverging_epoch
        effect = follower.on_response(
            followed.entry.fetch_offset,
            code,
            (diverging.epoch, diverging.end_offset) if diverging.epoch >= 0 else None,
            now_ms,
        )
        if isinstance(effect, Append):
            return self._append(followed, data, now_ms)
        if code:
            level = logging.DEBUG if is_expected(code) else logging.WARNING
            _log.log(level, "%r: broker %d answers %s", followed, follower.leader_id, code.name)
        self._carry_out(followed, effect)
        return 0

    def _append(self, followed: Followed, data: PartitionData, now_ms: int) -> int:
        partition, follower = followed.partition, followed.follower
        log, records = partition.log, data.records
        size = 0
        if records:
            view = memoryview(records)
            size = len(view)
            try:
                appended = log.append_replicated(view, self._clock.wall_ms(), leader_epoch=follower.leader_epoch)
            except DiskError as error:
                self._fail(followed, error)
                return 0
            except KafkaError as error:
                _log.error("%r: what broker %d sent cannot be appended: %s", followed, follower.leader_id, error)
                self._carry_out(followed, follower.on_corrupt(str(error), now_ms))
                return 0
            if appended is None:
                reason = "not one whole batch in what it sent"
                self._carry_out(followed, follower.on_corrupt(reason, now_ms))
                return 0
            self._bytes_in.value += size
            if followed.throttled:
                self._throttle.record(size, now_ms)
        bounds = follower.on_appended(data.high_watermark, data.log_start_offset)
        advanced = size > 0
        if bounds.high_watermark != log.high_watermark:
            log.update_high_watermark(bounds.high_watermark)
            advanced = True
        if bounds.log_start_offset > log.log_start_offset:
            log.advance_log_start(bounds.log_start_offset)
            advanced = True
        if advanced:
            self._replicas.on_follower_advanced(partition)
        if size and log.owes_flush:
            # With `flush.messages` we hold a record only after its fsync, and say so with the next fetch.
            self._settle(followed)
        return size

    # Cutting.

    def on_range(self, followed: Followed, start: int | ErrorCode, end: int | ErrorCode, now_ms: int) -> None:
        """The leader's log start and end, or the error that it answered instead."""
        followed.wants_range = False
        follower = followed.follower
        if isinstance(end, ErrorCode):
            effect = follower.on_error(end, now_ms)
        elif isinstance(start, ErrorCode):
            effect = follower.on_error(start, now_ms)
        else:
            effect = follower.on_range(start, end, now_ms)
        self._carry_out(followed, effect)

    def _carry_out(self, followed: Followed, effect: FollowerEffect) -> None:
        match effect:
            case TruncateTo(offset):
                self._cut(followed, offset, start_over=False)
            case StartOverAt(offset):
                self._cut(followed, offset, start_over=True)
            case AskRange():
                followed.wants_range = True
            case Stop(reason):
                _log.error("%r is not copied any more: %s", followed, reason)
            case Wait() | _:
                pass

    def _cut(self, followed: Followed, offset: int, *, start_over: bool) -> None:
        log = followed.partition.log
        level = logging.WARNING if offset < log.high_watermark else logging.INFO
        _log.log(
            level,
            "%r: the log, which ends at %d with high watermark %d, is cut to %d",
            followed,
            log.log_end_offset,
            log.high_watermark,
            offset,
        )
        self.truncations += 1
        try:
            if start_over:
                log.truncate_fully_and_start_at(offset, now_ms=self._clock.wall_ms())
            else:
                log.truncate_to(offset)
        except DiskError as error:
            self._fail(followed, error)
            return
        if log.cut_unsynced:
            self._settle(followed)
        else:
            followed.follower.on_truncated()

    def _settle(self, followed: Followed) -> None:
        """Not to be asked for before all that its log holds, and nothing that it held before, is on the disk."""
        followed.settling = True
        if followed.let_go:
            return
        partition = followed.partition
        log = partition.log
        partition.durable_offset = log.recovery_point
        partition.gated = True
        partition.durable_waiters.append((log.log_end_offset, _Settled(self, followed)))
        self._replicas.flush(partition)

    def on_settled(self, followed: Followed) -> None:
        log = followed.partition.log
        if log.cut_unsynced or log.owes_flush:
            # The flush that ended was under way before. Not here: this is called out of the line that we would join.
            asyncio.get_running_loop().call_soon(self._settle, followed)
            return
        followed.settling = False
        if followed.follower.is_truncating:
            followed.follower.on_truncated()
        followed.wake()

    def _fail(self, followed: Followed, error: DiskError) -> None:
        followed.follower.on_failed(str(error))
        self._replicas.fail(followed.partition, error)

    # Asking for offsets.

    async def ask_offsets(
        self, peer: Peer, followed: list[Followed], timestamp: int, settings: FetchSettings
    ) -> dict[PartitionKey, int | ErrorCode]:
        """The leader's first offset, or its end, of each partition; or the error that it answered."""
        from ottla.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
        from ottla.wire.messages.list_offsets_response import ListOffsetsResponse

        topics: dict[str, ListOffsetsTopic] = {}
        keys: dict[tuple[str, int], PartitionKey] = {}
        for one in followed:
            name = one.partition.topic
            topic = topics.setdefault(name, ListOffsetsTopic(name=name))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=one.key.partition,
                    current_leader_epoch=one.follower.leader_epoch,
                    timestamp=timestamp,
                )
            )
            keys[name, one.key.partition] = one.key
        request = ListOffsetsRequest(replica_id=self._node_id, topics=list(topics.values()))
        response = await peer.send(request, ListOffsetsResponse, timeout_ms=settings.timeout_ms)
        found: dict[PartitionKey, int | ErrorCode] = {}
        for answered in response.topics:
            for partition in answered.partitions:
                key = keys.get((answered.name, partition.partition_index))
                if key is not None:
                    code = ErrorCode(partition.error_code)
                    found[key] = code if code else partition.offset
        return found
