"""Fetch (key 1): bytes to consumers and followers, straight from the log's files.

Tuned by hand where it pays: the response is a list of packed bytes and spans of files (`wire/fetch_codec`), so that no
record is looked at, and only small spans are read into Python. A fetch that finds too little waits for its partitions
to move; one that finds its bytes outside the page cache has them brought in by a thread first, so that a cold reader
does not stall the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.access.authorisation import Asker, asker_of
from ottla.broker.bounds.client_quotas import waive
from ottla.broker.bounds.limits import ELEMENTS_MAX, FETCH_WAIT_MS_MAX
from ottla.broker.fetching.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchPartition, FetchSession, S
from ottla.broker.fetching.follower_sessions import FollowerSession
from ottla.broker.fetching.partition_reader import ConsumerReader, FollowerReader, Found
from ottla.broker.fetching.steady_fetches import SteadyFetch, is_steady
from ottla.broker.hosted import HostedPartition
from ottla.broker.purgatory import DelayedFetch
from ottla.broker.reply import Deferred, Ready, Reply
from ottla.errors import ErrorCode, KafkaError
from ottla.partition import Heard
from ottla.runtime import DiskError, FileSpan
from ottla.wire.apis import FETCH
from ottla.wire.fetch_codec import NodeAddress, Request, Wanted, pack, pack_refusal, pack_throttled, read_request

if TYPE_CHECKING:
    from ottla.broker.bounds.client_quotas import Toll
    from ottla.broker.connection import ClientConnection
    from ottla.broker.services import Services


def start(
    services: Services,
    connection: ClientConnection,
    view: memoryview,
    version: int,
    correlation_id: int,
    position: int,
    end: int,
) -> Reply:
    """Phase one: find what is there, and answer, or wait for more."""
    body = bytes(view[position:end])
    steady = connection.steady_fetch
    if steady is not None:
        ready = steady.answer(services, body, version, correlation_id)
        if ready is not None:
            return ready
        connection.steady_fetch = None
    request = read_request(body, version, ELEMENTS_MAX)
    kind = _FollowerFetch if request.replica_id >= 0 else _ConsumerFetch
    asker = asker_of(services, connection, FETCH)
    quotas = services.quotas
    toll = None if quotas is None else quotas.current
    if request.replica_id >= 0:
        toll = None  # What followers fetch has a limit of its own (`Services.leader_throttle`).
    fetch = kind(services, request, version, correlation_id, connection.listener, asker, toll)
    try:
        reply = fetch.start()
    except KafkaError as error:
        return pack_refusal(version, correlation_id, error.code)
    if is_steady(request, version):
        connection.steady_fetch = fetch.as_steady(body)
    return reply


class _Fetch:
    """One fetch request. States: reading → waiting → reading → (warming) → answered."""

    __slots__ = (
        "_asker",
        "_correlation_id",
        "_found",
        "_incremental",
        "_listener",
        "_max_bytes",
        "_min_bytes",
        "_request",
        "_services",
        "_session",
        "_size",
        "_toll",
        "_version",
    )

    def __init__(
        self,
        services: Services,
        request: Request,
        version: int,
        correlation_id: int,
        listener: str,
        asker: Asker | None,
        toll: Toll | None,
    ) -> None:
        self._services = services
        self._asker = asker
        self._toll = toll
        self._request = request
        self._version = version
        self._correlation_id = correlation_id
        self._listener = listener
        self._max_bytes = min(request.max_bytes, services.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, services.fetch_max_bytes)
        if toll is not None and (most := toll.fetch_bytes_max()) is not None:
            self._max_bytes = min(self._max_bytes, most)
            self._min_bytes = min(self._min_bytes, max(1, most))  # Who may have nothing waits for something, too.
        self._session: FetchSession | None = None
        self._incremental = False
        self._found: list[Found] = []
        self._size = 0

    @property
    def _wait_ms_max(self) -> int:
        return min(self._request.max_wait_ms, FETCH_WAIT_MS_MAX)

    def _open(self, make: type[S]) -> tuple[S | None, list[Wanted]]:
        """The session that the request is of, if any, and what the request names."""
        request = self._request
        wanted = request.wanted
        if len(wanted) > 1:
            # As in Kafka a partition that is named twice is read once, as its last mention asks.
            wanted = list({(each.topic, each.partition): each for each in wanted}.values())
        services = self._services
        sessions = services.fetch_sessions
        by_id = self._version >= 13
        replica_id = request.replica_id
        epoch = request.session_epoch
        session: S | None = None
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id:
                sessions.close(request.session_id)
            known = replica_id < 0 or replica_id in services.image.cluster.brokers
            if epoch == INITIAL_EPOCH and self._version >= 7 and known:
                now_ms = services.clock.wall_ms()
                session = sessions.create(make, wanted, by_id=by_id, replica_id=replica_id, now_ms=now_ms)
        else:
            now_ms = services.clock.wall_ms()
            resumed = sessions.resume(request.session_id, epoch, by_id=by_id, replica_id=replica_id, now_ms=now_ms)
            assert isinstance(resumed, make)
            session = resumed
            sessions.grew(session, session.update(wanted, request.forgotten))
            self._incremental = True
            if not session.partitions:
                sessions.close(session.session_id)
                session, wanted = None, []
        self._session = session
        return session, wanted

    def _answer_to(self, deferred: Deferred) -> None:
        reply = self._answer()
        if isinstance(reply, Deferred):
            reply.when_done(lambda: deferred.resolve(reply.reply))
        else:
            deferred.resolve(reply)

    def as_steady(self, body: bytes) -> SteadyFetch | None:
        """For the next one to go on from, if this one found records and nothing else, in a session that is about them
        alone."""
        session, found = self._session, self._found
        if session is None or len(session.partitions) != 1 or len(found) != 1 or self._request.replica_id >= 0:
            return None
        (entry,) = found
        if entry.span is None or entry.remembered is None or entry.hosted is None:
            return None
        max_bytes = min(entry.wanted.max_bytes, self._max_bytes)
        return SteadyFetch(body, self._version, self._min_bytes, max_bytes, session, entry.remembered, entry.hosted)

    # Answering.

    def _answer(self) -> Reply:
        services = self._services
        found = self._found
        cold = self._take_in()
        if not cold:
            if not services.read_ahead.is_idle:
                self._read_on()
            return self._encode()
        deferred = Deferred()

        async def then_answer() -> None:
            failures = await services.read_ahead.bring_in(cold)
            for entry in found if failures else ():
                if entry.span in failures:
                    self._fail(entry, failures[entry.span])
            self._read_on()
            deferred.resolve(self._encode())

        services.spawn(then_answer())
        return deferred

    def _take_in(self) -> list[FileSpan]:
        """What has to be waited for."""
        cold: list[FileSpan] = []
        for entry in self._found:
            try:
                if not entry.take_in():
                    assert entry.span is not None
                    cold.append(entry.span)
            except DiskError as error:
                self._fail(entry, error)
        return cold

    def _fail(self, entry: Found, error: DiskError) -> None:
        assert entry.hosted is not None
        self._services.replicas.fail(entry.hosted, error)
        entry.error, entry.span = ErrorCode.KAFKA_STORAGE_ERROR, None

    def _read_on(self) -> None:
        for entry in self._found:
            if entry.span is not None:
                self._services.read_ahead.follow(entry.span)

    def _encode(self) -> Ready:
        if self._toll is not None:
            throttle_ms = self._toll.on_fetched(self._size)
            if throttle_ms:
                return self._withhold(throttle_ms)
        self._count()
        session = self._session
        told = self._found
        if session is not None:
            told = []
            for entry in self._found:
                assert entry.remembered is not None
                news = entry.remembered.has_news(
                    error=entry.error,
                    size=entry.size,
                    high_watermark=entry.high_watermark,
                    log_start=entry.log_start,
                    urgent=entry.diverging is not None or entry.preferred >= 0,
                )
                if news or not self._incremental:
                    told.append(entry)
                if entry.span is not None:
                    session.to_the_back(entry.remembered)
        return pack(
            self._version,
            self._correlation_id,
            0 if session is None else session.session_id,
            told,
            self._nodes(told),
        )

    def _withhold(self, throttle_ms: int) -> Ready:
        """Over the quota: the client gets nothing, and a session that it asked for comes with what it gets later."""
        session_id = 0
        if self._session is not None:
            if self._incremental:
                session_id = self._session.session_id
            else:
                self._services.fetch_sessions.close(self._session.session_id)
        return pack_throttled(self._version, self._correlation_id, session_id, throttle_ms)

    def _count(self) -> None:
        follower = self._request.replica_id >= 0
        sent = throttled = 0
        for entry in self._found:
            hosted = entry.hosted
            if hosted is None:
                continue
            meters = hosted.meters
            meters.fetches.value += 1
            if entry.span is not None:
                if follower:
                    sent += entry.span.size
                    if hosted.throttled:
                        throttled += entry.span.size
                else:
                    meters.bytes_out.value += entry.span.size
            elif entry.error:
                meters.fetch_failed(entry.error)
        if sent:
            self._services.metrics.replication_bytes_out.value += sent
        if throttled:
            self._services.leader_throttle.record(throttled, self._services.replicas.monotonic_ms())

    def _nodes(self, told: list[Found]) -> list[NodeAddress]:
        """Where the new leaders are that the partitions' answers name, by the listener that was asked (KIP-951)."""
        leaders = {entry.leader[0]: None for entry in told if entry.leader is not None}
        if not leaders or self._version < 16:
            return []
        brokers = self._services.image.cluster.brokers
        return [
            NodeAddress(leader, endpoint.host, endpoint.port, broker.rack)
            for leader in leaders
            if (broker := brokers.get(leader)) is not None
            and not broker.fenced
            and (endpoint := broker.endpoint(self._listener)) is not None
        ]


class _ConsumerFetch(_Fetch):
    """Looks at every partition that it, or its session, is about, and waits for each of them to move."""

    __slots__ = ("_places", "_reader")

    def start(self) -> Reply:
        session, wanted = self._open(FetchSession)
        self._reader = ConsumerReader(self._services, self._request, self._version, self._listener, self._asker)
        if session is None:
            hurry = self._read([(each, None) for each in wanted])
        else:
            hurry = self._read([(known.wanted, known) for known in session.partitions.values()])
        if hurry or self._size >= self._min_bytes or self._wait_ms_max <= 0:
            return self._answer()
        self._places = {found.hosted: place for place, found in enumerate(self._found) if found.hosted is not None}
        if not self._places:
            return self._answer()
        deferred = Deferred()
        delayed = DelayedFetch(
            list(self._places),
            self._has_enough,
            lambda: self._finish(deferred),
            self._services.timers,
            self._wait_ms_max,
            self._services.metrics.expired_fetches,
        )
        deferred.when_abandoned(delayed.cancel)
        return deferred

    def _read(self, asked: list[tuple[Wanted, FetchPartition | None]]) -> bool:
        """True if something cannot wait."""
        left = self._max_bytes
        total = 0
        hurry = False
        found = self._found = []
        for wanted, remembered in asked:
            entry = self._reader.read(wanted, remembered, min(wanted.max_bytes, left), not total)
            found.append(entry)
            if entry.span is not None:
                total += entry.span.size
                left = max(0, left - entry.span.size)
            elif entry.hurry:
                hurry = True
        self._size = total
        return hurry

    def _has_enough(self, moved: HostedPartition) -> bool:
        """Asked for each partition that moved: only that one is looked at again."""
        place = self._places[moved]
        before = self._found[place]
        found = self._found[place] = self._reader.read(before.wanted, before.remembered, before.wanted.max_bytes, True)
        self._size += found.size - before.size
        return found.hurry or found.hosted is not moved or self._size >= self._min_bytes

    def _finish(self, deferred: Deferred) -> None:
        if self._size > self._max_bytes:
            # Each was found by itself; together they are too much.
            self._read([(found.wanted, found.remembered) for found in self._found])
        self._answer_to(deferred)


class _FollowerFetch(_Fetch):
    """Looks at what it names, and at what of its session has moved since the request before; waits on the session."""

    __slots__ = ("_deferred", "_places", "_reader", "_timer", "_watch")

    def start(self) -> Reply:
        services = self._services
        self._reader = FollowerReader(services, self._request, self._version, self._asker)
        if not self._reader.is_forbidden:
            waive(services)
        session, wanted = self._open(FollowerSession)
        if session is None:
            # For as long as this request takes.
            session = FollowerSession(
                0, by_id=self._version >= 13, replica_id=self._request.replica_id, now_ms=services.clock.wall_ms()
            )
            session.update(wanted, [])
        self._watch = session
        self._places: dict[FetchPartition, int] = {}
        hurry = self._look(session.on_request(services.replicas.monotonic_ms()), session.heard)
        if hurry or self._size >= self._min_bytes or self._wait_ms_max <= 0 or not session.hears_of_any:
            self._leave()
            return self._answer()
        self._deferred = Deferred()
        self._timer = services.timers.after(self._wait_ms_max, self._on_timeout)
        session.wait(self)
        self._deferred.when_abandoned(self._cancel)
        return self._deferred

    def _look(self, stale: list[FetchPartition], arrived: Heard | None) -> bool:
        session = self._watch
        hurry = False
        for remembered in stale:
            place = self._places.get(remembered)
            if place is not None:
                self._size -= self._found[place].size
            left = max(0, self._max_bytes - self._size)
            max_bytes = min(remembered.wanted.max_bytes, left)
            found = self._reader.read(remembered, max_bytes, self._size == 0, arrived)
            if place is None:
                self._places[remembered] = len(self._found)
                self._found.append(found)
            else:
                self._found[place] = found
            self._size += found.size
            hurry = hurry or found.hurry
            session.attach(remembered, found.hosted)
            if not found.at_end:
                session.keep(remembered)
        return hurry

    def look_again(self) -> None:
        if self._look(self._watch.take_stale(), None) or self._size >= self._min_bytes:
            self.finish()

    def _on_timeout(self) -> None:
        self._services.metrics.expired_fetches.value += 1
        self.finish()

    def finish(self) -> None:
        self._leave()
        self._timer.cancel()
        self._answer_to(self._deferred)

    def _cancel(self) -> None:
        """The connection is gone, and what was found is told to nobody."""
        self._timer.cancel()
        for found in self._found:
            assert found.remembered is not None
            self._watch.keep(found.remembered)
        self._leave()

    def _leave(self) -> None:
        self._watch.stop_waiting(self)
        if self._session is None:
            self._watch.close()
