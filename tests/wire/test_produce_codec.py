"""The hand-written Produce codec says what the generated one says, and openings never change the answer."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import Malformed
from ottla.model import Uuid
from ottla.wire import _pure
from ottla.wire._native import find_opening as native_find
from ottla.wire._native import pack_one as native_pack
from ottla.wire.frames import request_frame, response_frame
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.wire.produce_codec import FIRST_VERSION, LAST_VERSION, Opening, Openings, Request, pack, read_request

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
    assert found.transactional_id == request.transactional_id
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


SIDES = pytest.mark.parametrize("find", [native_find, _pure.find_opening], ids=["native", "pure"])
Find = Callable[[bytearray, int, int, int, list[dict[bytes, Opening]]], tuple[int, int, Opening, int, int] | None]


def framed(body: bytes, version: int, client_id: str | None = "client") -> tuple[bytearray, int, int]:
    """A frame in the middle of a buffer, where its header begins and where it ends."""
    frame = request_frame(0, version, 99, client_id, body)
    return bytearray(b"??" + frame[4:] + b"\xff" * 20), 2, len(frame) - 2


def taught(version: int) -> tuple[Openings, int, bytes]:
    openings = Openings()
    body = encoded(one("topic", 3, b"first"), version)
    learned = openings.learn(memoryview(body), version, 0, read(body, version))
    assert learned > 0
    return openings, learned, body


@SIDES
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [1, 100, 126, 127, 128, 16_382, 16_383, 16_384, 70_000])
def test_a_known_opening_leads_to_the_same_batch(find: Find, version: int, size: int) -> None:
    openings, learned, _ = taught(version)
    records = b"x" * size
    body = encoded(one("topic", 3, records), version)
    for client_id in ("client", "", None):
        buffer, start, end = framed(body, version, client_id)
        found = find(buffer, start, end, learned, openings.known)
        assert found is not None
        assert found[:2] == (version, 99)
        opening, first, last = found[2:]
        assert buffer[first:last] == records
        whole = read(body, version)
        assert (opening.acks, opening.timeout_ms) == (whole.acks, whole.timeout_ms)
        assert (opening.key, opening.head) == (whole.topics[0].key, whole.topics[0].head)
        assert opening.partition == whole.topics[0].batches[0][0] == 3


@SIDES
@pytest.mark.parametrize("version", VERSIONS)
def test_an_opening_is_known_only_for_the_very_same_bytes(find: Find, version: int) -> None:
    openings, learned, _ = taught(version)
    for other in (one("topic", 4, b"first"), one("tapir", 3, b"first"), one("topic", 3, b"first", acks=-1)):
        buffer, start, end = framed(encoded(other, version), version)
        assert find(buffer, start, end, learned, openings.known) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_of_another_kind_are_not_learned(version: int) -> None:
    openings = Openings()
    two = one("topic", 3, b"first")
    two.topic_data.append(one("other", 0, b"second").topic_data[0])
    assert openings.learn(memoryview(b""), version, 0, read(encoded(two, version), version)) == 0
    transactional = one("topic", 3, b"first")
    transactional.transactional_id = "mine"
    assert openings.learn(memoryview(b""), version, 0, read(encoded(transactional, version), version)) == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_requests_find_nothing_that_the_full_reading_would_not(version: int) -> None:
    """Both sides agree on every damaged frame, and never find a batch that is not there."""
    chance = random.Random(version)
    openings, learned, body = taught(version)
    whole, start, end = framed(body, version)
    tried = found_some = 0
    for _ in range(3_000):
        buffer = bytearray(whole)
        stop = end
        kind = chance.randrange(3)
        if kind == 0:
            buffer[chance.randrange(start, end)] ^= 1 << chance.randrange(8)
        elif kind == 1:
            stop = chance.randrange(start, end)
        else:
            opening_end = start + 10 + 6 + (1 if version >= 9 else 0) + learned
            buffer = bytearray(buffer[:opening_end] + chance.randbytes(chance.randrange(14)))
            stop = len(buffer)
        found = native_find(buffer, start, stop, learned, openings.known)
        assert found == _pure.find_opening(buffer, start, stop, learned, openings.known)
        tried += 1
        if found is not None and found[0] == version:
            found_some += 1
            body_start = start + 16 + (1 if version >= 9 else 0)
            request = read_request(buffer, memoryview(buffer), version, body_start, stop, FAR)
            assert bytes(buffer[found[3] : found[4]]) == bytes(request.topics[0].batches[0][1])
    assert tried == 3_000
    assert 0 < found_some < tried


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
        assert native_pack(version, 77, head, *outcome) == expected
        assert _pure.pack_one(version, 77, head, *outcome) == expected
