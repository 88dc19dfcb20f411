"""The reader of streams: what each micro-batch reads, and how far the query has come.

Spark keeps the offsets in the query's checkpoint; the source says where to begin, how far a batch may go, and which
ranges it is made of. `latestOffset(start, …)` is called when everything before `start` is done, also after the last
batch of Trigger.AvailableNow and first thing after a restart: there the progress is told to a consumer group, so that
anybody sees the query's lag. (Spark's own `commit` comes a batch later, and never for the last one.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla.model import ZERO_UUID, TopicPartition
from ottla.runtime.blocking import monotonic_s
from ottla.spark.source.batch import RangePartition, read_partition
from ottla.spark.source.cluster import Cluster, ids_of, partitions_of
from ottla.spark.source.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    Positions,
    SourceError,
    StreamOffset,
    shared_out,
    split,
)
from ottla.spark.source.options import SourceOptions
from ottla.spark.source.progress import GroupProgress

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.client.blocking import TopicInfo

Said = dict[str, dict[str, int | str]]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives as long as the query, in a process of the driver; what is sent to tasks is its options alone."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster = Cluster(options)
        self._progress = GroupProgress(self._cluster) if options.commit_progress else None
        self._topics: dict[str, TopicInfo] = {}
        self._topics_at_s = float("-inf")
        self._initial: StreamOffset | None = None
        self._target: StreamOffset | None = None
        """Where Trigger.AvailableNow ends."""
        self._latest: StreamOffset | None = None
        self._missing: set[TopicPartition] = set()
        """What was there once and is not now, as far as that was told."""
        self._held_since_s: float | None = None
        """Since when there are fewer offsets than minOffsetsPerTrigger."""

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_options"])  # type: ignore[misc]

    # Where the query stands.

    def initialOffset(self) -> Said:
        """Spark asks before it plans the first batch and again before it reads it. The end of a topic may have moved
        meanwhile: what lies between belongs to the batch."""
        if self._initial is None:
            topics = self._refresh(must_exist=True)
            partitions = partitions_of(topics, self._options.subscription)
            positions = self._cluster.resolve(self._options.starting, partitions, option="startingOffsets")
            self._initial = StreamOffset(positions=positions, topic_ids=ids_of(topics))
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.offsets_max:
            return ReadMaxRows(self._options.offsets_max)
        if self._options.offsets_min:
            return ReadMinRows(self._options.offsets_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends(self._refresh(must_exist=False))

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> Said:
        begun = StreamOffset.from_json(start)
        self._check_same_query(begun)
        latest = self._latest = self._target or self._ends(self._topics_now())
        if self._progress is not None:
            known = {each: offset for each, offset in begun.positions.items() if each in latest.positions}
            self._progress.tell(StreamOffset(positions=known, topic_ids=begun.topic_ids))
        self._check_losses(begun, latest)
        kept = latest.keeping(begun)
        ranges = self._ranges(begun, kept)
        waiting = sum(max(each.size, 0) for each in ranges)
        if self._holds_back(waiting):
            return begun.to_json()
        ends = {each.partition: each.end for each in ranges}
        if isinstance(limit, ReadMaxRows):
            ends = shared_out(ranges, limit.max_rows)
        return StreamOffset(positions=ends, topic_ids=kept.topic_ids).to_json()

    def reportLatestOffset(self) -> Said | None:
        return None if self._latest is None else self._latest.to_json()

    # What a batch reads.

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        begun, ended = StreamOffset.from_json(start), StreamOffset.from_json(end)
        ranges = self._ranges(begun, ended)
        parts = split(ranges, parts_min=self._options.parts_min, size_max=self._options.part_size_max)
        return [RangePartition(each) for each in parts]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Nothing: `latestOffset` has said it earlier."""

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.close()

    # The cluster.

    def _refresh(self, *, must_exist: bool) -> dict[str, TopicInfo]:
        self._topics = self._cluster.topics(must_exist=must_exist)
        self._topics_at_s = monotonic_s()
        return self._topics

    def _topics_now(self) -> dict[str, TopicInfo]:
        if monotonic_s() - self._topics_at_s > self._options.metadata_ms_max / 1000:
            return self._refresh(must_exist=False)
        return self._topics

    def _ends(self, topics: Mapping[str, TopicInfo]) -> StreamOffset:
        partitions = partitions_of(topics, self._options.subscription)
        return StreamOffset(
            positions=self._cluster.list_offsets(dict.fromkeys(partitions, LATEST)), topic_ids=ids_of(topics)
        )

    def _ranges(self, begun: StreamOffset, ended: StreamOffset) -> list[OffsetRange]:
        """From where the query stands to `ended`; partitions that are new since then are read from their beginning."""
        new = [each for each in ended.positions if self._is_new(each, begun, ended)]
        starts: Positions = self._cluster.list_offsets(dict.fromkeys(new, EARLIEST)) if new else {}
        for each, offset in starts.items():
            if offset > 0 and each not in begun.positions:
                self._cluster.on_data_loss(
                    f"The new partition {each} begins at offset {offset}: what was before it is gone unread."
                )
        return [
            OffsetRange(
                each,
                starts[each] if each in starts else begun.positions[each],
                end,
                ended.topic_ids.get(each.topic, ZERO_UUID),
            )
            for each, end in sorted(ended.positions.items())
        ]

    @staticmethod
    def _is_new(each: TopicPartition, begun: StreamOffset, ended: StreamOffset) -> bool:
        topic_id = ended.topic_ids.get(each.topic, ZERO_UUID)
        return each not in begun.positions or begun.is_recreated(each.topic, topic_id)

    # What may be wrong with where it stands.

    def _check_same_query(self, begun: StreamOffset) -> None:
        subscription = self._options.subscription
        named = set(subscription.topics) or {each.topic for each in subscription.assigned}
        stood = {each.topic for each in begun.positions}
        if named and stood and not named & stood:
            raise SourceError(
                f"The checkpoint is of another query: it holds offsets of {', '.join(sorted(stood))}, and this query "
                f"reads {', '.join(sorted(named))}; choose another checkpointLocation."
            )

    def _check_losses(self, begun: StreamOffset, latest: StreamOffset) -> None:
        self._missing -= latest.positions.keys()
        for each, position in sorted(begun.positions.items()):
            end = latest.positions.get(each)
            if end is None:
                if each not in self._missing and (self._target is None or each.topic not in self._topics_now()):
                    self._cluster.on_data_loss(
                        f"{each} is gone: its topic was deleted, or is not subscribed to any more."
                    )
                    self._missing.add(each)
            elif begun.is_recreated(each.topic, latest.topic_ids.get(each.topic, ZERO_UUID)):
                self._cluster.on_data_loss(
                    f"The topic {each.topic} was deleted and made again after offset {position} of {each} was reached."
                )
            elif end < position:
                self._cluster.on_data_loss(
                    f"{each} ends at offset {end} now, though the query has come to {position}: it was truncated."
                )

    def _holds_back(self, waiting: int) -> bool:
        """Are there too few offsets for a batch, and has nobody waited too long?"""
        if self._target is not None or not self._options.offsets_min or waiting >= self._options.offsets_min:
            self._held_since_s = None
            return False
        now_s = monotonic_s()
        if self._held_since_s is None:
            self._held_since_s = now_s
        if now_s - self._held_since_s < self._options.trigger_delay_ms_max / 1000:
            return True
        self._held_since_s = None
        return False
