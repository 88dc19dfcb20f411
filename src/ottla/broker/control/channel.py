"""How a node speaks to the active controller, wherever that is.

Requests and responses are the wire's messages. While this node is the active controller they stay in the process;
else they go to the leader of the quorum, on its controller listener, over a connection of their own. A controller that
is lost, or is none any more, is asked again wherever it is next, until the sender's time is up.

Requests keep their order: none is sent while an older one waits to be sent again. Whoever sends two and needs the
second to come after the first has to wait for the first's answer all the same: a copy that was given up may come late.

What a refusal means. NOT_CONTROLLER is said by a node that never acted on the request, and also by one that did and
lost its office before that was committed: the next controller may have kept it. So nobody here concludes from it, nor
from REQUEST_TIMED_OUT, that nothing was done. To ask again is safe because every request that goes this way may be
acted upon twice: registrations name their incarnation, a heartbeat is a statement of fact, so is the place of a
replica, a block of producer ids that nobody heard of is skipped, a topic that exists already is what was wanted, and of
the proposals of one partition epoch only one can be accepted (AlterPartition). Of what clients have forwarded the same
is true as in Kafka: a repeated deletion finds nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from ottla.client.peer import Peer, PeerLost, Peers
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.seams import Clock
from ottla.wire.message import Message

M = TypeVar("M", bound=Message)

Address = tuple[str, int]

_ASK_ANOTHER = (ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.BROKER_NOT_AVAILABLE)
"""What a node says that is not, or not any more, the one to ask."""

_RETRY_MS = 20
_RETRY_MS_MAX = 500


class ControllerChannel(Protocol):
    async def send(self, request: Message, response: type[M], *, timeout_ms: int = 30_000, repeat: bool = True) -> M:
        """The controller's answer to `request`, a message of class `response`.

        Raises `KafkaError` where the controller refuses the request as a whole, or none was found in time:
        NOT_CONTROLLER where nobody took the request for his own, REQUEST_TIMED_OUT where somebody was asked and did not
        answer. Without `repeat` that is said at once, and the request is not sent a second time.
        """
        ...


class LeaderChannel:
    """Told by the control plane who leads: `on_leader`, `on_leading`."""

    def __init__(self, *, serve: Callable[[Message], asyncio.Future[Message]], peers: Peers, clock: Clock) -> None:
        """`serve` answers while this node is the active controller."""
        self._serve = serve
        self._peers = peers
        self._clock = clock
        self._closed = False
        self._is_here = False
        self._leader: Address | None = None
        self._peer: Peer | None = None
        self._changed: asyncio.Future[None] | None = None
        self._numbers = 0
        self._delayed: dict[int, asyncio.Future[None]] = {}
        """Requests that wait to be sent again, by number, each with what younger ones wait for."""

    def on_leader(self, address: Address | None) -> None:
        """Where the leader's controller listens; None where nobody leads, or this node does."""
        if address != self._leader:
            self._leader = address
            self._hang_up()
        self._wake()

    def on_leading(self, is_here: bool) -> None:
        """Whether this node is the active controller."""
        self._is_here = is_here
        self._wake()

    def close(self) -> None:
        """This node is done: whoever waits, or comes later, is told so at once."""
        self._closed = True
        self._is_here, self._leader = False, None
        self._hang_up()
        self._wake()

    def _hang_up(self) -> None:
        """Whoever still waits for the former leader turns to the next."""
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()

    def _wake(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(None)

    async def send(self, request: Message, response: type[M], *, timeout_ms: int = 30_000, repeat: bool = True) -> M:
        deadline = self._clock.monotonic() + timeout_ms / 1000
        refusal = KafkaError(ErrorCode.NOT_CONTROLLER, "The active controller is not known.")
        pause_ms = _RETRY_MS
        self._numbers = number = self._numbers + 1
        while (left := deadline - self._clock.monotonic()) > 0 and not self._closed:
            if (older := min(self._delayed, default=number)) < number:
                await asyncio.wait([self._delayed[older]], timeout=left)
                continue
            if self._changed is None:
                self._changed = asyncio.get_running_loop().create_future()
            changed = self._changed
            try:
                answer = await self._ask(request, response, left)
            except PeerLost:
                refusal = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The active controller did not answer in time.")
            except KafkaError as error:
                if error.code not in _ASK_ANOTHER:
                    raise
                if refusal.code is not ErrorCode.REQUEST_TIMED_OUT:
                    refusal = error
            else:
                if answer is not None:
                    return answer
            if not repeat:
                raise refusal
            pause_s = min(deadline - self._clock.monotonic(), pause_ms / 1000)
            if pause_s > 0 and not self._closed:
                await self._pause(number, changed, pause_s)
            pause_ms = min(2 * pause_ms, _RETRY_MS_MAX)
        raise refusal

    async def _pause(self, number: int, changed: asyncio.Future[None], seconds: float) -> None:
        """Until it is time to ask again, or somebody else leads. Younger requests wait as well: they are woken now, and
        run when this one has been sent."""
        self._delayed[number] = over = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait([changed], timeout=seconds)
        finally:
            del self._delayed[number]
            over.set_result(None)

    async def _ask(self, request: Message, response: type[M], left_s: float) -> M | None:
        """None where there is nobody to ask."""
        answer: Message
        if self._is_here:
            try:
                async with asyncio.timeout(left_s):
                    answer = await self._serve(request)
            except TimeoutError:
                raise PeerLost(ErrorCode.REQUEST_TIMED_OUT, "The request was not committed in time.") from None
        elif self._leader is not None:
            if self._peer is None:
                self._peer = self._peers.at(*self._leader)
            answer = await self._peer.send(request, response, timeout_ms=max(1, int(left_s * 1000)))
        else:
            return None
        assert isinstance(answer, response), f"{type(request).__name__} is not answered by {response.__name__}"
        check_refusal(answer)
        return answer


def check_refusal(answer: Message) -> None:
    """Raise what `answer` says of the request as a whole, and NOT_CONTROLLER also where only its parts say it."""
    code = getattr(answer, "error_code", None)
    if code is not None:
        if code:
            raise KafkaError(ErrorCode(code), getattr(answer, "error_message", None) or "")
        return
    for name in answer.__slots__:
        parts = getattr(answer, name)
        if isinstance(parts, list) and parts and getattr(parts[0], "error_code", 0) == ErrorCode.NOT_CONTROLLER:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
