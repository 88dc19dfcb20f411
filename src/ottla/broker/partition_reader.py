"""Reads one partition for one fetch request: how far the reader may see, and what its fetch tells us.

A consumer sees up to the high watermark, or the last stable offset, at the leader and, from version 11 on, at any
replica (KIP-392). A follower sees to the end of the leader's log, and by asking for an offset it tells that it holds
everything before it. Driven by `api/fetch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.fetch_sessions import NO_WATERMARK, FetchPartition, Wanted
from ottla.broker.hosted import HostedPartition
from ottla.errors import ErrorCode, KafkaError
from ottla.partition import Heard
from ottla.runtime import DiskError, FileSpan
from ottla.wire.fetch_codec import Fetched

if TYPE_CHECKING:
    from ottla.broker.services import Services

_READ_COMMITTED = 1
_FOLLOWERS_SERVE_FROM_VERSION = 11

_KNOWS_NEW_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class Found(Fetched[FileSpan]):
    """What one partition has to say."""

    __slots__ = ("at_end", "hosted", "hurry", "remembered", "wanted")

    def __init__(self, wanted: Wanted, remembered: FetchPartition | None, hosted: HostedPartition | None) -> None:
        super().__init__(wanted.topic, wanted.partition)
        self.wanted = wanted
        self.remembered = remembered
        """The session's, if there is a session."""
        self.hosted = hosted
        self.hurry = False
        """Is there something to say that cannot wait for bytes?"""
        self.at_end = False
        """Does the follower have everything, so that nothing need be said before the partition moves?"""

    @property
    def size(self) -> int:
        return self.span.size if self.span is not None else 0


class PartitionReader:
    """One for each request."""

    __slots__ = ("_broker_epoch", "_committed_only", "_listener", "_rack", "_services", "_version", "replica_id")

    def __init__(
        self,
        services: Services,
        *,
        version: int,
        replica_id: int,
        broker_epoch: int,
        isolation_level: int,
        rack: str,
        listener: str,
    ) -> None:
        """`replica_id` is negative for consumers; `rack` and `listener` are where a consumer is, and came by."""
        self._services = services
        self._version = version
        self.replica_id = replica_id
        self._broker_epoch = broker_epoch
        self._committed_only = isolation_level == _READ_COMMITTED
        self._rack = rack
        self._listener = listener

    @property
    def is_follower(self) -> bool:
        return self.replica_id >= 0

    def find(self, wanted: Wanted) -> HostedPartition | None:
        replicas = self._services.replicas
        topic = replicas.by_id.get(wanted.topic) if self._version >= 13 else replicas.by_name.get(wanted.topic)  # type: ignore[arg-type]
        return topic.partitions.get(wanted.partition) if topic is not None else None

    def read(
        self,
        wanted: Wanted,
        remembered: FetchPartition | None,
        max_bytes: int,
        *,
        min_one: bool,
        arrived: Heard | None = None,
    ) -> Found:
        """What the partition has now. With `arrived` the request has just come, and a follower's position is taken from
        it; later, when it has waited, that is old news."""
        hosted = self.find(wanted)
        found = Found(wanted, remembered, hosted)
        try:
            if hosted is None:
                raise KafkaError(self._services.missing_partition(wanted.topic, wanted.partition))
            if self.replica_id >= 0:
                self._read_as_follower(found, hosted, max_bytes, min_one, arrived)
            else:
                self._read_as_consumer(found, hosted, max_bytes, min_one)
        except KafkaError as error:
            if isinstance(error, DiskError) and hosted is not None:
                self._services.replicas.fail(hosted, error)
            self._refuse(found, error.code)
        return found

    def _refuse(self, found: Found, code: ErrorCode) -> None:
        found.error = code
        found.high_watermark = found.last_stable_offset = found.log_start = -1
        found.span = None
        # A partition that is not here at all does not hurry its answer, else its reader would spin.
        found.hurry = found.hosted is not None
        if code in _KNOWS_NEW_LEADER:
            found.leader = self._services.current_leader(found.topic, found.index)

    def _read_as_consumer(self, found: Found, hosted: HostedPartition, max_bytes: int, min_one: bool) -> None:
        wanted = found.wanted
        services = self._services
        leader = hosted.leader
        if leader is None or wanted.current_leader_epoch >= 0:
            if self._version >= _FOLLOWERS_SERVE_FROM_VERSION:
                services.replicas.replica_or_refuse(hosted, wanted.current_leader_epoch)
            else:
                services.replicas.leader_or_refuse(hosted, wanted.current_leader_epoch)
        offset = wanted.fetch_offset
        selector = services.replica_selector
        if selector is not None and leader is not None and self._rack:
            preferred = selector.select(leader, services.image, self._listener, self._rack, offset)
            if preferred is not None:
                self._tell_offsets(found, hosted)
                found.preferred = preferred
                found.hurry = True
                return
        if self._parts(found, hosted):
            return
        log = hosted.log
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self._tell_offsets(found, hosted)
        upper = found.last_stable_offset if self._committed_only else found.high_watermark
        if self._committed_only:
            found.aborted = []
        if offset >= upper or (max_bytes <= 0 and not min_one):
            return
        span = log.read(offset, max_bytes=max_bytes, upper_bound=upper, min_one=min_one)
        if span is not None:
            found.span = span
            if self._committed_only:
                found.aborted = log.aborted_transactions(offset, upper)

    def _read_as_follower(
        self, found: Found, hosted: HostedPartition, max_bytes: int, min_one: bool, arrived: Heard | None
    ) -> None:
        wanted = found.wanted
        services = self._services
        leader = hosted.leader
        if leader is None or wanted.current_leader_epoch >= 0:
            services.replicas.leader_or_refuse(hosted, wanted.current_leader_epoch)
            assert leader is not None
        leader.check_follower(self.replica_id, self._broker_epoch, knows_epoch=wanted.current_leader_epoch >= 0)
        if self._parts(found, hosted):
            return
        log = hosted.log
        offset, log_end = wanted.fetch_offset, log.log_end_offset
        if not log.log_start_offset <= offset <= log_end:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        throttled = (
            hosted.throttled
            and self.replica_id not in leader.isr
            and services.leader_throttle.is_exceeded(services.replicas.now_ms())
        )
        if offset < log_end and not throttled and (max_bytes > 0 or min_one):
            span = log.read(offset, max_bytes=max_bytes, upper_bound=log_end, min_one=min_one)
            if span is not None:
                found.span = span
        found.at_end = offset == log_end
        if arrived is not None:
            # Only now: a fetch that could not be served proves nothing.
            services.replicas.on_follower_fetch(
                hosted, self.replica_id, self._broker_epoch, offset, log_end, wanted.log_start_offset, arrived
            )
            if found.remembered is not None:
                found.remembered.progress = leader.followers[self.replica_id]
        # After that, since this very fetch may have been what the high watermark waited for.
        self._tell_offsets(found, hosted)
        if wanted.high_watermark != NO_WATERMARK:
            known = wanted.high_watermark
            if found.remembered is not None:
                known = max(known, found.remembered.told_high_watermark)
            found.hurry = known < min(found.high_watermark, offset)

    def _tell_offsets(self, found: Found, hosted: HostedPartition) -> None:
        log = hosted.log
        found.high_watermark = log.high_watermark
        found.last_stable_offset = log.last_stable_offset
        found.log_start = log.log_start_offset

    def _parts(self, found: Found, hosted: HostedPartition) -> bool:
        """Did the reader's log part from ours? Then it is told where, and gets no records (KIP-595)."""
        wanted = found.wanted
        if wanted.last_fetched_epoch < 0:
            return False
        log = hosted.log
        epoch, end_offset = log.end_offset_for_epoch(wanted.last_fetched_epoch)
        if epoch < 0 or end_offset < 0 or wanted.fetch_offset < log.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
            self._tell_offsets(found, hosted)
            found.diverging = (epoch, end_offset)
            found.hurry = True
            return True
        return False
