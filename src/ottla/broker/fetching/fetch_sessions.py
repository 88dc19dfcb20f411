"""Incremental fetch sessions (KIP-227): a client names its partitions once, and then only what changes.

A session remembers, for every partition, what the client wants and what it was last told; a response then holds only
the partitions that have something new. What is wanted is a value that the next request replaces, so that a request
which still waits goes on with what was wanted when it came. The cache is bounded, in sessions and in the partitions
they remember; when it is full of sessions too young or too busy to give up, a client gets session 0 and goes on with
full requests.
"""

from __future__ import annotations

from random import Random
from typing import TypeVar

from ottla.broker.hosted import HostedPartition
from ottla.errors import ErrorCode, KafkaError
from ottla.partition import FollowerProgress
from ottla.wire.fetch_codec import PartitionKey, Wanted

FINAL_EPOCH = -1
"""A full request that wants no session."""
INITIAL_EPOCH = 0
"""A full request that wants a new one."""
EVICTION_MS = 120_000
"""`min.incremental.fetch.session.eviction.ms`: a session unused for so long may be given up for any other."""


class FetchPartition:
    """What a client wants of one partition, and what it was last told about it."""

    __slots__ = ("hosted", "progress", "told_high_watermark", "told_log_start", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.told_high_watermark = -1
        self.told_log_start = -1
        self.hosted: HostedPartition | None = None
        self.progress: FollowerProgress | None = None
        """Both are used by followers' sessions only (`follower_sessions`)."""

    def has_news(self, *, error: int, size: int, high_watermark: int, log_start: int, urgent: bool) -> bool:
        """Must the next response name this partition? Also notes what it will say. `urgent` is what must be told each
        time: where logs part, whom else to ask."""
        if error:
            # So that the partition is sent again as soon as the error is gone.
            self.told_high_watermark = -1
            return True
        news = size > 0 or urgent or high_watermark != self.told_high_watermark or log_start != self.told_log_start
        self.told_high_watermark = high_watermark
        self.told_log_start = log_start
        return news


class FetchSession:
    """One client's session; `epoch` is the one its next request must carry."""

    PRIVILEGED = False
    """May it displace others in a full cache? Those of followers may."""

    __slots__ = ("by_id", "created_ms", "epoch", "partitions", "replica_id", "session_id", "used_ms")

    def __init__(self, session_id: int, *, by_id: bool, replica_id: int = -1, now_ms: int) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.replica_id = replica_id
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.epoch = 1
        self.partitions: dict[PartitionKey, FetchPartition] = {}

    def update(self, wanted: list[Wanted], forgotten: list[PartitionKey]) -> int:
        """Take in what the client changes; returns by how many partitions the session has grown."""
        before = len(self.partitions)
        for each in wanted:
            key = (each.topic, each.partition)
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = FetchPartition(each)
            else:
                known.wanted = each
        for key in forgotten:
            self.partitions.pop(key, None)
        return len(self.partitions) - before

    def to_the_back(self, partition: FetchPartition) -> None:
        """A partition that returned data waits for its next turn, so that a busy one does not starve the others."""
        key = (partition.wanted.topic, partition.wanted.partition)
        if self.partitions.get(key) is partition:
            del self.partitions[key]
            self.partitions[key] = partition

    def close(self) -> None:
        """The session is over."""

    def advance_epoch(self) -> None:
        self.epoch = 1 if self.epoch >= 0x7FFFFFFF else self.epoch + 1


S = TypeVar("S", bound=FetchSession)


class FetchSessions:
    """The node's sessions, at most `slots` (`max.incremental.fetch.session.cache.slots`), which remember at most
    `partitions_max` partitions together (`ottla.fetch.session.partitions.max`)."""

    def __init__(self, slots: int, random: Random, partitions_max: int) -> None:
        self._slots = slots
        self._partitions_max = partitions_max
        self._random = random
        self._sessions: dict[int, FetchSession] = {}
        """In the order of their last use."""
        self.evictions = 0
        self.partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def resume(self, session_id: int, epoch: int, *, by_id: bool, replica_id: int = -1, now_ms: int) -> FetchSession:
        """The session that an incremental request names, if it is the asker's."""
        session = self._sessions.get(session_id)
        if session is None or session.replica_id != replica_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        self.use(session, now_ms)
        return session

    def has(self, session: FetchSession) -> bool:
        return self._sessions.get(session.session_id) is session

    def use(self, session: FetchSession, now_ms: int) -> None:
        """A request of the session has come, with the epoch that it was to have."""
        session.advance_epoch()
        session.used_ms = now_ms
        del self._sessions[session.session_id]
        self._sessions[session.session_id] = session

    def create(
        self, make: type[S], wanted: list[Wanted], *, by_id: bool, replica_id: int = -1, now_ms: int
    ) -> S | None:
        """A new session, or none if there is no room. It may be about nothing yet."""
        if not self._make_room(len(wanted), make.PRIVILEGED, now_ms):
            return None
        session_id = self._random.randrange(1, 0x7FFFFFFF)
        while session_id in self._sessions:
            session_id = self._random.randrange(1, 0x7FFFFFFF)
        session = make(session_id, by_id=by_id, replica_id=replica_id, now_ms=now_ms)
        session.update(wanted, [])
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
            session.close()

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
            lesser = (session.PRIVILEGED, len(session.partitions)) < (privileged, size)
            if lesser and (privileged > session.PRIVILEGED or now_ms - session.created_ms > EVICTION_MS):
                self.close(session.session_id)
                self.evictions += 1
                return True
        return False
