"""Segments, indexes, epochs, producer state, recovery and retention: a partition's records on a disk.

`Log` is one partition; `LogManager` is all of a node's. Both are synchronous and run on the node's event loop; what
blocks on the disk is set apart, to be run elsewhere (`Flush.run`, `PendingWork.run`). The directory and every
file in it have Apache Kafka's format, so that its tools read them and its brokers can take them over.
"""

from ottla.log.append import AppendInfo, AppendOrigin
from ottla.log.checkpoint_files import PendingWork
from ottla.log.checkpoints import MetaProperties, read_meta_properties, write_meta_properties
from ottla.log.epochs import LeaderEpochCache
from ottla.log.flush import Flush
from ottla.log.log import UNKNOWN_END, Log
from ottla.log.log_config import LogConfig
from ottla.log.log_directory import LogDirectory
from ottla.log.manager import LogManager
from ottla.log.producers import ProducerEntry, ProducerStates, VerificationGuard
from ottla.log.replicated import UnexpectedOffset
from ottla.log.timestamps import TimestampOffset
from ottla.log.txn_index import AbortedTxn

__all__ = [
    "UNKNOWN_END",
    "AbortedTxn",
    "AppendInfo",
    "AppendOrigin",
    "Flush",
    "LeaderEpochCache",
    "Log",
    "LogConfig",
    "LogDirectory",
    "LogManager",
    "MetaProperties",
    "PendingWork",
    "ProducerEntry",
    "ProducerStates",
    "TimestampOffset",
    "UnexpectedOffset",
    "VerificationGuard",
    "read_meta_properties",
    "write_meta_properties",
]
