"""OffsetFetch (key 9): what groups have committed.

Before version 8 a request is about one group, and its answer has another shape; both are read and written here as the
newer ones, of one group.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable

from ottla.broker.bounds.answer_budget import AnswerBudget, AnswerOfGroups
from ottla.broker.bounds.limits import ELEMENTS_A_TURN_MAX
from ottla.broker.context import Context
from ottla.broker.promise import Promise, broken, kept
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.offsets.fetches import Found
from ottla.coordinator.outcome import Outcome
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.acls import Operation
from ottla.model import ZERO_UUID
from ottla.wire.message import Message
from ottla.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

FIRST_VERSION_WITH_ERROR = 2
"""Before, each partition has the error of its group."""
FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_IDS = 10

_RETRIED_ELSEWHERE = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""What consumers before 3.9 do not expect here; NOT_COORDINATOR makes them look for the coordinator, and retry."""


def handle(context: Context, request: OffsetFetchRequest) -> Message | Awaitable[Message]:
    groups = _groups(context, request)
    if len(groups) != 1:
        return _fetch_several(context, groups, request.require_stable)
    asked = _Asked(context, groups[0])
    promise = asked.look_up(request.require_stable)
    if asked.count > ELEMENTS_A_TURN_MAX:
        return _fetch_long(asked, promise)
    return promise.then(
        lambda found: _respond(context, asked.answer(found)), lambda error: _respond(context, asked.refuse(error))
    )


async def _fetch_long(asked: _Asked, promise: Promise[Found]) -> OffsetFetchResponse:
    return _respond(asked.context, await asked.answer_in_turns(promise, AnswerBudget()))


async def _fetch_several(context: Context, groups: list[OffsetFetchRequestGroup], require_stable: bool) -> Message:
    answer = AnswerOfGroups(context, OffsetFetchResponse())
    together: list[tuple[_Asked, Promise[Found]]] = []
    count = 0
    for group in groups:
        asked = _Asked(context, group)
        together.append((asked, asked.look_up(require_stable)))
        count += 1 + asked.count
        if count >= ELEMENTS_A_TURN_MAX:
            await _tell(answer, together)
            together, count = [], 0
    await _tell(answer, together)
    return answer.whole()


async def _tell(answer: AnswerOfGroups, together: list[tuple[_Asked, Promise[Found]]]) -> None:
    """Of groups that were looked up in one turn, so that they wait for one commit at most."""
    for asked, promise in together:
        told = await asked.answer_in_turns(promise, answer.budget)
        await answer.add(told, len(told.topics))


def _groups(context: Context, request: OffsetFetchRequest) -> list[OffsetFetchRequestGroup]:
    if context.api_version >= FIRST_VERSION_WITH_GROUPS:
        return _once(request.groups)
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def _once(groups: Iterable[OffsetFetchRequestGroup]) -> list[OffsetFetchRequestGroup]:
    """A group that is asked for all that it has tells it once, however often it is named: its answer may be large."""
    all_of: set[str] = set()
    once: list[OffsetFetchRequestGroup] = []
    for group in groups:
        if group.topics is None:
            if group.group_id in all_of:
                continue
            all_of.add(group.group_id)
        once.append(group)
    return once


class _Asked:
    """One group of a request."""

    __slots__ = ("_refused", "_request", "context", "count")

    def __init__(self, context: Context, request: OffsetFetchRequestGroup) -> None:
        self.context = context
        self.count = 0
        """Of the partitions that were found."""
        self._request = request
        self._refused: list[OffsetFetchResponseTopics] = []
        """Of topics that do not exist, or are none of the client's business."""

    def look_up(self, require_stable: bool) -> Promise[Found]:
        context, request = self.context, self._request
        if not context.may_group(Operation.DESCRIBE, request.group_id):
            return broken(KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        if context.api_version >= FIRST_VERSION_WITH_IDS:
            self._refused += _take_unknown(context, request)
        self._refused += _take_forbidden(context, request)

        def look_up(shard: GroupShard) -> Found:
            found = shard.offsets.look_up(request, require_stable=require_stable)
            self.count = found.count
            return found

        groups = context.services.groups
        if require_stable:
            # Of the newest state, so that the answer waits until what it tells is committed.
            return groups.write(request.group_id, lambda shard, _: Outcome(look_up(shard)))
        try:
            return kept(groups.read(request.group_id, lambda shard, _: look_up(shard)))
        except KafkaError as error:
            return broken(error)

    async def answer_in_turns(self, promise: Promise[Found], budget: AnswerBudget) -> OffsetFetchResponseGroup:
        try:
            found = await promise
        except KafkaError as error:
            return self.refuse(error)
        await budget.follow(found.tell(ELEMENTS_A_TURN_MAX))
        return self.answer(found)

    def answer(self, found: Found) -> OffsetFetchResponseGroup:
        context, response = self.context, found.told()
        if self._request.topics is None:
            client = context.silently
            response.topics = [each for each in response.topics if client.may_topic(Operation.DESCRIBE, each.name)]
            if context.api_version >= FIRST_VERSION_WITH_IDS:
                response.topics = _with_ids(context, response.topics)
        response.topics += self._refused
        return response

    def refuse(self, error: KafkaError) -> OffsetFetchResponseGroup:
        code = ErrorCode.NOT_COORDINATOR if error.code in _RETRIED_ELSEWHERE else error.code
        response = OffsetFetchResponseGroup(group_id=self._request.group_id, error_code=code)
        if self.context.api_version < FIRST_VERSION_WITH_ERROR:
            for topic in self._request.topics or ():
                partitions = [
                    OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, error_code=code)
                    for index in topic.partition_indexes
                ]
                response.topics.append(OffsetFetchResponseTopics(name=topic.name, partitions=partitions))
        return response


def _take_unknown(context: Context, request: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
    """Name the topics of the request, and take those out that do not exist; the answers about them."""
    if request.topics is None:
        return []
    unknown: list[OffsetFetchResponseTopics] = []
    existing: list[OffsetFetchRequestTopics] = []
    for topic in request.topics:
        known = context.services.image.topic_by_id(topic.topic_id)
        if known is None:
            partitions = [
                OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=-1, error_code=ErrorCode.UNKNOWN_TOPIC_ID
                )
                for index in topic.partition_indexes
            ]
            unknown.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions))
        else:
            topic.name = known.name
            existing.append(topic)
    request.topics = existing
    return unknown


def _take_forbidden(context: Context, request: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
    """Take the topics out of the request that the client may not describe; the answers about them."""
    if context.services.authorizer is None or request.topics is None:
        return []
    allowed: list[OffsetFetchRequestTopics] = []
    forbidden: list[OffsetFetchRequestTopics] = []
    for topic in request.topics:
        (allowed if context.may_topic(Operation.DESCRIBE, topic.name) else forbidden).append(topic)
    request.topics = allowed
    return [
        OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=-1, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in forbidden
    ]


def _with_ids(context: Context, topics: list[OffsetFetchResponseTopics]) -> list[OffsetFetchResponseTopics]:
    """Those that exist: the others have no id that could be told."""
    for topic in topics:
        known = context.services.image.topic(topic.name)
        topic.topic_id = ZERO_UUID if known is None else known.topic_id
    return [topic for topic in topics if topic.topic_id != ZERO_UUID]


def _respond(context: Context, group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    if context.api_version >= FIRST_VERSION_WITH_GROUPS:
        return OffsetFetchResponse(groups=[group])
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
