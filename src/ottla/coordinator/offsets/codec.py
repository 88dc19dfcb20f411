"""Committed offsets as they lie in the log, read and written by hand: there may be a million of them.

`OffsetCommitKey` and `OffsetCommitValue` of Kafka 4.3.1. Values are written in version 4, which has the topic's id, or
in version 1 if the client asked for a retention of its own (OffsetCommit below version 5). All versions are read.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from ottla.errors import Malformed
from ottla.model import ZERO_UUID, Uuid
from ottla.wire.messages.offset_commit_value import OffsetCommitValue
from ottla.wire.primitives import Buffer, unsigned_varint

NEVER = -1
"""The `expire_timestamp_ms` of an offset that expires as its group's state says."""

_I16 = Struct(">h")
_I32 = Struct(">i")
_KEY_BEGIN = Struct(">hh")
_VALUE_BEGIN = Struct(">hqi")
_I64 = Struct(">q")
_TIMES = Struct(">qq")

_KIND = 1
OFFSET_KIND = _I16.pack(_KIND)
"""What the key of a committed offset begins with."""
_VERSION = 4
_VERSION_WITH_EXPIRY = 1
_METADATA_AT = _VALUE_BEGIN.size
_TOPIC_ID_TAG = b"\x01\x00\x10"
"""One tagged field, number 0, of 16 bytes."""
_NO_TAGS = b"\x00"
_NO_METADATA = b"\x01"
_PLAIN_BEGIN = _I16.pack(_VERSION)
_PLAIN_SIZES = (_METADATA_AT + 10, _METADATA_AT + 28)
"""Of a value without metadata: without a topic's id, and with one."""


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    """Of the last record that was consumed (KIP-320); -1 if the client did not say."""
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NEVER
    topic_id: Uuid = ZERO_UUID


def key_prefix(group_id: str, topic: str) -> bytes:
    """What the keys of all partitions of a topic begin with; the partition's four bytes follow."""
    group, name = group_id.encode(), topic.encode()
    return b"".join((_KEY_BEGIN.pack(_KIND, len(group)), group, _I16.pack(len(name)), name))


def encode_key(group_id: str, topic: str, partition: int) -> bytes:
    return key_prefix(group_id, topic) + _I32.pack(partition)


def value_tail(topic_id: Uuid) -> bytes:
    """What follows the commit's time in a value of version 4."""
    return _NO_TAGS if topic_id == ZERO_UUID else _TOPIC_ID_TAG + topic_id


def encode_plain_value(offset_and_epoch: Buffer, commit_timestamp_ms: int, tail: bytes) -> bytes:
    """A value of version 4 without metadata: the offset and its leader epoch as they came on the wire."""
    return b"".join((_PLAIN_BEGIN, offset_and_epoch, _NO_METADATA, _I64.pack(commit_timestamp_ms), tail))


def decode_key(key: bytes) -> tuple[str, str, int]:
    """The group, the topic and the partition."""
    try:
        size: int = _I16.unpack_from(key, 2)[0]
        at = 4 + size
        group_id = key[4:at].decode()
        name_size: int = _I16.unpack_from(key, at)[0]
        end = at + 2 + name_size
        partition: int = _I32.unpack_from(key, end)[0]
        if size < 0 or name_size < 0 or end + 4 != len(key):
            raise Malformed("the key of a committed offset is not as long as it says")
        return group_id, key[at + 2 : end].decode(), partition
    except (StructError, UnicodeDecodeError) as error:
        raise Malformed(f"the key of a committed offset cannot be read: {error}") from None


def encode_value(committed: CommittedOffset) -> bytes:
    offset, leader_epoch, text, commit_timestamp_ms, expire_timestamp_ms, topic_id = committed
    metadata = text.encode()
    if expire_timestamp_ms != NEVER:
        return b"".join(
            (
                _I16.pack(_VERSION_WITH_EXPIRY),
                _I64.pack(offset),
                _I16.pack(len(metadata)),
                metadata,
                _TIMES.pack(commit_timestamp_ms, expire_timestamp_ms),
            )
        )
    return b"".join(
        (
            _VALUE_BEGIN.pack(_VERSION, offset, leader_epoch),
            unsigned_varint(len(metadata) + 1),
            metadata,
            _I64.pack(commit_timestamp_ms),
            value_tail(topic_id),
        )
    )


def decode_value(value: bytes) -> CommittedOffset:
    """Raises `Malformed`, also for a version from the future: ask `is_known` first."""
    if len(value) < 2:
        raise Malformed("the value of a committed offset is shorter than its version")
    version: int = _I16.unpack_from(value)[0]
    if version == _VERSION and len(value) > _METADATA_AT and 0 < (size := value[_METADATA_AT]) < 128:
        # As this release and Kafka write them, with metadata of a common length.
        at = _METADATA_AT + size
        tags = value[at + 8 :]
        if tags == _NO_TAGS or (len(tags) == 19 and tags[:3] == _TOPIC_ID_TAG):
            _, offset, leader_epoch = _VALUE_BEGIN.unpack_from(value)
            (commit_timestamp_ms,) = _I64.unpack_from(value, at)
            try:
                metadata = value[_METADATA_AT + 1 : at].decode()
            except UnicodeDecodeError as error:
                raise Malformed(f"the metadata of a committed offset is no text: {error}") from None
            topic_id = Uuid(tags[3:]) if len(tags) > 1 else ZERO_UUID
            return CommittedOffset(offset, leader_epoch, metadata, commit_timestamp_ms, NEVER, topic_id)
    if version not in OffsetCommitValue.VERSIONS:
        raise Malformed(f"version {version} of a committed offset is not known")
    found = OffsetCommitValue.decode(value[2:], version)
    return CommittedOffset(
        found.offset,
        found.leader_epoch,
        found.metadata,
        found.commit_timestamp,
        found.expire_timestamp,
        found.topic_id,
    )


def is_known(value: bytes) -> bool:
    """Is the value of a version that this release reads? If it is, and cannot be read, `Malformed` is raised: what was
    let in once is read without fear later."""
    if len(value) in _PLAIN_SIZES and value[:2] == _PLAIN_BEGIN and value[_METADATA_AT] == 1:
        return True
    if len(value) >= 2 and _I16.unpack_from(value)[0] not in OffsetCommitValue.VERSIONS:
        return False
    decode_value(value)
    return True
