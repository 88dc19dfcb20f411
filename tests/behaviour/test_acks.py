"""What an acknowledgement promises, what it costs to ask for none, and what is refused before anything is written."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode
from ottla.model import Uuid
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import ProduceResponse
from tests.behaviour.client import LATEST, Client, Topic, batch, produced


@pytest.mark.parametrize("acks", [2, -2, 32_000])
def test_no_other_number_of_acks_exists(client: Client, topic: Topic, acks: int) -> None:
    answer = client.produce(topic, batch(b"a"), acks=acks)
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert answer.base_offset == -1
    assert client.list_offset(topic, LATEST).offset == 0


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_success_names_the_offset_in_every_version(client: Client, topic: Topic, version: int, acks: int) -> None:
    client.append(topic, b"first")
    answer = client.produce(topic, batch(b"a", b"b"), acks=acks, version=version)
    assert answer.error_code == 0
    assert answer.base_offset == 1
    assert answer.log_append_time_ms == -1
    assert answer.log_start_offset == (0 if version >= 5 else -1)
    assert answer.record_errors == []
    assert answer.error_message is None


@pytest.mark.parametrize("version", range(3, 14))
def test_a_refusal_is_well_formed_in_every_version(client: Client, topic: Topic, version: int) -> None:
    spoilt = bytearray(batch(b"a"))
    spoilt[-1] ^= 1
    answer = client.produce(topic, spoilt, version=version)
    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
    assert answer.base_offset == -1
    assert answer.log_append_time_ms == -1


def test_acks_zero_is_never_answered(client: Client, topic: Topic) -> None:
    client.send(client.produce_request(topic, batch(b"quiet"), acks=0), 13)
    # The next answer on the connection is the next request's.
    assert client.append(topic, b"loud") == 1
    assert [record.value for record in client.read_all(topic)] == [b"quiet", b"loud"]


def test_acks_zero_to_nowhere_closes_the_connection(client: Client, topic: Topic) -> None:
    with client.another() as careless:
        careless.send(careless.produce_request(topic, batch(b"lost"), partition=9, acks=0), 13)
        assert careless.is_hung_up()
    assert client.list_offset(topic, LATEST).offset == 0


def test_acks_zero_with_a_broken_batch_closes_the_connection(client: Client, topic: Topic) -> None:
    spoilt = bytearray(batch(b"a"))
    spoilt[-1] ^= 1
    with client.another() as careless:
        careless.send(careless.produce_request(topic, spoilt, acks=0), 13)
        assert careless.is_hung_up()
    assert client.list_offset(topic, LATEST).offset == 0


def test_more_in_sync_replicas_than_there_are_replicas_cannot_be_asked_for(client: Client, name: str) -> None:
    topic = client.create_topic(name, min_insync_replicas="3")
    assert client.produce(topic, batch(b"a"), acks=-1).error_code == 0
    assert client.list_offset(topic, LATEST).offset == 1


def test_an_unknown_partition_is_refused_by_its_own_name(client: Client, topic: Topic) -> None:
    for partition in (1, 1_000, -1):
        answer = client.produce(topic, batch(b"a"), partition=partition)
        assert (answer.index, answer.error_code) == (partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_an_unknown_topic_is_refused_by_name_or_by_id(client: Client, name: str) -> None:
    nobody = Topic(name, Uuid(b"\x01" * 16))
    assert client.produce(nobody, batch(b"a"), version=12).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.produce(nobody, batch(b"a"), version=13).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_one_refused_partition_does_not_stop_the_others(client: Client, name: str) -> None:
    topic = client.create_topic(name, 2)
    spoilt = bytearray(batch(b"a"))
    spoilt[-1] ^= 1
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5_000,
        topic_data=[
            TopicProduceData(
                topic_id=topic.topic_id,
                partition_data=[
                    PartitionProduceData(index=0, records=bytes(spoilt)),
                    PartitionProduceData(index=7, records=batch(b"b")),
                    PartitionProduceData(index=1, records=batch(b"c")),
                ],
            )
        ],
    )
    response = client.call(request, ProduceResponse)
    codes = {answer.index: answer.error_code for each in response.responses for answer in each.partition_responses}
    assert codes == {0: ErrorCode.CORRUPT_MESSAGE, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 1: 0}
    assert [client.list_offset(topic, LATEST, partition=index).offset for index in range(2)] == [0, 1]


def test_a_produce_request_about_nothing_is_answered_with_nothing(client: Client) -> None:
    response = client.call(ProduceRequest(acks=1, timeout_ms=1_000), ProduceResponse)
    assert response.responses == []


@pytest.mark.parametrize("version", [0, 1, 2])
def test_versions_of_the_old_formats_are_advertised_and_refused(client: Client, topic: Topic, version: int) -> None:
    """Advertised for the sake of old librdkafka, which would not compress otherwise; whoever speaks them is cut off."""
    frame, _ = client.frame(client.produce_request(topic, batch(b"a")), 3)
    old = bytearray(frame)
    old[6:8] = version.to_bytes(2, "big")
    with client.another() as ancient:
        ancient.send_raw(bytes(old))
        assert ancient.is_hung_up()
    assert client.list_offset(topic, LATEST).offset == 0


def test_one_batch_a_partition_is_all_that_a_request_may_carry(client: Client, topic: Topic) -> None:
    answer = client.produce(topic, batch(b"a") + batch(b"b"))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert client.list_offset(topic, LATEST).offset == 0


def test_no_batch_at_all_is_refused(client: Client, topic: Topic) -> None:
    assert client.produce(topic, b"").error_code == ErrorCode.INVALID_RECORD


def test_the_answer_to_a_topic_named_by_id_names_it_by_id(client: Client, topic: Topic) -> None:
    response = client.call(client.produce_request(topic, batch(b"a")), ProduceResponse, 13)
    assert response.responses[0].topic_id == topic.topic_id
    response = client.call(client.produce_request(topic, batch(b"a")), ProduceResponse, 12)
    assert response.responses[0].name == topic.name
    assert produced(response).base_offset == 1
