"""Requests about groups that would keep the loop for long: they are answered whole, in turns with the others, and
topics are looked for by so many expressions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from ottla.broker.api import consumer_group_describe, consumer_group_heartbeat, describe_groups, offset_fetch
from ottla.broker.api.consumer_group_heartbeat import GROUP_VERSION
from ottla.broker.bounds.limits import ELEMENTS_A_TURN_MAX, GROUP_MATCHES_MAX, GROUP_PATTERNS_MIN
from ottla.broker.connection import ClientConnection
from ottla.broker.context import Context
from ottla.broker.monitoring.request_metrics import RequestMetrics
from ottla.broker.promise import Promise, broken, kept
from ottla.broker.services import Services
from ottla.coordinator.consumer import Sender
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.offsets.codec import CommittedOffset, encode_value
from ottla.coordinator.offsets.fetches import Found
from ottla.coordinator.offsets.table import keep
from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.registry import Registry
from ottla.model import ZERO_UUID
from ottla.runtime import Clock
from ottla.wire.message import Message
from ottla.wire.messages import consumer_group_describe_response, describe_groups_response
from ottla.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.wire.messages.describe_groups_response import DescribeGroupsResponse
from ottla.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.messages.offset_fetch_response import OffsetFetchResponse

M = TypeVar("M", bound=Message)

MANY = 30 * ELEMENTS_A_TURN_MAX
UNKNOWN = "nobody"
OFFSET = keep(0, encode_value(CommittedOffset(7, -1, "", 0)))


class Shard:
    """Every group has as many offsets, and as many members, as its name says."""

    @property
    def offsets(self) -> Shard:
        return self

    @property
    def consumer(self) -> Shard:
        return self

    def look_up(self, request: OffsetFetchRequestGroup, *, require_stable: bool) -> Found:
        found = Found(request.group_id)
        partitions = [(each, OFFSET) for each in range(int(request.group_id))]
        found.add("t", ZERO_UUID, cast("list[tuple[int, bytes | None]]", partitions))
        return found

    def describe(self, group_id: str) -> consumer_group_describe_response.DescribedGroup:
        members = [consumer_group_describe_response.Member() for _ in range(int(group_id))]
        return consumer_group_describe_response.DescribedGroup(group_id=group_id, members=members)


class Groups:
    """Those that are named by a number are served here."""

    def read(self, group_id: str, operation: Callable[[Any, int], Any]) -> Any:
        if group_id == UNKNOWN:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return operation(Shard(), 0)

    def write(self, group_id: str, operation: Callable[[Any, int], Any]) -> Promise[Found]:
        if group_id == UNKNOWN:
            return broken(KafkaError(ErrorCode.NOT_COORDINATOR))
        return kept(operation(Shard(), 0).response)


class Caller:
    """Asks a handler, and counts the turns that others have meanwhile."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.turns = 0

    def context(self, api_key: int, version: int) -> Context:
        services = SimpleNamespace(
            authorizer=None,
            groups=Groups(),
            image=SimpleNamespace(features=SimpleNamespace(levels={GROUP_VERSION: 1})),
            request_metrics=RequestMetrics(self.registry, cast("Clock", None)),
        )
        connection = cast("ClientConnection", None)
        return Context(cast("Services", services), connection, "PLAINTEXT", False, api_key, version, "test")

    def ask(
        self,
        handler: Callable[[Context, Any], Message | Awaitable[Message]],
        request: Message,
        version: int,
        answer: type[M],
    ) -> M:
        assert request.API_KEY is not None
        context = self.context(request.API_KEY, version)
        return answer.decode(asyncio.run(self._ask(handler, request, context)).encode(version), version)

    async def _ask(
        self, handler: Callable[[Context, Any], Message | Awaitable[Message]], request: Message, context: Context
    ) -> Message:
        made = handler(context, request)
        if isinstance(made, Message):
            return made
        if isinstance(made, Promise):
            assert made.done, "a short answer needs no turn of its own"
            return cast("Message", made.result())
        others = asyncio.ensure_future(self._others())
        try:
            return await made
        finally:
            others.cancel()

    async def _others(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.turns += 1


@pytest.fixture
def caller() -> Caller:
    return Caller()


def fetched(
    caller: Caller, names: Iterable[object], *, require_stable: bool = False, version: int = 8
) -> list[tuple[int, int]]:
    """Of each group the error, and how many offsets were told."""
    groups = [OffsetFetchRequestGroup(group_id=str(each), topics=None) for each in names]
    request = OffsetFetchRequest(groups=groups, require_stable=require_stable)
    answer = caller.ask(offset_fetch.handle, request, version, OffsetFetchResponse)
    for group in answer.groups:
        indexes = [each.partition_index for topic in group.topics for each in topic.partitions]
        assert indexes == list(range(len(indexes)))
        assert all(each.committed_offset == 7 for topic in group.topics for each in topic.partitions)
    return [(group.error_code, sum(len(topic.partitions) for topic in group.topics)) for group in answer.groups]


@pytest.mark.parametrize("require_stable", [False, True])
def test_all_groups_of_a_request_are_told_of(caller: Caller, require_stable: bool) -> None:
    told = fetched(caller, [1, MANY, UNKNOWN, 3, MANY + 1, 0], require_stable=require_stable)
    assert told == [(0, 1), (0, MANY), (ErrorCode.NOT_COORDINATOR, 0), (0, 3), (0, MANY + 1), (0, 0)]
    assert caller.turns > MANY // ELEMENTS_A_TURN_MAX
    assert caller.registry.meter("kafka_network_requestmetrics_errors", "OffsetFetch", "NOT_COORDINATOR").value == 1


@pytest.mark.parametrize("version", [5, 8])
def test_one_group_is_told_of_however_much_it_has(caller: Caller, version: int) -> None:
    if version < offset_fetch.FIRST_VERSION_WITH_GROUPS:
        request = OffsetFetchRequest(group_id=str(MANY), topics=None)
        answer = caller.ask(offset_fetch.handle, request, version, OffsetFetchResponse)
        assert [len(topic.partitions) for topic in answer.topics] == [MANY]
    else:
        assert fetched(caller, [MANY], version=version) == [(0, MANY)]
    assert caller.turns >= MANY // ELEMENTS_A_TURN_MAX - 1


def test_what_a_group_has_is_told_as_it_was_when_it_was_looked_up() -> None:
    found = Shard().look_up(OffsetFetchRequestGroup(group_id="2500"), require_stable=False)
    assert list(found.tell(1000)) == [1000, 1000, 500]
    assert len(found.told().topics[0].partitions) == 2500
    assert len(found.told().topics[0].partitions) == 2500, "nothing is told twice"


def test_a_short_answer_is_made_at_once(caller: Caller) -> None:
    assert fetched(caller, [ELEMENTS_A_TURN_MAX]) == [(0, ELEMENTS_A_TURN_MAX)]
    assert caller.turns == 0


def test_all_members_of_all_groups_are_told_of(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def described(shard: Shard, names: Sequence[str], version: int) -> list[describe_groups_response.DescribedGroup]:
        members = [describe_groups_response.DescribedGroupMember() for _ in range(int(names[0]))]
        return [describe_groups_response.DescribedGroup(group_id=names[0], members=members)]

    monkeypatch.setattr(describe_groups, "describe_groups", described)
    names = [str(each) for each in (MANY, 1, MANY, UNKNOWN, MANY + 1)]
    wanted = [(0, MANY), (0, 1), (ErrorCode.NOT_COORDINATOR, 0), (0, MANY + 1)]
    for version in (4, 5):
        request = DescribeGroupsRequest(groups=names)
        classic = caller.ask(describe_groups.handle, request, version, DescribeGroupsResponse)
        assert [(each.error_code, len(each.members)) for each in classic.groups] == wanted
        assert caller.turns >= 1
        caller.turns = 0
    asked = ConsumerGroupDescribeRequest(group_ids=names)
    modern = caller.ask(consumer_group_describe.handle, asked, 1, ConsumerGroupDescribeResponse)
    assert [(each.error_code, len(each.members)) for each in modern.groups] == wanted
    assert caller.turns >= 1


def test_the_members_of_a_group_subscribe_by_so_many_expressions() -> None:
    heard: list[str | None] = []

    class Consumers:
        def __init__(self, count: int) -> None:
            self.members = {f"t{number}.*": 1 for number in range(count)}

        def group(self, group_id: str) -> SimpleNamespace:
            return SimpleNamespace(regex_members=self.members)

        def heartbeat(self, request: ConsumerGroupHeartbeatRequest, sender: Sender, now_ms: int) -> None:
            heard.append(request.subscribed_topic_regex)

    def beat(pattern: str | None, known: int, topics: int) -> None:
        request = ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_regex=pattern)
        shard = cast(GroupShard, SimpleNamespace(consumer=Consumers(known)))
        consumer_group_heartbeat._heartbeat(request, cast(Sender, None), topics, shard, 0)

    many = GROUP_MATCHES_MAX // 10
    for topics, most in ((many, 10), (GROUP_MATCHES_MAX, GROUP_PATTERNS_MIN)):
        heard.clear()
        beat("new.*", most - 1, topics)
        beat("t0.*", most, topics)
        beat(None, most, topics)
        with pytest.raises(KafkaError, match="subscribe by one of them") as refused:
            beat("new.*", most, topics)
        assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert heard == ["new.*", "t0.*", None]
    beat("new.*", 1000, 0)
