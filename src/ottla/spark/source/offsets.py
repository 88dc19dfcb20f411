"""Offsets as Spark's users write and see them, and the arithmetic of what a batch reads. Pure.

Offsets of a stream are JSON, `{"orders": {"0": 17}}`, in the words of Spark's own Kafka source, so that its checkpoints
can be continued. Beside the topics lies one key that no topic can have, with the topics' ids: a topic that was deleted
and made again under its name is another topic.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from ottla.model import ZERO_UUID, TopicPartition, Uuid, uuid_from_text, uuid_to_text

LATEST = -1
EARLIEST = -2

_IDS = "@ids"


class SourceError(Exception):
    """A query cannot go on, or cannot begin; the message is one sentence that says what to do."""


Positions = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffset:
    """Where a stream stands in each partition: the next offset to read."""

    positions: Positions
    topic_ids: dict[str, Uuid] = field(default_factory=dict)

    def to_json(self) -> dict[str, dict[str, int | str]]:
        """Sorted, since Spark compares texts."""
        said: dict[str, dict[str, int | str]] = {}
        for partition in sorted(self.positions):
            said.setdefault(partition.topic, {})[str(partition.partition)] = self.positions[partition]
        ids = {topic: uuid_to_text(self.topic_ids[topic]) for topic in sorted(self.topic_ids) if topic in said}
        if ids:
            said[_IDS] = dict(ids)
        return said

    @classmethod
    def from_json(cls, said: Mapping[str, Mapping[str, int | str]]) -> StreamOffset:
        ids = {topic: uuid_from_text(str(text)) for topic, text in said.get(_IDS, {}).items()}
        return cls(positions=_positions(said), topic_ids=ids)

    def keeping(self, before: StreamOffset) -> StreamOffset:
        """This, and where `before` stood in partitions that are missing here: if they are seen again, the stream goes
        on there. Of topics with ids alone: by them another topic of the name is known, which is read from its
        beginning."""
        missing: Positions = {}
        for each, position in before.positions.items():
            topic_id = before.topic_ids.get(each.topic, ZERO_UUID)
            is_same = topic_id != ZERO_UUID and self.topic_ids.get(each.topic, topic_id) == topic_id
            if each not in self.positions and is_same:
                missing[each] = position
        ids = {each.topic: before.topic_ids[each.topic] for each in missing}
        return StreamOffset(positions={**missing, **self.positions}, topic_ids={**ids, **self.topic_ids})

    def is_recreated(self, topic: str, topic_id: Uuid) -> bool:
        """Is `topic_id` another topic than the one whose offsets these are, as far as both are known?"""
        known = self.topic_ids.get(topic, ZERO_UUID)
        return ZERO_UUID not in (known, topic_id) and known != topic_id


class OffsetRange(NamedTuple):
    """Offsets of one partition from `start` up to, not including, `end`; `topic_id` is zero where ids are unknown."""

    partition: TopicPartition
    start: int
    end: int
    topic_id: Uuid = ZERO_UUID

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSpec:
    """Where to begin or to end, as the options say it: offsets or timestamps, everywhere or partition by partition."""

    everywhere: int | None = None
    each: Positions | None = None
    by_timestamp: bool = False


def parse_offsets(option: str, text: str) -> OffsetSpec:
    """`earliest`, `latest`, or offsets as JSON, in which -2 is the earliest and -1 the latest."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return OffsetSpec(everywhere=EARLIEST if word == "earliest" else LATEST)
    return OffsetSpec(each=parse_positions(option, text))


def parse_positions(option: str, text: str) -> Positions:
    """Raises `SourceError`, unless `text` is `{"topic": {"0": 17, …}, …}`."""
    try:
        found = _positions(json.loads(text))
    except (ValueError, TypeError, AttributeError):
        raise SourceError(
            f"{option} is {text!r}; write it as JSON such as "
            '{"orders": {"0": 23, "1": -2}}' + (', or "earliest" or "latest".' if "Timestamp" not in option else ".")
        ) from None
    return found


def _positions(said: Mapping[str, Mapping[str, int | str]]) -> Positions:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, offsets in said.items()
        if topic != _IDS
        for partition, offset in offsets.items()
    }


def shared_out(ranges: Iterable[OffsetRange], limit: int) -> Positions:
    """Ends that are at most `limit` offsets ahead in all, each partition's share in proportion to what it has waiting
    (and at least one offset, as in Spark's own source, so that none is forgotten)."""
    waiting = list(ranges)
    total = sum(max(each.size, 0) for each in waiting)
    ends: Positions = {}
    for each in waiting:
        share = limit * max(each.size, 0) / total if total > limit else each.size
        ahead = int(share) if share >= 1 else 1 if share > 0 else 0
        ends[each.partition] = each.end if each.size <= 0 else min(each.end, each.start + ahead)
    return ends


def split(ranges: Iterable[OffsetRange], *, parts_min: int = 0, size_max: int = 0) -> list[OffsetRange]:
    """The ranges with something in them, cut so that there are about `parts_min` and none is larger than `size_max`
    (0: no matter)."""
    filled = [each for each in ranges if each.size > 0]
    total = sum(each.size for each in filled)
    parts: list[OffsetRange] = []
    for each in filled:
        fair = round(each.size / total * parts_min) if len(filled) < parts_min else 1
        needed = -(-each.size // size_max) if size_max else 1
        parts += _cut(each, max(1, fair, needed))
    return parts


def _cut(each: OffsetRange, parts: int) -> list[OffsetRange]:
    parts = min(parts, each.size)
    bounds = [each.start + each.size * place // parts for place in range(parts + 1)]
    return [each._replace(start=start, end=end) for start, end in pairwise(bounds)]
