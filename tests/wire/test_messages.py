"""What every message promises: defaults, equality, Kafka's rules for fields that a version lacks, bounded reading."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from importlib import import_module

import pytest

from ottla.errors import ErrorCode, KafkaError, Malformed
from ottla.model import ZERO_UUID, Uuid
from ottla.wire import messages
from ottla.wire.message import Message
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.wire.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from ottla.wire.messages.describe_topic_partitions_request import Cursor, DescribeTopicPartitionsRequest
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.list_groups_request import ListGroupsRequest
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.metadata_response import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.wire.messages.partition_record import PartitionRecord
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.schema import fields_of, least_size

METADATA_V12 = MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=[MetadataResponsePartition()])])


def test_defaults_are_those_of_the_definitions() -> None:
    for name in messages.message_names():
        owner = messages.message_class(name)
        made = owner()
        assert made.__slots__ == tuple(field.name for field in fields_of(owner))
        for field in fields_of(owner):
            assert getattr(made, field.name) == field.default_value(), f"{name}.{field.name}"


def test_messages_do_not_share_their_lists() -> None:
    first, second = FetchRequest(), FetchRequest()
    first.topics.append(FetchTopic())
    assert second.topics == []


def test_null_and_empty_are_two_things() -> None:
    assert MetadataRequest().topics == []
    assert MetadataRequest(topics=None).topics is None
    assert MetadataRequest.decode(MetadataRequest(topics=None).encode(12), 12).topics is None


def test_equality_and_a_readable_form() -> None:
    assert FetchPartition(partition=1) == FetchPartition(partition=1)
    assert FetchPartition(partition=1) != FetchPartition(partition=2)
    assert FetchPartition() != FetchTopic()
    assert repr(Cursor(topic_name="t", partition_index=2)) == "Cursor(topic_name='t', partition_index=2)"
    with_tags = Cursor()
    with_tags.unknown_tagged_fields = ((5, b"x"),)
    assert "unknown_tagged_fields=((5, b'x'),)" in repr(with_tags)
    assert with_tags != Cursor()


def test_an_ignorable_field_is_dropped_where_the_version_lacks_it() -> None:
    request = FetchRequest(rack_id="r1", session_id=5)
    assert FetchRequest.decode(request.encode(4), 4).session_id == 0
    assert FetchRequest.decode(request.encode(11), 11).rack_id == "r1"


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (ListGroupsRequest(states_filter=["Stable"]), 0),
        (MetadataRequest(allow_auto_topic_creation=False), 3),
        (FetchRequest(topics=[FetchTopic(partitions=[FetchPartition(last_fetched_epoch=4)])]), 11),
    ],
)
def test_any_other_field_is_refused_where_the_version_lacks_it(message: Message, version: int) -> None:
    with pytest.raises(KafkaError) as refused:
        message.encode(version)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_versions_that_do_not_exist_are_refused() -> None:
    for version in (-1, 2, 14):
        with pytest.raises(KafkaError):
            ProduceRequest().encode(version)
        with pytest.raises(KafkaError):
            ProduceRequest.decode(b"", version)


def test_null_is_refused_where_it_is_not_legal() -> None:
    assert MetadataRequest.decode(b"\xff\xff\xff\xff", 1).topics is None
    with pytest.raises(Malformed):
        MetadataRequest.decode(b"\xff\xff\xff\xff", 0)
    with pytest.raises(Malformed):
        ApiVersionsRequest.decode(b"\x00\x02a\x00", 3)


def test_records_are_a_view_of_the_frame() -> None:
    data = ProduceRequest(topic_data=[TopicProduceData("t", partition_data=[PartitionProduceData(0, b"batch")])])
    frame = bytearray(data.encode(9))
    records = ProduceRequest.decode(memoryview(frame), 9).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert bytes(records) == b"batch"
    frame[frame.index(b"batch")] = ord("B")
    assert bytes(records) == b"Batch"


def test_unknown_tags_are_kept_and_written_back() -> None:
    request = ApiVersionsRequest("name", "1.0")
    request.unknown_tagged_fields = ((3, b"three"), (70000, b""))
    data = request.encode(3)
    again = ApiVersionsRequest.decode(data, 3)
    assert again.unknown_tagged_fields == ((3, b"three"), (70000, b""))
    assert again.encode(3) == data


EMPTY_API_VERSIONS = bytes.fromhex("0000 01 00000000")  # Error code, no keys, throttle time; tagged fields follow.


@pytest.mark.parametrize(
    "tags",
    [
        "02 0501aa 0501bb",  # The same unknown tag twice.
        "02 0501aa 0401bb",  # Descending.
        "02 01080000000000000001 01080000000000000002",  # The same known tag twice.
        "01 01090000000000000001",  # The epoch's eight bytes said to be nine.
        "01 01070000000000000001",
        "01 0109000000000000000100",
        "02 0501aa",  # Fewer than said.
        "ffffffff0f",
        "01 05ffffffff07",
    ],
)
def test_broken_tags_are_malformed(tags: str) -> None:
    with pytest.raises(Malformed):
        ApiVersionsResponse.decode(EMPTY_API_VERSIONS + bytes.fromhex(tags), 3)


def test_known_tags_are_read() -> None:
    data = EMPTY_API_VERSIONS + bytes.fromhex("02 01080000000000000007 0302abcd")
    with pytest.raises(Malformed):  # Tag 3 is a boolean of one byte.
        ApiVersionsResponse.decode(data, 3)
    data = EMPTY_API_VERSIONS + bytes.fromhex("02 01080000000000000007 0402abcd")
    response = ApiVersionsResponse.decode(data, 3)
    assert response.finalized_features_epoch == 7
    assert response.unknown_tagged_fields == ((4, b"\xab\xcd"),)
    assert response.encode(3) == data


def test_encoding_the_same_tag_twice_is_refused() -> None:
    response = ApiVersionsResponse(finalized_features_epoch=1)
    response.unknown_tagged_fields = ((1, bytes(8)),)
    with pytest.raises(ValueError, match="twice"):
        response.encode(3)


def test_a_tagged_null_struct_is_a_zero_as_in_kafka() -> None:
    """Kafka's own bytes: plain null structs are -1, tagged ones 0, and the default of this one is not null."""
    value = ConsumerGroupMemberMetadataValue()
    assert value.classic_member_metadata == ClassicMemberMetadata()
    assert value.encode(0).hex() == "010101010101ffffffff0100"
    value = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    assert value.encode(0).hex() == "010101010101ffffffff0101000100"
    assert ConsumerGroupMemberMetadataValue.decode(value.encode(0), 0) == value
    assert DescribeTopicPartitionsRequest(cursor=None).encode(0).hex() == "01000007d0ff00"


def test_strings_are_bounded_on_both_ways() -> None:
    longest = ApiVersionsRequest("x" * 0x7FFF, "")
    assert ApiVersionsRequest.decode(longest.encode(3), 3) == longest
    with pytest.raises(ValueError, match="too long"):
        ApiVersionsRequest("x" * 0x8000, "").encode(3)
    with pytest.raises(ValueError, match="MetadataResponse v8"):
        MetadataResponse(cluster_id="x" * 0x8000).encode(8)
    with pytest.raises(Malformed):
        ApiVersionsRequest.decode(b"\x81\x80\x02" + b"x" * 0x8000 + b"\x01\x00", 3)


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="FetchRequest v12"):
        FetchRequest(max_wait_ms=1 << 31).encode(12)


@pytest.mark.parametrize("version", [8, 12])
def test_a_lied_count_reserves_nothing(version: int) -> None:
    """Whatever four or five bytes are overwritten by a giant count, memory stays near the size of the input."""
    data = METADATA_V12.encode(version)
    lies = [b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f"]
    tracemalloc.start()
    try:
        for at in range(len(data)):
            for lie in lies:
                try:
                    MetadataResponse.decode(data[:at] + lie + data[at + len(lie) :], version)
                except Malformed:
                    continue
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_a_count_must_leave_every_element_its_least_size() -> None:
    size = least_size(MetadataResponsePartition, 12)
    assert size == 2 + 4 + 4 + 4 + 1 + 1 + 1 + 1
    topic = MetadataResponseTopic(name="t").encode(12)
    count_at = 2 + 2 + 16 + 1  # After the error, the name, the id and the flag.
    with pytest.raises(Malformed, match="count of 2"):
        MetadataResponseTopic.read(topic[:count_at] + b"\x03" + bytes(2 * size - 1), 0, 12)


def test_structs_stand_alone_too() -> None:
    partition = MetadataResponsePartition(partition_index=3, replica_nodes=[1, 2])
    data = partition.encode(12)
    assert MetadataResponsePartition.read(b"xx" + data, 2, 12) == (partition, 2 + len(data))


def test_long_arrays_of_numbers() -> None:
    for count in (0, 1, 126, 127, 128, 300, 20_000):
        record = PartitionRecord(replicas=list(range(count)), directories=[Uuid(bytes(16))] * count)
        assert PartitionRecord.decode(record.encode(1), 1) == record


def test_registries_find_classes_by_key() -> None:
    assert messages.METADATA_RECORDS[3] is PartitionRecord
    assert messages.METADATA_RECORDS[0].__name__ == "RegisterBrokerRecord"
    assert len(messages.METADATA_RECORDS) == 26
    assert messages.GROUP_KEYS[1].__name__ == "OffsetCommitKey"
    assert messages.GROUP_VALUES[1].__name__ == "OffsetCommitValue"
    assert messages.TRANSACTION_KEYS[0].__name__ == "TransactionLogKey"
    assert messages.SHARE_VALUES[0].__name__ == "ShareSnapshotValue"
    assert 99 not in messages.METADATA_RECORDS
    for keys, values in (
        (messages.GROUP_KEYS, messages.GROUP_VALUES),
        (messages.TRANSACTION_KEYS, messages.TRANSACTION_VALUES),
        (messages.SHARE_KEYS, messages.SHARE_VALUES),
    ):
        assert set(keys) == set(values)
        for key in keys:
            assert keys[key].API_KEY == values[key].API_KEY == key
            assert keys[key].__name__.removesuffix("Key") == values[key].__name__.removesuffix("Value")
    for key, record in messages.METADATA_RECORDS.items():
        assert key == record.API_KEY


def test_uuids_are_raw_bytes() -> None:
    record = PartitionRecord(topic_id=Uuid(bytes(range(16))))
    assert PartitionRecord().topic_id == ZERO_UUID
    assert PartitionRecord.decode(record.encode(0), 0).topic_id == bytes(range(16))


def test_importing_the_room_loads_no_message_and_compiles_nothing() -> None:
    probe = (
        "import sys, ottla.wire.frames, ottla.wire.apis, ottla.wire.messages as m\n"
        "print([n for n in sys.modules if n.startswith('ottla.wire.')])"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    loaded = set(eval(done.stdout))
    assert loaded == {
        f"ottla.wire.{name}" for name in ("apis", "frames", "message", "messages", "messages._index", "primitives")
    }


def test_every_module_says_that_it_is_generated() -> None:
    for name in messages.message_names():
        module = import_module(messages.message_class(name).__module__)
        assert "Generated by tools/codegen" in (module.__doc__ or "")
