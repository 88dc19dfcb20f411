"""Quotas enforced: what clients send, fetch, cost and change is counted, and who exceeds a limit is told to wait.

As in Kafka (KIP-13, KIP-124, KIP-219, KIP-599) the answer leaves at once and says how long the client is to be quiet;
its connection is not read from until then, whether it obeys or not. Nobody's answer is late, and nothing is dropped,
but that a fetch over its limit is answered without records. Produce is charged with the size of its request, Fetch with
the records it returns, everything with the time that its first phase takes of the event loop. What brokers ask of each
other is free (`waive`), once it is known that a broker asks.

A node without quotas has `Services.quotas` None, which is all that its requests notice of this. The limits are
`security/quotas`'s affair, and come with the metadata.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Protocol

from ottla.broker.reply import Deferred, Ready, Reply
from ottla.security.quotas import QuotaKind, QuotaLedger, QuotaTable
from ottla.wire.apis import APIS, PRODUCE
from ottla.wire.throttle_field import with_throttle_time

if TYPE_CHECKING:
    from ottla.broker.connection import ClientConnection
    from ottla.broker.context import Context
    from ottla.broker.services import Services
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.images import MetadataImage
    from ottla.wire.message import Message

_HEAD = Struct(">hhih").unpack_from
_HEAD_BYTES = 10

CLIENT_ID_CHARS_MAX = 256
"""Ids that begin with the same so many characters are one client: how much is remembered is not for it to choose."""

_STRICT_FROM = {19: 6, 20: 5, 37: 3}
"""The first version of CreateTopics, DeleteTopics and CreatePartitions that knows THROTTLING_QUOTA_EXCEEDED."""


class Starter(Protocol):
    def start_request(
        self,
        connection: ClientConnection,
        buffer: bytearray,
        view: memoryview,
        start: int,
        end: int,
        metered: bool = False,
    ) -> Reply: ...


class ClientQuotas:
    """One instance a node."""

    def __init__(self, services: Services) -> None:
        config = services.config
        self._services = services
        self._clock = services.clock
        self._ledger = QuotaLedger(
            samples=config.get_int("quota.window.num"),
            window_ms=1000 * config.get_int("quota.window.size.seconds"),
            mutation_samples=config.get_int("controller.quota.window.num"),
            mutation_window_ms=1000 * config.get_int("controller.quota.window.size.seconds"),
        )
        self._knows_quotas = False
        self.current: Toll | None = None
        """Of the request whose first phase is running."""

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta, offset: int) -> None:
        if self._knows_quotas and not delta.client_quotas_changed:
            return
        self._knows_quotas = True
        table = QuotaTable(dict(image.client_quotas.items()))
        self._ledger.table = table
        self._services.quotas = self if table.limits_clients else None
        self._services.connections.addresses.set_rates(table)

    # Requests.

    def meter(
        self, starter: Starter, connection: ClientConnection, buffer: bytearray, view: memoryview, start: int, end: int
    ) -> Reply:
        """Start a request, and charge its client for it, now or when it is answered."""
        if end - start < _HEAD_BYTES:
            return starter.start_request(connection, buffer, view, start, end, metered=True)
        api_key, version, _, client_id_size = _HEAD(buffer, start)
        client_id = ""
        if client_id_size > 0:
            first = start + _HEAD_BYTES
            client_id = str(view[first : min(first + client_id_size, end)], "utf-8", "replace")[:CLIENT_ID_CHARS_MAX]
        toll = self.current = Toll(self, connection, client_id, api_key, version, end - start)
        try:
            reply = starter.start_request(connection, buffer, view, start, end, metered=True)
        finally:
            self.current = None
            toll.on_worked()
        if isinstance(reply, Deferred):
            if not reply.done:
                return _settled_later(toll, reply)
            reply = reply.reply
        return toll.settle(reply)

    def charge(self, kind: QuotaKind, connection: ClientConnection, client_id: str, amount: float) -> int:
        return self._ledger.charge(kind, _user(connection.principal), client_id, amount, self._now_ms())

    def charge_if_within(self, kind: QuotaKind, connection: ClientConnection, client_id: str, amount: float) -> int:
        return self._ledger.charge_if_within(kind, _user(connection.principal), client_id, amount, self._now_ms())

    def room(self, kind: QuotaKind, connection: ClientConnection, client_id: str) -> float | None:
        return self._ledger.room(kind, _user(connection.principal), client_id, self._now_ms())

    def now_s(self) -> float:
        return self._clock.monotonic()

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000

    # Changes to the cluster.

    def charge_mutations(self, context: Context, count: int) -> tuple[bool, int]:
        """May the client make or delete `count` partitions, and how long is it to wait?"""
        strict = context.api_version >= _STRICT_FROM.get(context.api_key, 0)
        client_id = (context.client_id or "")[:CLIENT_ID_CHARS_MAX]
        return self._ledger.charge_mutations(_user(context.principal), client_id, count, self._now_ms(), strict=strict)

    # Waiting.

    def mute(self, connection: ClientConnection, wait_ms: int) -> None:
        """Read nothing from the client for so long."""
        if wait_ms > 0:
            connection.mute(self._services.timers, wait_ms)


class Toll:
    """What one request owes."""

    __slots__ = (
        "_api_key",
        "_began_s",
        "_client_id",
        "_connection",
        "_free",
        "_quotas",
        "_settled",
        "_size",
        "_spent_s",
        "_throttle_ms",
        "_version",
    )

    def __init__(
        self,
        quotas: ClientQuotas,
        connection: ClientConnection,
        client_id: str,
        api_key: int,
        version: int,
        size: int,
    ) -> None:
        self._quotas = quotas
        self._connection = connection
        self._client_id = client_id
        self._api_key = api_key
        self._version = version
        self._size = size
        self._free = False
        self._settled = False
        self._throttle_ms = 0
        self._spent_s: float | None = None
        self._began_s = quotas.now_s()

    def waive(self) -> None:
        """It is a broker's request, and costs nothing."""
        self._free = True

    def on_worked(self) -> None:
        """The first phase is over."""
        self._spent_s = self._quotas.now_s() - self._began_s

    def fetch_bytes_max(self) -> int | None:
        """The most that the answer to a fetch may hold without exceeding the limit. Kafka holds it to a whole window's
        worth, and then withholds what is too much for the rest of the window: with large answers the rate that comes
        of that lies far below the limit."""
        room = self._quotas.room(QuotaKind.FETCH, self._connection, self._client_id)
        return None if room is None else int(room)

    def on_fetched(self, size: int) -> int:
        """The answer to a fetch would hold `size` bytes of records. If the client has to wait, it holds none."""
        if self._free:
            return 0
        throttle_ms = self._charge_time()
        if not throttle_ms:
            throttle_ms = self._quotas.charge_if_within(QuotaKind.FETCH, self._connection, self._client_id, size)
        self._settled = True
        self._throttle_ms = throttle_ms
        return throttle_ms

    def settle(self, reply: Ready) -> Ready:
        """The request is answered: charge for it, and let the answer say so."""
        if not self._settled and not self._free:
            throttle_ms = 0
            if self._api_key == PRODUCE:
                throttle_ms = self._quotas.charge(QuotaKind.PRODUCE, self._connection, self._client_id, self._size)
            if reply is not None:
                throttle_ms = max(throttle_ms, self._charge_time())
            self._throttle_ms = throttle_ms
            api = APIS[self._api_key]
            # An ApiVersions request of the future was answered in a version that has no throttle time.
            if throttle_ms and isinstance(reply, bytes) and api.serves(self._version):
                reply = with_throttle_time(reply, api, self._version, throttle_ms)
        self._quotas.mute(self._connection, self._throttle_ms)
        return reply

    def _charge_time(self) -> int:
        """In percent of a second, as the limit is in percent of the event loop's time."""
        spent_s = self._quotas.now_s() - self._began_s if self._spent_s is None else self._spent_s
        return self._quotas.charge(QuotaKind.REQUEST, self._connection, self._client_id, spent_s * 100)


def waive(services: Services) -> None:
    """The request whose first phase is running is a broker's, which has the right to it: it costs nothing."""
    quotas = services.quotas
    if quotas is not None and quotas.current is not None:
        quotas.current.waive()


def _settled_later(toll: Toll, reply: Deferred) -> Deferred:
    passed_on = Deferred()

    def done() -> None:
        passed_on.resolve(toll.settle(reply.reply))

    reply.when_done(done)
    passed_on.when_abandoned(reply.abandon)
    return passed_on


def _user(principal: str) -> str:
    return principal.partition(":")[2]


def throttle(context: Context, response: Message, wait_ms: int) -> None:
    """The active controller has the client wait: `response` says so, and its own connection is kept to it. Behind an
    envelope that is for the broker to see to which sent it."""
    response.throttle_time_ms = wait_ms  # type: ignore[attr-defined]
    if not context.host:
        context.services.client_quotas.mute(context.connection, wait_ms)
