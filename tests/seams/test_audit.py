"""A whole node writes its audit log: who was denied what, and who changed what."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.broker.connection import ClientConnection
from ottla.broker.connections import LINES_PER_SECOND_MAX
from ottla.broker.doors.doors import Doors
from ottla.errors import ErrorCode
from ottla.security.certificates import parse_mapping_rules
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse
from ottla.wire.messages.produce_response import ProduceResponse
from ottla.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from ottla.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from ottla.wire.messages.sasl_handshake_response import SaslHandshakeResponse
from ottla.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.wire.messages.write_txn_markers_response import WriteTxnMarkersResponse
from tests.seams.surroundings import memory_runtime
from tests.seams.test_maintenance import stage, until
from tests.seams.test_node_in_memory import Client, produce

LOCKED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "ottla.audit")
    return caplog


def told(lines: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in lines.records if record.name == "ottla.audit"]


CREATE = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])


async def test_a_change_is_told_once(lines: pytest.LogCaptureFixture) -> None:
    async with stage() as it:
        lines.clear()
        await it.client.ask(CREATE, CreateTopicsResponse, 7)
        await it.client.ask(produce(b"x"), ProduceResponse, 12)
    assert told(lines) == ['changed principal="User:ANONYMOUS" host="memory" api=CreateTopics about=["t"]']


async def test_denials_are_told_with_what_was_denied(lines: pytest.LogCaptureFixture) -> None:
    async with stage(**LOCKED) as it:
        lines.clear()
        refused = await it.client.ask(CREATE, CreateTopicsResponse, 7)
        assert refused.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await it.client.ask(produce(b"x"), ProduceResponse, 12)
        await it.client.ask(MetadataRequest(topics=None), MetadataResponse, 12)
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
        await it.client.ask(asked, MetadataResponse, 12)
    denied = 'denied principal="User:ANONYMOUS" host="memory" operation='
    assert [line for line in told(lines) if line.startswith("denied")] == [
        f'{denied}CREATE resource=TOPIC name="t"',
        f'{denied}WRITE resource=TOPIC name="t"',
        f'{denied}DESCRIBE resource=TOPIC name="t"',
    ], "what is left out of a list is no denial"


async def test_a_login_that_fails_on_a_connection_that_was_let_in_is_told(lines: pytest.LogCaptureFixture) -> None:
    """Re-authentication (KIP-368) by a mechanism that the listener does not offer."""
    doors = {
        "listeners": "PLAINTEXT://memory:9092,LOCKED://memory:9192,CONTROLLER://memory:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOCKED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "connections.max.reauth.ms": "60000",
        "listener.name.locked.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="secret";'
        ),
    }
    async with stage(**doors) as it:
        client = Client()
        await it.network.connect("memory", 9192, client)
        await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
        token = SaslAuthenticateRequest(auth_bytes=b"\0ann\0secret")
        assert (await client.ask(token, SaslAuthenticateResponse, 2)).error_code == ErrorCode.NONE
        lines.clear()
        refused = await client.ask(SaslHandshakeRequest(mechanism="GUESSED"), SaslHandshakeResponse, 1)
        assert refused.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        await until(lambda: client.lost)
    reason = "SASL mechanism 'GUESSED' is not enabled here"
    assert told(lines) == [f'login failed host="memory" listener=LOCKED reason="{reason}"']


async def test_a_certificate_that_names_nobody_is_a_login_that_failed(lines: pytest.LogCaptureFixture) -> None:
    closed: list[str] = []
    peer = SimpleNamespace(peer=("10.0.0.7", 50_000), listener="SSL", principal="User:ANONYMOUS", close=closed.append)
    async with stage() as it:
        doors = Doors(it.node.services, memory_runtime(it.disk, it.clock, it.network))
        lines.clear()
        doors._name_by_certificate(cast(ClientConnection, peer), b"no certificate", parse_mapping_rules("DEFAULT"))
    (line,) = told(lines)
    assert line.startswith('login failed host="10.0.0.7" listener=SSL reason="authentication by certificate failed: ')
    assert (len(closed), peer.principal) == (1, "User:ANONYMOUS")


async def test_a_transaction_that_is_ended_by_hand_is_told_and_what_brokers_do_is_not(
    lines: pytest.LogCaptureFixture,
) -> None:
    listeners = {
        "listeners": "PLAINTEXT://memory:9092,CLIENTS://memory:9192,CONTROLLER://memory:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    ended = WritableTxnMarker(producer_id=7, topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])])
    async with stage(**listeners) as it:
        await it.create()
        client = Client()
        await it.network.connect("memory", 9192, client)
        lines.clear()
        for each in (it.client, client):
            answer = await each.ask(WriteTxnMarkersRequest(markers=[ended]), WriteTxnMarkersResponse, 1)
            assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.NONE
    assert told(lines) == ['changed principal="User:ANONYMOUS" host="memory" api=WriteTxnMarkers about=["7 t"]']


async def test_peers_who_come_again_and_again_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Each sends a frame that is none; so many are told of in a second, and the others are counted."""
    caplog.set_level(logging.INFO, "ottla.broker.connections")
    count = 5 * LINES_PER_SECOND_MAX

    def told_of() -> list[str]:
        return [line for line in caplog.messages if line.startswith("closed the connection from")]

    async with stage() as it:
        loop = asyncio.get_running_loop()
        began_s = int(loop.time())
        for _ in range(count):
            client = Client()
            connection = await it.network.connect("memory", 9092, client)
            connection.write(b"\xff" * 8)
            await until(lambda client=client: client.lost)  # type: ignore[misc]
        seconds = int(loop.time()) - began_s + 1
        assert 0 < len(told_of()) <= seconds * LINES_PER_SECOND_MAX
        await asyncio.sleep(1)  # Until there is room for another line.
        connection = await it.network.connect("memory", 9092, Client())
        connection.write(b"\xff" * 8)
        await until(lambda: any("are not told of one by one" in line for line in caplog.messages))
