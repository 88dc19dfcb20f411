"""OffsetFetch (key 9): what groups have committed.

Before version 8 a request is about one group, and its answer has another shape; both are read and written here as the
newer ones, of one group.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable

from ottla.broker.bounds.answer_budget import AnswerBudget
from ottla.broker.context import Context
from ottla.broker.promise import Promise, kept
from ottla.coordinator.outcome import Outcome
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.acls import Operation
from ottla.model import ZERO_UUID
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


def handle(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    budget = AnswerBudget()
    promises = [_fetch(context, group, request.require_stable, budget) for group in _groups(context, request)]
    if all(promise.done for promise in promises):
        return _respond(context, [promise.result() for promise in promises])
    if len(promises) == 1:
        return promises[0].then(lambda group: _respond(context, [group]), _impossible)
    return _gather(context, promises)


async def _gather(context: Context, promises: list[Promise[OffsetFetchResponseGroup]]) -> OffsetFetchResponse:
    return _respond(context, [await promise for promise in promises])


def _impossible(error: KafkaError) -> OffsetFetchResponse:
    raise AssertionError("a group's error is part of its answer") from error


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


def _fetch(
    context: Context, request: OffsetFetchRequestGroup, require_stable: bool, budget: AnswerBudget
) -> Promise[OffsetFetchResponseGroup]:
    """Never broken."""
    if not context.may_group(Operation.DESCRIBE, request.group_id):
        return kept(_refuse(context, request, KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)))
    try:
        budget.check()
    except KafkaError as error:
        return kept(_refuse(context, request, error))

    def counted(response: OffsetFetchResponseGroup) -> OffsetFetchResponseGroup:
        budget.spend(sum(len(topic.partitions) for topic in response.topics))
        return response

    groups = context.services.groups
    by_id = context.api_version >= FIRST_VERSION_WITH_IDS
    unknown = _take_unknown(context, request) if by_id else []
    unknown += _take_forbidden(context, request)
    if require_stable:
        # Of the newest state, so that the answer waits until what it tells is committed.
        promise: Promise[OffsetFetchResponseGroup] = groups.write(
            request.group_id,
            lambda shard, _: Outcome(counted(shard.offsets.fetch(request, require_stable=True))),
        )
    else:
        try:
            promise = kept(
                groups.read(
                    request.group_id,
                    lambda shard, _: counted(shard.offsets.fetch(request, require_stable=False)),
                )
            )
        except KafkaError as error:
            return kept(_refuse(context, request, error))

    def answer(response: OffsetFetchResponseGroup) -> OffsetFetchResponseGroup:
        if request.topics is None:
            client = context.silently
            response.topics = [each for each in response.topics if client.may_topic(Operation.DESCRIBE, each.name)]
        if by_id and request.topics is None:
            response.topics = _with_ids(context, response.topics)
        response.topics += unknown
        return response

    return promise.then(answer, lambda error: _refuse(context, request, error))


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


def _refuse(context: Context, request: OffsetFetchRequestGroup, error: KafkaError) -> OffsetFetchResponseGroup:
    code = ErrorCode.NOT_COORDINATOR if error.code in _RETRIED_ELSEWHERE else error.code
    response = OffsetFetchResponseGroup(group_id=request.group_id, error_code=code)
    if context.api_version < FIRST_VERSION_WITH_ERROR:
        for topic in request.topics or ():
            partitions = [
                OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, error_code=code)
                for index in topic.partition_indexes
            ]
            response.topics.append(OffsetFetchResponseTopics(name=topic.name, partitions=partitions))
    return response


def _respond(context: Context, groups: list[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
    if context.api_version >= FIRST_VERSION_WITH_GROUPS:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
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
