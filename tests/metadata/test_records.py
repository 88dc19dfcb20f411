"""The frame around a metadata record."""

from __future__ import annotations

import pytest

from ottla.errors import Malformed
from ottla.metadata.records import _NAMES, MetadataRecord, decode_record, encode_record, record_class
from ottla.wire.messages.feature_level_record import FeatureLevelRecord

LEVEL = bytes.fromhex("010c00116d657461646174612e76657273696f6e001e00")


def test_a_record_is_framed_as_kafka_frames_it() -> None:
    record = MetadataRecord(FeatureLevelRecord(name="metadata.version", feature_level=30), 0)
    assert encode_record(record) == LEVEL
    assert decode_record(LEVEL) == record
    assert decode_record(memoryview(LEVEL)) == record


def test_every_kind_of_record_is_known_under_its_key() -> None:
    for key, name in _NAMES.items():
        kind = record_class(key)
        assert key == kind.API_KEY
        assert kind.__name__ == name
        for version in kind.VERSIONS:
            record = MetadataRecord(kind(), version)
            assert decode_record(encode_record(record)) == record


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "broken frame"),
        (b"\x01", "broken frame"),
        (b"\x01\x0c", "broken frame"),
        (b"\xff\xff\xff\xff\xff\xff\x01", "broken frame"),
        (b"\x00\x0c\x00", "frame version 0"),
        (b"\x01\x63\x00", "kind 99, which a newer release"),
        (LEVEL[:-1], "."),
        (LEVEL + b"\x00", "over"),
        (b"\x01\x0c\x09" + LEVEL[3:], "."),
    ],
)
def test_what_is_not_a_record_is_refused(value: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        decode_record(value)
