"""Client quotas: which limit is whose, how a rate is measured, and for how long whoever exceeds it has to wait.

Arithmetic alone. `QuotaTable` is what the metadata says: of all limits that could be meant, a client has the nearest,
in Kafka's order. `QuotaLedger` is what clients have used. As in Kafka a rate is taken over a window of samples that
slides (`quota.window.num`, `quota.window.size.seconds`), and changes to the cluster are paid from a bucket of tokens
(KIP-599). Amounts beyond a limit are counted too; what follows from them is a time to wait, which the broker tells the
client and makes it keep. Driven by `broker/bounds/client_quotas` and `broker/connections`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, TypeVar

from ottla.metadata.images import QuotaEntity
from ottla.metadata.quotas import CLIENT_ID, IP, USER

METERS_MAX = 10_000
"""Clients choose their own ids, so there may be any number of them: the one not heard of for longest is forgotten."""

ADDRESS_RATE = "connection_creation_rate"

_K = TypeVar("_K")
_V = TypeVar("_V")


class QuotaKind(StrEnum):
    """What is limited, by the name of its config key."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"


class Limit(NamedTuple):
    rate: float
    """The most a second."""
    sharers: tuple[str | None, str | None]
    """User and client id of those who have the limit together; None where any has."""


_Name = str | None
"""A name, or None for the default of its type."""


class QuotaTable:
    """The limits of one image. An entity is of a user, a client id, or both; each may be the default."""

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        self._both: dict[tuple[_Name, _Name], Mapping[str, float]] = {}
        self._users: dict[_Name, Mapping[str, float]] = {}
        self._clients: dict[_Name, Mapping[str, float]] = {}
        self.addresses: dict[str, float] = {}
        """The most connections a second of single addresses."""
        self.any_address: float | None = None
        for entity, limits in quotas.items():
            parts = {part.type: part.name if part.named else None for part in entity}
            if USER in parts and CLIENT_ID in parts:
                self._both[parts[USER], parts[CLIENT_ID]] = limits
            elif USER in parts:
                self._users[parts[USER]] = limits
            elif CLIENT_ID in parts:
                self._clients[parts[CLIENT_ID]] = limits
            elif IP in parts and ADDRESS_RATE in limits:
                address = parts[IP]
                if address is None:
                    self.any_address = limits[ADDRESS_RATE]
                else:
                    self.addresses[address] = limits[ADDRESS_RATE]

    @property
    def limits_clients(self) -> bool:
        """Is any client limited in what it sends, fetches, costs or changes?"""
        return bool(self._both or self._users or self._clients)

    def find(self, kind: QuotaKind, user: str, client_id: str) -> Limit | None:
        """The nearest limit of its kind, in Kafka's order: what names the user goes before what names the client."""
        for owner in (user, None):
            for client in (client_id, None):
                found = self._both.get((owner, client))
                if found is not None and kind in found:
                    return Limit(found[kind], (user, client_id))
            found = self._users.get(owner)
            if found is not None and kind in found:
                return Limit(found[kind], (user, None))
        for client in (client_id, None):
            found = self._clients.get(client)
            if found is not None and kind in found:
                return Limit(found[kind], (None, client_id))
        return None


class RateWindow:
    """How much of something there was a second, over the last samples, of which the newest is unfinished.

    A window that is not full yet counts as if nothing had happened before, so a client that was quiet may have all but
    one sample's worth at once. Times are monotonic milliseconds.
    """

    __slots__ = ("_samples", "_samples_max", "_total", "_window_ms")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples_max = samples
        self._window_ms = window_ms
        self._samples: deque[list[float]] = deque()
        """Of each: when it began, when something last happened in it, and how much."""
        self._total = 0.0

    @property
    def is_empty(self) -> bool:
        return not self._samples

    def record(self, amount: float, now_ms: float) -> None:
        samples = self._samples
        self._purge(now_ms)
        if not samples or now_ms - samples[-1][0] >= self._window_ms:
            samples.append([now_ms, now_ms, 0.0])
            if len(samples) > self._samples_max + 1:
                self._total -= samples.popleft()[2]
        newest = samples[-1]
        newest[1] = now_ms
        newest[2] += amount
        self._total += amount

    def wait_ms(self, rate_max: float, now_ms: float, extra: float = 0.0) -> int:
        """After how long the rate, with `extra` added to what was recorded, is no more than it may be."""
        self._purge(now_ms)
        span_ms = self._span_ms(now_ms)
        rate = (self._total + extra) * 1000 / span_ms
        return round((rate - rate_max) / rate_max * span_ms) if rate > rate_max else 0

    def room(self, rate_max: float, now_ms: float) -> float:
        """How much more there may be at once."""
        self._purge(now_ms)
        return max(0.0, rate_max * self._span_ms(now_ms) / 1000 - self._total)

    def _span_ms(self, now_ms: float) -> float:
        elapsed_ms = now_ms - self._samples[0][0] if self._samples else 0.0
        missing = self._samples_max - 1 - int(elapsed_ms // self._window_ms)
        if missing > 0:
            elapsed_ms += missing * self._window_ms
        return max(elapsed_ms, self._window_ms)

    def _purge(self, now_ms: float) -> None:
        samples, age_ms = self._samples, self._samples_max * self._window_ms
        while samples and now_ms - samples[0][1] >= age_ms:
            self._total -= samples.popleft()[2]
        if not samples:
            self._total = 0.0  # Without what adding and taking away again has left of fractions.


class MutationBucket:
    """Fills by the rate, up to what the whole window allows. Who finds it not in debt may take any number at once."""

    __slots__ = ("_filled_ms", "_tokens", "_window_s")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._window_s = samples * window_ms / 1000
        self._tokens: float | None = None
        self._filled_ms = 0.0

    def take(self, count: int, rate: float, now_ms: float) -> None:
        self._tokens = self._filled(rate, now_ms) - count

    def wait_ms(self, rate: float, now_ms: float) -> int:
        """Until it is out of debt."""
        self._tokens = self._filled(rate, now_ms)
        return round(-self._tokens / rate * 1000) if self._tokens < 0 else 0

    def _filled(self, rate: float, now_ms: float) -> float:
        burst = rate * self._window_s
        before, elapsed_ms = self._tokens, now_ms - self._filled_ms
        self._filled_ms = now_ms
        return burst if before is None else min(burst, before + elapsed_ms * rate / 1000)


class QuotaLedger:
    """What every client has used of what it may use. One instance a node."""

    def __init__(self, *, samples: int, window_ms: int, mutation_samples: int, mutation_window_ms: int) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._mutation_samples = mutation_samples
        self._mutation_window_ms = mutation_window_ms
        self._meters: dict[tuple[QuotaKind, tuple[str | None, str | None]], RateWindow] = {}
        self._buckets: dict[tuple[str | None, str | None], MutationBucket] = {}
        self.table = QuotaTable({})
        """The limits from now on. What was used stays used."""

    def charge(self, kind: QuotaKind, user: str, client_id: str, amount: float, now_ms: float) -> int:
        """Count `amount`; for how many milliseconds the client has to be quiet, 0 if it is within its limit."""
        limit = self.table.find(kind, user, client_id)
        if limit is None:
            return 0
        meter = self._meter(kind, limit)
        meter.record(amount, now_ms)
        wait_ms = meter.wait_ms(limit.rate, now_ms)
        # Time spent is small change: as in Kafka nobody pays more than one sample for it.
        return min(wait_ms, self._window_ms) if kind is QuotaKind.REQUEST else wait_ms

    def charge_if_within(self, kind: QuotaKind, user: str, client_id: str, amount: float, now_ms: float) -> int:
        """The same of something that is withheld if it is too much, and then is not counted. What would be too much at
        any time passes once its window is empty."""
        limit = self.table.find(kind, user, client_id)
        if limit is None:
            return 0
        meter = self._meter(kind, limit)
        wait_ms = meter.wait_ms(limit.rate, now_ms, amount)
        if wait_ms and not meter.is_empty:
            return wait_ms
        meter.record(amount, now_ms)
        return 0

    def room(self, kind: QuotaKind, user: str, client_id: str, now_ms: float) -> float | None:
        """How much fits into the window now; None where nothing is limited."""
        limit = self.table.find(kind, user, client_id)
        return None if limit is None else self._meter(kind, limit).room(limit.rate, now_ms)

    def charge_mutations(
        self, user: str, client_id: str, count: int, now_ms: float, *, strict: bool
    ) -> tuple[bool, int]:
        """May `count` partitions be made or deleted, and how long is the client to wait? With `strict` they may not,
        and are not counted, while it is in debt; without, they always may, and the client waits afterwards."""
        limit = self.table.find(QuotaKind.MUTATION, user, client_id)
        if limit is None:
            return True, 0
        bucket = self._buckets.pop(limit.sharers, None) or MutationBucket(
            self._mutation_samples, self._mutation_window_ms
        )
        self._buckets[limit.sharers] = bucket
        _forget_oldest(self._buckets)
        if strict and (wait_ms := bucket.wait_ms(limit.rate, now_ms)):
            return False, wait_ms
        bucket.take(count, limit.rate, now_ms)
        return True, 0 if strict else bucket.wait_ms(limit.rate, now_ms)

    def _meter(self, kind: QuotaKind, limit: Limit) -> RateWindow:
        key = (kind, limit.sharers)
        meter = self._meters.pop(key, None) or RateWindow(self._samples, self._window_ms)
        self._meters[key] = meter
        _forget_oldest(self._meters)
        return meter


class AddressRates:
    """How many connections a second each address has opened (`connection_creation_rate`, KIP-612)."""

    def __init__(self) -> None:
        self._samples = 11
        self._window_ms = 1000
        self._rates: Mapping[str, float] = {}
        self._any_rate: float | None = None
        self._meters: dict[str, RateWindow] = {}

    @property
    def limits_any(self) -> bool:
        return self._any_rate is not None or bool(self._rates)

    def set_window(self, samples: int, window_ms: int) -> None:
        self._samples, self._window_ms = samples, window_ms

    def set_rates(self, table: QuotaTable) -> None:
        self._rates, self._any_rate = table.addresses, table.any_address

    def on_opened(self, address: str, now_ms: float) -> int:
        """For how many milliseconds the newcomer is kept waiting before it is turned away; 0 if it is let in. Who is
        turned away is not counted, and nobody waits longer than a sample."""
        rate = self._rates.get(address, self._any_rate)
        if rate is None:
            return 0
        meter = self._meters.pop(address, None) or RateWindow(self._samples, self._window_ms)
        self._meters[address] = meter
        _forget_oldest(self._meters)
        wait_ms = meter.wait_ms(rate, now_ms, 1)
        if wait_ms:
            return min(wait_ms, self._window_ms)
        meter.record(1, now_ms)
        return 0


def _forget_oldest(meters: dict[_K, _V]) -> None:
    if len(meters) > METERS_MAX:
        del meters[next(iter(meters))]
