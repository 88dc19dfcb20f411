"""Markers end transactions in a partition: what they may end, what readers see of it, and what is remembered.

The node takes transactional records without asking a coordinator, so that a story can open a transaction by writing and
end it by a marker of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ottla.errors import ErrorCode
from ottla.records import batches, iterate, read_end_txn_marker
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.write_txn_markers_request import WritableTxnMarkerTopic
from tests.behaviour.client import (
    LATEST,
    MAX_TIMESTAMP,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Client,
    Topic,
    batch,
    eventually,
    values_of,
)
from tests.behaviour.conftest import Node, StartNode
from tests.behaviour.marking import (
    TransactionalProducer,
    aborted_of,
    committed_values,
    stable_offset,
    write_markers,
)
from tests.behaviour.test_leader_epochs import topic_called

UNVERIFIED = {"transaction.partition.verification.enable": "false"}
MAX_EPOCH = 0x7FFF


@pytest.fixture(scope="module")
def node(start_node: StartNode) -> Node:
    return start_node(UNVERIFIED)


@pytest.fixture
def client(node: Node) -> Iterator[Client]:
    with Client((node.host, node.port)) as connected:
        yield connected


@pytest.fixture
def producer(client: Client, topic: Topic) -> TransactionalProducer:
    return TransactionalProducer(client, topic, client.new_producer_id())


def another(producer: TransactionalProducer) -> TransactionalProducer:
    return TransactionalProducer(producer.client, producer.topic, producer.client.new_producer_id(), "somebody else")


# What readers see.


def test_readers_of_committed_records_stop_before_an_open_transaction(
    client: Client, topic: Topic, producer: TransactionalProducer
) -> None:
    client.append(topic, b"before")
    assert producer.send(0, 2).base_offset == 1
    client.append(topic, b"after")
    found = client.fetch(topic, 0, isolation=READ_COMMITTED)
    assert values_of(found) == [b"before"]
    assert (found.high_watermark, found.last_stable_offset) == (4, 1)
    assert found.aborted_transactions == []
    assert len(values_of(client.fetch(topic, 0, isolation=READ_UNCOMMITTED))) == 4
    assert stable_offset(client, topic) == 1
    assert client.list_offset(topic, LATEST).offset == 4


def test_a_commit_lets_them_see_everything(client: Client, topic: Topic, producer: TransactionalProducer) -> None:
    producer.send(0, 2)
    assert producer.end(commit=True) == 0
    found = client.fetch(topic, 0, isolation=READ_COMMITTED)
    assert (found.high_watermark, found.last_stable_offset) == (3, 3)
    assert found.aborted_transactions == []
    assert len(committed_values(found)) == 2
    assert stable_offset(client, topic) == 3


def test_an_abort_is_listed_for_whoever_reads_across_it(
    client: Client, topic: Topic, producer: TransactionalProducer
) -> None:
    client.append(topic, b"before")
    producer.send(0, 2)
    assert producer.end(commit=False) == 0
    client.append(topic, b"after")
    found = client.fetch(topic, 0, isolation=READ_COMMITTED)
    assert found.last_stable_offset == 5
    assert aborted_of(found) == [(producer.producer_id, 1)]
    assert committed_values(found) == [b"before", b"after"]
    # Also for who begins in the middle of it, or at its very marker; not behind it.
    assert aborted_of(client.fetch(topic, 2, isolation=READ_COMMITTED)) == [(producer.producer_id, 1)]
    assert aborted_of(client.fetch(topic, 3, isolation=READ_COMMITTED)) == [(producer.producer_id, 1)]
    assert aborted_of(client.fetch(topic, 4, isolation=READ_COMMITTED)) == []
    assert client.fetch(topic, 0).aborted_transactions is None


def test_the_marker_is_a_control_batch_with_an_offset_and_no_sequence(
    client: Client, topic: Topic, producer: TransactionalProducer
) -> None:
    producer.send(0, epoch=3)
    assert producer.end(commit=False, epoch=3, coordinator_epoch=7) == 0
    records = client.fetch(topic, 0).records
    assert records is not None
    (_, _), (header, one) = batches(records)
    assert (header.base_offset, header.last_offset, header.record_count) == (1, 1, 1)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (producer.producer_id, 3, -1)
    assert read_end_txn_marker(next(iterate(one))) == (False, 7)


def test_the_earliest_open_transaction_decides(client: Client, topic: Topic, producer: TransactionalProducer) -> None:
    other = another(producer)
    producer.send(0)
    other.send(0)
    assert producer.end(commit=True) == 0
    assert stable_offset(client, topic) == 1
    producer.send(1)
    assert other.end(commit=False) == 0
    assert stable_offset(client, topic) == 3
    assert producer.end(commit=False) == 0
    found = client.fetch(topic, 0, isolation=READ_COMMITTED)
    assert found.last_stable_offset == 6
    assert sorted(aborted_of(found)) == sorted([(producer.producer_id, 3), (other.producer_id, 1)])
    assert committed_values(found) == [b"%d.0" % producer.producer_id]


def test_a_list_ends_with_the_records_that_are_returned(
    client: Client, topic: Topic, producer: TransactionalProducer
) -> None:
    """Else each fetch of a reader that is far behind would be told of all that was ever aborted behind it."""
    for sequence in range(20):
        producer.send(sequence, epoch=0)
        assert producer.end(commit=False) == 0
    client.append(topic, bytes(10_000))
    for _ in range(3):
        client.append(topic, bytes(10_000))
    for sequence in range(20, 40):
        producer.send(sequence)
        assert producer.end(commit=False) == 0
    found = client.fetch(topic, 0, partition_max_bytes=100, isolation=READ_COMMITTED)
    listed = aborted_of(found)
    assert listed[0] == (producer.producer_id, 0)
    assert len(listed) <= 21
    assert len(aborted_of(client.fetch(topic, 0, isolation=READ_COMMITTED))) == 40


def test_offsets_by_time_stop_at_the_last_stable_one(
    client: Client, topic: Topic, producer: TransactionalProducer
) -> None:
    client.append(topic, b"before", timestamp=1_000)
    producer.send(0)
    client.append(topic, b"after", timestamp=2_000)
    assert client.list_offset(topic, 1_500).offset == 1
    assert client.list_offset(topic, 1_500, isolation=READ_COMMITTED).offset == -1
    assert client.list_offset(topic, 500, isolation=READ_COMMITTED).offset == 0
    assert client.list_offset(topic, MAX_TIMESTAMP).offset == 1
    assert client.list_offset(topic, MAX_TIMESTAMP, isolation=READ_COMMITTED).offset == -1
    assert producer.end(commit=True) == 0
    assert client.list_offset(topic, 1_500, isolation=READ_COMMITTED).offset == 1


def test_a_long_poll_for_committed_records_is_woken_by_the_marker(
    client: Client, topic: Topic, producer: TransactionalProducer
) -> None:
    producer.send(0)
    with client.another() as reader:
        request = reader.fetch_request(topic, 0, max_wait_ms=60_000, isolation=READ_COMMITTED)
        began = time.monotonic()
        correlation_id = reader.send(request, 18)
        assert reader.is_silent(0.15)
        client.append(topic, b"not for this reader, yet")
        assert reader.is_silent(0.1)
        assert producer.end(commit=True) == 0
        ((found,),) = (each.partitions for each in reader.receive(FetchResponse, 18, correlation_id).responses)
        assert time.monotonic() - began < 30
        assert len(committed_values(found)) == 2
        assert found.last_stable_offset == 3


def test_a_fetch_that_waited_lists_what_was_aborted_meanwhile(
    client: Client, topic: Topic, producer: TransactionalProducer
) -> None:
    """KAFKA-5376: an answer that was put off had no list, and consumers took aborted records for good ones."""
    producer.send(0, 3)
    with client.another() as reader:
        correlation_id = reader.send(
            reader.fetch_request(topic, 0, max_wait_ms=60_000, min_bytes=50, isolation=READ_COMMITTED), 18
        )
        assert reader.is_silent(0.15)
        assert producer.end(commit=False) == 0
        ((found,),) = (each.partitions for each in reader.receive(FetchResponse, 18, correlation_id).responses)
    assert aborted_of(found) == [(producer.producer_id, 0)]
    assert committed_values(found) == []


def test_a_fetch_that_waited_in_vain_lists_it_too(
    client: Client, topic: Topic, producer: TransactionalProducer
) -> None:
    producer.send(0)
    assert producer.end(commit=False) == 0
    found = client.fetch(topic, 0, max_wait_ms=300, min_bytes=1 << 20, isolation=READ_COMMITTED)
    assert aborted_of(found) == [(producer.producer_id, 0)]


@pytest.mark.parametrize("version", [4, 11, 12, 17, 18])
def test_the_list_comes_in_every_version(
    client: Client, topic: Topic, producer: TransactionalProducer, version: int
) -> None:
    producer.send(0)
    assert producer.end(commit=False) == 0
    found = client.fetch(topic, 0, isolation=READ_COMMITTED, version=version)
    assert aborted_of(found) == [(producer.producer_id, 0)]
    assert found.last_stable_offset == 2


# What a marker may end.


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_that_is_sent_again_ends_in_success(
    producer: TransactionalProducer, version: int, commit: bool
) -> None:
    """KAFKA-19999: refused, a coordinator would send it for ever."""
    producer.send(0)
    for _ in range(3):
        assert producer.end(commit=commit, version=version) == 0
    assert stable_offset(producer.client, producer.topic) == 4


def test_with_an_epoch_for_each_transaction_it_does_so_too(producer: TransactionalProducer) -> None:
    producer.send(0, epoch=0)
    for _ in range(3):
        assert producer.end(commit=True, epoch=1, transaction_version=2) == 0


def test_a_late_marker_ends_nothing_of_the_next_transaction(producer: TransactionalProducer) -> None:
    """Transaction version 2: the marker of a transaction in epoch 0 has epoch 1, and so have the records after it."""
    producer.send(0, epoch=0)
    assert producer.end(commit=True, epoch=1, transaction_version=2) == 0
    producer.send(0, epoch=1)
    assert producer.end(commit=True, epoch=1, transaction_version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert stable_offset(producer.client, producer.topic) == 2
    assert producer.end(commit=False, epoch=2, transaction_version=2) == 0
    assert stable_offset(producer.client, producer.topic) == 4


def test_before_that_a_marker_has_the_epoch_of_its_transaction(producer: TransactionalProducer) -> None:
    producer.send(0, epoch=1)
    assert producer.end(commit=True, epoch=1, transaction_version=1) == 0
    producer.send(1, epoch=1)
    assert producer.end(commit=True, epoch=1, transaction_version=0) == 0


def test_the_last_epoch_ends_with_itself(producer: TransactionalProducer) -> None:
    producer.send(0, epoch=MAX_EPOCH)
    assert producer.end(commit=True, epoch=MAX_EPOCH, transaction_version=2) == 0
    assert stable_offset(producer.client, producer.topic) == 2


def test_a_marker_of_an_older_epoch_is_refused(producer: TransactionalProducer) -> None:
    producer.send(0, epoch=5)
    for transaction_version in (0, 1, 2):
        code = producer.end(commit=True, epoch=4, transaction_version=transaction_version)
        assert code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert stable_offset(producer.client, producer.topic) == 0


def test_a_marker_of_an_older_coordinator_is_refused(producer: TransactionalProducer) -> None:
    producer.send(0)
    assert producer.end(commit=True, coordinator_epoch=5) == 0
    producer.send(1)
    assert producer.end(commit=True, coordinator_epoch=4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert stable_offset(producer.client, producer.topic) == 2
    assert producer.end(commit=True, coordinator_epoch=5) == 0
    assert stable_offset(producer.client, producer.topic) == 4


def test_epochs_before_the_first_are_older_than_any(producer: TransactionalProducer) -> None:
    assert producer.end(commit=True, epoch=-5) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.end(commit=True, coordinator_epoch=-5) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert producer.client.list_offset(producer.topic, LATEST).offset == 0


@pytest.mark.ottla_only
def test_a_marker_is_of_a_producer(client: Client, topic: Topic) -> None:
    """Kafka answers UNKNOWN_SERVER_ERROR to the whole request, or writes it for nobody."""
    for producer_id in (-1, -2):
        nobody = TransactionalProducer(client, topic, producer_id)
        assert nobody.end(commit=True) == ErrorCode.INVALID_REQUEST
    assert client.list_offset(topic, LATEST).offset == 0


@pytest.mark.ottla_only
def test_a_partition_that_is_named_twice_is_written_to_once(producer: TransactionalProducer) -> None:
    """Kafka never answers."""
    assert write_markers(producer.client, producer.marker(commit=True, partitions=[0, 0])) == {
        producer.producer_id: [0]
    }
    assert producer.client.list_offset(producer.topic, LATEST).offset == 1


def test_a_marker_without_data_fences_and_lists_nothing(
    client: Client, topic: Topic, producer: TransactionalProducer
) -> None:
    client.append(topic, b"somebody else")
    assert producer.end(commit=False, epoch=2, coordinator_epoch=3) == 0
    state = producer.state()
    assert state is not None
    assert (state.producer_epoch, state.last_sequence, state.coordinator_epoch) == (2, -1, 3)
    assert state.current_txn_start_offset == -1
    found = client.fetch(topic, 0, isolation=READ_COMMITTED)
    assert (found.last_stable_offset, aborted_of(found)) == (2, [])
    assert producer.send(0, epoch=1).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.send(0, epoch=2).base_offset == 2


def test_sequences_go_on_behind_a_marker_of_the_same_epoch(producer: TransactionalProducer) -> None:
    producer.send(0, 2)
    assert producer.end(commit=True) == 0
    assert producer.send(0).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(2).base_offset == 3


def test_sequences_begin_again_behind_a_marker_of_a_new_epoch(producer: TransactionalProducer) -> None:
    producer.send(0, 2)
    assert producer.end(commit=True, epoch=1, transaction_version=2) == 0
    assert producer.send(2, epoch=0).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.send(2, epoch=1).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(0, epoch=1).base_offset == 3


# What the leader remembers.


def test_an_open_transaction_is_described(client: Client, topic: Topic, producer: TransactionalProducer) -> None:
    client.append(topic, b"before")
    producer.send(0, 3, epoch=2)
    state = producer.state()
    assert state is not None
    assert (state.producer_epoch, state.last_sequence, state.current_txn_start_offset) == (2, 2, 1)
    assert state.coordinator_epoch == -1
    assert producer.end(commit=True, epoch=2, coordinator_epoch=9) == 0
    state = producer.state()
    assert state is not None
    assert (state.last_sequence, state.current_txn_start_offset, state.coordinator_epoch) == (2, -1, 9)


def test_plain_records_of_a_producer_in_a_transaction_are_refused(producer: TransactionalProducer) -> None:
    producer.send(0)
    assert producer.send(1, transactional=False).error_code == ErrorCode.INVALID_TXN_STATE
    assert producer.send(1).base_offset == 1
    assert producer.end(commit=True) == 0
    assert producer.send(2, transactional=False).base_offset == 3


def test_a_duplicate_in_a_transaction_gets_the_place_of_the_original(producer: TransactionalProducer) -> None:
    assert producer.send(0, 2).base_offset == 0
    assert producer.send(0, 2).base_offset == 0
    assert stable_offset(producer.client, producer.topic) == 0
    assert producer.client.list_offset(producer.topic, LATEST).offset == 2


# Several at once.


def test_each_partition_gets_a_code_of_its_own(client: Client, name: str) -> None:
    topic = client.create_topic(name, 3)
    producer = TransactionalProducer(client, topic, client.new_producer_id())
    for partition in range(3):
        producer.send(0, partition=partition, epoch=1)
    assert producer.end(commit=True, epoch=2, partition=1) == 0
    marker = producer.marker(commit=True, epoch=1, partitions=[0, 1, 2, 9])
    marker.topics.append(WritableTxnMarkerTopic(name=f"{name}-is-not-there", partition_indexes=[0]))
    codes = write_markers(client, marker)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {producer.producer_id: [0, ErrorCode.INVALID_PRODUCER_EPOCH, 0, unknown, unknown]}
    assert [stable_offset(client, topic, partition) for partition in range(3)] == [2, 2, 2]


def test_the_markers_of_several_producers_come_in_one_request(
    client: Client, topic: Topic, producer: TransactionalProducer
) -> None:
    other = another(producer)
    producer.send(0)
    other.send(0)
    codes = write_markers(
        client, producer.marker(commit=True, partitions=[0]), other.marker(commit=False, partitions=[0])
    )
    assert codes == {producer.producer_id: [0], other.producer_id: [0]}
    found = client.fetch(topic, 0, isolation=READ_COMMITTED)
    assert aborted_of(found) == [(other.producer_id, 1)]
    assert committed_values(found) == [b"%d.0" % producer.producer_id]


def test_several_markers_of_one_producer_are_answered_together(
    client: Client, name: str, producer: TransactionalProducer
) -> None:
    other = TransactionalProducer(client, client.create_topic(f"{name}-other"), producer.producer_id)
    producer.send(0)
    other.send(0)
    codes = write_markers(
        client, producer.marker(commit=True, partitions=[0]), other.marker(commit=True, partitions=[0])
    )
    assert codes == {producer.producer_id: [0, 0]}


def test_no_marker_is_no_answer(client: Client, producer: TransactionalProducer) -> None:
    assert write_markers(client) == {}
    assert write_markers(client, producer.marker(commit=True, partitions=[])) == {}


# Nothing of that is lost.


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_restart_keeps_open_transactions_and_what_was_aborted(start_node: StartNode, name: str, ending: str) -> None:
    node = start_node(UNVERIFIED)
    with Client((node.host, node.port)) as client:
        topic = client.create_topic(name)
        producer = TransactionalProducer(client, topic, client.new_producer_id())
        producer_id, other_id = producer.producer_id, client.new_producer_id()
        producer.send(0)
        assert producer.end(commit=False) == 0
        producer.send(1)
        TransactionalProducer(client, topic, other_id).send(0)
    if ending == "stop":
        node.stop()
    else:
        node.kill()
    node.spawn()
    node.wait_ready()
    with Client((node.host, node.port)) as client:
        topic = topic_called(client, name)
        producer = TransactionalProducer(client, topic, producer_id)
        assert eventually(lambda: stable_offset(client, topic), lambda offset: offset >= 0) == 2
        state = producer.state()
        assert state is not None
        assert (state.current_txn_start_offset, state.last_sequence) == (2, 1)
        assert aborted_of(client.fetch(topic, 0, isolation=READ_COMMITTED)) == [(producer_id, 0)]
        assert producer.send(1).base_offset == 2, "its retry is still known as one"
        assert producer.end(commit=False) == 0
        assert stable_offset(client, topic) == 3
        assert TransactionalProducer(client, topic, other_id).end(commit=True) == 0
        found = client.fetch(topic, 0, isolation=READ_COMMITTED)
        assert aborted_of(found) == [(producer_id, 0), (producer_id, 2)]
        assert committed_values(found) == [b"%d.0" % other_id]


@pytest.mark.slow
def test_a_producer_with_an_open_transaction_is_not_forgotten(start_node: StartNode, name: str) -> None:
    node = start_node(
        {**UNVERIFIED, "producer.id.expiration.ms": "300", "producer.id.expiration.check.interval.ms": "100"}
    )
    with Client((node.host, node.port)) as client:
        topic = client.create_topic(name)
        opened = TransactionalProducer(client, topic, client.new_producer_id())
        idle = TransactionalProducer(client, topic, client.new_producer_id())
        opened.send(0)
        idle.send(0, transactional=False)
        eventually(idle.state, lambda state: state is None)
        state = opened.state()
        assert state is not None
        assert state.current_txn_start_offset == 0
        assert opened.send(1).base_offset == 2
        assert opened.end(commit=True) == 0
        eventually(opened.state, lambda state: state is None)


def test_control_records_are_not_for_clients(producer: TransactionalProducer) -> None:
    """Whoever could write a marker could end the transactions of others."""
    forged = batch(
        b"\0\0\0\0\0\0", key=b"\0\0\0\1", producer_id=producer.producer_id, producer_epoch=0, control=True, sequence=0
    )
    assert producer.client.produce(producer.topic, forged).error_code == ErrorCode.INVALID_RECORD
