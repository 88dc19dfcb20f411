"""Consumer groups of a mirror's source, told to its target: who moves there goes on where it was.

The committed offsets of every group are looked at every few seconds, and those that have changed are translated
(`mirror_places`). In the target a group is only ever moved forward, and left alone while it has members there: its
coordinator refuses the commit of a stranger. A refusal or a cluster that does not answer is a line in the log: records
are mirrored all the same, and the next look tries again.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from ottla.client.blocking import BlockingClient, CoordinatorKind
from ottla.client.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.spark.offsets import Positions, SourceError
from ottla.spark.pipelines.mirror_places import Place, TargetLog
from ottla.wire.messages.list_groups_request import ListGroupsRequest
from ottla.wire.messages.list_groups_response import ListGroupsResponse
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.wire.messages.offset_fetch_request import OffsetFetchRequest
from ottla.wire.messages.offset_fetch_response import OffsetFetchResponse

_LOG = logging.getLogger(__name__)

_LAST_OF_ONE_GROUP = 7
"""From version 8 on OffsetFetch asks for many groups (KIP-709)."""
_LAST_BY_NAME = 9
"""From version 10 on OffsetCommit names topics by their ids."""
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
                committed[group] = self._wanted(committed_offsets(source, group))
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
        found: set[str] = set()
        for node in source.persist(source.nodes):
            found.update(_groups_of(source, node))
        return sorted(group for group in found if matches(group) and group != self.own_group)

    def _wanted(self, committed: Positions) -> Positions:
        matches = re.compile(self.topics).fullmatch
        return {each: offset for each, offset in committed.items() if matches(each.topic)}

    def _is_due(self, group: str, partition: TopicPartition, offset: int, ends: Positions) -> bool:
        translated, end = self._done.get((group, partition), (-1, None))
        return offset != translated or (end is not None and ends[partition] != end)

    @staticmethod
    def _move(target: BlockingClient, group: str, places: Positions) -> bool:
        """Forward, as far as the group is not there yet. False if it has members, who know better."""
        reached = committed_offsets(target, group)
        ahead = {each: offset for each, offset in places.items() if offset > reached.get(each, -1)}
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


def committed_offsets(client: BlockingClient, group: str) -> Positions:
    """All that a group has committed."""
    answer = client.to_coordinator(
        CoordinatorKind.GROUP,
        group,
        OffsetFetchRequest(group_id=group, topics=None),
        OffsetFetchResponse,
        max_version=_LAST_OF_ONE_GROUP,
    )
    return {
        TopicPartition(topic.name, each.partition_index): each.committed_offset
        for topic in answer.topics
        for each in topic.partitions
        if not each.error_code and each.committed_offset >= 0
    }


def commit_offsets(client: BlockingClient, group: str, offsets: Positions) -> None:
    """As somebody who is no member. Raises `KafkaError` if the group has any."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for each, offset in offsets.items():
        topics[each.topic].append(OffsetCommitRequestPartition(partition_index=each.partition, committed_offset=offset))
    request = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )
    client.to_coordinator(
        CoordinatorKind.GROUP,
        group,
        request,
        OffsetCommitResponse,
        errors=_commit_errors,
        max_version=_LAST_BY_NAME,
    )


def _commit_errors(answer: OffsetCommitResponse) -> Iterable[int]:
    return [each.error_code for topic in answer.topics for each in topic.partitions]


def _groups_of(source: BlockingClient, node: int) -> list[str]:
    """Those that one node coordinates."""

    def attempt() -> ListGroupsResponse:
        answer = source.ask(node, ListGroupsRequest(), ListGroupsResponse)
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), "The groups of the source cannot be listed.")
        return answer

    listed = source.persist(attempt).groups
    return [each.group_id for each in listed if each.group_type.lower() not in _WITHOUT_OFFSETS]
