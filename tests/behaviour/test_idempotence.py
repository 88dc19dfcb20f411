"""The idempotent producer: each batch enters the log once, however often it is sent and whatever happens between."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode
from ottla.records import batches
from ottla.wire.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.describe_producers_response import DescribeProducersResponse, ProducerState
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.wire.messages.produce_response import PartitionProduceResponse
from tests.behaviour.client import LATEST, Client, Topic, batch, eventually
from tests.behaviour.conftest import StartNode
from tests.behaviour.test_leader_epochs import topic_called

MAX_SEQUENCE = 0x7FFF_FFFF


class Producer:
    """Sends whatever it is told to, under one producer id."""

    def __init__(self, client: Client, topic: Topic, producer_id: int | None = None) -> None:
        self._client = client
        self._topic = topic
        self.producer_id = client.new_producer_id() if producer_id is None else producer_id

    def send(self, sequence: int, count: int = 1, *, epoch: int = 0, acks: int = -1) -> PartitionProduceResponse:
        values = [b"%d" % (sequence + index) for index in range(count)]
        records = batch(*values, producer_id=self.producer_id, producer_epoch=epoch, sequence=sequence)
        return self._client.produce(self._topic, records, acks=acks)

    def state(self) -> ProducerState | None:
        """What the partition's leader remembers of this producer."""
        request = DescribeProducersRequest(topics=[TopicRequest(name=self._topic.name, partition_indexes=[0])])
        ((partition,),) = (each.partitions for each in self._client.call(request, DescribeProducersResponse).topics)
        assert partition.error_code == 0
        return next((each for each in partition.active_producers if each.producer_id == self.producer_id), None)


@pytest.fixture
def producer(client: Client, topic: Topic) -> Producer:
    return Producer(client, topic)


def test_every_producer_gets_an_id_of_its_own(client: Client) -> None:
    ids = [client.new_producer_id() for _ in range(20)]
    assert len(set(ids)) == 20
    assert min(ids) >= 0


@pytest.mark.parametrize("version", range(6))
def test_an_id_is_given_in_every_version(client: Client, version: int) -> None:
    client.new_producer_id()
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
    answer = client.call(request, InitProducerIdResponse, version)
    assert answer.error_code == 0
    assert answer.producer_id >= 0
    assert answer.producer_epoch == 0


def test_an_empty_transactional_id_is_a_mistake(client: Client) -> None:
    request = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1_000)
    answer = client.call(request, InitProducerIdResponse)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 0)])
def test_an_id_and_its_epoch_come_together(client: Client, producer_id: int, epoch: int) -> None:
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1_000, producer_id=producer_id, producer_epoch=epoch
    )
    assert client.call(request, InitProducerIdResponse).error_code == ErrorCode.INVALID_REQUEST


def test_a_duplicate_is_answered_with_the_offset_of_the_original(
    client: Client, topic: Topic, producer: Producer
) -> None:
    client.append(topic, b"somebody else")
    assert producer.send(0, 3).base_offset == 1
    client.append(topic, b"somebody else")
    again = producer.send(0, 3)
    assert (again.error_code, again.base_offset, again.log_start_offset) == (0, 1, 0)
    assert client.list_offset(topic, LATEST).offset == 5


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_duplicate_is_answered_with_the_time_of_the_original(client: Client, name: str, kind: str) -> None:
    """Of its batch, and that even where nobody else is told of a time."""
    topic = client.create_topic(name, message_timestamp_type=kind)
    producer = Producer(client, topic)
    first = producer.send(0)
    again = producer.send(0)
    ((header, _),) = batches(client.fetch(topic, 0).records or b"")
    told = header.max_timestamp if kind == "LogAppendTime" else -1
    assert (first.log_append_time_ms, again.log_append_time_ms) == (told, header.max_timestamp)


@pytest.mark.parametrize("acks", [1, -1])
def test_five_batches_are_remembered_and_no_more(client: Client, topic: Topic, producer: Producer, acks: int) -> None:
    for sequence in range(6):
        assert producer.send(sequence, acks=acks).base_offset == sequence
    for sequence in range(1, 6):
        again = producer.send(sequence, acks=acks)
        assert (again.error_code, again.base_offset) == (0, sequence)
    assert producer.send(0, acks=acks).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.list_offset(topic, LATEST).offset == 6


def test_a_duplicate_has_the_same_first_and_last_sequence(client: Client, topic: Topic, producer: Producer) -> None:
    producer.send(0, 4)
    assert producer.send(0, 3).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(1, 3).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(0, 5).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.list_offset(topic, LATEST).offset == 4


def test_a_gap_is_refused_and_leaves_no_trace(client: Client, topic: Topic, producer: Producer) -> None:
    producer.send(0, 2)
    gap = producer.send(3)
    assert (gap.error_code, gap.base_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert gap.log_start_offset == 0
    assert producer.send(2).base_offset == 2
    assert client.list_offset(topic, LATEST).offset == 3


def test_the_sequence_after_the_last_is_zero(client: Client, topic: Topic, producer: Producer) -> None:
    assert producer.send(MAX_SEQUENCE - 1, 2).base_offset == 0
    assert producer.send(0).base_offset == 2
    assert producer.send(MAX_SEQUENCE - 1, 2).base_offset == 0
    assert client.list_offset(topic, LATEST).offset == 3


def test_a_batch_may_wrap_in_its_middle(client: Client, topic: Topic, producer: Producer) -> None:
    assert producer.send(MAX_SEQUENCE, 3).base_offset == 0
    state = producer.state()
    assert state is not None
    assert state.last_sequence == 1
    assert producer.send(2).base_offset == 3
    assert producer.send(MAX_SEQUENCE, 3).base_offset == 0


def test_an_unknown_producer_may_begin_anywhere(producer: Producer) -> None:
    assert producer.send(17).base_offset == 0
    assert producer.send(18).base_offset == 1


def test_a_new_epoch_begins_at_zero(client: Client, topic: Topic, producer: Producer) -> None:
    producer.send(0)
    assert producer.send(1, epoch=1).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(0, epoch=1).base_offset == 1
    # The same sequence in another epoch was no duplicate, and now that one is the original.
    assert producer.send(0, epoch=1).base_offset == 1
    assert client.list_offset(topic, LATEST).offset == 2


def test_an_old_epoch_is_fenced(client: Client, topic: Topic, producer: Producer) -> None:
    producer.send(0, epoch=3)
    late = producer.send(1, epoch=2)
    assert (late.error_code, late.base_offset) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert client.list_offset(topic, LATEST).offset == 1


def test_a_producer_without_a_sequence_is_refused(producer: Producer) -> None:
    assert producer.send(-1).error_code == ErrorCode.INVALID_RECORD


def test_partitions_count_apart(client: Client, name: str) -> None:
    topic = client.create_topic(name, 2)
    producer_id = client.new_producer_id()
    for partition in (0, 1):
        records = batch(b"a", producer_id=producer_id, producer_epoch=0, sequence=0)
        assert client.produce(topic, records, partition=partition).base_offset == 0


def test_the_leader_tells_what_it_remembers(client: Client, topic: Topic, producer: Producer) -> None:
    assert producer.state() is None
    producer.send(0, 3, epoch=2)
    state = producer.state()
    assert state is not None
    assert (state.producer_epoch, state.last_sequence, state.current_txn_start_offset) == (2, 2, -1)
    assert state.coordinator_epoch == -1
    assert state.last_timestamp > 0


def test_a_producer_whose_records_are_all_deleted_is_still_known(
    client: Client, topic: Topic, producer: Producer
) -> None:
    producer.send(0)
    assert client.delete_records(topic, -1).low_watermark == 1
    again = producer.send(0)
    assert (again.error_code, again.base_offset) == (0, 0)
    assert producer.send(5).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(1).base_offset == 1


def test_a_producer_that_is_silent_for_long_is_forgotten(start_node: StartNode, name: str) -> None:
    node = start_node({"producer.id.expiration.ms": "300", "producer.id.expiration.check.interval.ms": "50"})
    with Client((node.host, node.port)) as client:
        producer = Producer(client, client.create_topic(name))
        assert producer.send(0).base_offset == 0
        assert producer.send(0).base_offset == 0
        eventually(producer.state, lambda state: state is None)
        # It is a stranger now, whose first sequence may be anything; and its retry is no longer known as one.
        assert producer.send(7).base_offset == 1
        assert producer.send(8).base_offset == 2


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_restart_keeps_what_is_known_of_producers(start_node: StartNode, name: str, ending: str) -> None:
    node = start_node({})
    with Client((node.host, node.port)) as client:
        producer = Producer(client, client.create_topic(name))
        producer_id = producer.producer_id
        assert producer.send(0, 2, epoch=1).base_offset == 0
        assert producer.send(2, 2, epoch=1).base_offset == 2
    if ending == "stop":
        node.stop()
    else:
        node.kill()
    node.spawn()
    node.wait_ready()
    with Client((node.host, node.port)) as client:
        topic = topic_called(client, name)
        producer = Producer(client, topic, producer_id)
        again = producer.send(2, 2, epoch=1)
        assert (again.error_code, again.base_offset) == (0, 2)
        assert producer.send(9, epoch=1).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert producer.send(4, epoch=0).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert producer.send(4, epoch=1).base_offset == 4
        assert eventually(client.new_producer_id, lambda given: True) != producer_id
