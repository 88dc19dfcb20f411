"""The records of coordinators as they lie in the log: a key that says its kind, and a value that says its version.

`StoredRecord` is what a shard generates and what it replays, whether it has just made it or read it from the partition.
Both key and value begin with two bytes: the kind of record, and the version of the value. A record without a value
takes back what its key says. Kinds that this release does not know are `None` when decoded, and are stepped over, as
Kafka does.
"""

from __future__ import annotations

import struct
from importlib import import_module
from typing import NamedTuple, cast

from ottla.errors import Malformed
from ottla.wire.message import Message

_SHORT = struct.Struct(">h")


class StoredRecord(NamedTuple):
    key: Message
    value: Message | None
    """None: a tombstone."""
    version: int = 0
    """Of the value."""


class EncodedRecord(NamedTuple):
    """A record of a kind that there are very many of, as it lies in the log: its part reads and writes it by hand."""

    key: bytes
    value: bytes | None
    """Both with the two bytes that they begin with."""
    place: object = None
    """What the part that made it knows of the key, to spare itself reading it again; None of a record that was read."""


AnyRecord = StoredRecord | EncodedRecord


class RecordKinds:
    """The kinds of record that one topic holds: the number of a kind → the name that its key and value share.

    Those in `encoded` are not decoded here.
    """

    __slots__ = ("_classes", "_encoded", "_names")

    def __init__(self, names: dict[int, str], encoded: frozenset[int] = frozenset()) -> None:
        self._names = names
        self._encoded = frozenset(_SHORT.pack(kind) for kind in encoded)
        self._classes: dict[int, tuple[type[Message], type[Message]]] = {}

    def encode(self, record: AnyRecord) -> tuple[bytes, bytes | None]:
        if type(record) is EncodedRecord:
            return record.key, record.value
        assert type(record) is StoredRecord
        key, value, version = record
        assert key.API_KEY in self._names, f"{type(key).__name__} does not belong to this topic"
        encoded = _SHORT.pack(key.API_KEY) + key.encode(0)
        return encoded, None if value is None else _SHORT.pack(version) + value.encode(version)

    def decode(self, key: bytes, value: bytes | None) -> AnyRecord | None:
        """None: a kind, or a version, that this release does not know."""
        if key[:2] in self._encoded:
            return EncodedRecord(key, value)
        if len(key) < 2 or (value is not None and len(value) < 2):
            raise Malformed("a coordinator's record is shorter than its version")
        kind: int = _SHORT.unpack_from(key)[0]
        classes = self._classes.get(kind) or self._load(kind)
        if classes is None:
            return None
        decoded_key = classes[0].decode(key[2:], 0)
        if value is None:
            return StoredRecord(decoded_key, None)
        version: int = _SHORT.unpack_from(value)[0]
        if version not in classes[1].VERSIONS:
            return None
        return StoredRecord(decoded_key, classes[1].decode(value[2:], version), version)

    def _load(self, kind: int) -> tuple[type[Message], type[Message]] | None:
        name = self._names.get(kind)
        if name is None:
            return None
        found = (_message(f"{name}Key"), _message(f"{name}Value"))
        self._classes[kind] = found
        return found


def _message(name: str) -> type[Message]:
    module = "".join("_" + c.lower() if c.isupper() else c for c in name)[1:]
    return cast("type[Message]", getattr(import_module(f"ottla.wire.messages.{module}"), name))


GROUP_KINDS = RecordKinds(
    {
        0: "LegacyOffsetCommit",
        1: "OffsetCommit",
        2: "GroupMetadata",
        3: "ConsumerGroupMetadata",
        4: "ConsumerGroupPartitionMetadata",
        5: "ConsumerGroupMemberMetadata",
        6: "ConsumerGroupTargetAssignmentMetadata",
        7: "ConsumerGroupTargetAssignmentMember",
        8: "ConsumerGroupCurrentMemberAssignment",
        16: "ConsumerGroupRegularExpression",
    },
    encoded=frozenset({0, 1}),
)
"""Of `__consumer_offsets`, most of which are committed offsets."""

TRANSACTION_KINDS = RecordKinds({0: "TransactionLog"})
"""Of `__transaction_state`."""
