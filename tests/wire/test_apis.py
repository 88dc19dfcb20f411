"""The table of APIs says what an Apache Kafka 4.3.1 node serves."""

from __future__ import annotations

import struct

import pytest

from ottla.errors import Malformed
from ottla.wire.apis import APIS
from ottla.wire.frames import (
    LENGTH_SIZE,
    read_request_header,
    read_response_header,
    request_frame,
    response_frame,
    response_head,
)
from ottla.wire.messages.request_header import RequestHeader
from ottla.wire.messages.response_header import ResponseHeader

BROKER = """
Produce 0: 3-13 | Fetch 1: 4-18 | ListOffsets 2: 1-11 | Metadata 3: 0-13 | ApiVersions 18: 0-4
OffsetForLeaderEpoch 23: 2-4 | OffsetCommit 8: 2-10 | OffsetFetch 9: 1-10 | FindCoordinator 10: 0-6 | JoinGroup 11: 0-9
Heartbeat 12: 0-4 | LeaveGroup 13: 0-5 | SyncGroup 14: 0-5 | DescribeGroups 15: 0-6 | ListGroups 16: 0-5
DeleteGroups 42: 0-2 | OffsetDelete 47: 0-0 | ConsumerGroupHeartbeat 68: 0-1 | ConsumerGroupDescribe 69: 0-1
InitProducerId 22: 0-5 | AddPartitionsToTxn 24: 0-5 | AddOffsetsToTxn 25: 0-4 | EndTxn 26: 0-5
WriteTxnMarkers 27: 1-2 | TxnOffsetCommit 28: 0-5 | CreateTopics 19: 2-7 | DeleteTopics 20: 1-6
DeleteRecords 21: 0-2 | DescribeConfigs 32: 1-4 | AlterConfigs 33: 0-2 | CreatePartitions 37: 0-3
IncrementalAlterConfigs 44: 0-1 | DescribeCluster 60: 0-2 | DescribeTopicPartitions 75: 0-0 | SaslHandshake 17: 0-1
SaslAuthenticate 36: 0-2 | DescribeAcls 29: 1-3 | CreateAcls 30: 1-3 | DeleteAcls 31: 1-3
DescribeUserScramCredentials 50: 0-0 | AlterUserScramCredentials 51: 0-0 | CreateDelegationToken 38: 1-3
RenewDelegationToken 39: 1-2 | ExpireDelegationToken 40: 1-2 | DescribeDelegationToken 41: 1-3
GetTelemetrySubscriptions 71: 0-0 | PushTelemetry 72: 0-0 | AlterReplicaLogDirs 34: 1-2 | DescribeLogDirs 35: 1-5
ElectLeaders 43: 0-2 | AlterPartitionReassignments 45: 0-1 | ListPartitionReassignments 46: 0-0
DescribeClientQuotas 48: 0-1 | AlterClientQuotas 49: 0-1 | DescribeQuorum 55: 0-2 | UpdateFeatures 57: 0-2
DescribeProducers 61: 0-0 | UnregisterBroker 64: 0-0 | DescribeTransactions 65: 0-0 | ListTransactions 66: 0-2
ListConfigResources 74: 0-1 | ShareGroupHeartbeat 76: 1-1 | ShareGroupDescribe 77: 1-1 | ShareFetch 78: 1-2
ShareAcknowledge 79: 1-2 | DescribeShareGroupOffsets 90: 0-1 | AlterShareGroupOffsets 91: 0-0
DeleteShareGroupOffsets 92: 0-0 | InitializeShareGroupState 83: 0-0 | ReadShareGroupState 84: 0-0
WriteShareGroupState 85: 0-1 | DeleteShareGroupState 86: 0-0 | ReadShareGroupStateSummary 87: 0-1
StreamsGroupHeartbeat 88: 0-0 | StreamsGroupDescribe 89: 0-0 | AddRaftVoter 80: 0-1 | RemoveRaftVoter 81: 0-0
"""
CONTROLLER_ONLY = """
Vote 52: 0-2 | BeginQuorumEpoch 53: 0-1 | EndQuorumEpoch 54: 0-1 | AlterPartition 56: 2-3 | Envelope 58: 0-0
FetchSnapshot 59: 0-1 | BrokerRegistration 62: 0-4 | BrokerHeartbeat 63: 0-2 | AllocateProducerIds 67: 0-0
ControllerRegistration 70: 0-0 | AssignReplicasToDirs 73: 0-0 | UpdateRaftVoter 82: 0-0
"""


def rows(text: str) -> dict[int, tuple[str, int, int]]:
    parsed = {}
    for row in text.replace("\n", "|").strip("|").split("|"):
        name, key, versions = row.split()
        first, last = versions.split("-")
        parsed[int(key.rstrip(":"))] = (name, int(first), int(last))
    return parsed


@pytest.mark.parametrize(("text", "on_broker", "count"), [(BROKER, True, 77), (CONTROLLER_ONLY, False, 12)])
def test_versions_are_those_of_kafka(text: str, on_broker: bool, count: int) -> None:
    served = {a.key: (a.name, a.first_version, a.last_version) for a in APIS.values() if a.on_broker is on_broker}
    assert served == rows(text)
    assert len(served) == count


def test_every_row_has_its_classes() -> None:
    for key, api in APIS.items():
        assert api.key == api.request.API_KEY == api.response.API_KEY == key
        assert api.request.VERSIONS == api.response.VERSIONS == range(api.first_version, api.unstable_last_version + 1)
        assert api.request.FLEXIBLE_FROM == api.response.FLEXIBLE_FROM == api.flexible_from
        assert api.on_broker or api.on_controller


def test_produce_is_advertised_below_what_is_served() -> None:
    produce = APIS[0]
    assert (produce.advertised_first_version, produce.first_version) == (0, 3)
    assert not produce.serves(2)
    assert all(api.advertised_first_version == api.first_version for api in APIS.values() if api.key)


def test_an_unstable_version_is_not_served() -> None:
    init_producer_id = APIS[22]
    assert init_producer_id.serves(5)
    assert not init_producer_id.serves(6)
    assert 6 in init_producer_id.request.VERSIONS


def test_api_versions_answers_with_the_old_header() -> None:
    assert APIS[18].request_header_version(4) == 2
    assert APIS[18].response_header_version(4) == 0
    assert APIS[3].response_header_version(9) == 1
    assert APIS[3].response_header_version(8) == 0
    assert APIS[17].request_header_version(1) == 1


@pytest.mark.parametrize("client_id", [None, "", "a client", "klient ž"])
@pytest.mark.parametrize("key", sorted(APIS))
def test_request_headers_agree_with_the_generated_ones(key: int, client_id: str | None) -> None:
    api = APIS[key]
    for version in (api.first_version, api.last_version, 99):
        frame = request_frame(key, version, 77, client_id, b"body")
        assert struct.unpack(">i", frame[:LENGTH_SIZE])[0] == len(frame) - LENGTH_SIZE
        frame = frame[LENGTH_SIZE:]
        head = read_request_header(frame)
        assert head[:4] == (key, version, 77, client_id)
        assert frame[head.body_position :] == b"body"
        assert read_request_header(memoryview(frame)) == head
        header, position = RequestHeader.read(frame, 0, api.request_header_version(version))
        assert position == head.body_position
        assert header.encode(api.request_header_version(version)) == frame[:position]
        for end in range(position):
            with pytest.raises(Malformed):
                read_request_header(frame[:end])


def test_a_strangers_tags_in_a_header_are_passed_over() -> None:
    header = RequestHeader(request_api_key=3, request_api_version=12, correlation_id=1, client_id="c")
    header.unknown_tagged_fields = ((0, b"abc"), (300, b""))
    frame = header.encode(2) + b"body"
    assert frame[read_request_header(frame).body_position :] == b"body"


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00",
        struct.pack(">hhih", 4, 0, 1, -1),  # LeaderAndIsr is gone.
        struct.pack(">hhih", -1, 0, 1, -1),
        struct.pack(">hhih", 3, 0, 1, 5) + b"four",
        struct.pack(">hhih", 3, 0, 1, 2) + b"\xff\xff",
        struct.pack(">hhih", 3, 12, 1, -1) + b"\xff\xff\xff\xff\x0f",
        struct.pack(">hhih", 3, 12, 1, -1) + b"\x01\x00\x7f",
    ],
)
def test_broken_request_headers_are_malformed(frame: bytes) -> None:
    with pytest.raises(Malformed):
        read_request_header(frame)


@pytest.mark.parametrize("flexible", [False, True])
def test_response_frames(flexible: bool) -> None:
    frame = response_frame(5, b"body", flexible)
    assert response_head(5, 4, flexible) + b"body" == frame
    assert struct.unpack(">i", frame[:LENGTH_SIZE])[0] == len(frame) - LENGTH_SIZE
    frame = frame[LENGTH_SIZE:]
    head = read_response_header(frame, flexible)
    assert head.correlation_id == 5
    assert frame[head.body_position :] == b"body"
    assert ResponseHeader(correlation_id=5).encode(int(flexible)) == frame[: head.body_position]
    for end in range(head.body_position):
        with pytest.raises(Malformed):
            read_response_header(frame[:end], flexible)
