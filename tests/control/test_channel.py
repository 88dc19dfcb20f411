"""How a node asks the active controller: again where it has to, and in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

import pytest

from ottla.broker.control.channel import LeaderChannel
from ottla.client.peer import PeerLost
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.message import Message
from ottla.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.wire.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from tests.seams.surroundings import LoopClock

M = TypeVar("M", bound=Message)


class Controller:
    """Answers as it is told, in turn, and with success when nothing more was said."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.answers: list[KafkaError | int] = []
        self.closed = 0

    def at(self, host: str, port: int) -> Controller:
        return self

    async def send(self, request: Message, response: type[M], *, timeout_ms: int, max_version: int = 1000) -> M:
        assert isinstance(request, BrokerHeartbeatRequest)
        self.asked.append(request.broker_id)
        await asyncio.sleep(0)
        answer = self.answers.pop(0) if self.answers else 0
        if isinstance(answer, KafkaError):
            raise answer
        answered = BrokerHeartbeatResponse(error_code=answer)
        assert isinstance(answered, response)
        return answered

    def close(self) -> None:
        self.closed += 1


def nobody(request: Message) -> asyncio.Future[Message]:
    raise AssertionError("this node is not the controller")


def played(story: Callable[[LeaderChannel, Controller], Coroutine[object, object, None]]) -> None:
    async def play() -> None:
        controller = Controller()
        channel = LeaderChannel(serve=nobody, peers=controller, clock=LoopClock())
        await story(channel, controller)
        channel.close()

    asyncio.run(play())


async def ask(channel: LeaderChannel, number: int, *, repeat: bool = True, timeout_ms: int = 30_000) -> int:
    request = BrokerHeartbeatRequest(broker_id=number)
    return (await channel.send(request, BrokerHeartbeatResponse, repeat=repeat, timeout_ms=timeout_ms)).error_code


def lost() -> PeerLost:
    return PeerLost(ErrorCode.NETWORK_EXCEPTION, "lost")


def test_a_request_that_waits_to_be_sent_again_is_not_overtaken() -> None:
    async def story(channel: LeaderChannel, controller: Controller) -> None:
        channel.on_leader(("n1", 1))
        controller.answers = [lost(), KafkaError(ErrorCode.NOT_CONTROLLER)]
        first = asyncio.ensure_future(ask(channel, 1))
        await asyncio.sleep(0.005)
        assert controller.asked == [1]
        others = [asyncio.ensure_future(ask(channel, number)) for number in (2, 3, 4)]
        assert await asyncio.gather(first, *others) == [0, 0, 0, 0]
        assert controller.asked == [1, 1, 1, 2, 3, 4]

    played(story)


def test_requests_wait_for_a_leader_in_the_order_in_which_they_came() -> None:
    async def story(channel: LeaderChannel, controller: Controller) -> None:
        waiting = [asyncio.ensure_future(ask(channel, number)) for number in (1, 2, 3)]
        await asyncio.sleep(0.1)
        assert controller.asked == []
        channel.on_leader(("n1", 1))
        waiting.append(asyncio.ensure_future(ask(channel, 4)))
        await asyncio.gather(*waiting)
        assert controller.asked == [1, 2, 3, 4]

    played(story)


def test_one_whose_time_is_up_lets_the_next_go() -> None:
    async def story(channel: LeaderChannel, controller: Controller) -> None:
        first = asyncio.ensure_future(ask(channel, 1, timeout_ms=30))
        second = asyncio.ensure_future(ask(channel, 2))
        with pytest.raises(KafkaError) as refused:
            await first
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        channel.on_leader(("n1", 1))
        assert await second == 0
        assert controller.asked == [2]

    played(story)


def test_without_repeat_the_first_loss_is_told() -> None:
    async def story(channel: LeaderChannel, controller: Controller) -> None:
        channel.on_leader(("n1", 1))
        controller.answers = [lost()]
        with pytest.raises(KafkaError) as refused:
            await ask(channel, 1, repeat=False)
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert controller.asked == [1]

    played(story)


def test_without_repeat_a_node_that_does_not_lead_is_asked_once() -> None:
    async def story(channel: LeaderChannel, controller: Controller) -> None:
        channel.on_leader(("n1", 1))
        controller.answers = [ErrorCode.NOT_CONTROLLER]
        with pytest.raises(KafkaError) as refused:
            await ask(channel, 1, repeat=False)
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        assert controller.asked == [1]

    played(story)


def test_without_repeat_nobody_waits_for_a_leader() -> None:
    async def story(channel: LeaderChannel, controller: Controller) -> None:
        with pytest.raises(KafkaError) as refused:
            await ask(channel, 1, repeat=False)
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        assert controller.asked == []

    played(story)


def test_an_error_that_this_release_does_not_know_is_an_unknown_error() -> None:
    async def story(channel: LeaderChannel, controller: Controller) -> None:
        channel.on_leader(("n1", 1))
        controller.answers = [999]
        with pytest.raises(KafkaError) as refused:
            await ask(channel, 1)
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR

    played(story)


def test_a_node_that_stops_keeps_nobody_waiting() -> None:
    async def story(channel: LeaderChannel, controller: Controller) -> None:
        waiting = [asyncio.ensure_future(ask(channel, number)) for number in (1, 2)]
        await asyncio.sleep(0.005)
        channel.close()
        for each in waiting:
            with pytest.raises(KafkaError):
                await each
        with pytest.raises(KafkaError):
            await ask(channel, 3)

    played(story)
