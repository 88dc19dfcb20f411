"""The node's open connections, and the limits on them: in all, by address, and by idleness.

As in Kafka (KIP-402) clients cannot keep the nodes of a cluster apart. Where there is another listener for clients, the
one between brokers takes whoever comes, up to a limit of its own; if that is one too many, the client that was silent
for longest has to go. Controllers' listeners are counted by themselves, as is every other that is not a broker's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ottla.broker.bounds.connection_rates import UNLIMITED, ConnectionRates
from ottla.broker.bounds.line_budget import LineBudget
from ottla.broker.connection import ClientConnection
from ottla.metrics.registry import Registry
from ottla.runtime import Clock
from ottla.runtime.timers import TimerWheel
from ottla.security.quotas import AddressRates

_log = logging.getLogger(__name__)

SWEEPS_PER_IDLE_TIME = 10
"""How often within the idle limit connections are looked at; a silent one is closed at most a tenth late."""


LINES_PER_SECOND_MAX = 10
"""In the log, on connections that were closed for a reason, and on logins that failed."""


def _tell_left_out(count: int) -> None:
    _log.warning("%d more connections were closed, or logins failed, and are not told of one by one", count)


class ListenerMeters:
    """The instruments of one listener. Bytes are counted by the connections, and added up when they are asked for."""

    __slots__ = ("accepted", "malformed", "network_in", "network_out", "received_bytes", "refused", "sent_bytes")

    def __init__(self, registry: Registry, listener: str) -> None:
        prefix = "kafka_network_socketserver_"
        self.accepted = registry.meter(f"{prefix}connectionsaccepted", listener)
        self.refused = registry.meter(f"{prefix}connectionsrefused", listener)
        self.malformed = registry.meter(f"{prefix}malformedrequests", listener)
        self.network_in = registry.meter(f"{prefix}networkin", listener)
        self.network_out = registry.meter(f"{prefix}networkout", listener)
        self.received_bytes = 0
        """By connections that have closed, as are those sent."""
        self.sent_bytes = 0


class Connections:
    """Told of every connection that opens or closes; refuses those over `max.connections` and its kin."""

    def __init__(
        self,
        *,
        clock: Clock,
        timers: TimerWheel,
        idle_ms_max: int,
        registry: Registry,
    ) -> None:
        self.lines = LineBudget(clock, LINES_PER_SECOND_MAX, _tell_left_out)
        """Of the log, for what peers can cause by coming again and again."""
        self.rates = ConnectionRates(clock, timers)
        self.addresses = AddressRates()
        self._timers = timers
        self._registry = registry
        self._meters: dict[str, ListenerMeters] = {}
        self._clock = clock
        self._connections_max = self._per_address_max = UNLIMITED
        self._address_overrides: Mapping[str, int] = {}
        self._listener_max: Mapping[str, int] = {}
        self._idle_seconds_max = idle_ms_max / 1000
        self._open: dict[ClientConnection, str] = {}
        self._by_address: dict[str, int] = {}
        self._by_listener: dict[str, int] = {}
        self._for_brokers: frozenset[str] = frozenset()
        self._between_brokers = ""
        if idle_ms_max > 0:
            timers.every(idle_ms_max / SWEEPS_PER_IDLE_TIME, self._close_idle)

    def __len__(self) -> int:
        return len(self._open)

    def set_limits(
        self,
        *,
        connections_max: int,
        per_address_max: int,
        address_overrides: Mapping[str, int],
        listener_max: Mapping[str, int],
        for_brokers: frozenset[str],
        between_brokers: str,
    ) -> None:
        """For those that come from now on. `for_brokers` are the listeners that share `connections_max`, of which
        `between_brokers` is the one that is never full while there are others."""
        self._connections_max = connections_max
        self._for_brokers = for_brokers
        self._between_brokers = between_brokers if len(for_brokers) > 1 else ""
        self._per_address_max = per_address_max
        self._address_overrides = address_overrides
        self._listener_max = listener_max

    def opened(self, connection: ClientConnection) -> bool:
        address, listener = connection.peer[0], connection.listener
        self.rates.on_accepted(listener)
        count = self._by_address.get(address, 0)
        on_listener = self._by_listener.get(listener, 0)
        is_full = self._count_with(listener) >= self._connections_max
        if (
            (is_full and listener != self._between_brokers)
            or count >= self._address_overrides.get(address, self._per_address_max)
            or on_listener >= self._listener_max.get(listener, UNLIMITED)
        ):
            self.meters(listener).refused.value += 1
            return False
        if is_full:
            self._make_room()
        self._by_listener[listener] = on_listener + 1
        self._open[connection] = address
        self._by_address[address] = count + 1
        self.meters(connection.listener).accepted.value += 1
        connection.last_active = self._clock.monotonic()
        if self.addresses.limits_any:
            self._hold_back(connection, address)
        return True

    def _count_with(self, listener: str) -> int:
        """How many there are that share the limit with those of `listener`."""
        if listener in self._for_brokers:
            return sum(self._by_listener.get(each, 0) for each in self._for_brokers)
        return self._by_listener.get(listener, 0)

    def _make_room(self) -> None:
        """Of the clients the one goes that was silent for longest."""
        clients = [
            connection
            for connection in self._open
            if connection.listener in self._for_brokers and connection.listener != self._between_brokers
        ]
        if clients:
            self._note_activity()
            longest = min(clients, key=lambda connection: connection.last_active)
            longest.close("made room for another broker")

    def _hold_back(self, connection: ClientConnection, address: str) -> None:
        """Over the rate of its address, a newcomer is turned away, but not at once: that would only make it try the
        sooner (KIP-612). It counts as open until then."""
        wait_ms = self.addresses.on_opened(address, self._timers.now_ms())
        if wait_ms:
            self._timers.after(wait_ms, lambda: connection.close("its address opens connections too fast"))
            connection.mute(self._timers, wait_ms + 1)

    def closed(self, connection: ClientConnection, reason: str | None) -> None:
        address = self._open.pop(connection, None)
        if address is None:
            return
        self._by_listener[connection.listener] -= 1
        left = self._by_address[address] - 1
        if left:
            self._by_address[address] = left
        else:
            del self._by_address[address]
        meters = self.meters(connection.listener)
        meters.received_bytes += connection.received_bytes
        meters.sent_bytes += connection.sent_bytes
        if connection.malformed:
            meters.malformed.value += 1
        if reason is not None and _log.isEnabledFor(logging.INFO) and self.lines.may_tell():
            _log.info("closed the connection from %s:%d: %s", *connection.peer, reason)

    def meters(self, listener: str) -> ListenerMeters:
        found = self._meters.get(listener)
        if found is None:
            found = self._meters[listener] = ListenerMeters(self._registry, listener)
        return found

    def count_bytes(self) -> dict[str, int]:
        """Bring the meters of bytes up to date; the open connections, by listener."""
        open_now = dict.fromkeys(self._meters, 0)
        received = {listener: meters.received_bytes for listener, meters in self._meters.items()}
        sent = {listener: meters.sent_bytes for listener, meters in self._meters.items()}
        for connection in self._open:
            listener = connection.listener
            open_now[listener] += 1
            received[listener] += connection.received_bytes
            sent[listener] += connection.sent_bytes
        for listener, meters in self._meters.items():
            meters.network_in.value, meters.network_out.value = received[listener], sent[listener]
        return open_now

    def close_all(self) -> None:
        for connection in list(self._open):
            connection.close()

    def _close_idle(self) -> None:
        now = self._note_activity()
        for connection in list(self._open):
            if now - connection.last_active > self._idle_seconds_max:
                connection.close("idle for too long")

    def _note_activity(self) -> float:
        """Activity is counted in requests, not bytes, so that a sender of one byte now and then is idle too,
        and so is a peer that has to wait: nobody would notice that it is gone."""
        now = self._clock.monotonic()
        for connection in self._open:
            if connection.requests != connection.requests_seen or connection.in_flight:
                connection.requests_seen = connection.requests
                connection.last_active = now
        return now
