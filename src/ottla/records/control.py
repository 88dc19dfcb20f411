"""Control records: what brokers and controllers tell each other inside a log, and consumers skip.

A control batch has the control flag in its header, and its records have a key of two 16-bit numbers, version and type.
The value belongs to the type: a transaction marker's is here, KRaft's are messages that `wire` knows and come as bytes.
Clients may not write any (`validate`).
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from ottla.errors import Malformed
from ottla.model import NO_LEADER_EPOCH
from ottla.records.builder import BatchBuilder
from ottla.records.records import Record

_KEY = struct.Struct(">hh")
_KEY_VERSION = 0
_MARKER = struct.Struct(">hi")
_MARKER_VERSION = 0


class ControlType(IntEnum):
    """The types of Kafka's control records. Readers pass over those that they do not know."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTxnMarker(NamedTuple):
    """The end of a transaction in one partition, and the epoch of the coordinator that decided it."""

    commit: bool
    coordinator_epoch: int


def control_key(kind: ControlType) -> bytes:
    return _KEY.pack(_KEY_VERSION, kind)


def control_type(key: bytes | None) -> int:
    """The type in a control record's key: a `ControlType`, or a number from the future."""
    if key is None or len(key) < _KEY.size:
        raise Malformed("a control record's key has at least four bytes")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise Malformed(f"a control record's key has version {version}")
    return int(kind)


def control_batch(
    *records: tuple[ControlType, bytes],
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """A batch of control records of KRaft (leader change, snapshot header and footer, version, voters)."""
    builder = BatchBuilder(base_offset=base_offset, leader_epoch=leader_epoch, control=True)
    for kind, value in records:
        builder.append(timestamp, control_key(kind), value)
    return builder.build()


def end_txn_batch(
    *,
    commit: bool,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The batch of one marker that commits or aborts a producer's transaction in a partition (KIP-98)."""
    builder = BatchBuilder(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    builder.append(timestamp, control_key(kind), _MARKER.pack(_MARKER_VERSION, coordinator_epoch))
    return builder.build()


def read_end_txn_marker(record: Record) -> EndTxnMarker | None:
    """The marker that a record of a control batch is, or None when it is another kind."""
    kind = control_type(record.key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _MARKER.size:
        raise Malformed("a transaction marker has at least six bytes")
    version, coordinator_epoch = _MARKER.unpack_from(record.value)
    if version < 0:
        raise Malformed(f"a transaction marker has version {version}")
    return EndTxnMarker(kind == ControlType.COMMIT, coordinator_epoch)
