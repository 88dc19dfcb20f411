"""The verbs of a transactional producer, one request each, and nothing hidden: a story says what is sent."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from ottla.errors import ErrorCode
from ottla.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from ottla.wire.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from ottla.wire.messages.describe_transactions_response import DescribeTransactionsResponse, TransactionState
from ottla.wire.messages.end_txn_request import EndTxnRequest
from ottla.wire.messages.end_txn_response import EndTxnResponse
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from tests.behaviour.client import Client, Topic, eventually

TRANSACTION = 1
"""FindCoordinator's type of key."""

NOT_YET = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)

V1 = 4
"""The last version of EndTxn for clients that keep their epoch from one transaction to the next."""
V2 = 5
"""The first for those that do not (KIP-890)."""

Codes = dict[tuple[str, int], ErrorCode]


class Transactional:
    """One transactional id. `producer_id` and `epoch` are what the producer was told last; a story may change them."""

    def __init__(self, client: Client, transactional_id: str | None = None) -> None:
        self.client = client
        self.transactional_id = f"id-{uuid.uuid4().hex[:12]}" if transactional_id is None else transactional_id
        self.producer_id = -1
        self.epoch = -1

    @classmethod
    def begun(cls, client: Client, **how: int) -> Transactional:
        """With a producer id and an epoch."""
        producer = cls(client)
        producer.find_coordinator()
        producer.take(**how)
        return producer

    def as_producer(self, producer_id: int, epoch: int) -> Transactional:
        """The same transactional id in the hands of somebody else."""
        other = Transactional(self.client, self.transactional_id)
        other.producer_id, other.epoch = producer_id, epoch
        return other

    # Requests.

    def find_coordinator(self) -> None:
        """Wait until there is one."""
        request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[self.transactional_id])
        eventually(
            lambda: self.client.call(request, FindCoordinatorResponse, 4).coordinators[0].error_code,
            lambda code: code == 0,
        )
        eventually(lambda: ErrorCode(self.describe().error_code), lambda code: code not in NOT_YET)

    def init(
        self,
        *,
        version: int = 5,
        timeout_ms: int = 60_000,
        producer_id: int = -1,
        epoch: int = -1,
        two_phase_commit: bool = False,
        keep_prepared: bool = False,
    ) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            enable2_pc=two_phase_commit,
            keep_prepared_txn=keep_prepared,
        )
        return self.client.call(request, InitProducerIdResponse, version)

    def take(self, *, version: int = 5, timeout_ms: int = 60_000, producer_id: int = -1, epoch: int = -1) -> None:
        """InitProducerId, as often as it takes, and become who it says."""
        answer = eventually(
            lambda: self.init(version=version, timeout_ms=timeout_ms, producer_id=producer_id, epoch=epoch),
            lambda answer: answer.error_code not in NOT_YET | {ErrorCode.CONCURRENT_TRANSACTIONS},
        )
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def add(self, topic: Topic | str, *partitions: int, version: int = 3) -> Codes:
        """As a client asks."""
        name = topic if isinstance(topic, str) else topic.name
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=list(partitions or (0,)))],
        )
        response = self.client.call(request, AddPartitionsToTxnResponse, version)
        return _codes(response.results_by_topic_v3_and_below)

    def add_as_broker(self, topic: Topic | str, *partitions: int, verify_only: bool = False, version: int = 5) -> Codes:
        """As the leader of a partition asks."""
        name = topic if isinstance(topic, str) else topic.name
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            verify_only=verify_only,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=list(partitions or (0,)))],
        )
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        response = self.client.call(request, AddPartitionsToTxnResponse, version)
        assert response.error_code == 0
        (result,) = response.results_by_transaction
        assert result.transactional_id == self.transactional_id
        return _codes(result.topic_results)

    def add_offsets(self, group_id: str, *, version: int = 4) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group_id,
        )
        return ErrorCode(self.client.call(request, AddOffsetsToTxnResponse, version).error_code)

    def end(self, *, commit: bool, version: int = V2) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        return self.client.call(request, EndTxnResponse, version)

    def ended(self, *, commit: bool, version: int = V2) -> None:
        """EndTxn, which must succeed, and everything that follows from it; become who it says."""
        answer = self.end(commit=commit, version=version)
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        if version >= V2:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.settle()

    def describe(self) -> TransactionState:
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        (state,) = self.client.call(request, DescribeTransactionsResponse).transaction_states
        assert state.transactional_id == self.transactional_id
        return state

    @property
    def state(self) -> str:
        described = self.describe()
        assert described.error_code == 0, ErrorCode(described.error_code)
        return described.transaction_state

    def settle(self) -> str:
        """Wait until the markers of a decision are written; where the transaction stands then."""
        return eventually(lambda: self.state, lambda state: not state.startswith("Prepare"))


def _codes(topics: Iterable[AddPartitionsToTxnTopicResult]) -> Codes:
    return {
        (topic.name, each.partition_index): ErrorCode(each.partition_error_code)
        for topic in topics
        for each in topic.results_by_partition
    }


def only(codes: Codes) -> ErrorCode:
    """What is said of all partitions alike."""
    (code,) = set(codes.values())
    return code
