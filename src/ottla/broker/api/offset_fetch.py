"""OffsetFetch (key 9): what groups have committed.

Before version 8 a request is about one group, and its answer has another shape; both are read and written here as the
newer ones, of one group.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator

from ottla.broker.bounds.answer_budget import AnswerBudget, AnswerOfGroups, next_turn
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
    asked = _Asked(context, groups[0], request.require_stable)
    if asked.is_long:
        return _fetch_long(asked)
    promise = asked.look_up()
    if asked.count > ELEMENTS_A_TURN_MAX:
        return _fetch_long(asked, promise)
    return promise.then(
        lambda found: _respond(context, asked.answer(found)), lambda error: _respond(context, asked.refuse(error))
    )


async def _fetch_long(asked: _Asked, promise: Promise[Found] | None = None) -> OffsetFetchResponse:
    """`promise` is of what has been looked up already."""
    budget = AnswerBudget()
    if promise is None:
        promise = await asked.look_up_in_turns(budget)
    return _respond(asked.context, await asked.answer_in_turns(promise, budget))


async def _fetch_several(context: Context, groups: list[OffsetFetchRequestGroup], require_stable: bool) -> Message:
    answer = AnswerOfGroups(context, OffsetFetchResponse())
    waiting: list[tuple[_Asked, Promise[Found]]] = []
    """Looked up in one turn, so that they wait for one commit at most."""
    count = 0
    groups.reverse()
    while groups:
        # A group is told at once if it can be, and let go of: what is kept, the garbage collector walks time and again.
        asked = _Asked(context, groups.pop(), require_stable)
        promise = await asked.look_up_in_turns(answer.budget) if asked.is_long else asked.look_up()
        count += 1 + asked.count
        if promise.done and not waiting and asked.count <= ELEMENTS_A_TURN_MAX:
            answer.put(asked.settle(promise))
        else:
            waiting.append((asked, promise))
        if count >= ELEMENTS_A_TURN_MAX:
            await next_turn()
            await _tell(answer, waiting)
            waiting, count = [], 0
    await _tell(answer, waiting)
    return answer.whole()


async def _tell(answer: AnswerOfGroups, waiting: list[tuple[_Asked, Promise[Found]]]) -> None:
    for asked, promise in waiting:
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

    __slots__ = ("_refused", "_request", "_require_stable", "context", "count")

    def __init__(self, context: Context, request: OffsetFetchRequestGroup, require_stable: bool) -> None:
        self.context = context
        self.count = 0
        """Of the partitions that were found."""
        self._request = request
        self._require_stable = require_stable
        self._refused: list[OffsetFetchResponseTopics] = []
        """Of topics that do not exist, or are none of the client's business."""

    @property
    def is_long(self) -> bool:
        """Does it name so much that to look at it takes more than a turn?"""
        topics = self._request.topics
        if not topics:
            return False
        return sum(1 + len(topic.partition_indexes) for topic in topics) > ELEMENTS_A_TURN_MAX

    def look_up(self) -> Promise[Found]:
        if not self._may_describe:
            return broken(KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        if self._request.topics:
            for _ in self._sift(self._request.topics):
                pass
        return self._look_up()

    async def look_up_in_turns(self, budget: AnswerBudget) -> Promise[Found]:
        if not self._may_describe:
            return broken(KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        if self._request.topics:
            await budget.follow(self._sift(self._request.topics))
        return self._look_up()

    @property
    def _may_describe(self) -> bool:
        return self.context.may_group(Operation.DESCRIBE, self._request.group_id)

    def _sift(self, topics: list[OffsetFetchRequestTopics]) -> Iterator[int]:
        """Name the topics of the request, and take those out that do not exist or that the client may not describe:
        they are answered here. Each step says how many elements it looked at."""
        context, image = self.context, self.context.services.image
        by_id = context.api_version >= FIRST_VERSION_WITH_IDS
        if not by_id and context.services.authorizer is None:
            return
        told: list[OffsetFetchRequestTopics] = []
        self._request.topics = told
        topics.reverse()
        while topics:
            topic = topics.pop()
            known = image.topic_by_id(topic.topic_id) if by_id else None
            if known is not None:
                topic.name = known.name
            if by_id and known is None:
                yield from self._refuse_topic(topic, ErrorCode.UNKNOWN_TOPIC_ID)
            elif context.may_topic(Operation.DESCRIBE, topic.name):
                told.append(topic)
            else:
                yield from self._refuse_topic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            yield 1

    def _refuse_topic(self, topic: OffsetFetchRequestTopics, code: ErrorCode) -> Iterator[int]:
        answer = OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id)
        self._refused.append(answer)
        for first in range(0, len(topic.partition_indexes), ELEMENTS_A_TURN_MAX):
            some = topic.partition_indexes[first : first + ELEMENTS_A_TURN_MAX]
            answer.partitions += _refused_partitions(some, code)
            yield len(some)

    def _look_up(self) -> Promise[Found]:
        groups, request, require_stable = self.context.services.groups, self._request, self._require_stable

        def look_up(shard: GroupShard) -> Found:
            found = shard.offsets.look_up(request, require_stable=require_stable)
            self.count = found.count
            return found

        if require_stable:
            # Of the newest state, so that the answer waits until what it tells is committed.
            return groups.write(request.group_id, lambda shard, _: Outcome(look_up(shard)))
        try:
            return kept(groups.read(request.group_id, lambda shard, _: look_up(shard)))
        except KafkaError as error:
            return broken(error)

    def settle(self, promise: Promise[Found]) -> OffsetFetchResponseGroup:
        """Of a promise that is kept, or broken."""
        return self.answer(promise.result()) if promise.error is None else self.refuse(promise.error)

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
                partitions = _refused_partitions(topic.partition_indexes, code)
                response.topics.append(OffsetFetchResponseTopics(name=topic.name, partitions=partitions))
        return response


def _refused_partitions(indexes: list[int], code: ErrorCode) -> list[OffsetFetchResponsePartitions]:
    return [
        OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, error_code=code) for index in indexes
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
