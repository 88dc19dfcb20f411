"""Scripted faults: what a test wants to go wrong with the requests of clients, and the dispatcher that sees to it.

`FaultTable` is the script: rules by API, each for so many requests, the oldest first. `ScriptedDispatcher` looks there
before it does what every dispatcher does. Only nodes that `testing` starts have one, and only the test that started the
node can write the script (`node_process`): no request can reach it. Nodes talk to each other, and the conveniences of a
test to the nodes, on another listener, where nothing is scripted.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING

from ottla.broker.bounds.limits import elements_max
from ottla.broker.dispatch import Dispatcher
from ottla.broker.reply import CloseConnection, Deferred, Reply
from ottla.errors import ErrorCode
from ottla.testing.failing import can_fail, failed
from ottla.wire.apis import API_VERSIONS, APIS, PRODUCE, Api
from ottla.wire.frames import read_request_header, response_frame

if TYPE_CHECKING:
    from ottla.broker.connection import ClientConnection
    from ottla.broker.services import Services

_API_KEY = Struct(">h").unpack_from
_REASON = "a test has scripted it"


class BadScript(Exception):
    """A fault that cannot be; the message is one sentence for whoever wrote the test."""


@dataclass(slots=True, kw_only=True)
class Rule:
    """What happens to the next requests of an API: one of the three is set."""

    times: int | None
    """Requests that it is for; None: all."""
    error: ErrorCode | None = None
    delay_ms: float | None = None
    drops: bool = False
    handled: bool = False
    """Of a dropped connection: is the request carried out first?"""
    seen: int = 0

    @property
    def is_spent(self) -> bool:
        return self.times is not None and self.seen >= self.times


class FaultTable:
    """Owned by the node's event loop."""

    def __init__(self) -> None:
        self._rules: dict[int, list[Rule]] = {}
        self._numbered: list[Rule] = []

    def add(self, api_name: str, rule: Rule) -> int:
        """Its number, by which it can be asked about. Raises `BadScript`."""
        api = next((each for each in APIS.values() if each.name == api_name), None)
        if api is None or not api.on_broker:
            raise BadScript(f"There is no API {api_name} that brokers serve: use a name such as Produce or JoinGroup.")
        if rule.error is not None and not can_fail(api):
            raise BadScript(f"The response of {api_name} has no place for an error: delay it, or drop the connection.")
        self._rules.setdefault(api.key, []).append(rule)
        self._numbered.append(rule)
        return len(self._numbered) - 1

    def seen(self, number: int) -> int:
        """How many requests met the rule with that number."""
        return self._numbered[number].seen

    def clear(self) -> None:
        """Nothing goes wrong any more; what was seen stays known."""
        self._rules.clear()

    def take(self, api_key: int) -> Rule | None:
        """The rule for a request that has come."""
        rules = self._rules.get(api_key)
        if rules is None:
            return None
        rule = rules[0]
        rule.seen += 1
        if rule.is_spent:
            rules.pop(0)
            if not rules:
                del self._rules[api_key]
        return rule


class ScriptedDispatcher(Dispatcher):
    """A dispatcher of `scripted`, the listener for clients, obeys the table; those of others never look there."""

    def __init__(
        self, table: FaultTable, scripted: str, services: Services, listener: str, *, on_controller: bool = False
    ) -> None:
        super().__init__(services, listener, on_controller=on_controller)
        self._table = table if listener == scripted else FaultTable()

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
        rule = None if metered or traced or end - start < 10 else self._table.take(_API_KEY(buffer, start)[0])
        if rule is None:
            return super().start_request(connection, buffer, view, start, end, metered, traced)
        if rule.error is not None:
            reply = self._fail(rule.error, bytes(view[start:end]))
            return reply if reply else super().start_request(connection, buffer, view, start, end)
        if rule.drops and not rule.handled:
            raise CloseConnection(_REASON)
        answered = super().start_request(connection, buffer, view, start, end)
        if rule.drops:
            return _drop(connection, answered)
        assert rule.delay_ms is not None
        return self._delay(rule.delay_ms, answered)

    def _fail(self, code: ErrorCode, frame: bytes) -> Reply:
        """The answer that says so; None to a request of a version that nobody serves, which has its own answer."""
        head = read_request_header(frame)
        api: Api = APIS[head.api_key]
        if not api.serves(head.api_version):
            return None
        request, _ = api.request.read(frame, head.body_position, head.api_version, elements_max(api.key))
        if api.key == PRODUCE and getattr(request, "acks", -1) == 0:
            # There is no response to say it with, so that Kafka closes the connection.
            raise CloseConnection(_REASON)
        # ApiVersions tells of an error in its first version, which every client reads.
        version = 0 if api.key == API_VERSIONS and code == ErrorCode.UNSUPPORTED_VERSION else head.api_version
        response = failed(self._services, self._listener, api, request, code, version)
        flexible = api.response_header_version(version) == 1
        return response_frame(head.correlation_id, response.encode(version), flexible=flexible)

    def _delay(self, delay_ms: float, answered: Reply) -> Reply:
        """The answer leaves so much later; the answers to later requests of the connection wait behind it."""
        if answered is None:
            return None
        late = Deferred()

        def go_on() -> None:
            if not isinstance(answered, Deferred):
                late.resolve(answered)
            elif answered.done:
                late.resolve(answered.reply)
            else:
                answered.when_done(lambda: late.resolve(answered.reply))

        timer = self._services.timers.after(delay_ms, go_on)

        def forget() -> None:
            timer.cancel()
            if isinstance(answered, Deferred):
                answered.abandon()

        late.when_abandoned(forget)
        return late


def _drop(connection: ClientConnection, answered: Reply) -> Reply:
    """Hang up when the request has been carried out, and keep the answer."""
    if isinstance(answered, Deferred) and not answered.done:
        answered.when_done(lambda: connection.close(_REASON))
        return Deferred()
    raise CloseConnection(_REASON)
