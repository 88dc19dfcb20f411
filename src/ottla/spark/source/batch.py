"""The reader of batch queries. PySpark asks it for partitions (ranges of offsets), in a process that plans, and sends
it to the tasks, which read one partition each.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.model import ZERO_UUID
from ottla.spark.source.cluster import Cluster, ids_of, partitions_of
from ottla.spark.source.filters import Pruning
from ottla.spark.source.offsets import OffsetRange, split
from ottla.spark.source.options import SourceOptions
from ottla.spark.source.ranges import read_range

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

_PUSHING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


def batch_reader(options: SourceOptions) -> BatchReader:
    return PruningBatchReader(options) if _filters_are_pushed() else BatchReader(options)


def _filters_are_pushed() -> bool:
    """Spark refuses a reader that takes filters where spark.sql.python.filterPushdown.enabled is off, and asks for one
    in another worker where it is on: that it runs is the only sign."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHING_WORKER in sys.modules or getattr(main, "name", None) == _PUSHING_WORKER


@dataclass
class RangePartition(InputPartition):
    """What one task reads."""

    wanted: OffsetRange

    def __repr__(self) -> str:
        return f"{self.wanted.partition}[{self.wanted.start}, {self.wanted.end})"


class BatchReader(DataSourceReader):
    """Offsets are looked up once, when the query is planned: every task sees the topic as it was then."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pruning = Pruning()

    def partitions(self) -> list[InputPartition]:
        options = self._options
        cluster = Cluster(options)
        topics = cluster.topics(must_exist=True)
        ids = ids_of(topics)
        subscribed = partitions_of(topics, options.subscription)
        starts = cluster.resolve(options.starting, subscribed, option="startingOffsets")
        ends = cluster.resolve(options.ending, subscribed, option="endingOffsets")
        pruning = self._pruning
        if pruning.since_ms is not None:
            young = cluster.list_offsets(dict.fromkeys(subscribed, pruning.since_ms))
            starts = {each: max(starts[each], young[each]) if young[each] >= 0 else ends[each] for each in subscribed}
        ranges = [
            OffsetRange(
                each,
                max(starts[each], pruning.first_offset),
                min(ends[each], pruning.end_offset),
                ids.get(each.topic, ZERO_UUID),
            )
            for each in subscribed
            if (pruning.topics is None or each.topic in pruning.topics)
            and (pruning.partitions is None or each.partition in pruning.partitions)
        ]
        parts = split(ranges, parts_min=options.parts_min, size_max=options.part_size_max)
        return [RangePartition(each) for each in parts]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition)


class PruningBatchReader(BatchReader):
    """A batch reader in a session that pushes filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._pruning.push(filters)


def read_partition(options: SourceOptions, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
    """Nothing for the empty partition that Spark makes up when there is none."""
    if isinstance(partition, RangePartition):
        return read_range(options, partition.wanted)
    assert partition is None or partition.value is None
    return iter(())
