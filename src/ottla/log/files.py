"""The names that Kafka gives to the files and directories of a log, and how they are read back."""

from __future__ import annotations

from random import Random

from ottla.model import TopicPartition

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
INDEXES = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
"""Where compaction keeps how far each log is clean."""
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"

DELETE_DIRECTORY = "-delete"
STRAY_DIRECTORY = "-stray"
FUTURE_DIRECTORY = "-future"

_RAFT_SNAPSHOT_DELETED = ".checkpoint" + DELETED
_MAX_NAME = 255


def file_name(offset: int, suffix: str) -> str:
    """Twenty digits, so that names sort as offsets do."""
    return f"{offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """The offset that a segment's or snapshot's file is named after; None for other files."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == 20 and digits.isascii() and digits.isdigit() else None


def is_leftover(name: str) -> bool:
    """A file that was marked as deleted. Snapshots of the metadata log are raft's to remove."""
    return name.endswith(DELETED) and not name.endswith(_RAFT_SNAPSHOT_DELETED)


def parse_directory(name: str) -> TopicPartition | None:
    """The partition that a directory is named after; None for what no partition is called (`a-delete`, `a--1`)."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not (partition.isascii() and partition.isdigit()):
        return None
    return TopicPartition(topic, int(partition))


def future_name(partition: TopicPartition, random: Random) -> str:
    """What the directory of a replica is called that is on its way into another log directory (KIP-113)."""
    return f"{partition}.{random.getrandbits(128):032x}{FUTURE_DIRECTORY}"


def has_room_for_future(partition: TopicPartition) -> bool:
    """Can a directory have such a name? It must not lose a part of the topic's, or nobody would know whose it is."""
    return len(f"{partition}.{'':32}{FUTURE_DIRECTORY}") <= _MAX_NAME


def parse_future(name: str) -> TopicPartition | None:
    """The partition whose `future_name` it is; None if it is no such name."""
    stem, dot, _ = name.removesuffix(FUTURE_DIRECTORY).rpartition(".")
    return parse_directory(stem) if dot and name.endswith(FUTURE_DIRECTORY) else None


def retired_name(partition: TopicPartition, suffix: str, random: Random) -> str:
    """What a partition's directory is renamed to before its files go; long topic names give way to the suffix."""
    tail = f"-{partition.partition}.{random.getrandbits(128):032x}{suffix}"
    return partition.topic[: _MAX_NAME - len(tail)] + tail
