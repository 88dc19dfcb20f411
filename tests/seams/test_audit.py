"""A whole node writes its audit log: who was denied what, and who changed what."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ottla.broker.connections import LINES_PER_SECOND_MAX
from ottla.errors import ErrorCode
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse
from ottla.wire.messages.produce_response import ProduceResponse
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
