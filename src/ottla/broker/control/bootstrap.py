"""The records with which a cluster's metadata begins: made by `format`, kept in `bootstrap.checkpoint`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.metadata.features import METADATA_VERSION, METADATA_VERSION_MAX
from ottla.metadata.records import MetadataRecord, decode_record, encode_record
from ottla.raft.checkpoint import decode_checkpoint, encode_checkpoint
from ottla.runtime.seams import Disk

BOOTSTRAP_FILE = "bootstrap.checkpoint"


def bootstrap_records(metadata_version: int, features: Mapping[str, int]) -> list[MetadataRecord]:
    """`features` are levels of everything but metadata.version; those at zero, which are off, are left out."""
    from ottla.wire.messages.feature_level_record import FeatureLevelRecord

    levels = {METADATA_VERSION: metadata_version}
    levels |= {name: level for name, level in sorted(features.items()) if level > 0 and name != METADATA_VERSION}
    return [MetadataRecord(FeatureLevelRecord(name=name, feature_level=level), 0) for name, level in levels.items()]


def encode_bootstrap(records: Iterable[MetadataRecord], now_ms: int) -> bytes:
    values = (encode_record(record) for record in records)
    return b"".join(encode_checkpoint(values, last_contained_log_timestamp=0, now_ms=now_ms))


def read_bootstrap(disk: Disk, directory: str) -> list[MetadataRecord]:
    """What `format` wrote, or the newest defaults where there is nothing. Raises `Malformed`."""
    path = f"{directory}/{BOOTSTRAP_FILE}"
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return bootstrap_records(METADATA_VERSION_MAX, {})
    return [decode_record(value) for value in decode_checkpoint(data, path).values]
