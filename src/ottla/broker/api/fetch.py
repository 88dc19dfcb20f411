"""Fetch (key 1): committed bytes to consumers, straight from the log's files.

Tuned by hand where it pays: the response is a list of packed bytes and spans of files, so that no record ever enters
Python. A fetch that finds too little waits for its partitions to move; one that finds its bytes outside the page cache
has them brought in by a thread first, so that a cold reader does not stall the loop.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from ottla.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchPartition,
    FetchSession,
    PartitionKey,
    TopicKey,
)
from ottla.broker.hosted import HostedPartition
from ottla.broker.limits import ELEMENTS_MAX, FETCH_WAIT_MS_MAX
from ottla.broker.purgatory import DelayedFetch
from ottla.broker.reply import Chunks, Deferred, FileSpan, Ready, Reply
from ottla.errors import ErrorCode, KafkaError
from ottla.log import AbortedTxn
from ottla.wire.messages.fetch_request import FetchRequest
from ottla.wire.primitives import unsigned_varint

if TYPE_CHECKING:
    from ottla.broker.services import Services

_READ_COMMITTED = 1
_CONSUMER = -1

_FRAME_HEAD = Struct(">iii").pack
_FRAME_HEAD_7 = Struct(">iiihii").pack
_FRAME_HEAD_12 = Struct(">iiBihi").pack
_PARTITION_4 = Struct(">ihqq").pack
_PARTITION_5 = Struct(">ihqqq").pack
_I32 = Struct(">i").pack
_ABORTED = Struct(">qq").pack
_ABORTED_FLEXIBLE = Struct(">qqx").pack
_DIVERGING_TAG = Struct(">BBiqB").pack
_LEADER_TAG = Struct(">BBiiB").pack

_KNOWS_NEW_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class Found:
    """What one partition has to say."""

    __slots__ = (
        "aborted",
        "diverging",
        "error",
        "high_watermark",
        "hosted",
        "last_stable_offset",
        "log_start",
        "span",
        "wanted",
    )

    def __init__(self, wanted: FetchPartition, hosted: HostedPartition | None) -> None:
        self.wanted = wanted
        self.hosted = hosted
        self.error = 0
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start = -1
        self.span: FileSpan | None = None
        self.aborted: list[AbortedTxn] | None = None
        self.diverging: tuple[int, int] | None = None


def start(services: Services, view: memoryview, version: int, correlation_id: int, position: int, end: int) -> Reply:
    """Phase one: find what is there, and answer, or wait for more."""
    request, _ = FetchRequest.read(bytes(view[position:end]), 0, version, ELEMENTS_MAX)
    try:
        fetch = _Fetch(services, request, version, correlation_id)
    except KafkaError as error:
        return _refuse(version, correlation_id, error.code)
    return fetch.start()


class _Fetch:
    """One fetch request. States: reading → waiting → reading → (warming) → answered."""

    __slots__ = (
        "_by_id",
        "_correlation_id",
        "_incremental",
        "_isolation",
        "_max_bytes",
        "_max_wait_ms",
        "_min_bytes",
        "_partitions",
        "_replica_id",
        "_services",
        "_session",
        "_session_id",
        "_sizes",
        "_version",
    )

    def __init__(self, services: Services, request: FetchRequest, version: int, correlation_id: int) -> None:
        self._services = services
        self._version = version
        self._correlation_id = correlation_id
        self._by_id = version >= 13
        self._replica_id = request.replica_state.replica_id if version >= 15 else request.replica_id
        self._isolation = request.isolation_level
        self._max_wait_ms = min(request.max_wait_ms, FETCH_WAIT_MS_MAX)
        self._max_bytes = min(request.max_bytes, services.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, services.fetch_max_bytes)
        self._session: FetchSession | None = None
        self._session_id = 0
        self._incremental = False
        self._sizes: dict[HostedPartition, int] = {}
        self._partitions: list[FetchPartition] = []
        self._open(request)

    def _open(self, request: FetchRequest) -> None:
        wanted = [
            FetchPartition(
                topic.topic_id if self._by_id else topic.topic,
                partition.partition,
                partition.fetch_offset,
                partition.partition_max_bytes,
                partition.current_leader_epoch,
                partition.last_fetched_epoch,
                partition.log_start_offset,
            )
            for topic in request.topics
            for partition in topic.partitions
        ]
        if len(wanted) > 1:
            # As in Kafka a partition that is named twice is read once, as its last mention asks.
            wanted = list({(each.topic, each.index): each for each in wanted}.values())
        services = self._services
        epoch = request.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id:
                services.fetch_sessions.close(request.session_id)
            self._partitions = wanted
            if epoch == INITIAL_EPOCH and self._version >= 7:
                self._session = services.fetch_sessions.create(
                    wanted,
                    by_id=self._by_id,
                    privileged=self._replica_id in services.image.cluster.brokers,
                    now_ms=services.clock.wall_ms(),
                )
            if self._session is not None:
                self._session_id = self._session.session_id
            return
        session = services.fetch_sessions.resume(
            request.session_id, epoch, by_id=self._by_id, now_ms=services.clock.wall_ms()
        )
        forgotten: list[PartitionKey] = [
            (topic.topic_id if self._by_id else topic.topic, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]
        services.fetch_sessions.grew(session, session.update(wanted, forgotten))
        if not session.partitions:
            services.fetch_sessions.close(session.session_id)
            return
        self._session = session
        self._session_id = session.session_id
        self._incremental = True
        self._partitions = list(session.partitions.values())

    # Reading.

    def start(self) -> Reply:
        found, size, urgent = self._read()
        partitions = [entry.hosted for entry in found if entry.hosted is not None]
        if size >= self._min_bytes or urgent or self._max_wait_ms <= 0 or not partitions:
            return self._answer(found)
        deferred = Deferred()
        self._sizes = {
            entry.hosted: entry.span.size if entry.span is not None else 0
            for entry in found
            if entry.hosted is not None
        }
        delayed = DelayedFetch(
            partitions,
            self._has_enough,
            lambda: self._finish(deferred),
            self._services.timers,
            self._max_wait_ms,
            self._services.metrics.expired_fetches,
        )
        deferred.when_abandoned(delayed.cancel)
        return deferred

    def _has_enough(self, moved: HostedPartition) -> bool:
        """Asked for each partition that moved: only that one is looked at again."""
        for wanted in self._partitions:
            hosted = self._find(wanted)
            if hosted is moved:
                entry = self._read_one(wanted, hosted, wanted.max_bytes, True)
                if entry.error or entry.diverging is not None:
                    return True
                self._sizes[moved] = entry.span.size if entry.span is not None else 0
                return sum(self._sizes.values()) >= self._min_bytes
        return True  # It is no longer here.

    def _finish(self, deferred: Deferred) -> None:
        found, _, _ = self._read()
        reply = self._answer(found)
        if isinstance(reply, Deferred):
            reply.when_done(lambda: deferred.resolve(reply.reply))
        else:
            deferred.resolve(reply)

    def _read(self) -> tuple[list[Found], int, bool]:
        """What each partition has, the bytes of all, and whether something cannot wait."""
        left = self._max_bytes
        total = 0
        urgent = False
        found: list[Found] = []
        for wanted in self._partitions:
            entry = self._read_one(wanted, self._find(wanted), min(wanted.max_bytes, left), total == 0)
            found.append(entry)
            if entry.span is not None:
                total += entry.span.size
                left = max(0, left - entry.span.size)
            elif entry.hosted is not None and (entry.error or entry.diverging is not None):
                # A partition that is not here at all does not hurry its answer, else its reader would spin.
                urgent = True
        return found, total, urgent

    def _find(self, wanted: FetchPartition) -> HostedPartition | None:
        replicas = self._services.replicas
        topic = replicas.by_id.get(wanted.topic) if self._by_id else replicas.by_name.get(wanted.topic)  # type: ignore[arg-type]
        return topic.partitions.get(wanted.index) if topic is not None else None

    def _read_one(self, wanted: FetchPartition, hosted: HostedPartition | None, max_bytes: int, min_one: bool) -> Found:
        entry = Found(wanted, hosted)
        try:
            if hosted is None:
                raise KafkaError(self._services.missing_partition(wanted.topic, wanted.index))
            self._fill(entry, hosted, max_bytes, min_one)
        except KafkaError as error:
            entry.error = error.code
            entry.high_watermark = entry.last_stable_offset = entry.log_start = -1
            entry.span = None
        return entry

    def _fill(self, entry: Found, hosted: HostedPartition, max_bytes: int, min_one: bool) -> None:
        wanted = entry.wanted
        if hosted.leader is None or hosted.offline or wanted.current_leader_epoch >= 0:
            self._services.replicas.leader_or_refuse(hosted, wanted.current_leader_epoch)
        if self._replica_id >= 0:
            # A stranger's position must never move the watermark. One that knows our epoch may know of an assignment
            # that we have not heard of yet, and is to try again.
            knows_epoch = wanted.current_leader_epoch >= 0
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = hosted.log
        offset = wanted.fetch_offset
        log_end = log.log_end_offset
        if not log.log_start_offset <= offset <= log_end:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        entry.high_watermark = log.high_watermark
        entry.last_stable_offset = log.last_stable_offset
        entry.log_start = log.log_start_offset
        if wanted.last_fetched_epoch >= 0 and self._diverges(entry, hosted):
            return
        committed_only = self._isolation == _READ_COMMITTED
        upper = entry.last_stable_offset if committed_only else entry.high_watermark
        if committed_only:
            entry.aborted = []
        if offset >= upper or (max_bytes <= 0 and not min_one):
            return
        span = log.read(offset, max_bytes=max_bytes, upper_bound=upper, min_one=min_one)
        if span is None:
            return
        entry.span = FileSpan(span.file, span.position, span.size)
        if committed_only:
            entry.aborted = log.aborted_transactions(offset, upper)

    def _diverges(self, entry: Found, hosted: HostedPartition) -> bool:
        """Did the reader's log part from ours? Then it is told where, and gets no records (KIP-595)."""
        wanted = entry.wanted
        epoch, end_offset = hosted.log.end_offset_for_epoch(wanted.last_fetched_epoch)
        if epoch < 0 or end_offset < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
            entry.diverging = (epoch, end_offset)
            return True
        return False

    # Answering.

    def _answer(self, found: list[Found]) -> Reply:
        services = self._services
        cold = [entry.span for entry in found if entry.span is not None and not services.is_warm(entry.span)]
        if not cold:
            if not services.read_ahead.is_idle:
                self._read_on(found)
            return self._encode(found)
        deferred = Deferred()

        async def then_answer() -> None:
            try:
                await services.read_ahead.bring_in(cold)
            except KafkaError:
                for entry in found:
                    if entry.span in cold:
                        entry.error, entry.span = ErrorCode.KAFKA_STORAGE_ERROR, None
            self._read_on(found)
            deferred.resolve(self._encode(found))

        services.spawn(then_answer())
        return deferred

    def _read_on(self, found: list[Found]) -> None:
        for entry in found:
            if entry.span is not None:
                self._services.read_ahead.follow(entry.span)

    def _encode(self, found: list[Found]) -> Ready:
        for entry in found:
            if entry.hosted is not None:
                meters = entry.hosted.meters
                meters.fetches.value += 1
                if entry.span is not None:
                    meters.bytes_out.value += entry.span.size
                elif entry.error:
                    meters.fetch_failed()
        session = self._session
        if session is not None:
            told: list[Found] = []
            for entry in found:
                size = entry.span.size if entry.span is not None else 0
                news = entry.wanted.has_news(
                    error=entry.error,
                    size=size,
                    high_watermark=entry.high_watermark,
                    log_start=entry.log_start,
                    diverging=entry.diverging is not None,
                )
                if news or not self._incremental:
                    told.append(entry)
                if size:
                    session.to_the_back(entry.wanted)
            found = told
        return _Encoder(self._services, self._version).encode(self._correlation_id, self._session_id, found)


def _refuse(version: int, correlation_id: int, code: ErrorCode) -> bytes:
    """An answer to the request as a whole: its session is not what the client thinks."""
    if version >= 12:
        return _FRAME_HEAD_12(17, correlation_id, 0, 0, code, 0) + b"\x01\0"
    return _FRAME_HEAD_7(18, correlation_id, 0, code, 0, 0)


class _Encoder:
    """Lays out one response: runs of bytes, with the spans of files between them."""

    __slots__ = ("_chunks", "_flexible", "_parts", "_services", "_size", "_version")

    def __init__(self, services: Services, version: int) -> None:
        self._services = services
        self._version = version
        self._flexible = version >= 12
        self._chunks: Chunks = []
        self._parts: list[bytes] = []
        self._size = 0

    def encode(self, correlation_id: int, session_id: int, found: list[Found]) -> Ready:
        groups: list[tuple[TopicKey, list[Found]]] = []
        for entry in found:
            if groups and groups[-1][0] == entry.wanted.topic:
                groups[-1][1].append(entry)
            else:
                groups.append((entry.wanted.topic, [entry]))
        for topic, entries in groups:
            self._topic(topic, entries)
        if self._flexible:
            self._parts.append(b"\0")
        self._close_run()
        head = self._head(correlation_id, session_id, len(groups))
        first = self._chunks[0] if self._chunks else b""
        if isinstance(first, bytes):
            self._chunks[:1] = [head + first]
        else:
            self._chunks.insert(0, head)
        return self._chunks

    def _head(self, correlation_id: int, session_id: int, topics: int) -> bytes:
        if self._flexible:
            count = unsigned_varint(topics + 1)
            return _FRAME_HEAD_12(15 + len(count) + self._size, correlation_id, 0, 0, 0, session_id) + count
        if self._version >= 7:
            return _FRAME_HEAD_7(18 + self._size, correlation_id, 0, 0, session_id, topics)
        return _FRAME_HEAD(12 + self._size, correlation_id, 0) + _I32(topics)

    def _topic(self, topic: TopicKey, entries: list[Found]) -> None:
        parts = self._parts
        if self._flexible:
            if isinstance(topic, str):
                name = topic.encode()
                parts.append(unsigned_varint(len(name) + 1) + name)
            else:
                parts.append(topic)
            parts.append(unsigned_varint(len(entries) + 1))
        else:
            assert isinstance(topic, str)
            name = topic.encode()
            parts.append(len(name).to_bytes(2, "big") + name + _I32(len(entries)))
        for entry in entries:
            self._partition(entry)
        if self._flexible:
            self._parts.append(b"\0")

    def _partition(self, entry: Found) -> None:
        version = self._version
        parts = self._parts
        index = entry.wanted.index
        if version >= 5:
            parts.append(
                _PARTITION_5(index, entry.error, entry.high_watermark, entry.last_stable_offset, entry.log_start)
            )
        else:
            parts.append(_PARTITION_4(index, entry.error, entry.high_watermark, entry.last_stable_offset))
        aborted = entry.aborted
        size = entry.span.size if entry.span is not None else 0
        if self._flexible:
            if aborted is None:
                parts.append(b"\0")
            else:
                parts.append(unsigned_varint(len(aborted) + 1))
                parts.extend(_ABORTED_FLEXIBLE(txn.producer_id, txn.first_offset) for txn in aborted)
            parts.append(b"\xff\xff\xff\xff" + unsigned_varint(size + 1))
        else:
            if aborted is None:
                parts.append(b"\xff\xff\xff\xff")
            else:
                parts.append(_I32(len(aborted)))
                parts.extend(_ABORTED(txn.producer_id, txn.first_offset) for txn in aborted)
            if version >= 11:
                parts.append(b"\xff\xff\xff\xff")
            parts.append(_I32(size))
        if entry.span is not None:
            self._close_run()
            self._chunks.append(entry.span)
            self._size += size
        if self._flexible:
            self._parts.append(self._tags(entry))

    def _tags(self, entry: Found) -> bytes:
        tags: list[bytes] = []
        if entry.diverging is not None:
            tags.append(_DIVERGING_TAG(0, 13, *entry.diverging, 0))
        if entry.error in _KNOWS_NEW_LEADER:
            leader = self._services.current_leader(entry.wanted.topic, entry.wanted.index)
            if leader is not None:
                tags.append(_LEADER_TAG(1, 9, *leader, 0))
        return bytes((len(tags),)) + b"".join(tags)

    def _close_run(self) -> None:
        if self._parts:
            run = b"".join(self._parts)
            self._size += len(run)
            self._chunks.append(run)
            self._parts = []
