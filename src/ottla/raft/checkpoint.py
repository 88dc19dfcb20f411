"""Snapshot files: `<end offset>-<epoch>.checkpoint`.

A checkpoint is a sequence of batches: a control batch with the header (and, from kraft.version 1 on, the voters), the
state machine's records, and a control batch with the footer. Offsets inside count from zero and mean nothing. A file
without its footer was cut short and is never loaded. The records' values are opaque here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, cast

from ottla.errors import Malformed
from ottla.raft import control_records
from ottla.raft.control_records import KRAFT_VERSION, KRAFT_VOTERS, SNAPSHOT_FOOTER, SNAPSHOT_HEADER, read_control_batch
from ottla.raft.voters import VoterSet
from ottla.records import HEADER_SIZE, BatchBuilder, crc_is_valid, iterate, read_header

if TYPE_CHECKING:
    from ottla.wire.messages.kraft_version_record import KRaftVersionRecord
    from ottla.wire.messages.snapshot_header_record import SnapshotHeaderRecord
    from ottla.wire.messages.voters_record import VotersRecord

CHECKPOINT_SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
"""A snapshot that is still being written or fetched."""

BATCH_BYTES_MAX = 1 << 20


class SnapshotId(NamedTuple):
    """A snapshot holds everything before `end_offset`, whose last batch was of `epoch`."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}{CHECKPOINT_SUFFIX}"


BOOTSTRAP_SNAPSHOT = SnapshotId(0, 0)
"""What `format` writes: a voter set, and no records."""


def parse_file_name(name: str) -> SnapshotId | None:
    stem = name.removesuffix(CHECKPOINT_SUFFIX)
    offset, _, epoch = stem.partition("-")
    if stem == name or len(offset) != 20 or len(epoch) != 10 or not (offset + epoch).isdigit():
        return None
    return SnapshotId(int(offset), int(epoch))


class Checkpoint(NamedTuple):
    last_contained_log_timestamp: int
    kraft_version: int
    voters: VoterSet | None
    values: list[bytes]
    """The state machine's records, in order."""


def encode_checkpoint(
    values: Iterable[bytes],
    *,
    last_contained_log_timestamp: int,
    now_ms: int,
    epoch: int = 0,
    kraft_version: int = 0,
    voters: VoterSet | None = None,
) -> Iterator[bytearray]:
    """The batches of a checkpoint, one after another, so that a large image need not be held twice."""
    head = [control_records.snapshot_header(last_contained_log_timestamp)]
    if kraft_version > 0 and voters is not None:
        head.append(control_records.kraft_version(kraft_version))
        head.append(control_records.kraft_voters(voters))
    yield control_records.control_batch(head, base_offset=0, epoch=epoch, now_ms=now_ms)
    builder = BatchBuilder(base_offset=len(head), leader_epoch=epoch)
    for value in values:
        builder.append(now_ms, None, value)
        if builder.size >= BATCH_BYTES_MAX:
            yield builder.build()
            builder = BatchBuilder(base_offset=builder.next_offset, leader_epoch=epoch)
    if len(builder):
        yield builder.build()
    footer = [control_records.snapshot_footer()]
    yield control_records.control_batch(footer, base_offset=builder.next_offset, epoch=epoch, now_ms=now_ms)


def decode_checkpoint(data: bytes, name: str) -> Checkpoint:
    """Raises `Malformed`, which names the file, at the first thing that is not as it must be."""
    timestamp: int | None = None
    version = 0
    voters: VoterSet | None = None
    values: list[bytes] = []
    complete = False
    position = 0
    view = memoryview(data)
    while position < len(data):
        if complete or len(data) - position < HEADER_SIZE:
            raise Malformed(f"snapshot {name} has bytes after its end, at position {position}")
        header = read_header(view, position)
        batch = view[position : position + header.size]
        if header.magic != 2 or len(batch) < header.size or not crc_is_valid(view, position, header.size):
            raise Malformed(f"snapshot {name} is damaged at position {position}")
        position += header.size
        if not header.is_control:
            for record in iterate(batch):
                if record.value is None:
                    raise Malformed(f"snapshot {name} has a record without a value at offset {record.offset}")
                values.append(record.value)
            continue
        for fact in read_control_batch(batch):
            if fact.type == SNAPSHOT_HEADER:
                timestamp = cast("SnapshotHeaderRecord", fact.message).last_contained_log_timestamp
            elif fact.type == KRAFT_VERSION:
                version = cast("KRaftVersionRecord", fact.message).kraft_version
            elif fact.type == KRAFT_VOTERS:
                voters = VoterSet.from_record(cast("VotersRecord", fact.message))
            elif fact.type == SNAPSHOT_FOOTER:
                complete = True
    if timestamp is None or not complete:
        raise Malformed(f"snapshot {name} was cut short")
    return Checkpoint(timestamp, version, voters, values)
