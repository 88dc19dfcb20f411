"""A node with several doors: each client is told the addresses of the door that it came in by."""

from __future__ import annotations

import pytest

from ottla.broker.node import Node
from ottla.config.node import NodeConfig
from ottla.errors import StartupError
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.wire.messages.describe_cluster_response import DescribeClusterResponse
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.metadata_response import MetadataResponse
from tests.log.faulty_disk import FaultyDisk
from tests.seams.surroundings import LoopClock, MemoryNetwork
from tests.seams.test_maintenance import Stage, stage
from tests.seams.test_node_in_memory import CONFIG, Client, fetch, fresh

METADATA = 3
DOORS = {
    "listeners": "INSIDE://memory:9092,OUTSIDE://memory:9192,CONTROLLER://memory:9093",
    "advertised.listeners": "INSIDE://kafka.internal:9092,OUTSIDE://kafka.example.org:443",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
}


async def dial(it: Stage, port: int) -> Client:
    client = Client()
    await it.network.connect("memory", port, client)
    return client


@pytest.mark.parametrize(("port", "told"), [(9092, ("kafka.internal", 9092)), (9192, ("kafka.example.org", 443))])
async def test_metadata_names_the_brokers_as_they_are_reached_from_here(port: int, told: tuple[str, int]) -> None:
    async with stage(**DOORS) as it:
        client = await dial(it, port)
        metadata = await client.ask(MetadataRequest(topics=[]), MetadataResponse, 12)
        assert [(broker.host, broker.port) for broker in metadata.brokers] == [told]
        cluster = await client.ask(DescribeClusterRequest(), DescribeClusterResponse, 1)
        assert [(broker.host, broker.port) for broker in cluster.brokers] == [told]


async def test_what_came_in_by_one_door_leaves_by_the_other() -> None:
    async with stage(**DOORS) as it:
        await it.create()
        await it.produce(b"carried through")
        assert await fetch(await dial(it, 9192)) == [b"carried through"]


async def test_the_registration_names_every_door_for_clients_and_none_for_controllers() -> None:
    async with stage(**DOORS) as it:
        (broker,) = it.node.services.image.alive_brokers()
        found = {endpoint.name: (endpoint.host, endpoint.port) for endpoint in broker.endpoints}
        assert found == {"INSIDE": ("kafka.internal", 9092), "OUTSIDE": ("kafka.example.org", 443)}
        assert it.node.bootstrap == "kafka.internal:9092,kafka.example.org:443"


async def test_the_controllers_door_is_not_for_clients() -> None:
    async with stage(**DOORS) as it:
        client = await dial(it, 9093)
        offered = await client.ask(ApiVersionsRequest(), ApiVersionsResponse, 3)
        assert METADATA not in {api.api_key for api in offered.api_keys}
        with pytest.raises(ConnectionError):
            await client.ask(MetadataRequest(topics=[]), MetadataResponse, 12)


async def test_a_door_that_is_not_advertised_goes_by_its_own_address() -> None:
    doors = {name: value for name, value in DOORS.items() if name != "advertised.listeners"}
    async with stage(**doors) as it:
        client = await dial(it, 9192)
        metadata = await client.ask(MetadataRequest(topics=[]), MetadataResponse, 12)
        assert [(broker.host, broker.port) for broker in metadata.brokers] == [("memory", 9192)]


async def test_a_protocol_that_is_not_served_is_refused_at_the_start() -> None:
    protocols = "INSIDE:PLAINTEXT,OUTSIDE:SSL,CONTROLLER:PLAINTEXT"
    config = NodeConfig({**CONFIG.static, **DOORS, "listener.security.protocol.map": protocols})
    node = Node(config, fresh(FaultyDisk(), LoopClock(), MemoryNetwork()))
    with pytest.raises(StartupError, match="OUTSIDE asks for SSL"):
        await node.start()
