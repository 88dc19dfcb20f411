"""How much of a long answer is made in one turn of the loop, before others have theirs.

Apache Kafka has threads to spare, and makes an answer as long as it is. Here one of hundreds of groups, or of tens of
thousands of partitions, is made in steps, and encoded as it grows where it tells of groups, so that it neither keeps
the loop nor becomes many times its size in objects. Used by OffsetFetch, DescribeGroups, ConsumerGroupDescribe and
ListOffsets.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from typing import TypeVar

from ottla.broker.bounds.limits import ELEMENTS_A_TURN_MAX
from ottla.broker.context import Context
from ottla.broker.monitoring.error_codes import error_codes
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

    def is_spent(self, elements: int) -> bool:
        """So many have been told of: was that enough for a turn? Then whoever asks waits for the next one."""
        self._left -= elements
        if self._left > 0:
            return False
        self._left = ELEMENTS_A_TURN_MAX
        return True

    async def spend(self, elements: int) -> None:
        if self.is_spent(elements):
            await next_turn()

    async def follow(self, steps: Iterator[int]) -> None:
        """Let an answer be made in steps, each of which says how many elements it told of."""
        for elements in steps:
            if self.is_spent(elements):
                await next_turn()


async def next_turn() -> None:
    """The others have theirs first."""
    await asyncio.sleep(0)


async def take_turns(steps: Generator[None, None, R]) -> R:
    """What `steps` returns, which are a turn each."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: R = end.value
            return result
        await next_turn()


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

    __slots__ = ("_answer", "_api", "_errors", "_metrics", "budget")

    def __init__(self, context: Context, around: Message) -> None:
        """`around` is the response without its groups."""
        self.budget = AnswerBudget()
        self._answer = Spliced(around, context.api_version)
        self._api = APIS[context.api_key].name
        self._errors: Counter[int] = Counter()
        self._metrics = context.services.request_metrics

    def put(self, group: Message) -> None:
        for code in error_codes(group):
            self._errors[code] += 1
        self._answer.add(group)

    async def add(self, group: Message, elements: int) -> None:
        """The same, of `elements` that have not been spent yet."""
        self.put(group)
        await self.budget.spend(1 + elements)

    def whole(self) -> Message:
        self._metrics.count_errors(self._api, self._errors)
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
