"""Metadata records as they lie in the log: a frame version, the record's key, its version, and its fields.

Driven by whoever appends to or reads `__cluster_metadata`. Each kind of record is loaded when first met.
"""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple, cast

from ottla.errors import Malformed
from ottla.wire.message import Message

FRAME_VERSION = 1

BEGIN_TRANSACTION = 23
END_TRANSACTION = 24
ABORT_TRANSACTION = 25


class MetadataRecord(NamedTuple):
    message: Message
    version: int


_NAMES = {
    0: "RegisterBrokerRecord",
    1: "UnregisterBrokerRecord",
    2: "TopicRecord",
    3: "PartitionRecord",
    4: "ConfigRecord",
    5: "PartitionChangeRecord",
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    9: "RemoveTopicRecord",
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    12: "FeatureLevelRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    17: "BrokerRegistrationChangeRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    22: "RemoveUserScramCredentialRecord",
    23: "BeginTransactionRecord",
    24: "EndTransactionRecord",
    25: "AbortTransactionRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
    28: "ClearElrRecord",
}
_classes: dict[int, type[Message]] = {}


def record_class(key: int) -> type[Message]:
    found = _classes.get(key)
    if found is None:
        name = _NAMES.get(key)
        if name is None:
            # To skip what we do not know would drop it from our next snapshot: better to stop.
            raise Malformed(f"the metadata log has a record of kind {key}, which a newer release must have written")
        module = "".join("_" + c.lower() if c.isupper() else c for c in name)[1:]
        found = cast("type[Message]", getattr(import_module(f"ottla.wire.messages.{module}"), name))
        _classes[key] = found
    return found


def encode_record(record: MetadataRecord) -> bytes:
    """The value of the record in the log."""
    key = record.message.API_KEY
    assert key in _NAMES, f"{type(record.message).__name__} is no metadata record"
    # All kinds and versions are below 128, so each of the three unsigned varints is one byte.
    return bytes((FRAME_VERSION, key, record.version)) + record.message.encode(record.version)


def decode_record(value: bytes | memoryview) -> MetadataRecord:
    frame_version, position = _unsigned_varint(value, 0)
    if frame_version != FRAME_VERSION:
        raise Malformed(f"a metadata record has frame version {frame_version}, not {FRAME_VERSION}")
    key, position = _unsigned_varint(value, position)
    version, position = _unsigned_varint(value, position)
    kind = record_class(key)
    if version not in kind.VERSIONS:
        raise Malformed(f"a {kind.__name__} has version {version}, which a newer release must have written")
    return MetadataRecord(kind.decode(value[position:], version), version)


def _unsigned_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 35, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
    raise Malformed("a metadata record has a broken frame")
