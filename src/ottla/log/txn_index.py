"""The aborted transactions of one segment (`.txnindex`): what a read-committed consumer must skip.

Entries stand in the order of their markers. Each carries the last stable offset at the moment of the abort, which tells
a reader when it has seen every transaction that can overlap its range (KIP-98). The file exists only if there are any.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from operator import attrgetter
from typing import NamedTuple

_ENTRY = struct.Struct(">hqqqq")
ENTRY_SIZE = _ENTRY.size
_VERSION = 0
_last_offset = attrgetter("last_offset")


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the abort marker."""
    last_stable_offset: int


def encode(entries: list[AbortedTxn]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


def decode(data: bytes, base_offset: int) -> list[AbortedTxn] | None:
    """None if the bytes cannot be the transaction index of the segment at `base_offset`."""
    if len(data) % ENTRY_SIZE:
        return None
    entries = []
    for version, *fields in _ENTRY.iter_unpack(data):
        entry = AbortedTxn(*fields)
        if version < _VERSION or entry.last_offset < base_offset:
            return None
        entries.append(entry)
    return entries


def collect(entries: list[AbortedTxn], first: int, upper: int, into: list[AbortedTxn]) -> bool:
    """Add what overlaps [first, upper) to `into`. True once no later entry can overlap."""
    for slot in range(bisect_left(entries, first, key=_last_offset), len(entries)):
        entry = entries[slot]
        if entry.first_offset < upper:
            into.append(entry)
        if entry.last_stable_offset >= upper:
            return True
    return False
