"""Transactional records and their coordinator: what enters a partition, and what a producer is told when it may not.

Producers before Produce version 12 tell the coordinator themselves which partitions they write to, and each partition
asks it; later ones leave that to the partition (KIP-890).
"""

from __future__ import annotations

import pytest

from ottla.coordinator.java_hash import partition_for
from ottla.errors import ErrorCode
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import PartitionProduceResponse, ProduceResponse
from tests.behaviour.client import LATEST, READ_COMMITTED, Client, Topic, batch, eventually, produced
from tests.behaviour.conftest import Node
from tests.behaviour.groups import Groups, new_group
from tests.behaviour.marking import TransactionalProducer, aborted_of, committed_values, stable_offset
from tests.behaviour.transactions import V1, Transactional, only


@pytest.fixture
def producer(client: Client) -> Transactional:
    return Transactional.begun(client)


def send(
    producer: Transactional,
    topic: Topic,
    sequence: int,
    count: int = 1,
    *,
    partition: int = 0,
    version: int = 13,
    acks: int = -1,
    transactional: bool = True,
) -> PartitionProduceResponse:
    """One batch of the producer, as it is now."""
    writer = TransactionalProducer(producer.client, topic, producer.producer_id, producer.transactional_id)
    return writer.send(
        sequence,
        count,
        epoch=producer.epoch,
        partition=partition,
        version=version,
        acks=acks,
        transactional=transactional,
    )


def sent(producer: Transactional, topic: Topic, sequence: int, count: int = 1, *, version: int = 13) -> int:
    """The same until the coordinator is done with the transaction before; its first offset."""
    again = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS)
    answer = eventually(
        lambda: send(producer, topic, sequence, count, version=version), lambda answer: answer.error_code not in again
    )
    assert answer.error_code == 0, ErrorCode(answer.error_code)
    return answer.base_offset


# Producers that tell the coordinator themselves.


@pytest.mark.parametrize("version", range(3, 12))
def test_records_enter_a_partition_that_was_added(producer: Transactional, topic: Topic, version: int) -> None:
    assert only(producer.add(topic)) == 0
    assert sent(producer, topic, 0, 2, version=version) == 0
    assert sent(producer, topic, 2, version=version) == 2
    assert stable_offset(producer.client, topic) == 0
    producer.ended(commit=True, version=V1)
    assert eventually(lambda: stable_offset(producer.client, topic), lambda offset: offset == 4)


@pytest.mark.parametrize(
    ("version", "code"),
    [(3, ErrorCode.INVALID_TXN_STATE), (10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_no_record_enters_a_partition_that_was_not(
    producer: Transactional, topic: Topic, name: str, version: int, code: ErrorCode
) -> None:
    other = producer.client.create_topic(f"{name}-other")
    assert only(producer.add(other)) == 0
    refused = send(producer, topic, 0, version=version)
    assert (refused.error_code, refused.base_offset) == (code, -1)
    assert producer.client.list_offset(topic, LATEST).offset == 0
    assert sent(producer, other, 0, version=version) == 0


@pytest.mark.parametrize(
    ("version", "code"), [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_no_record_comes_after_its_transaction(
    producer: Transactional, topic: Topic, version: int, code: ErrorCode
) -> None:
    """Else it would open one that nobody ends: readers would stop there for ever."""
    assert only(producer.add(topic)) == 0
    sent(producer, topic, 0, version=version)
    producer.ended(commit=True, version=V1)
    assert send(producer, topic, 1, version=version).error_code == code
    assert stable_offset(producer.client, topic) == producer.client.list_offset(topic, LATEST).offset == 2


@pytest.mark.parametrize("seen", [(0,), (4, 2)])
def test_no_batch_overtakes_one_that_has_asked_before_it(
    producer: Transactional, topic: Topic, name: str, seen: tuple[int, ...]
) -> None:
    """§5.8, 61 (KAFKA-14920): nothing of the producer is in the partition yet, and any sequence may be its first; but
    not one behind the lowest for which the coordinator was asked."""
    other = producer.client.create_topic(f"{name}-other")
    assert only(producer.add(other)) == 0
    for sequence in seen:
        assert send(producer, topic, sequence, version=11).error_code == ErrorCode.TRANSACTION_ABORTABLE
    assert only(producer.add(topic)) == 0
    lowest = min(seen)
    early = send(producer, topic, lowest + 1, version=11)
    assert (early.error_code, early.base_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert sent(producer, topic, lowest, version=11) == 0
    assert sent(producer, topic, lowest + 1, version=11) == 1
    # Where none was asked for before, the same is the first.
    assert sent(producer, other, lowest + 1, version=11) == 0


def test_no_record_is_taken_for_an_id_that_nobody_knows(client: Client, topic: Topic, producer: Transactional) -> None:
    stranger = producer.as_producer(producer.producer_id, producer.epoch)
    stranger.transactional_id = "nobody-knows-it"
    refused = eventually(
        lambda: send(stranger, topic, 0, version=11).error_code,
        lambda code: code != ErrorCode.NOT_ENOUGH_REPLICAS,  # Its coordinator may still be loading.
    )
    assert refused == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert client.list_offset(topic, LATEST).offset == 0


@pytest.mark.parametrize("version", [11, 13])
def test_no_record_is_taken_of_another_producer_id(producer: Transactional, topic: Topic, version: int) -> None:
    other = producer.as_producer(producer.client.new_producer_id(), producer.epoch)
    assert send(other, topic, 0, version=version).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("version", [10, 11, 13])
def test_a_zombie_is_fenced_by_the_coordinator(producer: Transactional, topic: Topic, version: int) -> None:
    zombie = producer.as_producer(producer.producer_id, producer.epoch)
    producer.take()
    assert producer.epoch > zombie.epoch
    assert send(zombie, topic, 0, version=version).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", [10, 11, 13])
def test_a_zombie_is_fenced_by_the_partition(producer: Transactional, topic: Topic, version: int) -> None:
    """The partition knows the newer epoch, and need not ask anybody."""
    zombie = producer.as_producer(producer.producer_id, producer.epoch)
    producer.add(topic)
    sent(producer, topic, 0, version=11)
    producer.take()
    assert producer.epoch > zombie.epoch
    refused = eventually(
        lambda: send(zombie, topic, 1, version=version).error_code, lambda code: code != ErrorCode.NONE
    )
    assert refused == ErrorCode.INVALID_PRODUCER_EPOCH


def test_what_a_transaction_wrote_is_aborted_by_the_next_producer(
    client: Client, producer: Transactional, topic: Topic
) -> None:
    sent(producer, topic, 0)
    client.append(topic, b"somebody else")
    producer.take()
    found = eventually(
        lambda: client.fetch(topic, 0, isolation=READ_COMMITTED), lambda found: found.last_stable_offset == 3
    )
    assert aborted_of(found) == [(producer.producer_id, 0)]
    assert committed_values(found) == [b"somebody else"]


# Producers that leave it to the partition.


@pytest.mark.parametrize("version", [12, 13])
def test_a_partition_is_added_when_it_is_first_written_to(producer: Transactional, topic: Topic, version: int) -> None:
    assert sent(producer, topic, 0, version=version) == 0
    assert producer.state == "Ongoing"
    assert [(each.topic, each.partitions) for each in producer.describe().topics] == [(topic.name, [0])]
    assert sent(producer, topic, 1, version=version) == 1
    producer.ended(commit=True)
    found = producer.client.fetch(topic, 0, isolation=READ_COMMITTED)
    assert len(committed_values(found)) == 2


def test_one_request_adds_all_of_its_partitions(client: Client, name: str, producer: Transactional) -> None:
    topic = client.create_topic(name, 3)
    assert set(send_to_many(producer, topic, range(3)).values()) == {ErrorCode.NONE}
    assert [sorted(each.partitions) for each in producer.describe().topics] == [[0, 1, 2]]
    producer.ended(commit=False)
    assert [stable_offset(client, topic, index) for index in range(3)] == [2, 2, 2]


def send_to_many(
    producer: Transactional, topic: Topic, partitions: range, *, version: int = 13, plain: frozenset[int] = frozenset()
) -> dict[int, ErrorCode]:
    def records(index: int) -> bytes:
        return batch(
            b"%d" % index,
            producer_id=-1 if index in plain else producer.producer_id,
            producer_epoch=-1 if index in plain else producer.epoch,
            sequence=-1 if index in plain else 0,
            transactional=index not in plain,
        )

    request = ProduceRequest(
        transactional_id=producer.transactional_id,
        acks=-1,
        timeout_ms=5_000,
        topic_data=[
            TopicProduceData(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_data=[PartitionProduceData(index=index, records=records(index)) for index in partitions],
            )
        ],
    )
    response = producer.client.call(request, ProduceResponse, version)
    return {each.index: ErrorCode(each.error_code) for one in response.responses for each in one.partition_responses}


def test_partitions_that_do_not_exist_keep_no_other_from_being_written_to(
    client: Client, name: str, producer: Transactional
) -> None:
    topic = client.create_topic(name, 2)
    codes = send_to_many(producer, topic, range(4))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {0: ErrorCode.NONE, 1: ErrorCode.NONE, 2: unknown, 3: unknown}


def test_some_partitions_are_part_of_the_transaction_and_others_are_not(
    client: Client, name: str, producer: Transactional
) -> None:
    topic = client.create_topic(name, 3)
    assert only(producer.add(topic, 1)) == 0
    codes = send_to_many(producer, topic, range(3), version=11)
    refused = ErrorCode.TRANSACTION_ABORTABLE
    assert codes == {0: refused, 1: ErrorCode.NONE, 2: refused}


def test_a_request_in_a_transaction_may_bring_plain_records_too(
    client: Client, name: str, producer: Transactional
) -> None:
    topic = client.create_topic(name, 2)
    codes = send_to_many(producer, topic, range(2), plain=frozenset({1}))
    assert codes == {0: ErrorCode.NONE, 1: ErrorCode.NONE}
    assert [sorted(each.partitions) for each in producer.describe().topics] == [[0]]
    assert stable_offset(client, topic, 1) == 1


def test_the_first_sequence_of_a_transaction_with_its_own_epoch_is_zero(producer: Transactional, topic: Topic) -> None:
    assert send(producer, topic, 3, version=13).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert sent(producer, topic, 0) == 0


def test_transaction_after_transaction_each_with_its_own_epoch(producer: Transactional, topic: Topic) -> None:
    """Each begins at once after the one before, whose markers may still be on their way."""
    epochs = []
    for _ in range(5):
        epochs.append(producer.epoch)
        sent(producer, topic, 0, 2)
        answer = producer.end(commit=True)
        assert answer.error_code == 0
        producer.producer_id, producer.epoch = answer.producer_id, answer.producer_epoch
    assert epochs == list(range(epochs[0], epochs[0] + 5))
    producer.settle()
    found = producer.client.fetch(topic, 0, isolation=READ_COMMITTED)
    assert found.last_stable_offset == 15
    assert len(committed_values(found)) == 10


def test_a_late_batch_of_the_transaction_before_is_refused(producer: Transactional, topic: Topic) -> None:
    before = producer.as_producer(producer.producer_id, producer.epoch)
    sent(producer, topic, 0)
    producer.ended(commit=True)
    assert send(before, topic, 1).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.client.list_offset(topic, LATEST).offset == 2


def test_a_retry_after_the_end_is_refused_as_well(producer: Transactional, topic: Topic) -> None:
    """Its epoch is gone, and with it what was known of its batches; the client has had its answer by EndTxn."""
    before = producer.as_producer(producer.producer_id, producer.epoch)
    sent(producer, topic, 0)
    producer.ended(commit=True)
    assert send(before, topic, 0).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_retry_within_the_transaction_gets_the_place_of_the_original(producer: Transactional, topic: Topic) -> None:
    assert sent(producer, topic, 0, 2) == 0
    assert sent(producer, topic, 2) == 2
    assert sent(producer, topic, 0, 2) == 0
    assert sent(producer, topic, 2) == 2
    assert producer.client.list_offset(topic, LATEST).offset == 3


@pytest.mark.parametrize("version", [11, 13])
def test_batches_sent_at_once_are_taken_in_order(producer: Transactional, topic: Topic, version: int) -> None:
    """While the first waits for the coordinator, none behind it may pass."""
    producer.add(topic)
    writer = producer.client
    waiting = []
    for sequence in range(20):
        records = batch(
            b"%d" % sequence,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            sequence=sequence,
            transactional=True,
        )
        request = writer.produce_request(topic, records)
        request.transactional_id = producer.transactional_id
        waiting.append(writer.send(request, version))
    answers = [produced(writer.receive(ProduceResponse, version, correlation_id)) for correlation_id in waiting]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, offset) for offset in range(20)]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_records_are_acknowledged_as_asked(client: Client, producer: Transactional, topic: Topic, acks: int) -> None:
    if acks:
        assert send(producer, topic, 0, acks=acks).base_offset == 0
    else:
        records = batch(
            b"unanswered",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            sequence=0,
            transactional=True,
        )
        request = client.produce_request(topic, records, acks=0)
        request.transactional_id = producer.transactional_id
        client.send(request, 13)
    eventually(lambda: client.list_offset(topic, LATEST).offset, lambda offset: offset == 1)
    producer.ended(commit=True)


def test_what_is_refused_without_an_answer_ends_the_connection(producer: Transactional, topic: Topic) -> None:
    producer.add(topic)
    stranger = producer.as_producer(producer.client.new_producer_id(), 0)
    with producer.client.another() as client:
        records = batch(
            b"x", producer_id=stranger.producer_id, producer_epoch=stranger.epoch, sequence=0, transactional=True
        )
        request = client.produce_request(topic, records, acks=0)
        request.transactional_id = producer.transactional_id
        client.send(request, 13)
        assert client.is_hung_up()


# Requests that make no sense.


@pytest.mark.parametrize("version", [9, 13])
def test_transactional_records_need_a_transactional_id(
    client: Client, producer: Transactional, topic: Topic, version: int
) -> None:
    """Whoever may write to the topic could else write into the transactions of others."""
    sent(producer, topic, 0)
    for sequence in (0, 1):
        records = batch(
            b"x",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            sequence=sequence,
            transactional=True,
        )
        refused = client.produce(topic, records, version=version)
        assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert client.list_offset(topic, LATEST).offset == 1


def test_one_request_speaks_for_one_producer(client: Client, name: str, producer: Transactional) -> None:
    topic = client.create_topic(name, 2)
    other = producer.client.new_producer_id()
    request = client.produce_request(
        topic,
        batch(b"a", producer_id=producer.producer_id, producer_epoch=producer.epoch, sequence=0, transactional=True),
    )
    request.transactional_id = producer.transactional_id
    request.topic_data[0].partition_data.append(
        PartitionProduceData(
            index=1, records=batch(b"b", producer_id=other, producer_epoch=0, sequence=0, transactional=True)
        )
    )
    response = client.call(request, ProduceResponse, 13)
    codes = {each.error_code for one in response.responses for each in one.partition_responses}
    assert codes == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert [client.list_offset(topic, LATEST, partition=index).offset for index in range(2)] == [0, 0]


def test_acks_are_one_of_three(producer: Transactional, topic: Topic) -> None:
    assert send(producer, topic, 0, acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS


@pytest.mark.parametrize("version", [12, 13])
def test_clients_do_not_write_to_internal_topics(producer: Transactional, version: int, on_apache: bool) -> None:
    client = producer.client
    topic = Topic("__transaction_state", client.describe_topic("__transaction_state").topic_id)
    for _ in range(2):
        refused = client.produce(topic, batch(b"x", key=b"k"), version=version)
        assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert send(producer, topic, 0, version=version).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    # Kafka refuses the records and yet makes the partition part of the transaction.
    assert producer.state == ("Ongoing" if on_apache else "Empty")


@pytest.mark.parametrize("version", [8, 12])
def test_the_tools_of_the_brokers_do(node: Node, client: Client, topic: Topic, version: int) -> None:
    """By the client id that Kafka's own have: so it can be that somebody repairs what nobody else can."""
    groups = Groups(client)
    group = groups.ready(new_group())
    assert groups.commit_one(group, topic, 7) == 0
    with Client((node.host, node.port), client_id="__admin_client") as admin:
        described = admin.describe_topic("__consumer_offsets")
        internal = Topic("__consumer_offsets", described.topic_id)
        unknown_kind = b"\x7f\xff"
        index = partition_for(group, len(described.partitions))
        written = admin.produce(internal, batch(b"\0\0", key=unknown_kind), version=version, partition=index)
        assert written.error_code == 0
    # The coordinator that lives there may have to look again.
    eventually(lambda: groups.commit_one(group, topic, 8), lambda code: code == 0)
    assert groups.fetch(group, (topic, 0)) == {(topic.name, 0): 8}
