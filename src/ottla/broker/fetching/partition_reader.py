"""Reads one partition for one fetch request: how far the reader may see, and what its fetch tells us.

A consumer sees up to the high watermark, or the last stable offset, at the leader and, from version 11 on, at any
replica (KIP-392). A follower sees to the end of the leader's log, and by asking for an offset it tells that it holds
everything before it. Driven by `api/fetch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.access.authorisation import Asker
from ottla.broker.fetching.fetch_sessions import FetchPartition
from ottla.broker.hosted import HostedPartition
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.partition import Heard, PartitionLeader
from ottla.partition.divergence import diverging
from ottla.runtime import DiskError, FileSpan
from ottla.wire.fetch_codec import NO_WATERMARK, Fetched, Request, Wanted

if TYPE_CHECKING:
    from ottla.broker.services import Services

_READ_COMMITTED = 1
_FOLLOWERS_SERVE_FROM_VERSION = 11

IN_LINE_BYTES_MAX = 8192
"""So many bytes are copied into their answer; more are left to the system to send from where they are."""

_KNOWS_NEW_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class Found(Fetched[FileSpan]):
    """What one partition has to say."""

    __slots__ = ("at_end", "hosted", "hurry", "remembered", "wanted")

    def __init__(self, wanted: Wanted, remembered: FetchPartition | None, hosted: HostedPartition | None) -> None:
        # All of `Fetched`, in line: one is made for every partition that is looked at.
        self.topic = wanted.topic
        self.index = wanted.partition
        self.error = 0
        self.high_watermark = self.last_stable_offset = self.log_start = self.preferred = -1
        self.aborted = self.span = self.data = self.diverging = self.leader = None
        self.wanted = wanted
        self.remembered = remembered
        """The session's, if there is a session."""
        self.hosted = hosted
        self.hurry = False
        """Is there something to say that cannot wait for bytes?"""
        self.at_end = False
        """Does the follower have everything, and is where it should be, so that it need not be looked at again before
        the partition moves?"""

    @property
    def size(self) -> int:
        return self.span.size if self.span is not None else 0

    def take_in(self) -> bool:
        """Can the records leave without waiting for the device? A few of them are read here and now: they then cost one
        call of the system instead of four, and reach the reader in one piece."""
        span = self.span
        if span is None:
            return True
        if span.size > IN_LINE_BYTES_MAX:
            return span.file.cached(span.position, span.size)
        self.data = span.file.read_now(span.position, span.size)
        return self.data is not None


class PartitionReader:
    """One for each request."""

    __slots__ = ("_by_id", "_replicas", "_services", "_version")

    def __init__(self, services: Services, version: int) -> None:
        self._services = services
        self._replicas = services.replicas
        self._version = version
        self._by_id = version >= 13

    def _find(self, wanted: Wanted) -> HostedPartition | None:
        replicas = self._replicas
        topic = replicas.by_id.get(wanted.topic) if self._by_id else replicas.by_name.get(wanted.topic)  # type: ignore[arg-type]
        return topic.partitions.get(wanted.partition) if topic is not None else None

    def _refuse(self, found: Found, error: KafkaError) -> None:
        hosted, code = found.hosted, error.code
        if hosted is not None and isinstance(error, DiskError):
            self._replicas.fail(hosted, error)
        found.error = code
        found.high_watermark = found.last_stable_offset = found.log_start = -1
        found.span = None
        # A partition that is not here at all does not hurry its answer, else its reader would spin.
        found.hurry = hosted is not None
        if code in _KNOWS_NEW_LEADER:
            found.leader = self._services.current_leader(found.topic, found.index)

    def _parts(self, found: Found, hosted: HostedPartition) -> bool:
        """Did the reader's log part from ours? Then it is told where, and gets no records (KIP-595)."""
        wanted = found.wanted
        found.diverging = diverging(hosted.log, wanted.fetch_offset, wanted.last_fetched_epoch)
        if found.diverging is None:
            return False
        self._tell_offsets(found, hosted)
        found.hurry = True
        return True

    def _tell_offsets(self, found: Found, hosted: HostedPartition) -> None:
        log = hosted.log
        found.high_watermark = log.high_watermark
        found.last_stable_offset = log.last_stable_offset
        found.log_start = log.log_start_offset


class ConsumerReader(PartitionReader):
    __slots__ = ("_asker", "_committed_only", "_listener", "_rack")

    def __init__(self, services: Services, request: Request, version: int, listener: str, asker: Asker | None) -> None:
        """`listener` is what the consumer came by; `asker` is whose rights count, if any do."""
        super().__init__(services, version)
        self._asker = asker
        self._committed_only = request.isolation_level == _READ_COMMITTED
        self._rack = request.rack
        self._listener = listener

    def read(self, wanted: Wanted, remembered: FetchPartition | None, max_bytes: int, min_one: bool) -> Found:
        """What the partition has now."""
        asker = self._asker
        if asker is not None and not asker.may_topic(self._services, Operation.READ, wanted.topic):
            return _forbidden(wanted, remembered)
        hosted = self._find(wanted)
        found = Found(wanted, remembered, hosted)
        try:
            if hosted is None:
                raise KafkaError(self._services.missing_partition(wanted.topic, wanted.partition))
            self._read(found, hosted, max_bytes, min_one)
        except KafkaError as error:
            self._refuse(found, error)
        return found

    def _read(self, found: Found, hosted: HostedPartition, max_bytes: int, min_one: bool) -> None:
        wanted = found.wanted
        leader = hosted.leader
        if leader is None or wanted.current_leader_epoch >= 0:
            if self._version >= _FOLLOWERS_SERVE_FROM_VERSION:
                self._replicas.replica_or_refuse(hosted, wanted.current_leader_epoch)
            else:
                self._replicas.leader_or_refuse(hosted, wanted.current_leader_epoch)
        if self._rack and leader is not None and self._send_elsewhere(found, hosted, leader):
            return
        if wanted.last_fetched_epoch >= 0 and self._parts(found, hosted):
            return
        log = hosted.log
        offset = wanted.fetch_offset
        log_start = log.log_start_offset
        if not log_start <= offset <= log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        found.high_watermark = upper = log.high_watermark
        found.last_stable_offset = last_stable_offset = log.last_stable_offset
        found.log_start = log_start
        if self._committed_only:
            found.aborted = []
            upper = last_stable_offset
        if offset >= upper or (max_bytes <= 0 and not min_one):
            return
        span = log.read(offset, max_bytes=max_bytes, upper_bound=upper, min_one=min_one)
        if span is not None:
            found.span = span
            if self._committed_only:
                found.aborted = log.aborted_transactions_in(offset, span, upper)

    def _send_elsewhere(self, found: Found, hosted: HostedPartition, leader: PartitionLeader) -> bool:
        """Is there a replica nearer to the consumer? Then it is told so, and gets no records here (KIP-392)."""
        services = self._services
        selector = services.replica_selector
        if selector is None:
            return False
        offset = found.wanted.fetch_offset
        preferred = selector.select(leader, services.image, self._listener, self._rack, offset)
        if preferred is None:
            return False
        self._tell_offsets(found, hosted)
        found.preferred = preferred
        found.hurry = True
        return True


class FollowerReader(PartitionReader):
    __slots__ = ("_broker_epoch", "_replica_id", "is_forbidden")

    def __init__(self, services: Services, request: Request, version: int, asker: Asker | None) -> None:
        """`asker` is whose rights count, if any do: a follower acts for the cluster."""
        super().__init__(services, version)
        self.is_forbidden = asker is not None and not asker.may(
            Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        )
        self._replica_id = request.replica_id
        self._broker_epoch = request.broker_epoch

    def read(self, remembered: FetchPartition, max_bytes: int, min_one: bool, arrived: Heard | None) -> Found:
        """What the partition has now. With `arrived` the request has just come, and the follower's position is taken
        from it; later, when it has waited, that is old news."""
        wanted = remembered.wanted
        if self.is_forbidden:
            return _forbidden(wanted, remembered)
        hosted = self._find(wanted)
        found = Found(wanted, remembered, hosted)
        try:
            if hosted is None:
                raise KafkaError(self._services.missing_partition(wanted.topic, wanted.partition))
            self._read(found, hosted, max_bytes, min_one, arrived)
        except KafkaError as error:
            self._refuse(found, error)
        return found

    def _read(
        self, found: Found, hosted: HostedPartition, max_bytes: int, min_one: bool, arrived: Heard | None
    ) -> None:
        wanted, remembered = found.wanted, found.remembered
        assert remembered is not None
        replica_id = self._replica_id
        leader = hosted.leader
        if leader is None or wanted.current_leader_epoch >= 0:
            self._replicas.leader_or_refuse(hosted, wanted.current_leader_epoch)
            assert leader is not None
        leader.check_follower(replica_id, self._broker_epoch, knows_epoch=wanted.current_leader_epoch >= 0)
        if wanted.last_fetched_epoch >= 0 and self._parts(found, hosted):
            return
        log = hosted.log
        offset, log_end = wanted.fetch_offset, log.log_end_offset
        if not log.log_start_offset <= offset <= log_end:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset == log_end:
            # One that is out of sync may join when something else changes, so that each of its requests is to count.
            found.at_end = replica_id in leader.isr
        elif (max_bytes > 0 or min_one) and not (hosted.throttled and self._is_throttled(leader)):
            span = log.read(offset, max_bytes=max_bytes, upper_bound=log_end, min_one=min_one)
            if span is not None:
                found.span = span
        if arrived is not None:
            # Only now: a fetch that could not be served proves nothing.
            self._replicas.on_follower_fetch(
                hosted, replica_id, self._broker_epoch, offset, log_end, wanted.log_start_offset, arrived
            )
            remembered.progress = leader.followers[replica_id]
        # After that, since this very fetch may have been what the high watermark waited for.
        self._tell_offsets(found, hosted)
        if wanted.high_watermark != NO_WATERMARK:
            known = max(wanted.high_watermark, remembered.told_high_watermark)
            found.hurry = known < min(found.high_watermark, offset)

    def _is_throttled(self, leader: PartitionLeader) -> bool:
        """Never one that is in sync: it would fall out of the in-sync set."""
        throttle = self._services.leader_throttle
        return self._replica_id not in leader.isr and throttle.is_exceeded(self._replicas.monotonic_ms())


def _forbidden(wanted: Wanted, remembered: FetchPartition | None) -> Found:
    """For whoever may not read the topic it is as if it were not here, but for the code."""
    found = Found(wanted, remembered, None)
    found.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return found
