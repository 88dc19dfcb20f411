"""Transaction version 1: whatever a transaction is to write to is named to its coordinator first.

Driven by `transaction_clients`. By version 2 the leaders of partitions do this by themselves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.model import TopicPartition
from ottla.sim.coordinator_client import AGAIN, ANOTHER_COORDINATOR, TRANSACTION
from ottla.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from ottla.wire.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse

if TYPE_CHECKING:
    from ottla.sim.transaction_clients import Transactor

_ADD_PARTITIONS_V1, _ADD_OFFSETS_V1 = 3, 4
"""The newest requests of clients; those after them are the brokers' own, or of version 2."""

_AGAIN = AGAIN | {ErrorCode.CONCURRENT_TRANSACTIONS}
_FENCED = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)


class Enrolment:
    """What one transactor's transaction has named so far."""

    def __init__(self, transactor: Transactor) -> None:
        self._transactor = transactor
        self._named: set[TopicPartition | str] = set()
        """Partitions, and groups."""

    def begin(self) -> None:
        """Another transaction."""
        self._named.clear()

    async def enrol(self, place: TopicPartition, deadline: float) -> bool:
        """Is the partition part of the transaction?"""
        transactor = self._transactor
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactor.transactional_id,
            v3_and_below_producer_id=transactor.producer_id,
            v3_and_below_producer_epoch=transactor.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=place.topic, partitions=[place.partition])],
        )

        async def ask() -> int | None:
            answer = await transactor.ask(request, AddPartitionsToTxnResponse, version=_ADD_PARTITIONS_V1)
            if answer is None:
                return None
            return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

        return await self._name(place, ask, deadline)

    async def enrol_group(self, group_id: str, deadline: float) -> bool:
        """Is the partition that has the group's offsets?"""
        transactor = self._transactor
        request = AddOffsetsToTxnRequest(
            transactional_id=transactor.transactional_id,
            producer_id=transactor.producer_id,
            producer_epoch=transactor.producer_epoch,
            group_id=group_id,
        )

        async def ask() -> int | None:
            answer = await transactor.ask(request, AddOffsetsToTxnResponse, version=_ADD_OFFSETS_V1)
            return None if answer is None else answer.error_code

        return await self._name(group_id, ask, deadline)

    async def _name(
        self, what: TopicPartition | str, ask: Callable[[], Awaitable[int | None]], deadline: float
    ) -> bool:
        transactor = self._transactor
        client = transactor.client
        while what not in self._named and client.now < deadline:
            code = await ask()
            if code == 0:
                self._named.add(what)
            elif code is not None and code not in _AGAIN:
                if code not in _FENCED:
                    transactor.complain(f"adding {what} to a transaction", code)
                return False
            else:
                if code is None:
                    transactor.doubt()
                elif code in ANOTHER_COORDINATOR:
                    client.forget_coordinator(transactor.transactional_id, TRANSACTION)
                await transactor.pause()
        return what in self._named
