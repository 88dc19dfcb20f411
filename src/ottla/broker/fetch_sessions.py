"""Incremental fetch sessions (KIP-227): a client names its partitions once, and then only what changes.

A session remembers, for every partition, what the client wants and what it was last told; a response then holds only
the partitions that have something new. The cache is bounded, in sessions and in the partitions they remember; when it
is full of sessions too young or too busy to give up, a client gets session 0 and goes on with full requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from ottla.broker.limits import SESSION_PARTITIONS_MAX
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Uuid

FINAL_EPOCH = -1
"""A full request that wants no session."""
INITIAL_EPOCH = 0
"""A full request that wants a new one."""
EVICTION_MS = 120_000
"""`min.incremental.fetch.session.eviction.ms`: a session unused for so long may be given up for any other."""

TopicKey = str | Uuid
"""A topic as the request names it: by name up to version 12, then by id."""
PartitionKey = tuple[TopicKey, int]


@dataclass(slots=True)
class FetchPartition:
    """What a client wants of one partition, and what it was last told about it."""

    topic: TopicKey
    index: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    told_high_watermark: int = -1
    told_log_start: int = -1

    def wants(self, newer: FetchPartition) -> None:
        self.fetch_offset = newer.fetch_offset
        self.max_bytes = newer.max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch
        self.log_start_offset = newer.log_start_offset

    def has_news(self, *, error: int, size: int, high_watermark: int, log_start: int, diverging: bool) -> bool:
        """Must the next response name this partition? Also notes what it will say."""
        if error:
            # So that the partition is sent again as soon as the error is gone.
            self.told_high_watermark = -1
            return True
        news = size > 0 or diverging or high_watermark != self.told_high_watermark or log_start != self.told_log_start
        self.told_high_watermark = high_watermark
        self.told_log_start = log_start
        return news


class FetchSession:
    """One client's session; `epoch` is the one its next request must carry."""

    __slots__ = ("by_id", "created_ms", "epoch", "partitions", "privileged", "session_id", "used_ms")

    def __init__(self, session_id: int, *, by_id: bool, privileged: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.privileged = privileged
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.epoch = 1
        self.partitions: dict[PartitionKey, FetchPartition] = {}

    def update(self, wanted: list[FetchPartition], forgotten: list[PartitionKey]) -> int:
        """Take in what the client changes; returns by how many partitions the session has grown."""
        before = len(self.partitions)
        for partition in wanted:
            key = (partition.topic, partition.index)
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = partition
            else:
                known.wants(partition)
        for key in forgotten:
            self.partitions.pop(key, None)
        return len(self.partitions) - before

    def to_the_back(self, partition: FetchPartition) -> None:
        """A partition that returned data waits for its next turn, so that a busy one does not starve the others."""
        key = (partition.topic, partition.index)
        if self.partitions.pop(key, None) is not None:
            self.partitions[key] = partition

    def advance_epoch(self) -> None:
        self.epoch = 1 if self.epoch >= 0x7FFFFFFF else self.epoch + 1


class FetchSessions:
    """The node's sessions, at most `slots` (`max.incremental.fetch.session.cache.slots`)."""

    def __init__(self, slots: int, random: Random, partitions_max: int = SESSION_PARTITIONS_MAX) -> None:
        self._slots = slots
        self._partitions_max = partitions_max
        self._random = random
        self._sessions: dict[int, FetchSession] = {}
        """In the order of their last use."""
        self.evictions = 0
        self.partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def resume(self, session_id: int, epoch: int, *, by_id: bool, now_ms: int) -> FetchSession:
        """The session that an incremental request names."""
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.advance_epoch()
        session.used_ms = now_ms
        del self._sessions[session_id]
        self._sessions[session_id] = session
        return session

    def create(
        self, partitions: list[FetchPartition], *, by_id: bool, privileged: bool, now_ms: int
    ) -> FetchSession | None:
        """A new session, or none if there is no room. It may be about nothing yet."""
        if not self._make_room(len(partitions), privileged, now_ms):
            return None
        session_id = self._random.randrange(1, 0x7FFFFFFF)
        while session_id in self._sessions:
            session_id = self._random.randrange(1, 0x7FFFFFFF)
        session = FetchSession(session_id, by_id=by_id, privileged=privileged, now_ms=now_ms)
        for partition in partitions:
            session.partitions[partition.topic, partition.index] = partition
        self._sessions[session_id] = session
        self.partition_count += len(session.partitions)
        return session

    def grew(self, session: FetchSession, partitions: int) -> None:
        """`update` added so many to `session`; one that no longer fits is given up, and its client starts anew."""
        self.partition_count += partitions
        if partitions > 0 and self.partition_count > self._partitions_max:
            self.close(session.session_id)
            self.evictions += 1

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= len(session.partitions)

    def _make_room(self, size: int, privileged: bool, now_ms: int) -> bool:
        if self.partition_count + size > self._partitions_max:
            return False
        if len(self._sessions) < self._slots:
            return True
        if self._slots == 0:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms > EVICTION_MS:
            self.close(oldest.session_id)
            self.evictions += 1
            return True
        # A follower may displace a consumer, and a larger session a smaller one, once that has had its time.
        for session in self._sessions.values():
            lesser = (session.privileged, len(session.partitions)) < (privileged, size)
            if lesser and (privileged > session.privileged or now_ms - session.created_ms > EVICTION_MS):
                self.close(session.session_id)
                self.evictions += 1
                return True
        return False
