"""One connection to one leader, over which a share of its partitions is copied.

One request is on its way at a time, and the next leaves as soon as what the last one brought is in the logs. There is
one exception: a partition that falls due while a request waits at the leader is asked for at once, by a second request,
since a new leader's first commits may depend on it.

Answers are matched with what was asked. A partition that has another leader epoch by now, or was let go, hears nothing
of an old answer (A21); one whose log does not end where the answer begins ignores it (A22). Between two partitions the
loop gets its turn whenever enough bytes were appended, so that a large answer stalls nobody.

Driven by `ReplicaFetchers`, which adds and removes partitions; everything else happens in one task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.replication.copying import Copier, Followed
from ottla.broker.replication.session import FetchSession, SessionRequest
from ottla.broker.replication.throttle import ReplicationThrottle
from ottla.client.peer import Peer, Peers
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Uuid
from ottla.partition.follower import FollowerState
from ottla.runtime import Clock
from ottla.runtime.timers import Timer, TimerWheel

if TYPE_CHECKING:
    from ottla.wire.messages.fetch_request import FetchRequest
    from ottla.wire.messages.fetch_response import FetchResponse

_log = logging.getLogger(__name__)

_TURN_BYTES = 1 << 20
_TURN_PARTITIONS = 256
"""After so much the loop gets its turn."""

_PAUSE_MS = 20
"""After a leader was not to be reached; it doubles up to `replica.fetch.backoff.ms`."""

_NEVER_FOR_WATERMARK = (1 << 63) - 1
_THROTTLED_BYTES_MIN = 1 << 14
_LATEST, _EARLIEST = -1, -2


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """The configuration as pipelines need it; replaced as a whole."""

    replica_id: int
    wait_ms_max: int
    bytes_min: int
    response_bytes_max: int
    partition_bytes_max: int
    backoff_ms: int
    timeout_ms: int
    wants_watermark: bool
    """Consumers may read from followers here (KIP-392): we want to hear of a higher watermark at once (KIP-1166)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all pipelines of a node share."""

    peers: Peers
    clock: Clock
    timers: TimerWheel
    copier: Copier
    throttle: ReplicationThrottle
    broker_epoch: Callable[[], int]
    on_bug: Callable[[BaseException], None]


class Pipeline:
    """`_members` are all its partitions; those in `_due` are looked at before the next request leaves."""

    def __init__(self, leader_id: int, surroundings: Surroundings, settings: FetchSettings) -> None:
        self.leader_id = leader_id
        self.settings = settings
        self._surroundings = surroundings
        self._copier = surroundings.copier
        self._throttle = surroundings.throttle
        self._clock = surroundings.clock
        self._endpoint: tuple[str, int] | None = None
        self._peer: Peer | None = None
        self._session = FetchSession()
        self._members: dict[Uuid, dict[int, Followed]] = {}
        self._count = 0
        self._due: dict[Followed, None] = {}
        self._throttled: dict[Followed, None] = {}
        """Those that the leader is asked for and that count against the throttle."""
        self._held_back: dict[Followed, None] = {}
        """Those that it is not asked for, because the rate is exceeded."""
        self._release: Timer | None = None
        self._requests = 0
        self._wakeup = asyncio.Event()
        self._waiting = False
        """Is all that happens that a request waits at the leader?"""
        self._hurrying = False
        self._failing = False
        """Was it said that the leader is not to be reached?"""
        self._second: tuple[SessionRequest, int, asyncio.Task[FetchResponse]] | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"Pipeline(leader {self.leader_id}, {self._count} partitions)"

    def followed(self) -> list[Followed]:
        return [followed for members in self._members.values() for followed in members.values()]

    # What there is to copy.

    def add(self, followed: Followed) -> None:
        members = self._members.setdefault(followed.key.topic_id, {})
        old = members.get(followed.key.partition)
        if old is None:
            self._count += 1
        else:
            old.let_go = True
            self._leave_out(old)
        members[followed.key.partition] = followed
        followed.wake = partial(self._on_due, followed)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"replica-fetcher-{self.leader_id}")
            self._task.add_done_callback(self._on_done)
        self._on_due(followed)

    def remove(self, followed: Followed) -> None:
        members = self._members.get(followed.key.topic_id)
        if members is None or members.get(followed.key.partition) is not followed:
            return
        del members[followed.key.partition]
        if not members:
            del self._members[followed.key.topic_id]
        self._count -= 1
        followed.let_go = True
        self._leave_out(followed)

    def _leave_out(self, followed: Followed) -> None:
        """The leader is not asked for it until it is due again."""
        followed.asked = 0
        self._due.pop(followed, None)
        self._throttled.pop(followed, None)
        self._held_back.pop(followed, None)
        self._session.drop(followed.key)

    def _find(self, topic_id: Uuid, index: int) -> Followed | None:
        members = self._members.get(topic_id)
        return None if members is None else members.get(index)

    def _on_due(self, followed: Followed) -> None:
        """There is something new to ask for it, or it may be asked for again."""
        if self._find(*followed.key) is not followed:
            return
        self._due[followed] = None
        self._wakeup.set()
        if self._waiting and not self._hurrying:
            # At the end of the turn: there may be more like it.
            self._hurrying = True
            asyncio.get_running_loop().call_soon(self._hurry)

    def on_throttled(self, followed: Followed) -> None:
        """It was put on the list of throttled replicas, or taken off."""
        self._throttled.pop(followed, None)
        self._held_back.pop(followed, None)
        self._on_due(followed)

    def set_endpoint(self, endpoint: tuple[str, int] | None) -> None:
        """Where the leader is to be reached; if it moved, it is asked there."""
        if endpoint == self._endpoint:
            return
        self._endpoint = endpoint
        self._hang_up()
        self._wakeup.set()

    def stop(self) -> None:
        """Ask nothing more, and hang up."""
        self._stopped = True
        if self._release is not None:
            self._release.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._second is not None:
            second = self._second[2]
            second.cancel()
            second.add_done_callback(lambda task: None if task.cancelled() else task.exception())
        self._hang_up()

    @property
    def is_done(self) -> bool:
        return self._task is None or self._task.done()

    async def join(self) -> None:
        """Wait until a stopped pipeline is done."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def _hang_up(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("copying from broker %d ended", self.leader_id, exc_info=error)
            self._surroundings.on_bug(error)

    # Asking.

    async def _run(self) -> None:
        pause_ms = _PAUSE_MS
        while not self._stopped:
            asked = self._next_request()
            if asked is None:
                await self._wakeup.wait()
                continue
            if await self._exchange(asked):
                pause_ms = _PAUSE_MS
            else:
                self._wakeup.clear()
                timer = self._surroundings.timers.after(pause_ms, self._wakeup.set)
                await self._wakeup.wait()
                timer.cancel()
                pause_ms = min(2 * pause_ms, max(_PAUSE_MS, self.settings.backoff_ms))

    async def _exchange(self, asked: SessionRequest) -> bool:
        """Send a request, and see to its answer and to that of a second one. False if that was of no use."""
        number = self._requests
        answer: Awaitable[FetchResponse] = self._ask(asked)
        while True:
            useful = False
            self._waiting = True
            try:
                response = await answer
            except KafkaError as error:
                self._waiting = False
                level = logging.DEBUG if self._failing else logging.INFO
                _log.log(level, "broker %d could not be fetched from: %s", self.leader_id, error)
                self._failing = True
                self._session.on_lost(asked.attempt)
            else:
                self._waiting = self._failing = False
                useful = self._session.on_response(asked.attempt, response)
                if useful:
                    await self._copy(response, number)
                elif asked.epoch:
                    useful = True  # The session is gone. A new one is asked for at once, but no newer one.
            if self._second is None:
                return useful
            asked, number, answer = self._second
            self._second = None

    def _hurry(self) -> None:
        """What fell due while a request waits at the leader is asked for by a second one. The answers come in order."""
        self._hurrying = False
        if self._waiting and self._second is None and not self._session.is_full and not self._stopped and self._due:
            asked = self._next_request()
            if asked is not None:
                self._second = asked, self._requests, asyncio.get_running_loop().create_task(self._ask(asked))

    async def _ask(self, asked: SessionRequest) -> FetchResponse:
        from ottla.wire.messages.fetch_response import FetchResponse

        request = self._fetch_request(asked)
        return await self._connected().send(request, FetchResponse, timeout_ms=self.settings.timeout_ms)

    def _connected(self) -> Peer:
        if self._peer is None:
            if self._endpoint is None:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "Its address is not known.")
            self._peer = self._surroundings.peers.at(*self._endpoint)
        return self._peer

    def _fetch_request(self, asked: SessionRequest) -> FetchRequest:
        from ottla.wire.messages.fetch_request import FetchRequest, ReplicaState

        settings = self.settings
        return FetchRequest(
            replica_state=ReplicaState(settings.replica_id, self._surroundings.broker_epoch()),
            max_wait_ms=settings.wait_ms_max,
            min_bytes=settings.bytes_min,
            max_bytes=settings.response_bytes_max,
            session_id=asked.session_id,
            session_epoch=asked.epoch,
            topics=asked.topics,
            forgotten_topics_data=asked.forgotten,
        )

    def _next_request(self) -> SessionRequest | None:
        """None if there is nothing to ask for."""
        self._wakeup.clear()
        now_ms = self._now_ms()
        if self._throttle.is_limited:
            self._obey_throttle(now_ms)
        if self._due:
            self._requests += 1
            due, self._due = self._due, {}
            for followed in due:
                if followed.settling or not followed.follower.is_ready(now_ms):
                    self._leave_out(followed)
                else:
                    self._put(followed, now_ms)
        return self._session.next_request() if len(self._session) else None

    def _put(self, followed: Followed, now_ms: int) -> None:
        settings, entry = self.settings, followed.entry
        entry.current_leader_epoch = followed.follower.leader_epoch
        entry.fetch_offset, entry.last_fetched_epoch, entry.log_start_offset = followed.follower.position
        entry.partition_max_bytes = settings.partition_bytes_max
        if followed.throttled:
            self._throttled[followed] = None
            if self._throttle.is_limited and not followed.follower.is_in_sync:
                share = self._throttle.allowance(now_ms) // len(self._throttled)
                entry.partition_max_bytes = min(max(share, _THROTTLED_BYTES_MIN), entry.partition_max_bytes)
        watermark = followed.partition.log.high_watermark if settings.wants_watermark else _NEVER_FOR_WATERMARK
        entry.high_watermark = watermark
        followed.asked = self._requests
        self._session.put(followed.key, entry)

    # The throttle.

    def _obey_throttle(self, now_ms: int) -> None:
        """While the rate is exceeded, throttled replicas are left out, unless they are in sync and would fall out."""
        if not self._throttle.is_exceeded(now_ms):
            if self._held_back:
                self._due.update(self._held_back)
                self._held_back.clear()
            return
        for followed in list({**self._throttled, **self._due}):
            if followed.throttled and not followed.follower.is_in_sync:
                self._leave_out(followed)
                self._held_back[followed] = None
        if self._held_back and self._release is None:
            self._release = self._surroundings.timers.after(self._throttle.wait_ms(now_ms), self._on_release)

    def _on_release(self) -> None:
        self._release = None
        self._wakeup.set()
        for followed in list(self._held_back):
            del self._held_back[followed]
            self._on_due(followed)

    # What came.

    async def _copy(self, response: FetchResponse, number: int) -> None:
        """Carry out what the answer to request `number` means for each partition in it."""
        turn_bytes = turn_partitions = 0
        out_of_range: list[Followed] = []
        for topic in response.responses:
            for data in topic.partitions:
                followed = self._find(topic.topic_id, data.partition_index)
                if followed is None or not 0 < followed.asked <= number:
                    continue
                try:
                    turn_bytes += self._copier.on_data(followed, data, self._now_ms())
                except AssertionError:
                    raise
                except Exception as error:
                    # A bug, but of one partition: the others on this connection go on.
                    _log.exception("%r: the answer of broker %d could not be used", followed, self.leader_id)
                    followed.follower.on_failed(repr(error))
                turn_partitions += 1
                self._see_to(followed)
                if followed.wants_range:
                    out_of_range.append(followed)
                if turn_bytes >= _TURN_BYTES or turn_partitions >= _TURN_PARTITIONS:
                    turn_bytes = turn_partitions = 0
                    await asyncio.sleep(0)
        if out_of_range:
            await self._ask_ranges(out_of_range)

    def _see_to(self, followed: Followed) -> None:
        """Its machine has moved: is it to be asked for, and from where?"""
        follower, entry = followed.follower, followed.entry
        if follower.state is FollowerState.FETCHING and not followed.settling:
            log = followed.partition.log
            if (
                log.log_end_offset != entry.fetch_offset
                or log.log_start_offset != entry.log_start_offset
                or (self.settings.wants_watermark and log.high_watermark != entry.high_watermark)
            ):
                self._due[followed] = None
            return
        self._leave_out(followed)
        if follower.state is FollowerState.DELAYED:
            delay_ms = max(1, follower.delayed_until_ms - self._now_ms())
            self._surroundings.timers.after(delay_ms, partial(self._on_due, followed))

    async def _ask_ranges(self, followed: list[Followed]) -> None:
        """Where do the leader's logs begin and end? Those that we ask for are out of fetches until we know."""
        try:
            peer = self._connected()
            ends = await self._copier.ask_offsets(peer, followed, _LATEST, self.settings)
            starts = await self._copier.ask_offsets(peer, followed, _EARLIEST, self.settings)
        except KafkaError as error:
            ends, starts = {}, {}
            failure = error.code
        else:
            failure = ErrorCode.UNKNOWN_SERVER_ERROR
        for one in followed:
            if self._find(*one.key) is one:
                self._copier.on_range(one, starts.get(one.key, failure), ends.get(one.key, failure), self._now_ms())
                self._see_to(one)
                self._on_due(one)

    def _now_ms(self) -> int:
        """The time of the machines: monotonic milliseconds."""
        return int(self._clock.monotonic() * 1000)
