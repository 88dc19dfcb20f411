"""What the request path adds to: instruments by API and by topic, looked up once and kept where they are used.

Counting is an attribute's `+=`. Durations cost more, so of Produce and Fetch, which are many, one request in
`SAMPLE_EVERY` is timed: quantiles and means are right, the summaries' counts are those of the samples. Other APIs are
timed always.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from ottla.broker.monitoring.error_codes import error_codes, error_name, every_code, may_hold_errors
from ottla.broker.reply import Deferred, Reply
from ottla.errors import ErrorCode
from ottla.metrics.registry import Registry
from ottla.runtime import Clock
from ottla.wire.message import Message

SAMPLE_EVERY = 64
SAMPLE_MASK = SAMPLE_EVERY - 1
CODES_A_STEP = 10_000

_REQUESTS = "kafka_network_requestmetrics_"
_TOPICS = "kafka_server_brokertopicmetrics_"
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class ApiMeters:
    """The instruments of one API."""

    __slots__ = ("bytes", "local", "remote", "requests", "total")

    def __init__(self, registry: Registry, name: str) -> None:
        self.requests = registry.meter(f"{_REQUESTS}requests", name)
        self.bytes = registry.counter(f"{_REQUESTS}requestbytes", name)
        self.local = registry.histogram(f"{_REQUESTS}localtimems", name)
        self.remote = registry.histogram(f"{_REQUESTS}remotetimems", name)
        self.total = registry.histogram(f"{_REQUESTS}totaltimems", name)

    def answered(self, began_s: float, worked_s: float, now_s: float) -> None:
        """Worked on from `began_s` to `worked_s`, and answered at `now_s`."""
        local_us = int((worked_s - began_s) * 1e6)
        total_us = int((now_s - began_s) * 1e6)
        self.local.observe(local_us)
        self.remote.observe(total_us - local_us)
        self.total.observe(total_us)

    def answered_at_once(self, took_s: float) -> None:
        """The same where nobody was waited for."""
        took_us = int(took_s * 1e6)
        self.local.observe(took_us)
        self.remote.observe_none()
        self.total.observe(took_us)


class RequestMetrics:
    """One `ApiMeters` an API; produce and fetch have theirs at hand, since they are counted most."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self.produce = ApiMeters(registry, "Produce")
        self.fetch = ApiMeters(registry, "Fetch")
        self.offset_commit = ApiMeters(registry, "OffsetCommit")
        self._by_key = {0: self.produce, 1: self.fetch, 8: self.offset_commit}

    def of(self, api_key: int, name: str) -> ApiMeters:
        meters = self._by_key.get(api_key)
        if meters is None:
            meters = self._by_key[api_key] = ApiMeters(self._registry, name)
        return meters

    def refused(self, api: str, response: Message) -> None:
        """Count the error codes that a response holds, wherever they stand in it."""
        if may_hold_errors(response) and (codes := list(error_codes(response))):
            self.count_errors(api, Counter(codes))

    def refused_in_steps(self, api: str, response: Message) -> Iterator[None]:
        """The same of a long response, so many codes at a time."""
        codes = every_code(response)
        found: Counter[int] = Counter()
        while some := Counter(islice(codes, CODES_A_STEP)):
            if found:
                yield
            found.update(some)
        del found[ErrorCode.NONE]
        self.count_errors(api, found)

    def count_errors(self, api: str, codes: Counter[int]) -> None:
        for code, count in codes.items():
            self._registry.meter(f"{_REQUESTS}errors", api, error_name(code)).value += count

    def timed(self, meters: ApiMeters, began_s: float, reply: Reply) -> Reply:
        """Time a request whose first phase has just ended with `reply`, also if its answer is yet to come."""
        clock = self._clock
        worked_s = clock.monotonic()
        if not isinstance(reply, Deferred) or reply.done:
            meters.answered(began_s, worked_s, worked_s)
            return reply
        waited_for, passed_on = reply, Deferred()

        def done() -> None:
            meters.answered(began_s, worked_s, clock.monotonic())
            passed_on.resolve(waited_for.reply)

        waited_for.when_done(done)
        passed_on.when_abandoned(waited_for.abandon)
        return passed_on


class TopicMeters:
    """The instruments of one topic that this node hosts; its partitions share them."""

    __slots__ = ("_registry", "_topic", "bytes_in", "bytes_out", "fetches", "messages_in", "produces")

    def __init__(self, registry: Registry, topic: str) -> None:
        self._registry = registry
        self._topic = topic
        self.messages_in = registry.meter(f"{_TOPICS}messagesin", topic)
        self.bytes_in = registry.meter(f"{_TOPICS}bytesin", topic)
        self.bytes_out = registry.meter(f"{_TOPICS}bytesout", topic)
        self.produces = registry.meter(f"{_TOPICS}totalproducerequests", topic)
        self.fetches = registry.meter(f"{_TOPICS}totalfetchrequests", topic)

    def produce_failed(self, code: ErrorCode, size: int) -> None:
        self._registry.meter(f"{_REQUESTS}errors", "Produce", code.name).value += 1
        self._registry.meter(f"{_TOPICS}failedproducerequests", self._topic).value += 1
        if code in _TOO_LARGE:
            self._registry.meter(f"{_TOPICS}bytesrejected", self._topic).value += size

    def fetch_failed(self, code: int) -> None:
        self._registry.meter(f"{_REQUESTS}errors", "Fetch", error_name(code)).value += 1
        self._registry.meter(f"{_TOPICS}failedfetchrequests", self._topic).value += 1

    def remove(self) -> None:
        """The topic is not hosted here any more."""
        for row in (
            "messagesin",
            "bytesin",
            "bytesout",
            "bytesrejected",
            "totalproducerequests",
            "totalfetchrequests",
            "failedproducerequests",
            "failedfetchrequests",
        ):
            self._registry.remove(f"{_TOPICS}{row}", self._topic)
