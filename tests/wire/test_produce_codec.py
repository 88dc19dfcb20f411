"""The hand-written Produce codec says what the generated one says, and openings never change the answer."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import Malformed
from ottla.model import Uuid
from ottla.wire.frames import response_frame
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.wire.produce_codec import FIRST_VERSION, LAST_VERSION, Openings, Request, pack, pack_one, read_request

VERSIONS = range(FIRST_VERSION, LAST_VERSION + 1)
FAR = 1000


def read(body: bytes, version: int) -> Request:
    """As the connection has it: in the middle of a buffer, with other bytes around."""
    buffer = bytearray(b"before" + body + b"\xff" * 20)
    return read_request(buffer, memoryview(buffer), version, 6, 6 + len(body), FAR)


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=200)
partitions = st.builds(
    PartitionProduceData, index=st.integers(0, 2**31 - 1), records=st.binary(max_size=300) | st.binary(min_size=200)
)
requests = st.builds(
    ProduceRequest,
    transactional_id=st.none() | names,
    acks=st.integers(-1, 1),
    timeout_ms=st.integers(0, 2**31 - 1),
    topic_data=st.lists(
        st.builds(
            TopicProduceData,
            name=names,
            topic_id=st.binary(min_size=16, max_size=16).map(Uuid),
            partition_data=st.lists(partitions, max_size=4),
        ),
        max_size=4,
    ),
)


def encoded(request: ProduceRequest, version: int) -> bytes:
    for topic in request.topic_data:
        if version >= 13:
            topic.name = ""
        else:
            topic.topic_id = Uuid(bytes(16))
    return request.encode(version)


@given(requests, st.sampled_from(VERSIONS))
@settings(max_examples=150, deadline=None)
def test_a_request_is_read_as_the_generated_codec_reads_it(request: ProduceRequest, version: int) -> None:
    body = encoded(request, version)
    found = read(body, version)
    assert found.transactional == (request.transactional_id is not None)
    assert (found.acks, found.timeout_ms) == (request.acks, request.timeout_ms)
    assert [topic.key for topic in found.topics] == [
        topic.topic_id if version >= 13 else topic.name for topic in request.topic_data
    ]
    assert [[(index, bytes(records)) for index, records in topic.batches] for topic in found.topics] == [
        [(each.index, bytes(each.records or b"")) for each in topic.partition_data] for topic in request.topic_data
    ]


@given(requests, st.sampled_from(VERSIONS), st.data())
@settings(max_examples=100, deadline=None)
def test_whatever_is_cut_off_is_malformed(request: ProduceRequest, version: int, data: st.DataObject) -> None:
    body = encoded(request, version)
    with pytest.raises(Malformed):
        read(body[: data.draw(st.integers(0, len(body) - 1))], version)


def one(name: str, index: int, records: bytes, acks: int = 1) -> ProduceRequest:
    data = PartitionProduceData(index=index, records=records)
    topic = TopicProduceData(name=name, topic_id=Uuid(name.encode().ljust(16)), partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [1, 100, 126, 127, 128, 16_382, 16_383, 16_384, 70_000])
def test_a_known_opening_leads_to_the_same_batch(version: int, size: int) -> None:
    openings = Openings()
    first = bytearray(encoded(one("topic", 3, b"first"), version))
    learned = openings.learn(memoryview(first), version, 0, read(bytes(first), version))
    assert learned > 0
    records = b"x" * size
    body = bytearray(encoded(one("topic", 3, records), version))
    found = openings.find(body, memoryview(body), version, 0, learned, len(body))
    assert found is not None
    opening, start, stop = found
    assert body[start:stop] == records
    read_whole = read(bytes(body), version)
    assert (opening.acks, opening.timeout_ms) == (read_whole.acks, read_whole.timeout_ms)
    assert (opening.key, opening.head) == (read_whole.topics[0].key, read_whole.topics[0].head)
    assert opening.partition == read_whole.topics[0].batches[0][0] == 3


@pytest.mark.parametrize("version", VERSIONS)
def test_an_opening_is_known_only_for_the_very_same_bytes(version: int) -> None:
    openings = Openings()
    first = bytearray(encoded(one("topic", 3, b"first"), version))
    learned = openings.learn(memoryview(first), version, 0, read(bytes(first), version))
    for other in (one("topic", 4, b"first"), one("tapir", 3, b"first"), one("topic", 3, b"first", acks=-1)):
        body = bytearray(encoded(other, version))
        assert openings.find(body, memoryview(body), version, 0, learned, len(body)) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_of_another_kind_are_left_to_the_full_reading(version: int) -> None:
    openings = Openings()
    first = bytearray(encoded(one("topic", 3, b"first"), version))
    learned = openings.learn(memoryview(first), version, 0, read(bytes(first), version))
    two = one("topic", 3, b"first")
    two.topic_data.append(one("other", 0, b"second").topic_data[0])
    assert openings.learn(memoryview(b""), version, 0, read(encoded(two, version), version)) == 0
    transactional = one("topic", 3, b"first")
    transactional.transactional_id = "mine"
    assert openings.learn(memoryview(b""), version, 0, read(encoded(transactional, version), version)) == 0
    for damage in range(learned, len(first)):
        # A length that lies, or anything behind the batch that is not the end.
        body = bytearray(first)
        body[damage] ^= 0x41
        found = openings.find(body, memoryview(body), version, 0, learned, len(body))
        if found is not None:
            assert bytes(body[found[1] : found[2]]) == bytes(read(bytes(body), version).topics[0].batches[0][1])
    assert openings.find(first, memoryview(first), version, 0, learned, learned + 2) is None


def test_random_bytes_after_an_opening_find_nothing_that_the_full_reading_would_not() -> None:
    chance = random.Random(5)
    openings = Openings()
    first = bytearray(encoded(one("topic", 3, b"first"), 9))
    learned = openings.learn(memoryview(first), 9, 0, read(bytes(first), 9))
    agreed = 0
    for _ in range(20_000):
        body = bytearray(first[:learned] + chance.randbytes(chance.randrange(12)))
        found = openings.find(body, memoryview(body), 9, 0, learned, len(body))
        if found is not None:
            agreed += 1
            assert bytes(body[found[1] : found[2]]) == bytes(read(bytes(body), 9).topics[0].batches[0][1])
    assert agreed < 20_000


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shape", [[1], [3], [1, 2], [2] * 130])
def test_success_is_packed_as_the_generated_codec_packs_it(version: int, shape: list[int]) -> None:
    topics = []
    response = ProduceResponse()
    for number, count in enumerate(shape):
        name = f"topic-{number}"
        topic_id = Uuid(name.encode().ljust(16))
        request = ProduceRequest(
            topic_data=[
                TopicProduceData(
                    name=name, topic_id=topic_id, partition_data=[PartitionProduceData(index=i) for i in range(count)]
                )
            ]
        )
        head = read(encoded(request, version), version).topics[0].head
        topics.append((head, [(i, 10**12 + i, 5 * i - 1, i) for i in range(count)]))
        response.responses.append(
            TopicProduceResponse(
                name="" if version >= 13 else name,
                topic_id=topic_id if version >= 13 else Uuid(bytes(16)),
                partition_responses=[
                    PartitionProduceResponse(
                        index=i, base_offset=10**12 + i, log_append_time_ms=5 * i - 1, log_start_offset=i
                    )
                    for i in range(count)
                ],
            )
        )
    expected = response_frame(77, response.encode(version), flexible=version >= 9)
    assert pack(version, 77, [(head, iter(outcomes)) for head, outcomes in topics]) == expected
    if shape == [1]:
        head, [outcome] = topics[0]
        assert pack_one(version, 77, head, *outcome) == expected
