"""Which partition of a coordinator's topic holds a group or a transactional id: Java's hash of its name, as Kafka's."""

from __future__ import annotations


def java_hash(text: str) -> int:
    """`String.hashCode`, over UTF-16 units, as a signed 32-bit number."""
    result = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(encoded), 2):
        result = (31 * result + (encoded[position] << 8 | encoded[position + 1])) & 0xFFFFFFFF
    return result - (1 << 32) if result & 0x80000000 else result


def partition_for(name: str, partitions: int) -> int:
    """By the hash's distance from zero; the one number that Java has no such distance for counts as zero."""
    found = java_hash(name)
    return 0 if found == -(1 << 31) else abs(found) % partitions
