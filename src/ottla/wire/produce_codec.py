"""Produce requests read where the socket put them, and plain answers packed without a response object.

Tuned by hand, since every record that enters passes here. Two things make it quick. Lengths and tags are nearly always
one byte, so that case is read in line. And a producer's requests begin alike: what stands before the only batch of a
request (`acks`, topic, partition) is looked up as a whole among the openings seen before, and read only if it is new.
An opening is a pure function of its bytes, so that it can be remembered without ever being wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from ottla.errors import Malformed
from ottla.model import TopicKey, Uuid
from ottla.wire._hot import find_opening, pack_one
from ottla.wire.primitives import read_unsigned_varint, skip_tagged_fields, unsigned_varint

__all__ = [
    "FIRST_VERSION",
    "LAST_VERSION",
    "Opening",
    "Openings",
    "Request",
    "TopicBatches",
    "find_opening",
    "pack",
    "pack_one",
    "read_request",
]

FIRST_VERSION = 3
"""Older ones carry message formats that Kafka 4 refuses; they are advertised only for the sake of old librdkafka."""
LAST_VERSION = 13

OPENING_TOPIC_BYTES_MAX = 256
"""The longest legal name, with its length and the count of partitions."""

OPENINGS_MAX = 4096
"""Openings of one version remembered; then all of them are forgotten and learned again."""

_I16 = Struct(">h").unpack_from
_I32 = Struct(">i").unpack_from
_ACKS_TIMEOUT = Struct(">hi").unpack_from
_INDEX_SIZE = Struct(">ii").unpack_from
_HEAD = Struct(">ii").pack
_PARTITION_3 = Struct(">ihqq").pack
_PARTITION_5 = Struct(">ihqqq").pack
_PARTITION_8 = Struct(">ihqqqih").pack
_PARTITION_9 = Struct(">ihqqqBBB").pack
_NO_THROTTLE = bytes(4)
_NO_THROTTLE_FLEXIBLE = bytes(5)


class TopicBatches:
    """One topic of a request; `head` is its name or id and its partition count, as on the wire of both directions."""

    __slots__ = ("batches", "head", "key")

    def __init__(self, head: bytes, key: TopicKey, batches: list[tuple[int, memoryview]]) -> None:
        self.head = head
        self.key = key
        self.batches = batches
        """Each partition's index and records."""


class Request(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicBatches]


class Opening(NamedTuple):
    """What stands before the batch of a request with one topic, one partition and no transaction."""

    acks: int
    timeout_ms: int
    key: TopicKey
    partition: int
    head: bytes


class Openings:
    """The openings seen so far, by version and bytes."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: list[dict[bytes, Opening]] = [{} for _ in range(LAST_VERSION + 1)]

    def find(self, buffer: bytearray, start: int, end: int, size: int) -> tuple[int, int, Opening, int, int] | None:
        """For the request frame in `buffer[start:end]`, of which `size` bytes after the header are its opening:
        version, correlation id, opening, and where the batch behind it begins and ends.

        None if the opening is not known, or if the request holds anything else than that batch. Written out, and
        compiled, in `_hot`: the dispatcher calls that directly.
        """
        return find_opening(buffer, start, end, size, self.known)

    def learn(self, view: memoryview, version: int, position: int, request: Request) -> int:
        """Remember how `request`, whose body is at `position`, begins, if it is of the plain kind; the size of its
        opening, or 0."""
        if request.transactional_id is not None or len(request.topics) != 1 or len(request.topics[0].batches) != 1:
            return 0
        topic = request.topics[0]
        if len(topic.head) > OPENING_TOPIC_BYTES_MAX:
            return 0  # No topic has so long a name, and a stranger could have thousands of them remembered.
        # Before the topic: the absent transactional id, acks, timeout and the count of topics. After it: the index.
        size = (8 if version >= 9 else 12) + len(topic.head) + 4
        known = self.known[version]
        if len(known) >= OPENINGS_MAX:
            known.clear()
        known[bytes(view[position : position + size])] = Opening(
            request.acks, request.timeout_ms, topic.key, topic.batches[0][0], topic.head
        )
        return size


def read_request(
    buffer: bytearray, view: memoryview, version: int, position: int, end: int, elements_max: int
) -> Request:
    """The whole request. `position` is where the body begins; bytes at and after `end` are not ours."""
    try:
        return _read(buffer, view, version, position, end, elements_max)
    except (StructError, IndexError):
        raise Malformed("a produce request ends too early") from None


def _read(buffer: bytearray, view: memoryview, version: int, p: int, end: int, elements_max: int) -> Request:
    flexible = version >= 9
    if flexible:
        size, p = read_unsigned_varint(buffer, p)
        size -= 1
    else:
        size = _I16(buffer, p)[0]
        p += 2
    transactional_id = None
    if size >= 0:
        try:
            transactional_id = str(view[p : p + size], "utf-8")
        except UnicodeDecodeError:
            raise Malformed("a transactional id is not UTF-8") from None
        p += size
    acks, timeout_ms = _ACKS_TIMEOUT(buffer, p)
    p += 6
    count, p = _count(buffer, p, end, flexible)
    elements = count
    if elements > elements_max:
        raise Malformed("a produce request names too many topics")
    topics: list[TopicBatches] = []
    for _ in range(count):
        topic_start = p
        if version >= 13:
            key: TopicKey = Uuid(bytes(view[p : p + 16]))
            p += 16
        else:
            if flexible:
                size, p = read_unsigned_varint(buffer, p)
                size -= 1
            else:
                size = _I16(buffer, p)[0]
                p += 2
            if size < 0:
                raise Malformed("a topic without a name")
            try:
                key = str(view[p : p + size], "utf-8")
            except UnicodeDecodeError:
                raise Malformed("a topic name is not UTF-8") from None
            p += size
        partitions, p = _count(buffer, p, end, flexible)
        elements += partitions
        if elements > elements_max:
            raise Malformed("a produce request names too many partitions")
        batches: list[tuple[int, memoryview]] = []
        topics.append(TopicBatches(bytes(view[topic_start:p]), key, batches))
        for _ in range(partitions):
            if flexible:
                index = _I32(buffer, p)[0]
                size, p = read_unsigned_varint(buffer, p + 4)
                size -= 1
            else:
                index, size = _INDEX_SIZE(buffer, p)
                p += 8
            stop = p + size if size > 0 else p
            if stop > end:
                raise Malformed("a produce request ends inside a batch")
            batches.append((index, view[p:stop]))
            p = stop
            if flexible:
                p = p + 1 if buffer[p] == 0 else skip_tagged_fields(buffer, p)
        if flexible:
            p = p + 1 if buffer[p] == 0 else skip_tagged_fields(buffer, p)
    if flexible:
        p = p + 1 if buffer[p] == 0 else skip_tagged_fields(buffer, p)
    if p > end:
        raise Malformed("a produce request ends too early")
    return Request(transactional_id, acks, timeout_ms, topics)


def _count(buffer: bytearray, p: int, end: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        count, p = read_unsigned_varint(buffer, p)
        count -= 1
    else:
        count = _I32(buffer, p)[0]
        p += 4
    if not 0 <= count <= end - p:
        raise Malformed("a produce request lies about its length")
    return count, p


Success = tuple[int, int, int, int]
"""Index, base offset, log append time and log start of a partition that took its batch."""


def pack(version: int, correlation_id: int, topics: list[tuple[bytes, Iterable[Success]]]) -> bytes:
    """The frame that answers every partition with success; each topic with its head."""
    parts: list[bytes] = []
    for head, partitions in topics:
        parts.append(head)
        if version >= 9:
            parts.extend(_PARTITION_9(index, 0, base, time, start, 1, 0, 0) for index, base, time, start in partitions)
            parts.append(b"\0")
        elif version >= 8:
            parts.extend(_PARTITION_8(index, 0, base, time, start, 0, -1) for index, base, time, start in partitions)
        elif version >= 5:
            parts.extend(_PARTITION_5(index, 0, base, time, start) for index, base, time, start in partitions)
        else:
            parts.extend(_PARTITION_3(index, 0, base, time) for index, base, time, _ in partitions)
    body = b"".join(parts)
    if version >= 9:
        count = unsigned_varint(len(topics) + 1)
        return _HEAD(10 + len(body) + len(count), correlation_id) + b"\0" + count + body + _NO_THROTTLE_FLEXIBLE
    return _HEAD(12 + len(body), correlation_id) + len(topics).to_bytes(4, "big") + body + _NO_THROTTLE
