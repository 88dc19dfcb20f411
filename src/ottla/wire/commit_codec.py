"""OffsetCommit requests about one partition, read where the socket put them, and their plain answer.

Tuned by hand, since consumers commit the same way for as long as they live: only the offset changes. What stands before
it (group, member, topic, partition) is looked up as a whole among the openings seen before, and read only if it is new.
An opening is a pure function of its bytes. Requests of other shapes, or with metadata, go the way of all others.

Versions 8 to 10, which have compact lengths; in these a partition of the request is

    index 4 │ offset 8, leader epoch 4, metadata ≥ 1 │ no tags 1

and its middle is how a stored offset (`OffsetCommitValue` version 4) begins, byte for byte.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from ottla.errors import Malformed
from ottla.model import TopicKey, Uuid
from ottla.wire.primitives import Buffer

FIRST_VERSION = 8
LAST_VERSION = 10
FIRST_VERSION_WITH_IDS = 10

OPENING_BYTES_MAX = 1024
"""A stranger could have thousands of them remembered."""

OFFSET_AND_EPOCH_BYTES = 12
_NO_TAGS = bytes(3)
"""Of the partition, of its topic and of the request."""
_ONE = 2
"""How a compact count says one."""
_I32 = Struct(">i").unpack_from
_HEAD = Struct(">ii").pack
_TAIL = Struct(">h3x").pack
_SUCCESS = _TAIL(0)


class Opening(NamedTuple):
    group_id: str
    generation: int
    """Or the member epoch."""
    member_id: str
    group_instance_id: str | None
    topic: TopicKey
    partition: int
    answer: bytes
    """The response, but for its length, correlation id and error code, and what follows that."""


def read_opening(buffer: Buffer, version: int, position: int, end: int) -> tuple[Opening, int] | None:
    """How the request whose body is at `position` begins, and where the offset follows. None if it is of another shape;
    whether it is malformed then is for whoever reads it whole to say."""
    try:
        group_id, p = _read_text(buffer, position)
        (generation,) = _I32(buffer, p)
        member_id, p = _read_text(buffer, p + 4)
        group_instance_id, p = _read_text(buffer, p)
        if group_id is None or member_id is None or buffer[p] != _ONE:
            return None
        head = p + 1
        topic: TopicKey | None
        if version >= FIRST_VERSION_WITH_IDS:
            topic, p = Uuid(bytes(buffer[head : head + 16])), head + 16
        else:
            topic, p = _read_text(buffer, head)
        if topic is None or buffer[p] != _ONE:
            return None
        p += 1
        (partition,) = _I32(buffer, p)
        at = p + 4
        if at > end or at - position > OPENING_BYTES_MAX:
            return None
        # The topic and the count of partitions stand in both messages alike; before them the response has the tags of
        # its header, no throttle time and the count of topics.
        answer = bytes(5) + bytes((_ONE,)) + bytes(buffer[head:at])
        return Opening(group_id, generation, member_id, group_instance_id, topic, partition, answer), at
    except (IndexError, StructError, UnicodeDecodeError, Malformed):
        return None


def is_plain(buffer: Buffer, at: int, end: int) -> bool:
    """Is an offset at `at` followed by its leader epoch, by no metadata, and by the end of the request?"""
    metadata = at + OFFSET_AND_EPOCH_BYTES
    return metadata + 4 == end and buffer[metadata] <= 1 and buffer[metadata + 1 : end] == _NO_TAGS


def pack_answer(correlation_id: int, answer: bytes, error_code: int) -> bytes:
    tail = _SUCCESS if not error_code else _TAIL(error_code)
    return b"".join((_HEAD(4 + len(answer) + len(tail), correlation_id), answer, tail))


def _read_text(buffer: Buffer, position: int) -> tuple[str | None, int]:
    """Text of fewer than 127 bytes, or none."""
    size = buffer[position]
    if size > 127:
        raise Malformed("a text that is too long to be remembered")
    if not size:
        return None, position + 1
    end = position + size
    return bytes(buffer[position + 1 : end]).decode(), end
