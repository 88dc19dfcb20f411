"""The first question of every client: what do you speak? And what becomes of those who speak something else."""

from __future__ import annotations

import struct

import pytest

from ottla.errors import ErrorCode
from ottla.wire.apis import APIS
from ottla.wire.frames import request_frame
from ottla.wire.messages import incremental_alter_configs_request as alter
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.wire.messages.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from ottla.wire.messages.get_telemetry_subscriptions_response import GetTelemetrySubscriptionsResponse
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.wire.messages.push_telemetry_request import PushTelemetryRequest
from ottla.wire.messages.push_telemetry_response import PushTelemetryResponse
from tests.behaviour.client import Client
from tests.behaviour.conftest import Node

API_VERSIONS = 18
PRODUCE = 0
TELEMETRY = {71, 72}
CLIENT_METRICS = 16
SET, DELETE = 0, 1
SERVED = {
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "FindCoordinator",
    "SaslHandshake",
    "ApiVersions",
    "SaslAuthenticate",
    "CreateDelegationToken",
    "RenewDelegationToken",
    "ExpireDelegationToken",
    "DescribeDelegationToken",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "DescribeConfigs",
    "AlterConfigs",
    "AlterReplicaLogDirs",
    "DescribeLogDirs",
    "CreatePartitions",
    "IncrementalAlterConfigs",
    "DescribeQuorum",
    "DescribeCluster",
    "DescribeProducers",
    "ListConfigResources",
    "DescribeTopicPartitions",
    "DescribeAcls",
    "CreateAcls",
    "DeleteAcls",
    "ElectLeaders",
    "AlterPartitionReassignments",
    "ListPartitionReassignments",
    "DescribeClientQuotas",
    "AlterClientQuotas",
    "DescribeUserScramCredentials",
    "AlterUserScramCredentials",
    "UpdateFeatures",
    "UnregisterBroker",
    "AddRaftVoter",
    "RemoveRaftVoter",
    "OffsetCommit",
    "OffsetFetch",
    "JoinGroup",
    "Heartbeat",
    "LeaveGroup",
    "SyncGroup",
    "DescribeGroups",
    "ListGroups",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "WriteTxnMarkers",
    "TxnOffsetCommit",
    "DeleteGroups",
    "OffsetDelete",
    "DescribeTransactions",
    "ListTransactions",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
}
"""By every node, whatever its cluster is told."""


def hello(name: str = "story", version: str = "1.0") -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


@pytest.mark.parametrize("version", range(5))
def test_every_version_is_answered_with_the_list(client: Client, on_apache: bool, version: int) -> None:
    response = client.call(hello(), ApiVersionsResponse, version)
    assert response.error_code == 0
    offered = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    wanted = {key: (api.advertised_first_version, api.last_version) for key, api in APIS.items() if api.name in SERVED}
    if on_apache:
        assert offered.items() >= wanted.items()  # Kafka serves more.
        assert not offered.keys() & TELEMETRY
    else:
        assert offered == wanted
    assert offered[PRODUCE] == (0, 13)
    features = {each.name: each.max_version_level for each in response.finalized_features}
    assert ("metadata.version" in features) == (version >= 3)


@pytest.mark.parametrize("version", [5, 6, 99, 32_767])
def test_a_version_of_the_future_is_told_how_far_to_step_down(client: Client, version: int) -> None:
    """In version 0, old header included, since the client can be expected to read nothing newer (KIP-511)."""
    body = hello().encode(3)
    client.send_raw(request_frame(API_VERSIONS, version, 77, "future", body))
    frame = client.receive_frame()
    correlation_id, error_code, count = struct.unpack_from(">ihi", frame)
    assert (correlation_id, error_code) == (77, ErrorCode.UNSUPPORTED_VERSION)
    offered = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", frame[10:])}
    assert len(offered) == count
    assert offered[API_VERSIONS] == (0, 4)
    # And the connection is still good.
    assert client.call(hello(), ApiVersionsResponse).error_code == 0


@pytest.mark.ottla_only  # There it takes a plugin that receives what is pushed, and then it is offered for good.
def test_telemetry_is_offered_while_somebody_wants_it(node: Node, client: Client, name: str) -> None:
    def is_offered() -> bool:
        """As a client hears that connects now, and one that begins with a version of the future."""
        with Client((node.host, node.port)) as fresh:
            offered = {each.api_key for each in fresh.call(hello(), ApiVersionsResponse).api_keys} & TELEMETRY
            fresh.send_raw(request_frame(API_VERSIONS, 99, 1, "future", hello().encode(3)))
            told = {key for key, _, _ in struct.iter_unpack(">hhh", fresh.receive_frame()[10:])} & TELEMETRY
        assert offered == told
        assert offered in (set(), TELEMETRY)
        return bool(offered)

    assert not is_offered()
    alter_subscription(client, f"{name}-1", SET, "*")
    assert is_offered()
    alter_subscription(client, f"{name}-2", SET, "org.apache.kafka.producer.")
    alter_subscription(client, f"{name}-1", DELETE)
    assert is_offered()
    alter_subscription(client, f"{name}-2", DELETE)
    assert not is_offered()
    # Who began while it was offered goes on asking, and hears that nothing is wanted any more.
    asked = client.call(GetTelemetrySubscriptionsRequest(), GetTelemetrySubscriptionsResponse)
    assert (asked.error_code, asked.requested_metrics) == (0, [])
    push = PushTelemetryRequest(client_instance_id=asked.client_instance_id, subscription_id=asked.subscription_id)
    assert client.call(push, PushTelemetryResponse).error_code == 0


def alter_subscription(client: Client, name: str, operation: int, metrics: str | None = None) -> None:
    config = alter.AlterableConfig(name="metrics", config_operation=operation, value=metrics)
    resource = alter.AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=[config])
    request = alter.IncrementalAlterConfigsRequest(resources=[resource])
    (result,) = client.call(request, IncrementalAlterConfigsResponse).responses
    assert result.error_code == 0, result.error_message


@pytest.mark.parametrize("name", ["", "-dash", "semi;colon", "white space", "dot."])
def test_a_name_that_is_no_name_is_refused(client: Client, name: str) -> None:
    response = client.call(hello(name), ApiVersionsResponse)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert client.call(hello("good-name.1"), ApiVersionsResponse).error_code == 0


@pytest.mark.parametrize(
    ("key", "version"),
    [
        pytest.param(PRODUCE, 14, id="Produce 14"),
        pytest.param(1, 3, id="Fetch 3"),
        pytest.param(1, 19, id="Fetch 19"),
        pytest.param(2, 0, id="ListOffsets 0"),
        pytest.param(3, 14, id="Metadata 14"),
        pytest.param(19, 1, id="CreateTopics 1"),
        pytest.param(22, 6, id="InitProducerId 6, which is not stable"),
        pytest.param(3, -1, id="a negative version"),
        pytest.param(4, 0, id="LeaderAndIsr, which Kafka no longer has"),
        pytest.param(52, 0, id="Vote, which only controllers serve"),
        pytest.param(1_234, 0, id="a key that nobody has"),
        pytest.param(-1, 0, id="a negative key"),
    ],
)
def test_what_is_not_served_closes_the_connection(node: Node, key: int, version: int) -> None:
    with Client((node.host, node.port)) as stranger:
        stranger.send_raw(struct.pack(">ihhih", 42, key, version, 1, -1) + bytes(32))
        assert stranger.is_hung_up()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", -1) + bytes(10), id="a negative length"),
        pytest.param(struct.pack(">i", 0x7FFF_FFFF) + bytes(10), id="a length beyond all limits"),
        pytest.param(struct.pack(">i", 4) + bytes(4), id="too short for a header"),
        pytest.param(struct.pack(">ihhih", 10, 3, 9, 1, 500), id="a client id longer than the request"),
        pytest.param(struct.pack(">ihhihi", 14, 3, 4, 1, -1, 1_000_000), id="a count beyond the request"),
    ],
)
def test_a_frame_that_makes_no_sense_closes_only_its_connection(client: Client, node: Node, data: bytes) -> None:
    with Client((node.host, node.port)) as noisy:
        noisy.send_raw(data)
        assert noisy.is_hung_up()
    assert client.call(hello(), ApiVersionsResponse).error_code == 0


def test_a_request_may_arrive_byte_by_byte(client: Client) -> None:
    frame, correlation_id = client.frame(hello(), 4)
    for index in range(len(frame)):
        client.send_raw(frame[index : index + 1])
    assert client.receive(ApiVersionsResponse, 4, correlation_id).error_code == 0


def test_many_requests_may_arrive_in_one_piece(client: Client) -> None:
    frames = [client.frame(hello(), version) for version in range(5)]
    client.send_raw(b"".join(frame for frame, _ in frames))
    for version, (_, correlation_id) in enumerate(frames):
        assert client.receive(ApiVersionsResponse, version, correlation_id).error_code == 0
