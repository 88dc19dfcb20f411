"""Which partition of a coordinator's topic holds a group or a transactional id: Java's hash of its name, as Kafka's."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import mul

_POWERS = [pow(31, exponent, 1 << 32) for exponent in range(256)]
"""Of the factor by which Java weighs a unit for each that follows it."""


def java_hash(text: str) -> int:
    """`String.hashCode`, over UTF-16 units, as a signed 32-bit number."""
    # Behind a mark of two bytes they are in this machine's own order, as an array takes them.
    units: Sequence[int] = text.encode() if text.isascii() else array("H", text.encode("utf-16", "surrogatepass")[2:])
    if len(units) <= len(_POWERS):
        result: int = sum(map(mul, reversed(units), _POWERS)) & 0xFFFFFFFF
    else:
        result = 0
        for unit in units:
            result = (31 * result + unit) & 0xFFFFFFFF
    return result - (1 << 32) if result & 0x80000000 else result


def partition_for(name: str, partitions: int) -> int:
    """By the hash's distance from zero; the one number that Java has no such distance for counts as zero."""
    found = java_hash(name)
    return 0 if found == -(1 << 31) else abs(found) % partitions
