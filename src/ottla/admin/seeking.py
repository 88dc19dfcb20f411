"""Moving a group to another position: first a plan, which can be shown, then its application.

A plan is data: each partition with where the group is, where it would go, and what it would have to read then.
The rules are those of kafka-consumer-groups: an offset outside of the log becomes its nearest end, and a time after the
last record is the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.admin.groups import Group, commit_offsets, committed_offsets, describe_group, position_at
from ottla.admin.offsets import Bounds, bounds_of, list_offsets
from ottla.client.blocking import BlockingClient
from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_OFFSET, TopicPartition


@dataclass(frozen=True, slots=True)
class ToEarliest:
    pass


@dataclass(frozen=True, slots=True)
class ToLatest:
    pass


@dataclass(frozen=True, slots=True)
class ToOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class ToTime:
    """The first record that is as young."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """So many records on, or back if it is negative."""

    records: int


@dataclass(frozen=True, slots=True)
class ToGroup:
    """Where another group is."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ToEach:
    """An offset for each partition."""

    offsets: Mapping[TopicPartition, int]


Target = ToEarliest | ToLatest | ToOffset | ToTime | ShiftBy | ToGroup | ToEach


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    topic: str
    partition: int
    before: int | None
    """Where the group is; none if it has no position here."""
    after: int
    start_offset: int
    end_offset: int
    asked: int
    """What was asked for, where that is not an offset of the log, and `after` otherwise."""

    @property
    def lag_after(self) -> int:
        return max(self.end_offset - self.after, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekPlan:
    group_id: str
    is_new: bool
    """There is no such group yet: it would come to be."""
    moves: tuple[Move, ...]


def plan_seek(
    client: BlockingClient, group_id: str, target: Target, partitions: Iterable[TopicPartition] | None = None
) -> SeekPlan:
    """Where `target` would take the group in these partitions, or, if none are named, in all in which it (or the group
    to be followed) has a position. Nothing is changed."""
    committed = {each: position.offset for each, position in committed_offsets(client, group_id).items()}
    source: Mapping[TopicPartition, int] = committed
    if isinstance(target, ToGroup):
        source = {each: position.offset for each, position in committed_offsets(client, target.group_id).items()}
    elif isinstance(target, ToEach):
        source = target.offsets
    if partitions is None:
        wanted = sorted(source)
    else:
        wanted = sorted(set(partitions))
    if not wanted:
        whose = target.group_id if isinstance(target, ToGroup) else group_id
        message = f"The group {whose} has no position anywhere: name the topics to set one in."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    bounds = bounds_of(client, wanted)
    asked = _asked(client, target, wanted, bounds, source)
    return SeekPlan(
        group_id=group_id,
        is_new=not committed and _find(client, group_id) is None,
        moves=tuple(
            Move(
                topic=each.topic,
                partition=each.partition,
                before=committed.get(each),
                after=min(max(asked[each], bounds[each].start), bounds[each].end),
                start_offset=bounds[each].start,
                end_offset=bounds[each].end,
                asked=asked[each],
            )
            for each in wanted
        ),
    )


def apply_seek(client: BlockingClient, plan: SeekPlan) -> None:
    """Commits the plan. Raises `KafkaError` if the group has members: they would not notice, and commit over it."""
    group = _find(client, plan.group_id)
    if group is not None and group.members:
        message = (
            f"The group {plan.group_id} is {group.state} and has members: stop them first, since "
            "only a group without members can be moved."
        )
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, message)
    positions = {TopicPartition(each.topic, each.partition): position_at(each.after) for each in plan.moves}
    commit_offsets(client, plan.group_id, positions)


def _find(client: BlockingClient, group_id: str) -> Group | None:
    try:
        return describe_group(client, group_id)
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    return None


def _asked(
    client: BlockingClient,
    target: Target,
    wanted: list[TopicPartition],
    bounds: Mapping[TopicPartition, Bounds],
    source: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    match target:
        case ToEarliest():
            return {each: bounds[each].start for each in wanted}
        case ToLatest():
            return {each: bounds[each].end for each in wanted}
        case ToOffset(offset):
            return dict.fromkeys(wanted, offset)
        case ToTime(timestamp_ms):
            found = list_offsets(client, dict.fromkeys(wanted, timestamp_ms))
            return {
                each: bounds[each].end if found[each].offset == NO_OFFSET else found[each].offset for each in wanted
            }
        case ShiftBy(records):
            return {each: _position(source, each) + records for each in wanted}
        case ToGroup() | ToEach():
            return {each: _position(source, each) for each in wanted}


def _position(source: Mapping[TopicPartition, int], partition: TopicPartition) -> int:
    if partition not in source:
        message = f"There is no position in {partition} to go by: leave it out, or name an offset."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    return source[partition]
