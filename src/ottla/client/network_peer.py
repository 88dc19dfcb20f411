"""Another node over the `Network` seam: opens the connection, keeps the order, gives up in time.

    idle → connecting → greeting, logging in → open → lost → pausing → idle

A connection is opened when somebody sends, and after it was lost when somebody sends again, though not before a pause
that doubles until an answer comes. What was sent and not answered when a connection ends is lost
(`PeerLost`): the peer may have acted on it, so whoever sent it decides whether to send it again. A request that takes
too long ends the connection too, since answers come in order and this one may never come.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TypeVar, cast

from ottla.client.conversation import FRAME_BYTES_MAX, Answer, Conversation, LoginRefused, Ready, Send
from ottla.client.peer import PeerLost
from ottla.errors import ErrorCode, KafkaError, Malformed
from ottla.runtime import Connection, Network, Offload
from ottla.runtime.timers import Timer, TimerWheel
from ottla.security.sasl import Derive, MakeClient
from ottla.wire.message import Message

M = TypeVar("M", bound=Message)

CONNECT_TIMEOUT_MS = 10_000
"""For the connection and the greeting together, as Kafka's `socket.connection.setup.timeout.ms`."""

SESSION_SHARE = 0.85
"""After how much of the time that a login lasts the next one begins."""

PAUSE_MS = 20
PAUSE_MS_MAX = 500


class NetworkPeers:
    """Makes peers that share one network, one wheel of timers and one name to be known by."""

    def __init__(
        self,
        network: Network,
        timers: TimerWheel,
        client_id: str,
        *,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        pause_ms: int = PAUSE_MS,
        pause_ms_max: int = PAUSE_MS_MAX,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        login: MakeClient | None = None,
        offload: Offload | None = None,
        introduction: Message | None = None,
    ) -> None:
        """`login` is how this node proves who it is, where that is asked for; `offload` derives its keys.
        `introduction` is what it says then, on every connection, before anything else."""
        self.login = login
        self.introduction = introduction
        self.offload = offload
        self.network = network
        self.timers = timers
        self.client_id = client_id
        self.connect_timeout_ms = connect_timeout_ms
        self.pause_ms = pause_ms
        self.pause_ms_max = pause_ms_max
        self.frame_bytes_max = frame_bytes_max

    def at(self, host: str, port: int) -> NetworkPeer:
        return NetworkPeer(self, host, port)


class _Call:
    """One request, from `send` to its answer."""

    __slots__ = ("future", "max_version", "request", "response", "timer")

    def __init__(self, request: Message, response: type[Message], max_version: int) -> None:
        self.request = request
        self.response = response
        self.max_version = max_version
        self.future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.timer: Timer | None = None

    def fail(self, error: KafkaError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class NetworkPeer:
    """See the module's docstring, and `Peer` for what it promises."""

    def __init__(self, peers: NetworkPeers, host: str, port: int) -> None:
        self._peers = peers
        self.host = host
        self.port = port
        self._link: _Link | None = None
        self._pausing: Timer | None = None
        self._failures = 0
        """Connections in a row that brought no answer."""
        self._waiting: deque[_Call] = deque()
        self._closed = False

    def __repr__(self) -> str:
        return f"NetworkPeer({self.host}:{self.port})"

    async def send(self, request: Message, response: type[M], *, timeout_ms: int, max_version: int = 1000) -> M:
        if self._closed:
            raise self._lost("was closed")
        call = _Call(request, response, max_version)
        call.timer = self._peers.timers.after(timeout_ms, partial(self._on_timeout, call))
        if self._link is not None and self._link.conversation.is_open:
            self._link.ask(call)
        else:
            self._waiting.append(call)
            self._connect()
        try:
            answer = await call.future
        finally:
            call.timer.cancel()
        return cast(M, answer)

    def close(self) -> None:
        self._closed = True
        if self._pausing is not None:
            self._pausing.cancel()
            self._pausing = None
        if self._link is not None:
            self._link.lose("was closed")
        self._fail_waiting("was closed")

    # What becomes of the connection.

    def _connect(self) -> None:
        # Those whose senders have gone away need no connection.
        while self._waiting and self._waiting[0].future.done():
            self._waiting.popleft()
        if self._waiting and self._link is None and self._pausing is None and not self._closed:
            self._link = _Link(self, self._peers)

    def on_ready(self, link: _Link) -> None:
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            if not call.future.done():
                link.ask(call)

    def on_answer(self) -> None:
        self._failures = 0

    def on_lost(self, link: _Link, reason: str) -> None:
        """Called once a link. What waits for it is lost too: whoever sends should hear soon that nobody is there."""
        assert link is self._link
        self._link = None
        for call in link.conversation.unanswered:
            call.fail(self._lost(reason))
        self._fail_waiting(reason)
        if not self._closed:
            pause_ms = min(self._peers.pause_ms << min(self._failures, 16), self._peers.pause_ms_max)
            self._failures += 1
            self._pausing = self._peers.timers.after(pause_ms, self._on_paused)

    def _on_paused(self) -> None:
        self._pausing = None
        self._connect()

    def _on_timeout(self, call: _Call) -> None:
        error = self._lost("did not answer in time", ErrorCode.REQUEST_TIMED_OUT)
        if call in self._waiting:
            self._waiting.remove(call)
            call.fail(error)
        elif not call.future.done():
            call.fail(error)
            if self._link is not None:
                self._link.lose("did not answer an earlier request in time")

    def _fail_waiting(self, reason: str) -> None:
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            call.fail(self._lost(reason))

    def _lost(self, reason: str, code: ErrorCode = ErrorCode.NETWORK_EXCEPTION) -> PeerLost:
        return PeerLost(code, f"{self.host}:{self.port} {reason}")


class _Link:
    """One connection of a peer, from the attempt to its end; the handler of its bytes."""

    def __init__(self, peer: NetworkPeer, peers: NetworkPeers) -> None:
        self._peer = peer
        self._network = peers.network
        self._connection: Connection | None = None
        self._connecting = True
        self._lost = False
        self._offload = peers.offload
        self._timers = peers.timers
        self._next_login: Timer | None = None
        self._deriving: asyncio.Task[None] | None = None
        self.conversation: Conversation[_Call] = Conversation(
            peers.client_id,
            frame_bytes_max=peers.frame_bytes_max,
            login=peers.login,
            introduction=peers.introduction,
        )
        self._setup = peers.timers.after(peers.connect_timeout_ms, partial(self.lose, "took too long to connect"))
        self._opening = asyncio.get_running_loop().create_task(self._open(), name=f"connect-{peer.host}:{peer.port}")

    async def _open(self) -> None:
        try:
            await self._network.connect(self._peer.host, self._peer.port, self)
        except (OSError, ValueError, OverflowError) as error:
            self._connecting = False
            reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
            self.lose(f"cannot be reached ({reason})")

    def ask(self, call: _Call) -> None:
        assert self._connection is not None
        try:
            data = self.conversation.ask(call.request, call.response, call, max_version=call.max_version)
        except KafkaError as error:
            call.fail(error)
        else:
            self._connection.write(data)

    def lose(self, reason: str) -> None:
        if self._lost:
            return
        self._lost = True
        self._setup.cancel()
        if self._next_login is not None:
            self._next_login.cancel()
        if self._deriving is not None:
            self._deriving.cancel()
        self._peer.on_lost(self, reason)
        if self._connection is not None:
            self._connection.abort()
        elif self._connecting:
            self._opening.cancel()

    # The network's.

    def connection_made(self, connection: Connection) -> None:
        self._connecting = False
        self._connection = connection
        if self._lost:
            connection.abort()  # The attempt was given up in the very turn in which it succeeded.
        else:
            connection.write(self.conversation.hello())

    def get_buffer(self) -> memoryview:
        return self.conversation.get_buffer()

    def buffer_updated(self, size: int) -> None:
        assert self._connection is not None
        if self._lost:
            return
        try:
            heard = self.conversation.on_received(size)
        except Malformed as error:
            self.lose(f"does not speak the protocol: {error}")
            return
        except LoginRefused as error:
            self.lose(f"refuses our login: {error}")
            return
        for each in heard:
            if isinstance(each, Answer):
                self._peer.on_answer()
                if not each.token.future.done():
                    each.token.future.set_result(each.response)
            elif isinstance(each, Send):
                self._connection.write(each.data)
            elif isinstance(each, Derive):
                self._deriving = asyncio.get_running_loop().create_task(self._derive(each), name="derive-key")
            else:
                self._on_ready(each)

    def _on_ready(self, ready: Ready) -> None:
        self._setup.cancel()
        if ready.session_ms > 0:
            self._next_login = self._timers.after(SESSION_SHARE * ready.session_ms, self._log_in_again)
        self._peer.on_ready(self)

    def _log_in_again(self) -> None:
        if not self._lost:
            assert self._connection is not None
            self._connection.write(self.conversation.log_in().data)

    async def _derive(self, wanted: Derive) -> None:
        """Off the loop: it takes as long as it takes to be of use."""
        from ottla.security.scram import salted_password

        assert self._offload is not None
        key = await self._offload.run(
            lambda: salted_password(wanted.password, wanted.salt, wanted.iterations, wanted.algorithm)
        )
        if not self._lost:
            assert self._connection is not None
            self._connection.write(self.conversation.on_derived(key).data)

    def write_blocked(self) -> None:
        """Senders are few, and each waits for its answer: what is unsent stays small."""

    def write_resumed(self) -> None: ...

    def connection_lost(self) -> None:
        self.lose("hung up")
