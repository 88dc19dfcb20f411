"""Fetch requests of the usual kind read without a request object, and responses laid out without a response object.

Tuned by hand, since every record that leaves passes here. A request that has anything unusual in it is left to the
generated reader, which is the one that refuses. A response is runs of packed bytes with spans of files between them, of
which the codec knows only the size: no record is copied, unless there are so few that one piece costs less than three.
`tests/wire/test_fetch_codec.py` holds both against the generated messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Generic, NamedTuple, Protocol, TypeVar

from ottla.errors import ErrorCode
from ottla.model import TopicKey, Uuid
from ottla.wire.primitives import unsigned_varint

FIRST_VERSION = 4
LAST_VERSION = 18

PartitionKey = tuple[TopicKey, int]

NO_WATERMARK = (1 << 63) - 1
"""The reader does not say which high watermark it knows, and does not want to be woken by a higher one (KIP-1166)."""

_REQUEST_12 = Struct(">iiiibii").unpack_from
_REQUEST_15 = Struct(">iiibii").unpack_from
_PARTITION = Struct(">iiqiqi").unpack_from
_U64 = Struct(">q").unpack_from
_REPLICA_STATE = Struct(">iq").unpack_from
_INDEX = Struct(">i").unpack_from

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
_NO_REPLICA = b"\xff\xff\xff\xff"


class Wanted(NamedTuple):
    """What a request asks of one partition."""

    topic: TopicKey
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    high_watermark: int = NO_WATERMARK


class Request(NamedTuple):
    replica_id: int
    """Negative for consumers."""
    broker_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    wanted: list[Wanted]
    forgotten: list[PartitionKey]
    rack: str


def read_request(body: bytes, version: int, elements_max: int) -> Request:
    """Raises `Malformed`."""
    if version >= 12:
        try:
            plain = _read_plain(body, version)
        except (StructError, IndexError, UnicodeDecodeError):
            plain = None
        if plain is not None and len(plain.wanted) + len(plain.forgotten) < elements_max // 2:
            return plain
    return _read_any(body, version, elements_max)


def _read_plain(body: bytes, version: int) -> Request | None:
    """None for what is not of the usual kind: counts of one byte, and no tagged fields but those that followers use."""
    if version >= 15:
        replica_id = broker_epoch = -1
        max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = _REQUEST_15(body, 0)
        p = 21
    else:
        broker_epoch = -1
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = _REQUEST_12(body, 0)
        p = 25
    by_id = version >= 13
    wanted: list[Wanted] = []
    forgotten: list[PartitionKey] = []
    topics = body[p]
    p += 1
    if not 0 < topics < 128:
        return None
    for _ in range(topics - 1):
        topic, p = _read_topic(body, p, by_id)
        partitions = body[p]
        p += 1
        if not 0 < partitions < 128:
            return None
        for _ in range(partitions - 1):
            partition, leader_epoch, offset, last_epoch, log_start, size = _PARTITION(body, p)
            p += 32
            high_watermark = NO_WATERMARK
            if body[p]:
                if version < 18 or body[p : p + 3] != b"\x01\x01\x08":
                    return None
                high_watermark = _U64(body, p + 3)[0]
                p += 10
            p += 1
            wanted.append(Wanted(topic, partition, offset, size, leader_epoch, last_epoch, log_start, high_watermark))
        if body[p]:
            return None
        p += 1
    topics = body[p]
    p += 1
    if not 0 < topics < 128:
        return None
    for _ in range(topics - 1):
        topic, p = _read_topic(body, p, by_id)
        partitions = body[p]
        p += 1
        if not 0 < partitions < 128:
            return None
        for _ in range(partitions - 1):
            forgotten.append((topic, _INDEX(body, p)[0]))
            p += 4
        if body[p]:
            return None
        p += 1
    size = body[p]
    if not 0 < size < 128:
        return None
    rack = "" if size == 1 else str(body[p + 1 : p + size], "utf-8")
    p += size
    if body[p]:
        if version < 15 or body[p : p + 3] != b"\x01\x01\x0d" or body[p + 15]:
            return None
        replica_id, broker_epoch = _REPLICA_STATE(body, p + 3)
        p += 15
    if p + 1 != len(body):
        return None
    return Request(
        replica_id,
        broker_epoch,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        wanted,
        forgotten,
        rack,
    )


def _read_topic(body: bytes, p: int, by_id: bool) -> tuple[TopicKey, int]:
    if by_id:
        return Uuid(body[p : p + 16]), p + 16
    end = p + body[p]
    if not p < end < p + 128:
        raise IndexError
    return str(body[p + 1 : end], "utf-8"), end


def _read_any(body: bytes, version: int, elements_max: int) -> Request:
    from ottla.wire.messages.fetch_request import FetchRequest

    request, _ = FetchRequest.read(body, 0, version, elements_max)
    by_id = version >= 13
    state = request.replica_state
    return Request(
        state.replica_id if version >= 15 else request.replica_id,
        state.replica_epoch if version >= 15 else -1,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        [
            Wanted(
                topic.topic_id if by_id else topic.topic,
                partition.partition,
                partition.fetch_offset,
                partition.partition_max_bytes,
                partition.current_leader_epoch,
                partition.last_fetched_epoch,
                partition.log_start_offset,
                partition.high_watermark,
            )
            for topic in request.topics
            for partition in topic.partitions
        ],
        [
            (topic.topic_id if by_id else topic.topic, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ],
        request.rack_id,
    )


class Span(Protocol):
    @property
    def size(self) -> int: ...


class Aborted(Protocol):
    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...


S = TypeVar("S", bound=Span)


class Fetched(Generic[S]):
    """What the response says of one partition."""

    __slots__ = (
        "aborted",
        "data",
        "diverging",
        "error",
        "high_watermark",
        "index",
        "last_stable_offset",
        "leader",
        "log_start",
        "preferred",
        "span",
        "topic",
    )

    def __init__(self, topic: TopicKey, index: int) -> None:
        self.topic = topic
        self.index = index
        self.error = 0
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start = -1
        self.aborted: Sequence[Aborted] | None = None
        self.preferred = -1
        """The replica that the reader is to ask instead (KIP-392)."""
        self.span: S | None = None
        """Where its records are."""
        self.data: bytes | bytearray | memoryview | None = None
        """The bytes of the span, if they are few and at hand: they leave in one piece with what surrounds them."""
        self.diverging: tuple[int, int] | None = None
        """The epoch and offset at which the reader's log parts from ours (KIP-595)."""
        self.leader: tuple[int, int] | None = None
        """Who leads, and since which epoch, for a reader that came to the wrong one (KIP-951)."""


class NodeAddress(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


def pack_refusal(version: int, correlation_id: int, code: ErrorCode) -> bytes:
    """An answer to the request as a whole: its session is not what the client thinks."""
    if version >= 12:
        return _FRAME_HEAD_12(17, correlation_id, 0, 0, code, 0) + b"\x01\0"
    return _FRAME_HEAD_7(18, correlation_id, 0, code, 0, 0)


def pack_throttled(version: int, correlation_id: int, session_id: int, throttle_ms: int) -> bytes:
    """An answer without partitions: the client has had more than its quota, and is to ask again after a while."""
    if version >= 12:
        return _FRAME_HEAD_12(17, correlation_id, 0, throttle_ms, 0, session_id) + b"\x01\0"
    if version >= 7:
        return _FRAME_HEAD_7(18, correlation_id, throttle_ms, 0, session_id, 0)
    return _FRAME_HEAD(12, correlation_id, throttle_ms) + _I32(0)


def pack(
    version: int,
    correlation_id: int,
    session_id: int,
    found: Sequence[Fetched[S]],
    nodes: Sequence[NodeAddress] = (),
) -> list[bytes | S]:
    """A whole frame in pieces, in order. Partitions of one topic that follow each other share an entry."""
    if version >= 12 and len(found) == 1 and not nodes:
        return _pack_one(correlation_id, session_id, found[0])
    groups: list[tuple[TopicKey, list[Fetched[S]]]] = []
    for each in found:
        if groups and groups[-1][0] == each.topic:
            groups[-1][1].append(each)
        else:
            groups.append((each.topic, [each]))
    flexible = version >= 12
    layout: _Layout[S] = _Layout(version)
    for topic, entries in groups:
        layout.topic(topic, entries)
    if flexible:
        layout.parts.append(_nodes_tag(nodes) if nodes and version >= 16 else b"\0")
    layout.close_run()
    chunks = layout.chunks
    size = layout.size
    if flexible:
        count = unsigned_varint(len(groups) + 1)
        head = _FRAME_HEAD_12(15 + len(count) + size, correlation_id, 0, 0, 0, session_id) + count
    elif version >= 7:
        head = _FRAME_HEAD_7(18 + size, correlation_id, 0, 0, session_id, len(groups))
    else:
        head = _FRAME_HEAD(12 + size, correlation_id, 0) + _I32(len(groups))
    first = chunks[0] if chunks else b""
    if isinstance(first, bytes):
        chunks[:1] = [head + first]
    else:
        chunks.insert(0, head)
    return chunks


def _pack_one(correlation_id: int, session_id: int, entry: Fetched[S]) -> list[bytes | S]:
    """What most readers get most of the time: one partition."""
    key = entry.topic
    if isinstance(key, str):
        name = key.encode()
        topic = unsigned_varint(len(name) + 1) + name
    else:
        topic = key
    span = entry.span
    size = 0 if span is None else span.size
    aborted = entry.aborted
    run = b"".join(
        (
            b"\x02",
            topic,
            b"\x02",
            _PARTITION_5(entry.index, entry.error, entry.high_watermark, entry.last_stable_offset, entry.log_start),
            b"\0" if aborted is None else _aborted(aborted),
            _NO_REPLICA if entry.preferred < 0 else _I32(entry.preferred),
            unsigned_varint(size + 1),
        )
    )
    tail = b"\0\0\0" if entry.diverging is None and entry.leader is None else _tags(entry) + b"\0\0"
    head = _FRAME_HEAD_12(15 + len(run) + size + len(tail), correlation_id, 0, 0, 0, session_id)
    if span is None:
        return [head + run + tail]
    if entry.data is not None:
        return [b"".join((head, run, entry.data, tail))]
    return [head + run, span, tail]


def _aborted(aborted: Sequence[Aborted]) -> bytes:
    return unsigned_varint(len(aborted) + 1) + b"".join(
        _ABORTED_FLEXIBLE(txn.producer_id, txn.first_offset) for txn in aborted
    )


def _nodes_tag(nodes: Sequence[NodeAddress]) -> bytes:
    """One tagged field, with the tag 0: where the nodes are that the partitions' new leaders run on."""
    body = unsigned_varint(len(nodes) + 1)
    for node in nodes:
        host = node.host.encode()
        rack = b"\0" if node.rack is None else unsigned_varint(len(node.rack.encode()) + 1) + node.rack.encode()
        body += _I32(node.node_id) + unsigned_varint(len(host) + 1) + host + _I32(node.port) + rack + b"\0"
    return b"\x01\0" + unsigned_varint(len(body)) + body


class _Layout(Generic[S]):
    __slots__ = ("_flexible", "_version", "chunks", "parts", "size")

    def __init__(self, version: int) -> None:
        self._version = version
        self._flexible = version >= 12
        self.chunks: list[bytes | S] = []
        self.parts: list[bytes | bytearray | memoryview] = []
        self.size = 0

    def topic(self, topic: TopicKey, entries: list[Fetched[S]]) -> None:
        parts = self.parts
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
            self.parts.append(b"\0")

    def _partition(self, entry: Fetched[S]) -> None:
        version = self._version
        parts = self.parts
        if version >= 5:
            parts.append(
                _PARTITION_5(entry.index, entry.error, entry.high_watermark, entry.last_stable_offset, entry.log_start)
            )
        else:
            parts.append(_PARTITION_4(entry.index, entry.error, entry.high_watermark, entry.last_stable_offset))
        aborted = entry.aborted
        size = entry.span.size if entry.span is not None else 0
        preferred = _NO_REPLICA if entry.preferred < 0 else _I32(entry.preferred)
        if self._flexible:
            parts.append(b"\0" if aborted is None else _aborted(aborted))
            parts.append(preferred + unsigned_varint(size + 1))
        else:
            if aborted is None:
                parts.append(b"\xff\xff\xff\xff")
            else:
                parts.append(_I32(len(aborted)))
                parts.extend(_ABORTED(txn.producer_id, txn.first_offset) for txn in aborted)
            if version >= 11:
                parts.append(preferred)
            parts.append(_I32(size))
        if entry.data is not None:
            parts.append(entry.data)
        elif entry.span is not None:
            self.close_run()
            self.chunks.append(entry.span)
            self.size += size
        if self._flexible:
            self.parts.append(_tags(entry))

    def close_run(self) -> None:
        if self.parts:
            run = b"".join(self.parts)
            self.size += len(run)
            self.chunks.append(run)
            self.parts = []


def _tags(entry: Fetched[S]) -> bytes:
    if entry.diverging is None and entry.leader is None:
        return b"\0"
    tags: list[bytes] = []
    if entry.diverging is not None:
        tags.append(_DIVERGING_TAG(0, 13, *entry.diverging, 0))
    if entry.leader is not None:
        tags.append(_LEADER_TAG(1, 9, *entry.leader, 0))
    return bytes((len(tags),)) + b"".join(tags)
