"""What the code adds to: counters, meters and histograms. They know neither their names nor the clock."""

from __future__ import annotations

from math import exp


class Counter:
    """A number that only grows: `counter.value += 1`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class Meter:
    """A counter whose rate is wanted too: `meter.value += size`. The rate is worked out when it is read."""

    __slots__ = ("_rate", "_read_at_s", "_read_value", "value")

    def __init__(self) -> None:
        self.value = 0
        self._read_value = 0
        self._read_at_s: float | None = None
        self._rate = 0.0

    def rate(self, now_s: float) -> float:
        """Events a second, with the last minute counting most, as Kafka's one-minute rates do."""
        if self._read_at_s is None:
            self._read_at_s, self._read_value = now_s, self.value
            return 0.0
        elapsed_s = now_s - self._read_at_s
        if elapsed_s > 0:
            recent = (self.value - self._read_value) / elapsed_s
            self._rate += (1 - exp(-elapsed_s / 60)) * (recent - self._rate)
            self._read_at_s, self._read_value = now_s, self.value
        return self._rate


_SUB_BITS = 3
_SUB = 1 << _SUB_BITS
_LARGEST = (1 << 40) - 1
_BUCKETS = (40 - _SUB_BITS) * _SUB + _SUB


def bucket_of(value: int) -> int:
    """Eight buckets for each power of two, so that a quantile is wrong by an eighth at most."""
    shift = value.bit_length() - _SUB_BITS - 1
    return value if shift <= 0 else shift * _SUB + (value >> shift)


def upper_bound(bucket: int) -> int:
    """The largest value in a bucket."""
    if bucket < 2 * _SUB:
        return bucket
    shift = bucket // _SUB - 1
    return ((bucket - shift * _SUB + 1) << shift) - 1


class Histogram:
    """Durations in microseconds (or sizes), in fixed buckets: count and sum for ever, quantiles of the last while.

    The recent past is kept in two halves, of which `rotate` drops the older, so that a quantile tells how things are
    and not how they once were.
    """

    __slots__ = ("_before", "_before_max", "_max", "_now", "count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self._now = [0] * _BUCKETS
        self._max = 0
        self._before: list[int] | None = None
        self._before_max = 0

    def observe(self, value: int) -> None:
        if value > _LARGEST:
            value = _LARGEST
        elif value < 0:
            value = 0
        self.count += 1
        self.total += value
        # bucket_of, by hand: this runs for every request.
        shift = value.bit_length() - 4
        self._now[value if shift <= 0 else (shift << 3) + (value >> shift)] += 1
        if value > self._max:
            self._max = value

    def observe_none(self) -> None:
        """`observe(0)`, of which there are most."""
        self.count += 1
        self._now[0] += 1

    def rotate(self) -> None:
        """Called now and then: what was observed before the last call no longer counts in quantiles."""
        self._before, self._before_max = self._now, self._max
        self._now, self._max = [0] * _BUCKETS, 0

    @property
    def max(self) -> int:
        return max(self._max, self._before_max)

    def quantiles(self, *shares: float) -> list[int]:
        """For each share, a value that this share of the recent observations did not exceed; 0 if there were none."""
        counts = self._now if self._before is None else [a + b for a, b in zip(self._now, self._before, strict=True)]
        observed = sum(counts)
        found: list[int] = []
        for share in shares:
            wanted = max(1, -int(-share * observed // 1))
            seen = 0
            for bucket, count in enumerate(counts):
                seen += count
                if count and seen >= wanted:
                    found.append(min(upper_bound(bucket), self.max))
                    break
            else:
                found.append(0)
        return found
