"""Fetch requests and responses that are read and laid out by hand are what the generated messages say, in every
version."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import ErrorCode, Malformed
from ottla.model import Uuid
from ottla.wire import fetch_codec
from ottla.wire.fetch_codec import (
    FIRST_VERSION,
    LAST_VERSION,
    Fetched,
    NodeAddress,
    pack,
    pack_refusal,
    read_request,
)
from ottla.wire.frames import read_response_header
from ottla.wire.messages import fetch_response as generated
from ottla.wire.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from ottla.wire.messages.fetch_response import FetchResponse


class Bytes(NamedTuple):
    """Stands for a span of a file."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)


class Txn(NamedTuple):
    producer_id: int
    first_offset: int


offsets = st.integers(-1, (1 << 62))
pairs = st.tuples(st.integers(0, 1 << 30), st.integers(0, 1 << 60))
leaders = st.tuples(st.integers(-1, 1 << 20), st.integers(0, 1 << 30))
versions = st.integers(FIRST_VERSION, LAST_VERSION)
nodes = st.lists(
    st.builds(
        NodeAddress,
        st.integers(0, 1 << 20),
        st.text(max_size=20),
        st.integers(0, 65535),
        st.none() | st.text(max_size=10),
    ),
    max_size=3,
)


@st.composite
def partitions(draw: st.DrawFn, topic: str | Uuid, index: int) -> Fetched[Bytes]:
    fetched: Fetched[Bytes] = Fetched(topic, index)
    fetched.error = draw(st.sampled_from([0, 1, 3, 6, 74, -1]))
    fetched.high_watermark = draw(offsets)
    fetched.last_stable_offset = draw(offsets)
    fetched.log_start = draw(offsets)
    fetched.aborted = draw(st.none() | st.lists(st.builds(Txn, offsets, offsets), max_size=3))
    fetched.preferred = draw(st.integers(-1, 1 << 20))
    fetched.span = draw(st.none() | st.builds(Bytes, st.binary(max_size=300)))
    if fetched.span is not None and draw(st.booleans()):
        fetched.data = bytearray(fetched.span.data)
    fetched.diverging = draw(st.none() | pairs)
    fetched.leader = draw(st.none() | leaders)
    return fetched


@st.composite
def found(draw: st.DrawFn, version: int) -> list[Fetched[Bytes]]:
    topics: list[str | Uuid]
    if version >= 13:
        topics = [Uuid(number.to_bytes(16, "big")) for number in range(draw(st.integers(0, 3)))]
    else:
        topics = list(draw(st.lists(st.text(min_size=1, max_size=150), max_size=3, unique=True)))
    return [draw(partitions(topic, index)) for topic in topics for index in range(draw(st.integers(1, 3)))]


def as_message(version: int, session_id: int, entries: list[Fetched[Bytes]], where: list[NodeAddress]) -> FetchResponse:
    response = FetchResponse(session_id=session_id if version >= 7 else 0)
    if version >= 16:
        response.node_endpoints = [
            generated.NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in where
        ]
    for entry in entries:
        topic = response.responses[-1] if response.responses else None
        key = entry.topic
        if topic is None or (topic.topic or topic.topic_id) != key:
            topic = generated.FetchableTopicResponse()
            if isinstance(key, str):
                topic.topic = key
            else:
                topic.topic_id = key
            response.responses.append(topic)
        partition = generated.PartitionData(
            partition_index=entry.index,
            error_code=entry.error,
            high_watermark=entry.high_watermark,
            last_stable_offset=entry.last_stable_offset,
            log_start_offset=entry.log_start if version >= 5 else -1,
            aborted_transactions=None
            if entry.aborted is None
            else [
                generated.AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset)
                for txn in entry.aborted
            ],
            preferred_read_replica=entry.preferred if version >= 11 else -1,
            records=b"" if entry.span is None else entry.span.data,
        )
        if version >= 12 and entry.diverging is not None:
            partition.diverging_epoch = generated.EpochEndOffset(
                epoch=entry.diverging[0], end_offset=entry.diverging[1]
            )
        if version >= 12 and entry.leader is not None:
            partition.current_leader = generated.LeaderIdAndEpoch(
                leader_id=entry.leader[0], leader_epoch=entry.leader[1]
            )
        topic.partitions.append(partition)
    return response


@given(st.data(), versions, st.integers(0, (1 << 31) - 1), nodes)
def test_the_layout_is_the_messages_own(
    data: st.DataObject, version: int, number: int, where: list[NodeAddress]
) -> None:
    entries = data.draw(found(version))
    chunks = pack(version, number, number, entries, where)
    frame = b"".join(chunk if isinstance(chunk, bytes) else chunk.data for chunk in chunks)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    head = read_response_header(frame[4:], flexible=version >= 12)
    assert head.correlation_id == number
    assert frame[4 + head.body_position :] == as_message(version, number, entries, where).encode(version)


@given(st.integers(7, LAST_VERSION))
def test_a_refusal_is_a_response_with_nothing_but_its_code(version: int) -> None:
    frame = pack_refusal(version, 9, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    head = read_response_header(frame[4:], flexible=version >= 12)
    response = FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    assert (head.correlation_id, frame[4 + head.body_position :]) == (9, response.encode(version))


numbers = st.integers(-(1 << 31), (1 << 31) - 1)
longs = st.integers(-(1 << 63), (1 << 63) - 1)
ids = st.binary(min_size=16, max_size=16).map(Uuid)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=140)


@st.composite
def requests(draw: st.DrawFn, version: int) -> FetchRequest:
    topics = draw(
        st.lists(
            st.builds(
                FetchTopic,
                topic=names if version < 13 else st.just(""),
                topic_id=ids if version >= 13 else st.just(Uuid(bytes(16))),
                partitions=st.lists(
                    st.builds(
                        FetchPartition,
                        partition=numbers,
                        current_leader_epoch=numbers if version >= 9 else st.just(-1),
                        fetch_offset=longs,
                        last_fetched_epoch=numbers if version >= 12 else st.just(-1),
                        log_start_offset=longs if version >= 5 else st.just(-1),
                        partition_max_bytes=numbers,
                        replica_directory_id=st.just(Uuid(bytes(16))) | ids
                        if version >= 17
                        else st.just(Uuid(bytes(16))),
                        high_watermark=st.just((1 << 63) - 1) | longs if version >= 18 else st.just((1 << 63) - 1),
                    ),
                    max_size=3,
                )
                | st.just([FetchPartition(partition=index) for index in range(140)]),
            ),
            max_size=3,
        )
    )
    request = FetchRequest(max_wait_ms=draw(numbers), min_bytes=draw(numbers), max_bytes=draw(numbers), topics=topics)
    request.isolation_level = draw(st.integers(0, 1))
    if version >= 7:
        request.session_id = draw(numbers)
        request.session_epoch = draw(numbers)
        request.forgotten_topics_data = [
            ForgottenTopic(topic=topic.topic, topic_id=topic.topic_id, partitions=draw(st.lists(numbers, max_size=3)))
            for topic in topics
        ]
    if version >= 11:
        request.rack_id = draw(st.just("") | st.text(st.characters(codec="utf-8"), max_size=140))
    if version >= 12:
        request.cluster_id = draw(st.none() | names)
    if version >= 15:
        request.replica_state = draw(st.builds(ReplicaState, numbers, longs) | st.builds(ReplicaState))
    else:
        request.replica_id = draw(numbers)
    return request


@given(st.data(), versions)
def test_a_request_is_read_as_the_generated_reader_reads_it(data: st.DataObject, version: int) -> None:
    body = data.draw(requests(version)).encode(version)
    assert read_request(body, version, 20_000) == fetch_codec._read_any(body, version, 20_000)


@given(st.data(), versions)
def test_a_request_that_ends_early_or_late_is_refused_as_the_generated_reader_refuses_it(
    data: st.DataObject, version: int
) -> None:
    body = data.draw(requests(version)).encode(version)
    for damaged in (body[: data.draw(st.integers(0, len(body) - 1))], body + b"\0", b"\xff" * len(body)):
        try:
            expected = fetch_codec._read_any(damaged, version, 20_000)
        except Malformed:
            with pytest.raises(Malformed):
                read_request(damaged, version, 20_000)
        else:
            assert read_request(damaged, version, 20_000) == expected


@pytest.mark.parametrize("version", range(12, LAST_VERSION + 1))
def test_the_usual_requests_are_read_by_hand(version: int) -> None:
    """Else the quick way would be dead code."""
    topic = FetchTopic(topic="" if version >= 13 else "t", partitions=[FetchPartition(partition=3, fetch_offset=9)])
    consumer = FetchRequest(max_wait_ms=500, topics=[topic], rack_id="east")
    assert fetch_codec._read_plain(consumer.encode(version), version) is not None
    if version >= 15:
        follower = FetchRequest(replica_state=ReplicaState(2, 77), topics=[topic], session_id=4, session_epoch=5)
        if version >= 18:
            topic.partitions[0].high_watermark = 8
        plain = fetch_codec._read_plain(follower.encode(version), version)
        assert plain is not None
        assert (plain.replica_id, plain.broker_epoch) == (2, 77)
        assert plain.wanted[0].high_watermark == (8 if version >= 18 else (1 << 63) - 1)
