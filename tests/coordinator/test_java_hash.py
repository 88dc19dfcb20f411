"""The partition of a name is the one that Java clients and brokers count out: goldens from Java's own `hashCode`."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.coordinator.java_hash import java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("Aa", 2112),
        ("BB", 2112),
        ("hello world", 1794106052),
        ("polygenelubricants", -(1 << 31)),
        ("ä", 228),
        ("€", 8364),
        ("😀", 1772899),  # Two UTF-16 units: 55357 * 31 + 56832.
    ],
)
def test_golden_hashes(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_a_negative_hash_counts_by_its_distance_from_zero() -> None:
    negative = "orders"
    assert java_hash(negative) == -1008770331
    assert partition_for(negative, 50) == 31
    # Java has no positive number of that size; Kafka takes zero.
    assert partition_for("polygenelubricants", 50) == 0


def test_every_name_has_a_partition() -> None:
    for partitions in (1, 3, 50):
        found = {partition_for(f"group-{number}", partitions) for number in range(1000)}
        assert found == set(range(partitions))


@given(st.one_of(st.text(max_size=300), st.text(st.characters(max_codepoint=127), min_size=250, max_size=300)))
@example("")
@example("x" * 256)
@example("x" * 257)
@example("\U0001f9a6" * 128)
@example("\U0001f9a6" * 129)
def test_it_is_what_java_reckons_unit_by_unit(text: str) -> None:
    encoded = text.encode("utf-16-be", "surrogatepass")
    reckoned = 0
    for position in range(0, len(encoded), 2):
        reckoned = (31 * reckoned + int.from_bytes(encoded[position : position + 2], "big")) % (1 << 32)
    assert java_hash(text) % (1 << 32) == reckoned
    assert -(1 << 31) <= java_hash(text) < 1 << 31
