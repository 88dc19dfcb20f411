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
JAAS = "listener.name.outside.plain.sasl.jaas.config"
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


@pytest.mark.parametrize(
    ("protocol", "settings", "advice"),
    [
        ("SSL", {}, "no certificate: set ssl.keystore.type=PEM"),
        ("SSL", {"ssl.keystore.location": "store.jks"}, "only PEM is read: convert it with `keytool"),
        ("SSL", {"ssl.keystore.location": "s.p12", "ssl.keystore.type": "PKCS12"}, "convert it with `openssl pkcs12"),
        ("SSL", {"ssl.keystore.location": "gone.pem", "ssl.keystore.type": "PEM"}, "gone.pem, which cannot be read"),
        ("SSL", {"ssl.keystore.key": "no key", "ssl.keystore.type": "PEM"}, "0 private keys and 0 certificates"),
        ("SASL_PLAINTEXT", {}, "GSSAPI, which is not served: choose from PLAIN, SCRAM"),
        ("SASL_PLAINTEXT", {"sasl.enabled.mechanisms": ""}, "offers no mechanism"),
        ("SASL_PLAINTEXT", {"sasl.enabled.mechanisms": "PLAIN"}, "set listener.name.outside.plain.sasl.jaas.config"),
        ("SASL_PLAINTEXT", {"sasl.enabled.mechanisms": "PLAIN", JAAS: "module required"}, "end with a semicolon"),
        ("SASL_PLAINTEXT", {"sasl.enabled.mechanisms": "PLAIN", JAAS: "module required;"}, "knows no users"),
        ("SASL_PLAINTEXT", {"sasl.enabled.mechanisms": "OAUTHBEARER"}, "set sasl.oauthbearer.jwks.endpoint.url"),
        (
            "SASL_PLAINTEXT",
            {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": "file:/gone.json"},
            "gone.json .* cannot be had",
        ),
    ],
)
async def test_a_door_that_cannot_be_locked_keeps_the_node_from_starting(
    protocol: str, settings: dict[str, str], advice: str
) -> None:
    protocols = f"INSIDE:PLAINTEXT,OUTSIDE:{protocol},CONTROLLER:PLAINTEXT"
    config = NodeConfig({**CONFIG.static, **DOORS, "listener.security.protocol.map": protocols, **settings})
    node = Node(config, fresh(FaultyDisk(), LoopClock(), MemoryNetwork()))
    with pytest.raises(StartupError, match=advice):
        await node.start()
