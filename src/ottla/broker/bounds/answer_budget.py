"""How much one answer may tell of, where a request names several groups: one turn of the loop makes all of it.

Apache Kafka has threads to spare, and tells everything at once. Here groups that come after `ELEMENTS_TOLD_MAX` are
said to be loading still, for which tools ask again by themselves, and for these groups alone. The first is told of in
any case, however large it is. Used by OffsetFetch, DescribeGroups and ConsumerGroupDescribe.
"""

from __future__ import annotations

from ottla.broker.bounds.limits import ELEMENTS_TOLD_MAX
from ottla.errors import ErrorCode, KafkaError


class AnswerBudget:
    """One instance a request."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = ELEMENTS_TOLD_MAX

    def check(self) -> None:
        """May another group be told of? Raises `KafkaError` (COORDINATOR_LOAD_IN_PROGRESS)."""
        if self._left <= 0:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def spend(self, elements: int) -> None:
        self._left -= elements
