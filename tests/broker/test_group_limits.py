"""Requests about groups that would keep the loop for long: what does not fit into one answer is asked for again, and
topics are looked for by so many expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.api import consumer_group_describe, consumer_group_heartbeat, describe_groups, offset_fetch
from ottla.broker.api.consumer_group_heartbeat import GROUP_VERSION
from ottla.broker.bounds.limits import ELEMENTS_TOLD_MAX, GROUP_MATCHES_MAX, GROUP_PATTERNS_MIN
from ottla.broker.connection import ClientConnection
from ottla.broker.context import Context
from ottla.broker.promise import Promise, kept
from ottla.broker.services import Services
from ottla.coordinator.consumer import Sender
from ottla.coordinator.group_shard import GroupShard
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages import consumer_group_describe_response, describe_groups_response
from ottla.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
HALF = ELEMENTS_TOLD_MAX // 2


class Shard:
    """Every group has as many offsets, and as many members, as its name says."""

    @property
    def offsets(self) -> Shard:
        return self

    @property
    def consumer(self) -> Shard:
        return self

    def fetch(self, request: OffsetFetchRequestGroup, *, require_stable: bool) -> OffsetFetchResponseGroup:
        partitions = [OffsetFetchResponsePartitions(partition_index=each) for each in range(int(request.group_id))]
        topics = [OffsetFetchResponseTopics(name="t", partitions=partitions)]
        return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)

    def describe(self, group_id: str) -> consumer_group_describe_response.DescribedGroup:
        members = [consumer_group_describe_response.Member() for _ in range(int(group_id))]
        return consumer_group_describe_response.DescribedGroup(group_id=group_id, members=members)


class Groups:
    def read(self, group_id: str, operation: Callable[[Any, int], Any]) -> Any:
        return operation(Shard(), 0)

    def write(self, group_id: str, operation: Callable[[Any, int], Any]) -> Promise[OffsetFetchResponseGroup]:
        return kept(operation(Shard(), 0).response)


def context(api_key: int, version: int) -> Context:
    image = SimpleNamespace(features=SimpleNamespace(levels={GROUP_VERSION: 1}))
    services = cast(Services, SimpleNamespace(authorizer=None, groups=Groups(), image=image))
    return Context(services, cast(ClientConnection, None), "PLAINTEXT", False, api_key, version, "test")


def fetched(names: Iterable[int], *, require_stable: bool = False) -> list[tuple[int, int]]:
    """Of each group the error, and how many offsets were told."""
    groups = [OffsetFetchRequestGroup(group_id=str(each), topics=None) for each in names]
    request = OffsetFetchRequest(groups=groups, require_stable=require_stable)
    answer = offset_fetch.handle(context(9, 8), request)
    assert isinstance(answer, OffsetFetchResponse)
    return [(group.error_code, sum(len(topic.partitions) for topic in group.topics)) for group in answer.groups]


@pytest.mark.parametrize("require_stable", [False, True])
def test_offsets_of_groups_that_do_not_fit_into_an_answer_are_asked_for_again(require_stable: bool) -> None:
    told = fetched([1, HALF, HALF + 1, 2, 3], require_stable=require_stable)
    assert told == [(0, 1), (0, HALF), (0, HALF + 1), (LOADING, 0), (LOADING, 0)]


def test_one_group_is_told_of_however_much_it_has() -> None:
    assert fetched([3 * ELEMENTS_TOLD_MAX]) == [(0, 3 * ELEMENTS_TOLD_MAX)]
    assert fetched([3 * ELEMENTS_TOLD_MAX, 1]) == [(0, 3 * ELEMENTS_TOLD_MAX), (LOADING, 0)]


def test_groups_whose_members_do_not_fit_into_an_answer_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def described(shard: Shard, names: Sequence[str], version: int) -> list[describe_groups_response.DescribedGroup]:
        members = [describe_groups_response.DescribedGroupMember() for _ in range(int(names[0]))]
        return [describe_groups_response.DescribedGroup(group_id=names[0], members=members)]

    monkeypatch.setattr(describe_groups, "describe_groups", described)
    names = [str(each) for each in (HALF + 1, HALF, 7)]
    wanted = [(0, HALF + 1), (0, HALF), (LOADING, 0)]
    classic = describe_groups.handle(context(15, 5), DescribeGroupsRequest(groups=names))
    assert [(each.error_code, len(each.members)) for each in classic.groups] == wanted
    modern = consumer_group_describe.handle(context(69, 1), ConsumerGroupDescribeRequest(group_ids=names))
    assert [(each.error_code, len(each.members)) for each in modern.groups] == wanted


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
