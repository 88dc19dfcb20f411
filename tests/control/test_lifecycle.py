"""What a broker says of itself to the controller: not ready before it is, and never further than it has read."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TypeVar

from ottla.broker.control.lifecycle import BrokerLifecycle
from ottla.metadata.ids import random_uuid
from ottla.runtime.timers import TimerWheel
from ottla.wire.message import Message
from ottla.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.wire.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from ottla.wire.messages.broker_registration_request import BrokerRegistrationRequest
from ottla.wire.messages.broker_registration_response import BrokerRegistrationResponse
from tests.control.quorum import play
from tests.seams.surroundings import LoopClock

M = TypeVar("M", bound=Message)

EPOCH = 40


class Controller:
    """Registers whoever asks, and unfences whoever says that it is ready and has read its registration."""

    def __init__(self) -> None:
        self.registrations: list[BrokerRegistrationRequest] = []
        self.heartbeats: list[BrokerHeartbeatRequest] = []

    async def send(self, request: Message, response: type[M], **options: object) -> M:
        await asyncio.sleep(0)
        answer: Message
        if isinstance(request, BrokerRegistrationRequest):
            self.registrations.append(request)
            answer = BrokerRegistrationResponse(broker_epoch=EPOCH)
        else:
            assert isinstance(request, BrokerHeartbeatRequest)
            self.heartbeats.append(request)
            waits = request.want_fence or request.current_metadata_offset < EPOCH
            answer = BrokerHeartbeatResponse(is_fenced=waits, should_shut_down=request.want_shut_down)
        assert isinstance(answer, response)
        return answer


def test_a_broker_is_not_let_in_before_it_is_ready_nor_said_to_know_what_it_has_not_read() -> None:
    """It registers with its rack and the proof of its last clean stop, and begins fenced. It is heard of while it reads
    the metadata log, which takes longer than a session here."""

    async def story() -> None:
        clock, controller, read = LoopClock(), Controller(), EPOCH - 10
        lifecycle = BrokerLifecycle(
            channel=controller,
            clock=clock,
            timers=TimerWheel(clock),
            broker_id=3,
            cluster_id="cluster",
            incarnation_id=random_uuid(Random(1)),
            rack="east",
            log_dirs=[],
            heartbeat_interval_ms=2_000,
            session_timeout_ms=9_000,
            registration_timeout_ms=60_000,
            controlled_shutdown=True,
            metadata_offset=lambda: read,
            on_bug=lambda error: None,
        )
        await lifecycle.register([], 33)
        (request,) = controller.registrations
        assert (request.broker_id, request.rack, request.previous_broker_epoch) == (3, "east", 33)
        catching_up = asyncio.ensure_future(lifecycle.catch_up())
        await asyncio.sleep(12)
        assert len(controller.heartbeats) >= 5
        read = EPOCH
        await asyncio.sleep(4)
        said = [(beat.want_fence, beat.current_metadata_offset) for beat in controller.heartbeats]
        assert set(said) == {(True, EPOCH - 10), (True, EPOCH)}, "it has read enough, and is not ready"
        assert lifecycle.fenced
        assert not catching_up.done()
        lifecycle.on_metadata(EPOCH)
        await catching_up
        await lifecycle.unfence()
        assert not lifecycle.fenced
        last = controller.heartbeats[-1]
        assert (last.broker_epoch, last.want_fence, last.want_shut_down) == (EPOCH, False, False)
        await lifecycle.shut_down()
        assert controller.heartbeats[-1].want_shut_down

    play(story)
