"""The dispatcher of a gateway listener: answers what it can, hands on what is for others. See the package."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING

from ottla.broker.bounds.limits import elements_max
from ottla.broker.connection import ClientConnection
from ottla.broker.context import Context
from ottla.broker.dispatch import Dispatcher
from ottla.broker.gateway.fetching import Fetches, without_session
from ottla.broker.gateway.lanes import Lanes
from ottla.broker.gateway.presenting import PRESENTED, Address, present
from ottla.broker.gateway.routing import Everywhere, Route, forget_leaders, join, route_of, split
from ottla.broker.monitoring.error_codes import error_codes
from ottla.broker.reply import Deferred, Reply
from ottla.errors import KafkaError
from ottla.model import GROUP_TOPIC, TRANSACTION_TOPIC, TopicKey
from ottla.wire.apis import APIS, Api
from ottla.wire.frames import LENGTH_SIZE, read_request_header, request_frame
from ottla.wire.message import Message
from ottla.wire.messages.fetch_request import FetchRequest
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.produce_request import ProduceRequest

if TYPE_CHECKING:
    from ottla.broker.services import Services

_HEAD = Struct(">hhi").unpack_from
_HEAD_BYTES = 10


class NodeView:
    """The cluster as this node knows it (`routing.Cluster`)."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def node_id(self) -> int:
        return self._services.node_id

    def leader(self, topic: TopicKey, partition: int) -> int | None:
        known = self._services.current_leader(topic, partition)
        return known[0] if known is not None and known[0] >= 0 else None

    def group_coordinator(self, group_id: str) -> int | None:
        return self.leader(GROUP_TOPIC, self._services.groups.partition_for(group_id))

    def transaction_coordinator(self, transactional_id: str) -> int | None:
        return self.leader(TRANSACTION_TOPIC, self._services.transactions.partition_for(transactional_id))

    def brokers(self) -> Iterable[int]:
        return [broker.broker_id for broker in self._services.image.alive_brokers()]


class _Client:
    """What the gateway keeps of one connection."""

    def __init__(self, services: Services, connection: ClientConnection, client_id: str) -> None:
        self.lanes = Lanes(services, connection, client_id)
        self.fetches = Fetches()


class GatewayDispatcher(Dispatcher):
    def __init__(self, services: Services, listener: str) -> None:
        super().__init__(services, listener)
        self._cluster = NodeView(services)
        self._clients: dict[ClientConnection, _Client] = {}

    def closed(self, connection: ClientConnection, reason: str | None) -> None:
        client = self._clients.pop(connection, None)
        if client is not None:
            client.lanes.close()
        super().closed(connection, reason)

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
        services = self._services
        guarded = connection.gate is not None
        watched = (services.quotas is not None and not metered) or (services.tracing is not None and not traced)
        if not guarded and not watched and end - start >= _HEAD_BYTES:
            api_key, version, correlation_id = _HEAD(buffer, start)
            route = route_of(api_key, version)
            if route is not None and APIS[api_key].serves(version):
                reply = self._route(connection, bytes(view[start:end]), route, APIS[api_key], version, correlation_id)
                if reply is not None:
                    return reply
        return super().start_request(connection, buffer, view, start, end, metered, traced)

    # What this node answers.

    def context(self, connection: ClientConnection, api_key: int, version: int, client_id: str | None) -> Context:
        found = super().context(connection, api_key, version, client_id)
        if api_key not in PRESENTED:
            return found
        # The listener on which every broker can be found, whether or not it has a gateway.
        return found._replace(listener=self._services.config.inter_broker_listener_name)

    def respond(self, api: Api, version: int, correlation_id: int, response: Message) -> bytes:
        if api.key in PRESENTED:
            present(response, self._address())
        return super().respond(api, version, correlation_id, response)

    def _address(self) -> Address:
        broker = self._services.image.broker(self._services.node_id)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        return Address("", -1) if endpoint is None else Address(endpoint.host, endpoint.port)

    # What others do.

    def _route(
        self,
        connection: ClientConnection,
        frame: bytes,
        route: Route,
        api: Api,
        version: int,
        correlation_id: int,
    ) -> Reply | None:
        """None if this node answers it alone, with the bytes as they are."""
        began_s = self._clock.monotonic()
        head = read_request_header(frame)
        request, _ = api.request.read(frame, head.body_position, version, elements_max(api.key))
        if isinstance(request, FetchRequest) and (code := without_session(request)):
            return self.respond(api, version, correlation_id, FetchResponse(error_code=code))
        parts = split(route, request, self._cluster)
        here = self._services.node_id
        if list(parts) == [here]:
            if not isinstance(request, FetchRequest):
                return None
            alone = bytearray(request_frame(api.key, version, correlation_id, head.client_id, request.encode(version)))
            return super().start_request(connection, alone, memoryview(alone), LENGTH_SIZE, len(alone), True, True)
        unanswered = isinstance(request, ProduceRequest) and request.acks == 0
        if unanswered:
            for part in parts.values():
                part.acks = 1  # type: ignore[attr-defined]  # Nodes answer each other; the client is told nothing.
        meters = self._metrics.of(api.key, api.name)
        meters.requests.value += 1
        meters.bytes.value += len(frame)
        client = self._clients.get(connection)
        if client is None:
            client = self._clients[connection] = _Client(self._services, connection, head.client_id or "")

        def ask(node: int, part: Message) -> asyncio.Future[Message]:
            is_ours = partial(self._is_ours, route, part)
            asked = asyncio.ensure_future(client.lanes.ask(node, part, version, is_ours))
            asked.add_done_callback(_looked_at)
            return asked

        # In this turn, so that what the client sends next comes after it at every node.
        if isinstance(request, FetchRequest):
            fetched = client.fetches.start(parts, version, ask)
            answering: Coroutine[object, object, Message] = client.fetches.finish(parts, fetched)
        else:
            answering = self._joined(route, [ask(node, part) for node, part in parts.items()])
        if unanswered:
            self._services.spawn(self._unanswered(connection, answering))
            return b""
        deferred = Deferred()
        timed = self._metrics.timed(meters, began_s, deferred)
        self._services.spawn(self._pass_on(connection, deferred, api, version, correlation_id, answering))
        return timed

    def _is_ours(self, route: Route, part: Message) -> bool:
        return not isinstance(route, Everywhere) and self._services.node_id in split(route, part, self._cluster)

    async def _joined(self, route: Route, answers: list[asyncio.Future[Message]]) -> Message:
        return join(route, [await each for each in answers])

    async def _pass_on(
        self,
        connection: ClientConnection,
        deferred: Deferred,
        api: Api,
        version: int,
        correlation_id: int,
        answering: Coroutine[object, object, Message],
    ) -> None:
        try:
            answer = await answering
            forget_leaders(answer)
            reply = self.respond(api, version, correlation_id, answer)
        except KafkaError as error:
            # Nobody knows whether it was carried out: the client is to see what it would see of a lost leader.
            connection.close(f"what it asked for was lost on its way: {error}")
            return
        except Exception as error:
            self.crashed(connection, error)
            connection.close("internal error")
            return
        deferred.resolve(reply)

    async def _unanswered(self, connection: ClientConnection, answering: Coroutine[object, object, Message]) -> None:
        """A produce request with acks=0: if it failed, closing makes the producer refresh its metadata."""
        try:
            failed = any(error_codes(await answering))
        except KafkaError:
            failed = True
        if failed:
            connection.close("a produce request with acks=0 failed")


def _looked_at(asked: asyncio.Future[Message]) -> None:
    """An answer that nobody waits for any more may be an error, which is nobody's loss."""
    if not asked.cancelled():
        asked.exception()
