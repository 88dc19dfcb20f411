"""Consumer groups of a mirror's source, told to its target: who moves there goes on where it was.

The committed offsets of every group are looked at every few seconds, and those that have changed are translated
(`mirror_places`). In the target a group is only ever moved forward, and left alone while it has members there: its
coordinator refuses the commit of a stranger. A refusal or a cluster that does not answer is a line in the log: records
are mirrored all the same, and the next look tries again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from ottla.admin.groups import commit_offsets, committed_offsets, list_groups, position_at
from ottla.client.blocking import BlockingClient
from ottla.client.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.spark.pipelines.mirror_places import Place, TargetLog
from ottla.spark.source.offsets import Positions, SourceError

_LOG = logging.getLogger(__name__)

_WITHOUT_OFFSETS = ("share",)
_HAS_MEMBERS = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH)


@dataclass(slots=True, kw_only=True)
class GroupTranslator:
    source: ClientSettings
    target_options: Mapping[str, str]
    mark: tuple[str, str]
    topics: str
    groups: str
    own_group: str
    """That of the mirror's own progress, which is none of the target's business."""
    _target: TargetLog | None = None
    _done: dict[tuple[str, TopicPartition], tuple[int, int | None]] = field(default_factory=dict)
    """The offset that was translated last, and where the target ended if more of it may change the place."""

    def translate(self) -> None:
        """One look at all groups."""
        try:
            if self._target is None:
                self._target = TargetLog(self.target_options, self.mark)
            with BlockingClient(self.source) as source:
                self._translate(source, self._target)
        except (KafkaError, SourceError) as error:
            _LOG.warning("The offsets of groups cannot be translated for now: %s", error)

    def _translate(self, source: BlockingClient, log: TargetLog) -> None:
        target = log.cluster.client
        committed: dict[str, Positions] = {}
        for group in self._groups(source):
            with _one_group(group):
                committed[group] = self._wanted(source, group)
        there = target.persist(lambda: target.topics({each.topic for wanted in committed.values() for each in wanted}))
        partitions = sorted(
            {
                each
                for wanted in committed.values()
                for each in wanted
                if each.topic in there and each.partition in there[each.topic].partitions
            }
        )
        starts, ends = log.bounds(partitions)
        places: dict[tuple[TopicPartition, int], Place | None] = {}
        for group, wanted in committed.items():
            due = {
                each: offset
                for each, offset in wanted.items()
                if each in ends and self._is_due(group, each, offset, ends)
            }
            for each, offset in due.items():
                if (each, offset) not in places:
                    places[each, offset] = log.place_of(each, offset, starts[each], ends[each])
            found = {each: place for each, offset in due.items() if (place := places[each, offset]) is not None}
            if not found:
                continue
            with _one_group(group):
                if self._move(target, group, {each: place.offset for each, place in found.items()}):
                    for each, place in found.items():
                        self._done[group, each] = wanted[each], None if place.is_final else ends[each]

    def _groups(self, source: BlockingClient) -> list[str]:
        matches = re.compile(self.groups).fullmatch
        listed = source.persist(lambda: list_groups(source))
        found = [each.group_id for each in listed if each.protocol not in _WITHOUT_OFFSETS]
        return [group for group in found if matches(group) and group != self.own_group]

    def _wanted(self, source: BlockingClient, group: str) -> Positions:
        matches = re.compile(self.topics).fullmatch
        committed = committed_offsets(source, group)
        return {each: position.offset for each, position in committed.items() if matches(each.topic)}

    def _is_due(self, group: str, partition: TopicPartition, offset: int, ends: Positions) -> bool:
        translated, end = self._done.get((group, partition), (-1, None))
        return offset != translated or (end is not None and ends[partition] != end)

    @staticmethod
    def _move(target: BlockingClient, group: str, places: Positions) -> bool:
        """Forward, as far as the group is not there yet. False if it has members, who know better."""
        reached = committed_offsets(target, group)
        ahead = {
            each: position_at(offset)
            for each, offset in places.items()
            if each not in reached or reached[each].offset < offset
        }
        try:
            if ahead:
                commit_offsets(target, group, ahead)
        except KafkaError as error:
            if error.code in _HAS_MEMBERS:
                return False
            raise
        return True


@contextmanager
def _one_group(group: str) -> Iterator[None]:
    """What is wrong with one group is no reason to leave the others where they are."""
    try:
        yield
    except KafkaError as error:
        _LOG.warning("The offsets of the group %s cannot be translated for now: %s", group, error)
