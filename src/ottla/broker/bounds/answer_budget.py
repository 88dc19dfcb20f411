"""How much of a long answer is made in one turn of the loop, before others have theirs.

Apache Kafka has threads to spare, and makes an answer as long as it is. Here one of hundreds of groups, or of tens of
thousands of partitions, is made in steps, and encoded as it grows where it tells of groups, so that it neither keeps
the loop nor becomes many times its size in objects. Used by OffsetFetch, DescribeGroups, ConsumerGroupDescribe and
ListOffsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

from ottla.broker.bounds.limits import ELEMENTS_A_TURN_MAX
from ottla.broker.context import Context
from ottla.wire.apis import APIS
from ottla.wire.message import Message
from ottla.wire.splicing import Spliced

G = TypeVar("G", bound=Message)
R = TypeVar("R")


class AnswerBudget:
    """One instance an answer."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = ELEMENTS_A_TURN_MAX

    async def spend(self, elements: int) -> None:
        """So many have been told of: if that was enough for a turn, the next one is waited for."""
        self._left -= elements
        if self._left <= 0:
            self._left = ELEMENTS_A_TURN_MAX
            await asyncio.sleep(0)

    async def follow(self, steps: Iterator[int]) -> None:
        """Let an answer be made in steps, each of which says how many elements it told of."""
        for elements in steps:
            await self.spend(elements)


def in_turns(elements: int, steps: Iterator[int], answer: R) -> R | Awaitable[R]:
    """`answer`, which `steps` makes: at once, if it is of so many elements that one turn will do."""
    if elements > ELEMENTS_A_TURN_MAX:
        return _in_turns(steps, answer)
    for _ in steps:
        pass
    return answer


async def _in_turns(steps: Iterator[int], answer: R) -> R:
    await AnswerBudget().follow(steps)
    return answer


class AnswerOfGroups:
    """An answer to `context`'s request that grows by one group at a time, and tells of as many as there are."""

    __slots__ = ("_answer", "_api", "_metrics", "budget")

    def __init__(self, context: Context, around: Message) -> None:
        """`around` is the response without its groups."""
        self.budget = AnswerBudget()
        self._answer = Spliced(around, context.api_version)
        self._api = APIS[context.api_key].name
        self._metrics = context.services.request_metrics

    async def add(self, group: Message, elements: int) -> None:
        """`elements` that have not been spent yet."""
        self._metrics.refused(self._api, group)
        self._answer.add(group)
        await self.budget.spend(1 + elements)

    def whole(self) -> Message:
        return self._answer


def of_each_group(
    context: Context,
    response: Callable[..., Message],
    group_ids: Iterable[str],
    describe: Callable[[str], G],
    elements: Callable[[G], int],
) -> Message | Awaitable[Message]:
    """A `response` whose `groups` are what `describe` says of each: once, however often it is named, since a group may
    have very many members. `elements` counts what was told of one. A group that is named alone is told of at once."""
    names = list(dict.fromkeys(group_ids))
    if len(names) > 1:
        return _of_several_groups(AnswerOfGroups(context, response()), names, describe, elements)
    return response(groups=[describe(group_id) for group_id in names])


async def _of_several_groups(
    answer: AnswerOfGroups, names: list[str], describe: Callable[[str], G], elements: Callable[[G], int]
) -> Message:
    for group_id in names:
        group = describe(group_id)
        await answer.add(group, elements(group))
    return answer.whole()
