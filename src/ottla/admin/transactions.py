"""Transactions: which are open and where, which hang, and ending them by force.

A transaction hangs if a partition waits for its end and no coordinator will write one: readers of committed records
stand still there. Only then are markers written here (KIP-664); any other is ended by taking over its producer's name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ottla.admin.asking import ask_coordinator, ask_each, check
from ottla.client.blocking import BlockingClient, CoordinatorKind
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.wire.message import Message
from ottla.wire.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.describe_producers_response import DescribeProducersResponse
from ottla.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from ottla.wire.messages.describe_transactions_response import DescribeTransactionsResponse
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.wire.messages.list_transactions_request import ListTransactionsRequest
from ottla.wire.messages.list_transactions_response import ListTransactionsResponse
from ottla.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.wire.messages.write_txn_markers_response import WriteTxnMarkersResponse

_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")
_FENCE_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTransaction:
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    coordinator: int
    timeout_ms: int
    started_ms: int | None
    """None while none is open."""
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenProducer:
    """A producer that has written to a partition, as the partition's leader remembers it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None


def list_transactions(client: BlockingClient) -> list[ListedTransaction]:
    """Of all coordinators, sorted by transactional id."""
    requests: dict[int, Message] = {node: ListTransactionsRequest() for node in client.nodes()}
    found = []
    for node, answer in ask_each(client, requests, ListTransactionsResponse).items():
        if isinstance(answer, KafkaError):
            raise answer
        if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            check(answer.error_code, None, f"The transactions of broker {node} cannot be listed")
        found += [
            ListedTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                state=each.transaction_state,
                coordinator=node,
            )
            for each in answer.transaction_states
        ]
    return sorted(found, key=lambda transaction: transaction.transactional_id)


def describe_transaction(client: BlockingClient, transactional_id: str) -> Transaction:
    answer = ask_coordinator(
        client,
        CoordinatorKind.TRANSACTION,
        transactional_id,
        DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        DescribeTransactionsResponse,
        lambda answer: [each.error_code for each in answer.transaction_states],
    )
    (state,) = answer.transaction_states
    check(state.error_code, None, f"The transactional id {transactional_id} cannot be described")
    return Transaction(
        transactional_id=transactional_id,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        state=state.transaction_state,
        coordinator=client.coordinator(CoordinatorKind.TRANSACTION, transactional_id),
        timeout_ms=state.transaction_timeout_ms,
        started_ms=state.transaction_start_time_ms if state.transaction_start_time_ms >= 0 else None,
        partitions=tuple(
            sorted(TopicPartition(topic.topic, each) for topic in state.topics for each in topic.partitions)
        ),
    )


def list_producers(client: BlockingClient, partitions: Iterable[TopicPartition]) -> list[OpenProducer]:
    """Who has written to these partitions, as far as their leaders answer."""
    wanted = list(partitions)
    if not wanted:
        return []
    client.topics({each.topic for each in wanted})
    by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for each in wanted:
        try:
            by_leader[client.leader_of(*each)][each.topic].append(each.partition)
        except KafkaError:
            continue  # Without a leader nobody remembers.
    requests: dict[int, Message] = {
        node: DescribeProducersRequest(
            topics=[TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
        )
        for node, topics in by_leader.items()
    }
    found = []
    for answer in ask_each(client, requests, DescribeProducersResponse).values():
        if isinstance(answer, KafkaError):
            continue
        for topic in answer.topics:
            for partition in topic.partitions:
                found += [
                    OpenProducer(
                        topic=topic.name,
                        partition=partition.partition_index,
                        producer_id=each.producer_id,
                        producer_epoch=each.producer_epoch,
                        last_sequence=each.last_sequence,
                        last_timestamp_ms=each.last_timestamp,
                        coordinator_epoch=each.coordinator_epoch,
                        transaction_start_offset=each.current_txn_start_offset
                        if each.current_txn_start_offset >= 0
                        else None,
                    )
                    for each in partition.active_producers
                ]
    return sorted(found, key=lambda each: (each.topic, each.partition, each.producer_id))


def find_hanging(
    client: BlockingClient, partitions: Iterable[TopicPartition], *, now_ms: int, silent_ms: int
) -> list[OpenProducer]:
    """Transactions that these partitions wait for, that nobody has written to for `silent_ms`, and that no coordinator
    will end. `silent_ms` should be more than the longest transaction may last."""
    waiting = [
        each
        for each in list_producers(client, partitions)
        if each.transaction_start_offset is not None and now_ms - each.last_timestamp_ms >= silent_ms
    ]
    if not waiting:
        return []
    ids = {each.producer_id: each.transactional_id for each in list_transactions(client) if each.state in _OPEN}
    hanging = []
    for each in waiting:
        transactional_id = ids.get(each.producer_id)
        if transactional_id is not None:
            known = describe_transaction(client, transactional_id)
            if (each.topic, each.partition) in known.partitions and known.producer_epoch == each.producer_epoch:
                continue
        hanging.append(each)
    return hanging


def abort_hanging(client: BlockingClient, hanging: OpenProducer) -> None:
    """Writes the marker that no coordinator will write. Only for what `find_hanging` found."""
    key = TopicPartition(hanging.topic, hanging.partition)
    client.topics([hanging.topic])
    marker = WritableTxnMarker(
        producer_id=hanging.producer_id,
        producer_epoch=hanging.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=hanging.topic, partition_indexes=[hanging.partition])],
        coordinator_epoch=max(hanging.coordinator_epoch, 0),
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    answer = client.ask(client.leader_of(*key), request, WriteTxnMarkersResponse)
    for result in answer.markers:
        for topic in result.topics:
            for each in topic.partitions:
                check(each.error_code, None, f"The transaction in {key} cannot be aborted")


def fence(client: BlockingClient, transactional_id: str) -> None:
    """Takes over the transactional id: what its producer has open is aborted, and the producer is turned away."""
    answer = ask_coordinator(
        client,
        CoordinatorKind.TRANSACTION,
        transactional_id,
        InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=_FENCE_TIMEOUT_MS),
        InitProducerIdResponse,
        lambda answer: (answer.error_code,),
    )
    check(answer.error_code, None, f"The transactional id {transactional_id} cannot be taken over")
