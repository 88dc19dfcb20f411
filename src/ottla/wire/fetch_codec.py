"""Fetch responses laid out without a response object: runs of packed bytes, with spans of files between them.

Tuned by hand, since every record that leaves passes here, and none of them is copied: what a partition's records are,
the codec knows only by their size. `tests/wire/test_fetch_codec.py` holds it against the generated message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Generic, NamedTuple, Protocol, TypeVar

from ottla.errors import ErrorCode
from ottla.model import TopicKey
from ottla.wire.primitives import unsigned_varint

FIRST_VERSION = 4
LAST_VERSION = 18

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


def pack(
    version: int,
    correlation_id: int,
    session_id: int,
    found: Iterable[Fetched[S]],
    nodes: Sequence[NodeAddress] = (),
) -> list[bytes | S]:
    """A whole frame in pieces, in order. Partitions of one topic that follow each other share an entry."""
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
        self.parts: list[bytes] = []
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
            if aborted is None:
                parts.append(b"\0")
            else:
                parts.append(unsigned_varint(len(aborted) + 1))
                parts.extend(_ABORTED_FLEXIBLE(txn.producer_id, txn.first_offset) for txn in aborted)
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
        if entry.span is not None:
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
