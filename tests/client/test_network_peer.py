"""Nodes talk to one another: over memory, where time and failures are the test's, and over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.client.network_peer import NetworkPeers
from ottla.client.peer import PeerLost
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.clock import SystemClock
from ottla.runtime.network import SocketNetwork
from ottla.runtime.timers import TimerWheel
from ottla.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.wire.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from ottla.wire.messages.fetch_request import FetchRequest
from ottla.wire.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from tests.client.stand_in import StandIn
from tests.seams.surroundings import LoopClock, MemoryListener, MemoryNetwork

VERSIONS = {1: (4, 18), 18: (0, 4), 63: (0, 1)}


class Stage:
    """A network in memory with one server on it, and a peer that points at the server."""

    def __init__(self, *, on_request: Callable[[StandIn], None] | None = None) -> None:
        self.network = MemoryNetwork()
        self.timers = TimerWheel(LoopClock())
        self.accepted: list[StandIn] = []
        self.versions = dict(VERSIONS)
        self.greets = True
        self._on_request = on_request
        self.listener: MemoryListener | None = None
        self.peers = NetworkPeers(self.network, self.timers, "node-1", connect_timeout_ms=200, pause_ms=5)
        self.peer = self.peers.at("memory", 9093)

    async def listen(self) -> None:
        self.listener = await self.network.listen("memory", 9093, self._accept)
        self.listener.start()

    def _accept(self) -> StandIn:
        server = StandIn(self.versions, on_request=self._on_request)
        server.greets = self.greets
        self.accepted.append(server)
        return server

    def heartbeat(self, timeout_ms: int = 1000) -> asyncio.Task[BrokerHeartbeatResponse]:
        sending = self.peer.send(BrokerHeartbeatRequest(), BrokerHeartbeatResponse, timeout_ms=timeout_ms)
        return asyncio.ensure_future(sending)

    def close(self) -> None:
        self.peer.close()
        self.timers.close()


def unfenced(server: StandIn) -> None:
    server.answer(BrokerHeartbeatResponse(is_fenced=False))


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def lost(sending: Awaitable[object], code: ErrorCode = ErrorCode.NETWORK_EXCEPTION) -> str:
    with pytest.raises(PeerLost) as raised:
        await asyncio.wait_for(sending, 60)
    assert raised.value.code == code
    return str(raised.value)


async def test_requests_share_one_connection_and_are_answered_in_order() -> None:
    stage = Stage()
    await stage.listen()
    sending = [stage.heartbeat() for _ in range(3)]
    await turns()
    (server,) = stage.accepted
    assert [head.correlation_id for head, _ in server.asked] == [1, 2, 3]
    for fenced in (True, False, True):
        server.answer(BrokerHeartbeatResponse(is_fenced=fenced))
    assert [(await each).is_fenced for each in sending] == [True, False, True]
    stage.close()


async def test_nobody_there_is_said_at_once_and_tried_again_later() -> None:
    stage = Stage(on_request=unfenced)
    assert "cannot be reached" in await lost(stage.heartbeat())
    await stage.listen()
    assert not (await stage.heartbeat()).is_fenced
    stage.close()


async def test_the_pause_between_attempts_grows_and_an_answer_ends_it() -> None:
    stage = Stage(on_request=unfenced)
    loop = asyncio.get_running_loop()
    pauses = []
    for _ in range(4):
        began = loop.time()
        await lost(stage.heartbeat())
        pauses.append((loop.time() - began) * 1000)
    assert pauses[0] < 5
    assert pauses[1] >= 4
    assert pauses[2] >= 9
    assert pauses[3] >= 19
    await stage.listen()
    await stage.heartbeat()
    stage.accepted[-1].hang_up()
    began = loop.time()
    await stage.heartbeat()
    assert (loop.time() - began) * 1000 < 19
    stage.close()


async def test_what_was_in_flight_is_lost_with_the_connection() -> None:
    stage = Stage()
    await stage.listen()
    sending = [stage.heartbeat(), stage.heartbeat()]
    await turns()
    stage.accepted[0].hang_up()
    for each in sending:
        assert "hung up" in await lost(each)
    again = stage.heartbeat()
    for _ in range(6_000):
        if len(stage.accepted) == 2:
            break
        await asyncio.sleep(0.01)
    await turns()
    unfenced(stage.accepted[1])
    await again
    stage.close()


async def test_a_request_that_takes_too_long_ends_the_connection() -> None:
    stage = Stage()
    await stage.listen()
    quick = stage.heartbeat(timeout_ms=20)
    patient = stage.heartbeat(timeout_ms=5000)
    await lost(quick, ErrorCode.REQUEST_TIMED_OUT)
    assert "earlier request" in await lost(patient)
    assert stage.accepted[0].lost
    stage.close()


async def test_a_peer_that_accepts_and_says_nothing_is_given_up() -> None:
    """A process that was stopped: its kernel still accepts."""
    stage = Stage()
    stage.greets = False
    await stage.listen()
    assert "too long to connect" in await lost(stage.heartbeat(timeout_ms=5000))
    assert stage.accepted[0].lost
    stage.close()


async def test_a_request_does_not_wait_for_a_connection_longer_than_it_may() -> None:
    stage = Stage(on_request=unfenced)
    stage.greets = False
    await stage.listen()
    impatient, patient = stage.heartbeat(timeout_ms=20), stage.heartbeat(timeout_ms=5000)
    await lost(impatient, ErrorCode.REQUEST_TIMED_OUT)
    assert not patient.done(), "the connection may yet come about"
    await lost(patient)
    stage.close()


async def test_an_api_that_the_peer_does_not_know_is_refused_and_the_connection_stays() -> None:
    stage = Stage(on_request=unfenced)
    del stage.versions[1]
    await stage.listen()
    with pytest.raises(KafkaError) as refused:
        await stage.peer.send(FetchRequest(), FetchResponse, timeout_ms=1000)
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION
    assert not isinstance(refused.value, PeerLost)
    await stage.heartbeat()
    assert len(stage.accepted) == 1
    stage.close()


async def test_max_version_is_obeyed() -> None:
    stage = Stage()
    await stage.listen()
    sending = asyncio.ensure_future(stage.peer.send(FetchRequest(), FetchResponse, timeout_ms=1000, max_version=15))
    await turns()
    assert stage.accepted[0].asked[0][0].api_version == 15
    stage.accepted[0].answer(FetchResponse(session_id=7))
    assert (await sending).session_id == 7
    stage.close()


async def test_whoever_stops_waiting_does_not_disturb_the_others() -> None:
    stage = Stage()
    await stage.listen()
    first, second = stage.heartbeat(), stage.heartbeat()
    await turns()
    first.cancel()
    await turns()
    server = stage.accepted[0]
    server.answer(BrokerHeartbeatResponse(is_fenced=True))
    server.answer(BrokerHeartbeatResponse(is_fenced=False))
    assert not (await second).is_fenced
    stage.close()


async def test_closing_ends_everything_that_waits() -> None:
    stage = Stage()
    await stage.listen()
    sent = stage.heartbeat()
    await turns()
    stage.peer.close()
    assert "closed" in await lost(sent)
    assert stage.accepted[0].lost
    assert "closed" in await lost(stage.heartbeat())
    connecting = Stage()
    connecting.greets = False
    await connecting.listen()
    waiting = connecting.heartbeat()
    await turns(1)
    connecting.close()
    await lost(waiting)
    stage.close()


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x7f\xff\xff\xff1234",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x08\x00\x00\x00\x63\x00\x00\x00\x00",
        b"\x00\x00\x00\x05\x00\x00\x00\x01\x00",
        b"\x00\x00\x00\x09\x00\x00\x00\x01\xff\xff\xff\xff\xff",
    ],
)
async def test_a_peer_that_speaks_nonsense_is_hung_up_on(said: bytes) -> None:
    stage = Stage(on_request=lambda server: server.say(said))
    await stage.listen()
    assert "does not speak the protocol" in await lost(stage.heartbeat())
    assert stage.accepted[0].lost
    stage.close()


async def test_a_large_fetch_over_a_real_socket() -> None:
    """Eight megabytes, in whatever pieces the kernel gives them, between two requests that are small."""
    network, timers = SocketNetwork(), TimerWheel(SystemClock())
    records = bytes(range(256)) * 32768

    def serve(server: StandIn) -> None:
        if server.asked[0][0].api_key == 63:
            unfenced(server)
        else:
            partition = PartitionData(records=records)
            server.answer(FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])]))

    listener = await network.listen("127.0.0.1", 0, lambda: StandIn(VERSIONS, on_request=serve))
    listener.start()
    peer = NetworkPeers(network, timers, "node-1").at(*listener.address)
    before = peer.send(BrokerHeartbeatRequest(), BrokerHeartbeatResponse, timeout_ms=5000)
    fetch = peer.send(FetchRequest(), FetchResponse, timeout_ms=5000)
    after = peer.send(BrokerHeartbeatRequest(), BrokerHeartbeatResponse, timeout_ms=5000)
    _, fetched, _ = await asyncio.gather(before, fetch, after)
    assert fetched.responses[0].partitions[0].records == records
    peer.close()
    listener.close()
    refused = NetworkPeers(network, timers, "node-1").at(*listener.address)
    assert "cannot be reached" in await lost(
        refused.send(BrokerHeartbeatRequest(), BrokerHeartbeatResponse, timeout_ms=5000)
    )
    refused.close()
    timers.close()


@pytest.mark.parametrize("address", [("no such host", 9092), ("127.0.0.1", 70000), ("x" * 300, 9092)])
async def test_an_address_that_cannot_be(address: tuple[str, int]) -> None:
    timers = TimerWheel(SystemClock())
    peer = NetworkPeers(SocketNetwork(), timers, "node-1").at(*address)
    await lost(peer.send(BrokerHeartbeatRequest(), BrokerHeartbeatResponse, timeout_ms=5000))
    peer.close()
    timers.close()
