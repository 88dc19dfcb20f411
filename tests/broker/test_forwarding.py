"""A client asks any broker for what only the controller can do; the broker hands it on in an envelope (KIP-590)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import NoReturn, TypeVar, cast

import pytest

from ottla.broker.connection import ClientConnection
from ottla.broker.context import Context
from ottla.broker.forwarding import forward, pack_address, pack_principal, read_address, read_principal
from ottla.broker.image_watch import ImageWatch
from ottla.broker.node import Node
from ottla.broker.services import Services
from ottla.client.network_peer import NetworkPeer, NetworkPeers
from ottla.config.node import NodeConfig
from ottla.controller.requester import Requester
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.images import EMPTY_IMAGE, MetadataImage
from ottla.runtime import Runtime
from ottla.runtime.timers import TimerWheel
from ottla.wire.frames import request_frame
from ottla.wire.message import Message
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.delete_topics_response import DeleteTopicsResponse
from ottla.wire.messages.envelope_request import EnvelopeRequest
from ottla.wire.messages.envelope_response import EnvelopeResponse
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.wire.messages.metadata_request import MetadataRequest
from tests.log.faulty_disk import FaultyDisk
from tests.seams.surroundings import LoopClock, MemoryNetwork
from tests.seams.test_node_in_memory import CONFIG, fresh

M = TypeVar("M", bound=Message)


class Wire:
    """The way to the active controller, as a broker that is not it has: a connection to its controller listener."""

    def __init__(self, peer: NetworkPeer) -> None:
        self.peer = peer
        self.sent: list[Message] = []

    async def send(self, request: Message, response: type[M], *, timeout_ms: int = 30_000) -> M:
        self.sent.append(request)
        return await self.peer.send(request, response, timeout_ms=timeout_ms)


class Broker:
    """As much of a broker as forwarding sees; its metadata comes from the controller's node when the test says so."""

    def __init__(self, config: NodeConfig, wire: Wire, timers: TimerWheel, runtime: Runtime) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.image_watch = ImageWatch(timers)
        self.config = config
        self.clock = runtime.clock
        self.controller = wire
        self.control = SimpleNamespace(is_active_controller=False)
        self.authorizer = None
        self.quotas = None

    def context(self, api_key: int, api_version: int) -> Context:
        connection = cast(ClientConnection, SimpleNamespace(peer=("10.0.0.7", 1234), host="10.0.0.7"))
        return Context(cast(Services, self), connection, "PLAINTEXT", False, api_key, api_version, "ann's laptop")

    def catch_up(self, node: Node) -> None:
        self.image = node.services.image
        self.image_watch.on_metadata(self.image, cast("object", None), self.image.last_offset)  # type: ignore[arg-type]


@asynccontextmanager
async def stage() -> AsyncIterator[tuple[Node, Broker, Wire]]:
    clock, network = LoopClock(), MemoryNetwork()
    runtime = fresh(FaultyDisk(), clock, network)
    node = Node(CONFIG, runtime)
    await node.start()
    timers = TimerWheel(clock)
    wire = Wire(NetworkPeers(network, timers, "broker-2").at("memory", 9093))
    yield node, Broker(CONFIG, wire, timers, runtime), wire
    wire.peer.close()
    timers.close()
    await node.stop()


def create(name: str, *, validate_only: bool = False) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], validate_only=validate_only)


def has(topic: str) -> Callable[[MetadataImage], bool]:
    return lambda image: image.topic(topic) is not None


@pytest.mark.parametrize("version", [2, 5, 7])
async def test_a_topic_is_created_through_another_broker_in_the_clients_own_version(version: int) -> None:
    async with stage() as (node, broker, wire):
        forwarding = asyncio.ensure_future(forward(broker.context(19, version), create("t")))
        await node.services.image_watch.until(has("t"), node.services.image, 2000)
        await asyncio.sleep(0.02)
        assert not forwarding.done(), "whoever hears of the topic from this broker will use it here"
        broker.catch_up(node)
        answer = await forwarding
        assert isinstance(answer, CreateTopicsResponse)
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [("t", 0)]
        assert [type(request) for request in wire.sent] == [EnvelopeRequest]


async def test_a_broker_that_lags_behind_does_not_hold_the_answer_for_ever() -> None:
    async with stage() as (_, broker, _):
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = await forward(broker.context(19, 7), create("t"))
        assert isinstance(answer, CreateTopicsResponse)
        assert answer.topics[0].error_code == 0
        assert 0.9 < loop.time() - began < 3


async def test_nothing_is_waited_for_that_will_not_come() -> None:
    """A refusal, and a request that only asks whether it would be granted, change nothing here."""
    async with stage() as (_, broker, _):
        loop = asyncio.get_running_loop()
        began = loop.time()
        tried = await forward(broker.context(19, 7), create("t", validate_only=True))
        refused = await forward(broker.context(19, 7), create("no such name!"))
        assert isinstance(tried, CreateTopicsResponse)
        assert isinstance(refused, CreateTopicsResponse)
        assert tried.topics[0].error_code == 0
        assert refused.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert loop.time() - began < 0.9


@pytest.mark.parametrize("version", [5, 6])
async def test_a_deleted_topic_is_gone_here_when_the_answer_leaves(version: int) -> None:
    async with stage() as (node, broker, _):
        creating = asyncio.ensure_future(forward(broker.context(19, 7), create("t")))
        await node.services.image_watch.until(has("t"), node.services.image, 2000)
        broker.catch_up(node)
        await creating
        request = DeleteTopicsRequest(topic_names=["t"]) if version < 6 else DeleteTopicsRequest()
        if version >= 6:
            request.topics = [DeleteTopicState(name="t")]
        deleting = asyncio.ensure_future(forward(broker.context(20, version), request))
        await node.services.image_watch.until(lambda image: image.topic("t") is None, node.services.image, 2000)
        await asyncio.sleep(0.02)
        assert not deleting.done()
        broker.catch_up(node)
        answer = await deleting
        assert isinstance(answer, DeleteTopicsResponse)
        assert answer.responses[0].error_code == 0


async def test_configs_are_changed_through_another_broker() -> None:
    async with stage() as (node, broker, _):
        await forward(broker.context(19, 7), create("t"))
        config = AlterableConfig(name="retention.ms", config_operation=0, value="1000")
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[config])
        answer = await forward(broker.context(44, 1), IncrementalAlterConfigsRequest(resources=[resource]))
        assert isinstance(answer, IncrementalAlterConfigsResponse)
        assert answer.responses[0].error_code == 0
        assert node.services.image.topic_config("t") == {"retention.ms": "1000"}


async def test_a_controller_that_is_gone_is_said_in_the_form_of_the_request() -> None:
    async with stage() as (_, broker, wire):

        async def lose(request: Message, response: type[Message], *, timeout_ms: int) -> Message:
            assert 0 < timeout_ms <= 30_000
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The active controller did not answer in time.")

        wire.send = lose  # type: ignore[method-assign, assignment]
        answer = await forward(broker.context(19, 7), create("t"))
        assert isinstance(answer, CreateTopicsResponse)
        assert answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT


async def test_a_broker_that_becomes_the_controller_while_it_asks_needs_no_envelope() -> None:
    async with stage() as (node, broker, wire):
        own = node.services

        async def promote(request: Message, response: type[Message], *, timeout_ms: int) -> Message:
            broker.control = own.control  # type: ignore[assignment]
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The controller does not serve EnvelopeRequest.")

        wire.send = promote  # type: ignore[method-assign, assignment]
        answer = await forward(broker.context(19, 7), create("t"))
        assert isinstance(answer, CreateTopicsResponse)
        assert answer.topics[0].error_code == 0
        assert own.image.topic("t") is not None


async def test_a_controller_that_is_just_being_deposed_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    """It still counts as active, refuses, and can give way only if the loop turns meanwhile."""
    async with stage() as (node, _, wire):
        control = node.services.control
        decide = control.submit_request
        refusals = 0

        def refuse(request: Message, requester: Requester) -> asyncio.Future[Message]:
            nonlocal refusals
            refusals += 1
            if refusals > 3:
                return decide(request, requester)
            raise KafkaError(ErrorCode.NOT_CONTROLLER)

        monkeypatch.setattr(control, "submit_request", refuse)
        broker = Broker(CONFIG, wire, TimerWheel(LoopClock()), node._runtime)
        broker.control = control  # type: ignore[assignment]
        turned = asyncio.ensure_future(asyncio.sleep(0))
        answer = await forward(broker.context(19, 7), create("t"))
        assert isinstance(answer, CreateTopicsResponse)
        assert answer.topics[0].error_code == 0
        assert turned.done()
        assert wire.sent == []


# What the controller makes of envelopes.


def envelope(request: Message, version: int, **fields: bytes | None) -> EnvelopeRequest:
    assert request.API_KEY is not None
    frame = request_frame(request.API_KEY, version, 9, "ann's laptop", request.encode(version))
    return EnvelopeRequest(
        request_data=fields.get("data", frame[4:]) or b"",
        request_principal=fields.get("principal", pack_principal("User:ann")),
        client_host_address=fields.get("address", b"\x0a\0\0\7") or b"",
    )


async def open_(wire: Wire, request: EnvelopeRequest) -> EnvelopeResponse:
    return await wire.send(request, EnvelopeResponse, timeout_ms=2000)


async def test_an_envelope_with_anything_else_in_it_is_refused() -> None:
    async with stage() as (_, _, wire):
        cases = {
            ErrorCode.INVALID_REQUEST: [
                envelope(MetadataRequest(), 12),
                envelope(create("t"), 7, address=b"\x0a\0\0"),
                envelope(create("t"), 7, data=b""),
                envelope(create("t"), 7, data=b"\0\x13\0\7\0\0\0\0\xff\xff\0\xff\xff\xff\xff\xff"),
            ],
            ErrorCode.UNSUPPORTED_VERSION: [envelope(create("t"), 7, data=b"\0\x13\0\x63\0\0\0\0\xff\xff\0")],
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: [
                envelope(create("t"), 7, principal=None),
                envelope(create("t"), 7, principal=b"\0\x09rubbish"),
                envelope(create("t"), 7, principal=b"\0\0\x7f"),
            ],
        }
        for code, requests in cases.items():
            for request in requests:
                assert (await open_(wire, request)).error_code == code, request
        assert not (await open_(wire, envelope(create("t"), 7))).error_code, "the connection is none the worse"


async def test_a_node_that_is_not_the_controller_says_so_on_the_envelope(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(request: Message, requester: Requester) -> NoReturn:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)

    async with stage() as (node, _, wire):
        with monkeypatch.context() as patch:
            patch.setattr(node.services.control, "submit_request", refuse)
            lost_meanwhile = await open_(wire, envelope(create("t"), 7))
            assert lost_meanwhile.error_code == ErrorCode.NOT_CONTROLLER
            direct = await wire.send(create("t"), CreateTopicsResponse)
            assert direct.topics[0].error_code == ErrorCode.NOT_CONTROLLER
            patch.setattr(type(node.services.control), "is_active_controller", False)
            assert (await open_(wire, envelope(create("t"), 7))).error_code == ErrorCode.NOT_CONTROLLER
        assert node.services.image.topic("t") is None


def test_a_principal_is_written_as_kafka_writes_it() -> None:
    """Version 0, then compact strings: what DefaultKafkaPrincipalBuilder makes of User:ann, not by a token."""
    data = b"\0\0" + b"\x05User" + b"\x04ann" + b"\0" + b"\0"
    assert pack_principal("User:ann") == data
    assert read_principal(data) == "User:ann"
    assert read_principal(pack_principal("User:CN=a:b")) == "User:CN=a:b"


@pytest.mark.parametrize(
    ("host", "packed", "read"),
    [
        ("127.0.0.1", b"\x7f\0\0\1", "127.0.0.1"),
        ("::1", bytes(15) + b"\1", "::1"),
        ("fe80::1%eth0", b"\xfe\x80" + bytes(13) + b"\1", "fe80::1"),
        ("memory", bytes(4), "0.0.0.0"),
    ],
)
def test_addresses(host: str, packed: bytes, read: str) -> None:
    assert pack_address(host) == packed
    assert read_address(packed) == read
