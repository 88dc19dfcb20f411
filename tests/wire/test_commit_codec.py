"""Plain offset commits read by hand, beside the generated classes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model import Uuid
from ottla.wire.commit_codec import (
    FIRST_VERSION,
    FIRST_VERSION_WITH_IDS,
    LAST_VERSION,
    OFFSET_AND_EPOCH_BYTES,
    is_plain,
    pack_answer,
    read_opening,
)
from ottla.wire.frames import response_frame
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

versions = st.integers(FIRST_VERSION, LAST_VERSION)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
ints = st.integers(-(1 << 31), (1 << 31) - 1)
longs = st.integers(-(1 << 63), (1 << 63) - 1)
uuids = st.binary(min_size=16, max_size=16).map(Uuid)
partitions = st.builds(
    OffsetCommitRequestPartition,
    partition_index=ints,
    committed_offset=longs,
    committed_leader_epoch=ints,
    committed_metadata=st.sampled_from([None, "", "x"]),
)
topics = st.builds(
    OffsetCommitRequestTopic, name=names, topic_id=uuids, partitions=st.lists(partitions, min_size=1, max_size=2)
)
plain_partitions = st.builds(
    OffsetCommitRequestPartition,
    partition_index=ints,
    committed_offset=longs,
    committed_leader_epoch=ints,
    committed_metadata=st.sampled_from([None, ""]),
)
plain_topics = st.builds(
    OffsetCommitRequestTopic,
    name=names,
    topic_id=uuids,
    partitions=st.lists(plain_partitions, min_size=1, max_size=1),
)


def requests_about(topics: st.SearchStrategy[list[OffsetCommitRequestTopic]]) -> st.SearchStrategy[OffsetCommitRequest]:
    return st.builds(
        OffsetCommitRequest,
        group_id=names,
        generation_id_or_member_epoch=ints,
        member_id=st.just("") | names,
        group_instance_id=st.none() | names,
        topics=topics,
    )


plain_requests = requests_about(st.lists(plain_topics, min_size=1, max_size=1))
requests = plain_requests | requests_about(st.lists(topics, min_size=0, max_size=2))


def shape_is_plain(request: OffsetCommitRequest) -> bool:
    if [len(topic.partitions) for topic in request.topics] != [1]:
        return False
    return not request.topics[0].partitions[0].committed_metadata


@given(requests, versions, st.binary(max_size=3))
def test_a_plain_request_is_read_as_the_generated_class_reads_it(
    request: OffsetCommitRequest, version: int, before: bytes
) -> None:
    frame = before + request.encode(version)
    read = read_opening(frame, version, len(before), len(frame))
    if not shape_is_plain(request):
        assert read is None or not is_plain(frame, read[1], len(frame))
        return
    assert read is not None
    opening, at = read
    assert is_plain(frame, at, len(frame))
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert opening[:6] == (
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        topic.topic_id if version >= FIRST_VERSION_WITH_IDS else topic.name,
        partition.partition_index,
    )
    value = frame[at : at + OFFSET_AND_EPOCH_BYTES]
    assert int.from_bytes(value[:8], "big", signed=True) == partition.committed_offset
    assert int.from_bytes(value[8:], "big", signed=True) == partition.committed_leader_epoch


@given(plain_requests, versions, ints, st.sampled_from([0, 16, 27]))
def test_the_answer_is_that_of_the_generated_class(
    request: OffsetCommitRequest, version: int, correlation_id: int, code: int
) -> None:
    read = read_opening(request.encode(version), version, 0, 1 << 20)
    assert read is not None
    (topic,) = request.topics
    answered = OffsetCommitResponsePartition(partition_index=topic.partitions[0].partition_index, error_code=code)
    response = OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=[answered])]
    )
    expected = response_frame(correlation_id, response.encode(version), flexible=True)
    assert pack_answer(correlation_id, read[0].answer, code) == expected


@given(plain_requests, versions, st.data())
def test_what_is_cut_short_or_goes_on_is_not_plain(
    request: OffsetCommitRequest, version: int, data: st.DataObject
) -> None:
    frame = request.encode(version)
    cut = frame[: data.draw(st.integers(0, len(frame) - 1))]
    for other in (cut, frame + b"\0"):
        read = read_opening(other, version, 0, len(other))
        assert read is None or not is_plain(other, read[1], len(other))


@pytest.mark.parametrize("size", [127, 1000])
def test_long_names_go_the_way_of_all_others(size: int) -> None:
    request = OffsetCommitRequest(
        group_id="g" * size,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition()])],
    )
    frame = request.encode(9)
    assert read_opening(frame, 9, 0, len(frame)) is None
