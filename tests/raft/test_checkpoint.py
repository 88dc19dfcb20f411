"""Checkpoints: the two files in `golden` were written by kafka-storage of Apache Kafka 4.3.1."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from ottla.errors import Malformed
from ottla.model import uuid_from_text
from ottla.raft.checkpoint import (
    BATCH_BYTES_MAX,
    BOOTSTRAP_SNAPSHOT,
    SnapshotId,
    decode_checkpoint,
    encode_checkpoint,
    parse_file_name,
)
from ottla.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from ottla.records import BatchHeader, batches

GOLDEN = Path(__file__).parent / "golden"
STANDALONE = (GOLDEN / "kafka-4.3.1-standalone.checkpoint").read_bytes()
BOOTSTRAP = (GOLDEN / "kafka-4.3.1-bootstrap.checkpoint").read_bytes()
VOTERS = VoterSet(
    [
        Voter(
            ReplicaKey(1, uuid_from_text("M7SJc-RSRxG5rpmI1j7tPw")),
            (VoterEndpoint("CONTROLLER", "127.0.0.1", 29093),),
        )
    ]
)


def headers(data: bytes) -> list[BatchHeader]:
    return [header for header, _ in batches(memoryview(data))]


def without_times(data: bytes) -> list[bytes]:
    """The batches of `data` with CRC and timestamps blanked: each was written at a moment of its own."""
    blanked = []
    for header, batch in batches(memoryview(data)):
        copy = bytearray(batch)
        copy[17:21] = bytes(4)
        copy[27:43] = bytes(16)
        assert header.magic == 2
        blanked.append(bytes(copy))
    return blanked


def test_the_voters_of_kafkas_standalone_format_read_back() -> None:
    checkpoint = decode_checkpoint(STANDALONE, "golden")
    assert checkpoint.kraft_version == 1
    assert checkpoint.voters == VOTERS
    assert checkpoint.values == []
    assert checkpoint.last_contained_log_timestamp == 1794731661097


def test_our_standalone_snapshot_is_kafkas_but_for_the_times() -> None:
    ours = b"".join(
        encode_checkpoint(
            (), last_contained_log_timestamp=1794731661097, now_ms=1794731661105, kraft_version=1, voters=VOTERS
        )
    )
    first = headers(STANDALONE)[0].size
    assert ours[:first] == STANDALONE[:first]
    assert without_times(ours) == without_times(STANDALONE)


def test_our_bootstrap_snapshot_is_kafkas_but_for_the_times() -> None:
    values = decode_checkpoint(BOOTSTRAP, "golden").values
    assert len(values) == 6
    ours = b"".join(encode_checkpoint(values, last_contained_log_timestamp=0, now_ms=1794731661062))
    assert without_times(ours) == without_times(BOOTSTRAP)


def test_a_large_snapshot_is_several_batches_with_rising_offsets() -> None:
    values = [bytes([n % 256]) * 1000 for n in range(3000)]
    data = b"".join(encode_checkpoint(values, last_contained_log_timestamp=5, now_ms=7))
    found = headers(data)
    assert len(found) == 2 + -(-3000 * 1000 // BATCH_BYTES_MAX)
    assert all(before.next_offset == after.base_offset for before, after in pairwise(found))
    assert decode_checkpoint(data, "large").values == values


@pytest.mark.parametrize("cut", range(0, len(STANDALONE), 7))
def test_a_snapshot_that_was_cut_short_is_never_loaded(cut: int) -> None:
    with pytest.raises(Malformed):
        decode_checkpoint(STANDALONE[:cut], "cut")


def test_a_snapshot_with_something_after_its_footer_is_never_loaded() -> None:
    with pytest.raises(Malformed, match="after its end"):
        decode_checkpoint(STANDALONE + STANDALONE, "twice")


@pytest.mark.parametrize("position", [16, 25, 70, 120, 200, 240])
def test_a_flipped_bit_is_found(position: int) -> None:
    damaged = bytearray(STANDALONE)
    damaged[position] ^= 1
    with pytest.raises(Malformed):
        decode_checkpoint(bytes(damaged), "flipped")


def test_file_names() -> None:
    assert BOOTSTRAP_SNAPSHOT.file_name == "00000000000000000000-0000000000.checkpoint"
    assert parse_file_name(SnapshotId(58, 2).file_name) == SnapshotId(58, 2)
    for name in ("bootstrap.checkpoint", "leader-epoch-checkpoint", "00000000000000000058-0000000002.checkpoint.part"):
        assert parse_file_name(name) is None
