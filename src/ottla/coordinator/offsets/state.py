"""What records say of offsets: those in force, and those that open transactions have staged. Only replay changes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from struct import Struct
from typing import cast

from ottla.coordinator.offsets.codec import OFFSET_KIND, decode_key, is_known
from ottla.coordinator.offsets.table import OffsetTable, Partitions, Place, keep, record_offset_of
from ottla.coordinator.stored import EncodedRecord
from ottla.coordinator.timeline import Timeline, TimelineMap

_NOBODY: frozenset[int] = frozenset()
_NO_PARTITIONS: Partitions = {}
_PARTITION = Struct(">i").unpack_from
_PARTITION_BYTES = 4


class OffsetState:
    """Invariant: a producer is in `_open` for a group exactly while its table in `_staged` names that group."""

    __slots__ = ("_open", "_staged", "_timeline", "table")

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.table = OffsetTable(timeline)
        self._staged: TimelineMap[int, OffsetTable] = TimelineMap(timeline)
        """By producer id. A marker takes the whole table away; to undo that is to put it back."""
        self._open: TimelineMap[str, frozenset[int]] = TimelineMap(timeline)
        """The producers that have staged offsets of a group."""

    # Staged offsets.

    def is_staged(self, group_id: str, topic: str, partition: int) -> bool:
        """Has an open transaction staged an offset of this partition?"""
        return any(table.get(group_id, topic, partition) is not None for table in self._staged_of(group_id))

    def has_staged(self, group_id: str) -> bool:
        """Has an open transaction staged any offset of this group?"""
        if self._open.get(group_id) is None:
            return False  # As is nearly always so.
        return any(table.topics(group_id) for table in self._staged_of(group_id))

    # By topic, in force and staged.

    def topic_names(self) -> list[str]:
        tables = (self.table, *self._staged.values())
        return list(dict.fromkeys(chain.from_iterable(table.topic_names() for table in tables)))

    def groups_of(self, topic: str) -> list[str]:
        """Those that have an offset of the topic."""
        staged = dict.fromkeys(chain.from_iterable(table.groups_of(topic) for table in self._staged.values()))
        in_force = self.table.groups_of(topic)
        # Few are staged, and very many may be in force: those are copied, and no more.
        return in_force + [each for each in staged if topic not in self.table.topics(each)]

    def kept_of(self, group_id: str, topic: str) -> Iterator[tuple[int, bytes]]:
        """Each offset of a topic; a partition that is staged comes once more for each time that it is."""
        for table in (self.table, *self._staged_of(group_id)):
            yield from table.topics(group_id).get(topic, _NO_PARTITIONS).items()

    def staged_group_ids(self) -> list[str]:
        return [group_id for group_id in self._open if self.has_staged(group_id)]

    def is_staging_committed(self, group_id: str) -> bool:
        return self._open.committed(group_id) is not None

    def staged_places(self, group_id: str) -> Iterator[tuple[str, int]]:
        """Each topic and partition of a group that is staged; one that two transactions have staged comes twice."""
        for table in self._staged_of(group_id):
            for topic, partitions in table.topics(group_id).items():
                for partition in partitions:
                    yield topic, partition

    def _staged_of(self, group_id: str) -> Iterator[OffsetTable]:
        for producer_id in self._open.get(group_id) or _NOBODY:
            table = self._staged.get(producer_id)
            assert table is not None, "a producer is open that has staged nothing"
            yield table

    # Records.

    def replay(self, record: EncodedRecord, producer_id: int) -> None:
        """A record at the timeline's offset. With a producer id it waits for that producer's marker."""
        key, value, known = record
        place = cast("Place | None", known)
        if place is None:
            if value is not None and not is_known(value):
                return  # Written by a release from the future: stepped over, as kinds that are not known are.
            place = decode_key(key)
        if value is None:
            self._remove(*place)
            return
        kept = keep(self._timeline.offset, value)
        if producer_id < 0:
            self.table.put(place, kept)
            return
        group_id = place[0]
        staged = self._staged.get(producer_id)
        if staged is None:
            staged = self._staged[producer_id] = OffsetTable(self._timeline)
        staged.put(place, kept)
        producers = self._open.get(group_id) or _NOBODY
        if producer_id not in producers:
            self._open[group_id] = producers | {producer_id}

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        """The producer's transaction has ended."""
        staged = self._staged.pop(producer_id)
        if staged is None:
            return
        for group_id in staged.group_ids():
            left = (self._open.get(group_id) or _NOBODY) - {producer_id}
            if left:
                self._open[group_id] = left
            else:
                self._open.pop(group_id)
        if not commit:
            return
        table = self.table
        for group_id, topic, partition in staged.places():
            kept = staged.get(group_id, topic, partition)
            assert kept is not None
            in_force = table.get(group_id, topic, partition)
            if in_force is None or record_offset_of(kept) > record_offset_of(in_force):
                table.put((group_id, topic, partition), kept)

    def load(self, base_offset: int, records: Sequence[tuple[int, bytes | None, bytes | None]]) -> int:
        """As `replay`, while loading, of the first of `records`, as far as they are plain offsets; how many these were.

        Each record is its offset's distance from `base_offset`, its key and its value. There may be a million, and
        those of one group and topic mostly lie together.
        """
        assert self._timeline.loading, "what is loaded so cannot be undone"
        last_prefix = b""
        partitions: Partitions = {}
        taken = 0
        for offset_delta, key, value in records:
            if key is None or value is None or key[:2] != OFFSET_KIND or not is_known(value):
                break
            prefix = key[:-_PARTITION_BYTES]
            if prefix != last_prefix:
                group_id, topic, _ = decode_key(key)
                partitions = self.table.partitions_to_fill(group_id, topic)
                last_prefix = prefix
            (partition,) = _PARTITION(key, len(prefix))
            partitions[partition] = keep(base_offset + offset_delta, value)
            taken += 1
        if taken:
            self._timeline.offset = base_offset + records[taken - 1][0]
        return taken

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        self.table.remove(group_id, topic, partition)
        for staged in self._staged_of(group_id):
            staged.remove(group_id, topic, partition)
