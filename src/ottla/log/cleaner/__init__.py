"""Compaction: of every key the last record stays, and the log stays the same log (KIP-58, KIP-534).

`choosing` says which log is due, after `lookup` has read what it has to know; `cleaner` captures a pass over it,
`cleaning` does the pass on the log's files, apart from the event loop, and `swap` puts what it wrote in place. Offsets
are never given out again, the order stays, and a reader who had got somewhere goes on from there: compaction leaves
gaps and nothing else.
"""

from ottla.log.cleaner.choosing import Cleanable, assess, survey
from ottla.log.cleaner.cleaner import Pass, begin_pass
from ottla.log.cleaner.cleaning import CorruptSegment, clean
from ottla.log.cleaner.lookup import Lookup, lookup
from ottla.log.cleaner.swap import Swap, discard
from ottla.log.cleaner.task import CleaningSettings, CleaningTask, LogCleaned, SegmentCleaned

__all__ = [
    "Cleanable",
    "CleaningSettings",
    "CleaningTask",
    "CorruptSegment",
    "LogCleaned",
    "Lookup",
    "Pass",
    "SegmentCleaned",
    "Swap",
    "assess",
    "begin_pass",
    "clean",
    "discard",
    "lookup",
    "survey",
]
