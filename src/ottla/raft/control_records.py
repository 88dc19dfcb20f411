"""The raft layer's own records, in batches that no state machine sees.

A control record's key is a version and a type; its value is a message of that type, which repeats its version.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.errors import Malformed
from ottla.raft.voters import VoterSet
from ottla.records import BatchBuilder, iterate
from ottla.wire.message import Message

LEADER_CHANGE = 2
SNAPSHOT_HEADER = 3
SNAPSHOT_FOOTER = 4
KRAFT_VERSION = 5
KRAFT_VOTERS = 6

_KEY = struct.Struct(">hh")


class ControlRecord(NamedTuple):
    type: int
    message: Message


def leader_change(leader_id: int, voters: Iterable[int], granting: Iterable[int]) -> ControlRecord:
    from ottla.wire.messages.leader_change_message import LeaderChangeMessage, Voter

    return ControlRecord(
        LEADER_CHANGE,
        LeaderChangeMessage(
            version=0,
            leader_id=leader_id,
            voters=[Voter(voter_id=voter) for voter in voters],
            granting_voters=[Voter(voter_id=voter) for voter in granting],
        ),
    )


def kraft_version(level: int) -> ControlRecord:
    from ottla.wire.messages.kraft_version_record import KRaftVersionRecord

    return ControlRecord(KRAFT_VERSION, KRaftVersionRecord(version=0, kraft_version=level))


def kraft_voters(voters: VoterSet) -> ControlRecord:
    return ControlRecord(KRAFT_VOTERS, voters.to_record())


def snapshot_header(last_contained_log_timestamp: int) -> ControlRecord:
    from ottla.wire.messages.snapshot_header_record import SnapshotHeaderRecord

    return ControlRecord(
        SNAPSHOT_HEADER, SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_log_timestamp)
    )


def snapshot_footer() -> ControlRecord:
    from ottla.wire.messages.snapshot_footer_record import SnapshotFooterRecord

    return ControlRecord(SNAPSHOT_FOOTER, SnapshotFooterRecord(version=0))


def control_batch(records: Iterable[ControlRecord], *, base_offset: int, epoch: int, now_ms: int) -> bytearray:
    builder = BatchBuilder(base_offset=base_offset, leader_epoch=epoch, control=True)
    for record in records:
        builder.append(now_ms, _KEY.pack(0, record.type), record.message.encode(0))
    return builder.build()


class ControlFact(NamedTuple):
    """A control record read back: where it is, and of the known types its message."""

    offset: int
    type: int
    message: Message | None


def read_control_batch(batch: bytes | bytearray | memoryview) -> Iterator[ControlFact]:
    for record in iterate(batch):
        if record.key is None or len(record.key) < _KEY.size or record.value is None:
            raise Malformed(f"the control record at offset {record.offset} has no type")
        _, kind = _KEY.unpack_from(record.key)
        yield ControlFact(record.offset, kind, _decode(kind, record.value))


def _decode(kind: int, value: bytes) -> Message | None:
    if kind == KRAFT_VOTERS:
        from ottla.wire.messages.voters_record import VotersRecord

        return VotersRecord.decode(value, 0)
    if kind == KRAFT_VERSION:
        from ottla.wire.messages.kraft_version_record import KRaftVersionRecord

        return KRaftVersionRecord.decode(value, 0)
    if kind == SNAPSHOT_HEADER:
        from ottla.wire.messages.snapshot_header_record import SnapshotHeaderRecord

        return SnapshotHeaderRecord.decode(value, 0)
    return None
