"""From a frame to its handler and back.

One dispatcher serves one listener. It reads the header, refuses what the listener does not serve, decodes, calls the
handler and encodes what it returns. Produce and Fetch get the frame's bytes where they lie.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.access import authorisation
from ottla.broker.api import CONTROLLER_HANDLERS, HANDLERS, Handler, fetch, load, produce
from ottla.broker.bounds.answer_budget import take_turns
from ottla.broker.bounds.limits import ELEMENTS_MAX, LINGER_MS, READ_AT_ONCE_BYTES_MAX, elements_max, may_be_long
from ottla.broker.buffers import ReceiveBuffers
from ottla.broker.connection import ClientConnection
from ottla.broker.context import Context
from ottla.broker.known_answers import REPEATED, KnownAnswers
from ottla.broker.monitoring.request_metrics import SAMPLE_MASK, ApiMeters
from ottla.broker.promise import Promise
from ottla.broker.reply import CloseConnection, Deferred, Reply
from ottla.errors import Malformed
from ottla.runtime.timers import Timer
from ottla.wire import commit_codec, fetch_codec, produce_codec
from ottla.wire.apis import API_VERSIONS, APIS, FETCH, PRODUCE, Api
from ottla.wire.frames import RequestHead, read_request_header, response_frame
from ottla.wire.in_steps import encode_in_steps, read_in_steps
from ottla.wire.message import Message
from ottla.wire.primitives import skip_tagged_fields

if TYPE_CHECKING:
    from ottla.broker.services import Services

_log = logging.getLogger(__name__)

_HEAD = Struct(">hhih").unpack_from
OFFSET_COMMIT = 8
ENVELOPE = 58


class _Served(NamedTuple):
    """What is looked up once for an API."""

    api: Api
    request: type[Message]
    handler: Handler
    meters: ApiMeters
    elements_max: int
    may_be_long: bool
    is_repeated: bool


class Dispatcher:
    """The `Service` behind the connections of one listener."""

    def __init__(self, services: Services, listener: str, *, on_controller: bool = False) -> None:
        self._services = services
        self._listener = listener
        self._on_controller = on_controller
        self._modules = CONTROLLER_HANDLERS if on_controller else HANDLERS
        self._served: dict[int, _Served] = {}
        self.buffers: ReceiveBuffers = services.buffers
        self.frame_bytes_max: int = services.frame_bytes_max
        self._openings = services.openings.known
        self._clock = services.clock
        self._metrics = services.request_metrics
        self._produce_requests = self._metrics.produce.requests
        self._produce_bytes = self._metrics.produce.bytes
        self._start_known = produce.start_known
        self._answers = KnownAnswers(services)
        self._start_commit: Callable[..., Reply | None] | None = None
        """OffsetCommit's short way, once there was one: what groups need is not loaded before."""

    def accept(self) -> ClientConnection:
        doors = self._services.doors
        if doors is None or not doors.asks_for_name(self._listener):
            return ClientConnection(self, self._listener, self._services.http)
        connection = ClientConnection(self, self._listener)
        doors.guard(connection, self._start_other)
        return connection

    def opened(self, connection: ClientConnection) -> bool:
        return self._services.connections.opened(connection)

    def closed(self, connection: ClientConnection, reason: str | None) -> None:
        self._services.connections.closed(connection, reason)
        self._services.telemetry.on_closed(connection)
        if connection.authentication is not None:
            connection.authentication.close()

    def crashed(self, connection: ClientConnection, error: BaseException) -> None:
        _log.error("a request from %s:%d failed", *connection.peer, exc_info=error)
        self._services.on_bug(error)

    def now(self) -> float:
        return self._clock.monotonic()

    def soon(self, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(call)

    def limit_closing(self, call: Callable[[], None]) -> Timer:
        return self._services.timers.after(LINGER_MS, call)

    def end_of_turn(self) -> None:
        self._services.replicas.wake_fetches()

    def start_request(
        self,
        connection: ClientConnection,
        buffer: bytearray,
        view: memoryview,
        start: int,
        end: int,
        metered: bool = False,
        traced: bool = False,
    ) -> Reply:
        if connection.gate is not None:
            return connection.gate.start_request(bytes(view[start:end]))
        quotas = self._services.quotas
        if quotas is not None and not metered and not self._on_controller:
            return quotas.meter(self, connection, buffer, view, start, end)
        tracing = self._services.tracing
        if tracing is not None and not traced:
            return tracing.trace(self, connection, buffer, view, start, end)
        if connection.opening_size:
            found = produce_codec.find_opening(buffer, start, end, connection.opening_size, self._openings)
            if found is not None:
                # The way of nearly all that a busy node does, so it is written out here, call by call.
                version, correlation_id, opening, first, last = found
                requests = self._produce_requests
                requests.value = count = requests.value + 1
                self._produce_bytes.value += end - start
                if count & SAMPLE_MASK != 1:
                    return self._start_known(
                        self._services, self._listener, version, correlation_id, opening, view[first:last]
                    )
                began_s = self._clock.monotonic()
                reply = self._start_known(
                    self._services, self._listener, version, correlation_id, opening, view[first:last]
                )
                return self._metrics.timed(self._metrics.produce, began_s, reply)
        if end - start < 10:
            raise Malformed("a header of fewer than ten bytes")
        api_key, version, correlation_id, client_id_size = _HEAD(buffer, start)
        if api_key <= FETCH and not self._on_controller:
            position = start + 10 + (client_id_size if client_id_size > 0 else 0)
            if position >= end:
                raise Malformed("a client id is longer than its request")
            if api_key == PRODUCE and produce_codec.FIRST_VERSION <= version <= produce_codec.LAST_VERSION:
                if version >= 9:
                    position = position + 1 if buffer[position] == 0 else skip_tagged_fields(buffer, position)
                requests = self._produce_requests
                requests.value = count = requests.value + 1
                self._produce_bytes.value += end - start
                if count & SAMPLE_MASK != 1:
                    return produce.start(
                        self._services, connection, buffer, view, version, correlation_id, position, end
                    )
                began_s = self._clock.monotonic()
                reply = produce.start(self._services, connection, buffer, view, version, correlation_id, position, end)
                return self._metrics.timed(self._metrics.produce, began_s, reply)
            if api_key == FETCH and fetch_codec.FIRST_VERSION <= version <= fetch_codec.LAST_VERSION:
                if version >= 12:
                    position = position + 1 if buffer[position] == 0 else skip_tagged_fields(buffer, position)
                meters = self._metrics.fetch
                meters.requests.value += 1
                meters.bytes.value += end - start
                if meters.requests.value & SAMPLE_MASK != 1:
                    return fetch.start(self._services, connection, view, version, correlation_id, position, end)
                began_s = self._clock.monotonic()
                reply = fetch.start(self._services, connection, view, version, correlation_id, position, end)
                return self._metrics.timed(meters, began_s, reply)
            if api_key in (PRODUCE, FETCH):
                raise CloseConnection(f"version {version} of {APIS[api_key].name} is not served")
        elif api_key == OFFSET_COMMIT and commit_codec.FIRST_VERSION <= version <= commit_codec.LAST_VERSION:
            position = start + 10 + (client_id_size if client_id_size > 0 else 0)
            if position < end and buffer[position] == 0 and not self._on_controller:
                began_s = self._clock.monotonic()
                committing = (self._start_commit or self._load_commit())(
                    self._services, connection, buffer, view, version, correlation_id, position + 1, end
                )
                if committing is not None:
                    meters = self._metrics.offset_commit
                    meters.requests.value = count = meters.requests.value + 1
                    meters.bytes.value += end - start
                    return committing if count & SAMPLE_MASK != 1 else self._metrics.timed(meters, began_s, committing)
        return self._start_other(connection, bytes(view[start:end]), api_key, version)

    def _start_other(self, connection: ClientConnection, frame: bytes, api_key: int, version: int) -> Reply:
        began_s = self._clock.monotonic()
        if api_key == ENVELOPE and not self._on_controller:
            return self._introduce(connection, frame, version)
        served = self._served.get(api_key) or self._load(api_key)
        if served.is_repeated:
            known = self._answers.find(connection, frame)
            if known is not None:
                meters = served.meters
                meters.requests.value += 1
                meters.bytes.value += len(frame)
                meters.answered_at_once(self._clock.monotonic() - began_s)
                return known
        api = served.api
        if not api.first_version <= version <= api.last_version:
            if api_key == API_VERSIONS:
                return self._step_down(frame)
            raise CloseConnection(f"version {version} of {api.name} is not served")
        head = read_request_header(frame)
        if len(frame) > READ_AT_ONCE_BYTES_MAX and served.may_be_long:
            return self._read_later(connection, served, head, frame, began_s)
        request, _ = served.request.read(frame, head.body_position, version, served.elements_max)
        return self._call(connection, served, head, request, frame, began_s)

    def _read_later(
        self, connection: ClientConnection, served: _Served, head: RequestHead, frame: bytes, began_s: float
    ) -> Reply:
        """Read a long request in steps. What the client sends next starts after it, as always."""
        connection.hold()
        deferred = Deferred()
        self._services.spawn(self._read_in_turns(connection, served, head, frame, began_s, deferred))
        return deferred

    async def _read_in_turns(
        self,
        connection: ClientConnection,
        served: _Served,
        head: RequestHead,
        frame: bytes,
        began_s: float,
        deferred: Deferred,
    ) -> None:
        try:
            steps = read_in_steps(served.request, frame, head.body_position, head.api_version, served.elements_max)
            reply = self._call(connection, served, head, await take_turns(steps), frame, began_s)
        except Malformed as error:
            connection.cut_off(error)
            return
        except CloseConnection as error:
            connection.close(str(error))
            return
        except Exception as error:
            self.crashed(connection, error)
            connection.close("internal error")
            return
        if not isinstance(reply, Deferred):
            deferred.resolve(reply)
        elif reply.done:
            deferred.resolve(reply.reply)
        else:
            answered = reply
            answered.when_done(lambda: deferred.resolve(answered.reply))
            deferred.when_abandoned(answered.abandon)
        connection.release()
        self.end_of_turn()

    def _call(
        self,
        connection: ClientConnection,
        served: _Served,
        head: RequestHead,
        request: Message,
        frame: bytes,
        began_s: float,
    ) -> Reply:
        """Phase one of a request that has been read."""
        api, version, meters = served.api, head.api_version, served.meters
        context = self.context(connection, api.key, version, head.client_id)
        meters.requests.value += 1
        meters.bytes.value += len(frame)
        result = authorisation.call(context, served.handler, request)
        if isinstance(result, Promise):
            if not result.done:
                call = _Call(self, connection, api, version, head.correlation_id, meters, began_s)
                result.when_done(call.on_response)
                return call
            result = result.result()
        if isinstance(result, Message):
            reply = self.respond(api, version, head.correlation_id, result)
            meters.answered_at_once(self._clock.monotonic() - began_s)
            if served.is_repeated:
                self._answers.keep(connection, frame, result, reply)
            return reply
        deferred = Deferred()
        timed = self._metrics.timed(meters, began_s, deferred)
        self._services.spawn(self._finish(connection, deferred, api, version, head.correlation_id, result))
        return timed

    def _introduce(self, connection: ClientConnection, frame: bytes, version: int) -> Reply:
        """A node with a gateway says for whom it speaks, where nodes speak to each other."""
        from ottla.broker.gateway.speaking import borrow

        api = APIS[ENVELOPE]
        if self._listener != self._services.config.inter_broker_listener_name or not api.serves(version):
            raise CloseConnection(f"API {ENVELOPE} is not served on listener {self._listener}")
        head = read_request_header(frame)
        request, _ = api.request.read(frame, head.body_position, version, ELEMENTS_MAX)
        context = self.context(connection, ENVELOPE, version, head.client_id)
        return self.respond(api, version, head.correlation_id, borrow(context, request))

    def context(self, connection: ClientConnection, api_key: int, version: int, client_id: str | None) -> Context:
        if connection.borrowed_host:
            from ottla.broker.gateway.speaking import check_borrowed

            check_borrowed(api_key)
        return Context(
            self._services,
            connection,
            self._listener,
            self._on_controller,
            api_key,
            version,
            client_id,
            connection.principal,
        )

    def _load_commit(self) -> Callable[..., Reply | None]:
        from ottla.broker.api import offset_commit

        self._start_commit = offset_commit.start
        return offset_commit.start

    def _load(self, api_key: int) -> _Served:
        api = APIS.get(api_key)
        module = self._modules.get(api_key)
        if api is None or module is None:
            raise CloseConnection(f"API {api_key} is not served on listener {self._listener}")
        served = self._served[api_key] = _Served(
            api=api,
            request=api.request,
            handler=load(module),
            meters=self._metrics.of(api_key, api.name),
            elements_max=elements_max(api_key),
            may_be_long=may_be_long(api_key),
            is_repeated=api_key in REPEATED and not self._on_controller,
        )
        return served

    async def _finish(
        self,
        connection: ClientConnection,
        deferred: Deferred,
        api: Api,
        version: int,
        correlation_id: int,
        result: Awaitable[Message],
    ) -> None:
        try:
            response = await result
            if may_be_long(api.key):
                reply = await take_turns(self._respond_in_steps(api, version, correlation_id, response))
            else:
                reply = self.respond(api, version, correlation_id, response)
        except Exception as error:
            self.crashed(connection, error)
            connection.close("internal error")
            return
        deferred.resolve(reply)
        self.end_of_turn()

    def respond(self, api: Api, version: int, correlation_id: int, response: Message) -> bytes:
        self._metrics.refused(api.name, response)
        flexible = api.response_header_version(version) == 1
        return response_frame(correlation_id, response.encode(version), flexible=flexible)

    def _respond_in_steps(
        self, api: Api, version: int, correlation_id: int, response: Message
    ) -> Generator[None, None, bytes]:
        """The same of what may be long."""
        yield from self._metrics.refused_in_steps(api.name, response)
        encoded: list[bytes] = []
        for chunk in encode_in_steps(response, version):
            if encoded:
                yield
            encoded.append(chunk)
        flexible = api.response_header_version(version) == 1
        return response_frame(correlation_id, b"".join(encoded), flexible=flexible)

    def _step_down(self, frame: bytes) -> Reply:
        """An ApiVersions request from the future is answered in version 0, with the list, so that it can be retried."""
        from ottla.broker.api.api_versions import unsupported

        correlation_id: int = _HEAD(frame, 0)[2]
        response = unsupported(self._services, self._on_controller)
        return response_frame(correlation_id, response.encode(0), flexible=False)


class _Call(Deferred):
    """The answer to a request whose response was promised."""

    __slots__ = (
        "_api",
        "_began_s",
        "_connection",
        "_correlation_id",
        "_dispatcher",
        "_meters",
        "_version",
        "_worked_s",
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        connection: ClientConnection,
        api: Api,
        version: int,
        correlation_id: int,
        meters: ApiMeters,
        began_s: float,
    ) -> None:
        super().__init__()
        self._dispatcher = dispatcher
        self._connection = connection
        self._api = api
        self._version = version
        self._correlation_id = correlation_id
        self._meters = meters
        self._began_s = began_s
        self._worked_s = dispatcher.now()

    def on_response(self, promise: Promise[Message]) -> None:
        dispatcher = self._dispatcher
        try:
            reply = dispatcher.respond(self._api, self._version, self._correlation_id, promise.result())
        except Exception as error:
            dispatcher.crashed(self._connection, error)
            self._connection.close("internal error")
            return
        self._meters.answered(self._began_s, self._worked_s, dispatcher.now())
        self.resolve(reply)
