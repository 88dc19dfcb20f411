"""Where a consumer that has come to some offset in a mirror's source would stand in its target.

Mirrored records say in a header which offset they had; in each partition those offsets rise, since a mirror keeps the
order and writes nothing twice. So the place is found by halving, a look at a few records each time. Records that were
born in the target may lie between: they are never what the place is after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ottla.model import TopicPartition
from ottla.spark.source.cluster import Cluster
from ottla.spark.source.offsets import EARLIEST, LATEST, OffsetRange, Positions
from ottla.spark.source.options import SourceOptions
from ottla.spark.source.ranges import read_range

_FIRST_LOOK = 16
_LOOK_MAX = 16_384
_FETCH_BYTES = 64 * 1024


class Mirrored(NamedTuple):
    """A record of the target that came from the source."""

    offset: int
    source_offset: int


class Place(NamedTuple):
    offset: int
    """Everything from before the wanted offset lies before it, and nothing from after that."""
    is_final: bool
    """Has the target a record from the wanted offset on? Else the place moves when more is mirrored."""


Look = Callable[[int, int], Mirrored | None]
"""The first mirrored record at or after one offset of the target, and before another."""


def place_of(wanted: int, start: int, end: int, look: Look) -> Place | None:
    """Between `start` and `end` of a partition of the target. None if nothing there came from the source."""
    low, high = start, end
    seen = is_final = False
    while low < high:
        middle = (low + high) // 2
        found = look(middle, high)
        seen |= found is not None
        if found is not None and found.source_offset < wanted:
            low = found.offset + 1
        else:
            is_final |= found is not None
            high = middle
    return Place(low, is_final) if seen else None


class TargetLog:
    """Looks into partitions of the target, as a reader of committed records."""

    def __init__(self, options: Mapping[str, str], mark: tuple[str, str]) -> None:
        """`mark` is the header of mirrored records, and the id of the cluster that they came from."""
        self._mark = mark
        self._options = SourceOptions.parse(
            {
                **options,
                "subscribePattern": ".*",
                "includeHeaders": "true",
                "failOnDataLoss": "false",
                "kafka.isolation.level": "read_committed",
                "kafka.client.id": "ottla-mirror-groups",
                "kafka.max.partition.fetch.bytes": str(_FETCH_BYTES),
            },
            streaming=False,
        )
        self.cluster = Cluster(self._options)

    def bounds(self, partitions: list[TopicPartition]) -> tuple[Positions, Positions]:
        """Where they begin, and where what is committed ends."""
        return (
            self.cluster.list_offsets(dict.fromkeys(partitions, EARLIEST)),
            self.cluster.list_offsets(dict.fromkeys(partitions, LATEST)),
        )

    def place_of(self, partition: TopicPartition, wanted: int, start: int, end: int) -> Place | None:
        place = place_of(wanted, start, end, lambda first, last: self._look(partition, first, last))
        if place is None:
            return None
        # What lies at the place may be no record, but the mark of a transaction's end, which nobody reads.
        offsets = (offset for offset, _ in self._records(partition, place.offset, end))
        return place._replace(offset=next(offsets, end))

    def _look(self, partition: TopicPartition, first: int, last: int) -> Mirrored | None:
        name, cluster_id = self._mark
        for offset, headers in self._records(partition, first, last):
            source_offset = offset_in(cluster_id, name, headers)
            if source_offset is not None:
                return Mirrored(offset, source_offset)
        return None

    def _records(
        self, partition: TopicPartition, first: int, last: int
    ) -> Iterator[tuple[int, list[dict[str, object]]]]:
        """Offsets and headers, from few records at first to many, since most looks end with the first record."""
        size = _FIRST_LOOK
        while first < last:
            until = min(last, first + size)
            for batch in read_range(self._options, OffsetRange(partition, first, until)):
                offsets, headers = batch.column("offset").to_pylist(), batch.column("headers").to_pylist()
                yield from zip(offsets, (each or [] for each in headers), strict=True)
            first, size = until, min(2 * size, _LOOK_MAX)


def offset_in(cluster_id: str, name: str, headers: list[dict[str, object]]) -> int | None:
    """The offset that a record had in a cluster, if it was mirrored from there."""
    for each in headers:
        value = each["value"]
        if each["key"] == name and isinstance(value, bytes):
            born, _, offset = value.decode(errors="replace").rpartition(":")
            if born == cluster_id and offset.isdecimal():
                return int(offset)
    return None
