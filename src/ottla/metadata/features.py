"""Feature levels: what this node can speak, and which form of a record each metadata.version asks for.

One table, read by registration, by `format`, by the controller's checks and by the encoder of records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
ELR_VERSION = "eligible.leader.replicas.version"
GROUP_VERSION = "group.version"
"""1: consumer groups whose members the coordinator assigns to (KIP-848)."""
TRANSACTION_VERSION = "transaction.version"
"""1: the transaction log's records may have tagged fields. 2: every transaction has an epoch of its own (KIP-890)."""

METADATA_VERSION_MIN = 7
METADATA_VERSION_MAX = 30
"""4.3-IV0, the level that Apache Kafka 4.3.1 finalizes."""


class VersionRange(NamedTuple):
    min: int
    max: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.min <= level <= self.max


SUPPORTED_FEATURES: dict[str, VersionRange] = {
    METADATA_VERSION: VersionRange(METADATA_VERSION_MIN, METADATA_VERSION_MAX),
    KRAFT_VERSION: VersionRange(0, 1),
    GROUP_VERSION: VersionRange(0, 1),
    TRANSACTION_VERSION: VersionRange(0, 2),
    ELR_VERSION: VersionRange(0, 1),
    "share.version": VersionRange(0, 0),
    "streams.version": VersionRange(0, 0),
}

DEPENDENCIES: dict[tuple[str, int], dict[str, int]] = {
    (ELR_VERSION, 1): {METADATA_VERSION: 23},
}
"""What other features must be at, at least, for a feature to have a level (KIP-1022)."""

_DEFAULTS: dict[str, tuple[tuple[int, int], ...]] = {
    ELR_VERSION: ((26, 1),),
    GROUP_VERSION: ((22, 1),),
    TRANSACTION_VERSION: ((24, 2),),
}
"""From which metadata.version on a new cluster has which level, where that is not 0."""

_CHANGES_OF_RECORDS = (8, 11, 13, 14, 15, 17, 23, 30)
"""The metadata versions that brought records, or fields of them, which the one before cannot write down."""


def default_features(metadata_version: int) -> dict[str, int]:
    """The levels above 0 that `format` gives a new cluster, of everything but metadata.version and kraft.version."""
    levels = {
        name: max((level for since, level in steps if metadata_version >= since), default=0)
        for name, steps in _DEFAULTS.items()
    }
    return {name: level for name, level in levels.items() if level}


def unmet_dependency(levels: Mapping[str, int]) -> tuple[str, str, int] | None:
    """The first feature that needs another at a level which it has not: both, and the level."""
    for name in sorted(levels):
        for other, least in DEPENDENCIES.get((name, levels[name]), {}).items():
            if levels.get(other, 0) < least:
                return name, other, least
    return None


def may_lose_metadata(current: int, lower: int) -> bool:
    """Could metadata written at `current` say something that `lower` has no words for?"""
    return any(lower < level <= current for level in _CHANGES_OF_RECORDS)


_RELEASES: tuple[tuple[int, str], ...] = (
    (7, "3.3-IV3"),
    (8, "3.4-IV0"),
    (9, "3.5-IV0"),
    (10, "3.5-IV1"),
    (11, "3.5-IV2"),
    (12, "3.6-IV0"),
    (13, "3.6-IV1"),
    (14, "3.6-IV2"),
    (15, "3.7-IV0"),
    (16, "3.7-IV1"),
    (17, "3.7-IV2"),
    (18, "3.7-IV3"),
    (19, "3.7-IV4"),
    (20, "3.8-IV0"),
    (21, "3.9-IV0"),
    (22, "4.0-IV0"),
    (23, "4.0-IV1"),
    (24, "4.0-IV2"),
    (25, "4.0-IV3"),
    (26, "4.1-IV0"),
    (27, "4.1-IV1"),
    (28, "4.2-IV0"),
    (29, "4.2-IV1"),
    (30, "4.3-IV0"),
)


def level_of_release(text: str) -> int | None:
    """The metadata.version that `text` names: '4.3-IV0' exactly, or '4.3' and '4.3.1' for the last of that release."""
    exact = {name: level for level, name in _RELEASES}
    if text in exact:
        return exact[text]
    short = ".".join(text.split("-")[0].split(".")[:2])
    if "-" in text:
        return None
    levels = [level for level, name in _RELEASES if name.split("-")[0] == short]
    return levels[-1] if levels else None


def release_names() -> list[str]:
    return [name for _, name in _RELEASES]


def has_scram(metadata_version: int) -> bool:
    """KIP-900."""
    return metadata_version >= 11


def has_delegation_tokens(metadata_version: int) -> bool:
    """KIP-48, in the metadata log."""
    return metadata_version >= 14


def has_transactions(metadata_version: int) -> bool:
    """KIP-868."""
    return metadata_version >= 14


def has_controller_registration(metadata_version: int) -> bool:
    """KIP-919."""
    return metadata_version >= 15


def has_directory_assignment(metadata_version: int) -> bool:
    """KIP-858."""
    return metadata_version >= 17


def bumps_leader_epoch_on_isr_shrink(metadata_version: int) -> bool:
    """Brokers before 3.6 noticed a smaller ISR only in a new leader epoch."""
    return metadata_version < 12


def has_cordoned_directories(metadata_version: int) -> bool:
    """KIP-1066."""
    return metadata_version >= 30


def register_broker_record_version(metadata_version: int) -> int:
    if metadata_version >= 30:
        return 4
    if metadata_version >= 17:
        return 3
    return 2 if metadata_version >= 8 else 1


def partition_record_version(metadata_version: int) -> int:
    """Of PartitionRecord and PartitionChangeRecord alike."""
    if metadata_version >= 23:
        return 2
    return 1 if metadata_version >= 17 else 0
