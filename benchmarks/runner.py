"""Runs the cases: both sides warmed up alike, then case by case, the sides taking turns within each."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaException

from tests.oracle.apache_kafka import OracleTimeout, OracleUnavailable, ToolFailed
from tests.oracle.ottla_node import OttlaFailed

from . import servers
from .cases import Case, Metric, Sample, fetch, produce
from .load import Batches, LoadFailed
from .servers import Side

DISTURBING_CPUS = 0.25
PATIENCE = 3
"""How many times as often a line is measured when its pairs do not agree on the bar."""

_FAILURES = (LoadFailed, OttlaFailed, OracleTimeout, OracleUnavailable, ToolFailed, KafkaException, TimeoutError)


@dataclass(slots=True, kw_only=True)
class Result:
    """All samples of a case, by side; or why there are none."""

    case: Case
    samples: tuple[list[Sample], list[Sample]] = field(default_factory=lambda: ([], []))
    failure: str = ""
    others: float = 0.0
    """CPUs that other processes took meanwhile; they disturb what is measured."""

    def rows(self) -> list[Row]:
        return [Row(result=self, metric=metric, index=index) for index, metric in enumerate(self.case.metrics)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One metric of a result, with what the table says about it."""

    result: Result
    metric: Metric
    index: int

    @property
    def title(self) -> str:
        return ", ".join(part for part in (self.result.case.title, self.metric.name) if part)

    def values(self, side: int) -> list[float]:
        return [sample.values[self.index] for sample in self.result.samples[side]]

    def median(self, side: int) -> float:
        return statistics.median(self.values(side))

    @property
    def ratio(self) -> float:
        """What the bar is about: ours over Kafka's, or ours alone where it is a share of its own."""
        return self.median(0) if self.metric.of_itself else self.median(0) / self.median(1)

    @property
    def ratios(self) -> list[float]:
        """The same for each pair of neighbouring runs: their spread is the noise."""
        if self.metric.of_itself:
            return self.values(0)
        return [ours / kafkas for ours, kafkas in zip(self.values(0), self.values(1), strict=True)]

    def cpu_s_per_gb(self, side: int) -> float | None:
        costs = [sample.server_cpu_s / sample.gigabytes for sample in self.result.samples[side] if sample.gigabytes]
        return statistics.median(costs) if costs else None

    @property
    def disturbed(self) -> bool:
        return self.result.others > DISTURBING_CPUS

    @property
    def verdict(self) -> str:
        """`met` or `missed`, by the medians; `failed`; nothing where there is no bar."""
        if self.result.failure:
            return "failed"
        if self.metric.bar is None:
            return ""
        return "met" if self._reaches(self.ratio) else "missed"

    @property
    def met_by_a_pair(self) -> bool:
        """Did a single pair of runs reach the bar that the medians missed?"""
        return self.verdict == "missed" and any(self._reaches(ratio) for ratio in self.ratios)

    @property
    def undecided(self) -> bool:
        """Did some pairs reach the bar, and others not?"""
        return self.metric.bar is not None and len({self._reaches(ratio) for ratio in self.ratios}) == 2

    def _reaches(self, ratio: float) -> bool:
        assert self.metric.bar is not None
        return ratio >= self.metric.bar if self.metric.better == "more" else ratio <= self.metric.bar


class Others:
    """How many CPUs were busy with what is neither of the servers nor of ours, since this was made."""

    def __init__(self, sides: Sequence[Side]) -> None:
        self._sides = sides
        self._start = time.monotonic()
        self._before = self._elsewhere()

    def cpus(self) -> float:
        return max(0.0, (self._elsewhere() - self._before) / (time.monotonic() - self._start))

    def _elsewhere(self) -> float:
        known = sum(os.times()[:4]) + sum(side.cpu_seconds() for side in self._sides)
        return servers.busy_seconds() - known


def warm_up(sides: Sequence[Side], rounds: int, tick: Callable[[], None]) -> None:
    """The same mix for both, in turns: long enough for a JVM to compile its hot paths."""
    large, small = Batches.filling(65536, 1024).options(), Batches.filling(16384, 100).options()
    with contextlib.ExitStack() as stack:
        for side in sides:
            stack.enter_context(side.topic("warm-up", 6))
        for _ in range(rounds):
            for side in sides:
                produce(side, "warm-up", partitions=6, max_bytes=25e6, **large)
                produce(side, "warm-up", partitions=6, max_bytes=25e6, acks=-1, idempotent=1, **small)
                produce(side, "warm-up", records=1, size=100, connections=8, seconds=0.3)
                fetch(side, "warm-up", partitions=6, seconds=0.2)
            tick()


def run_case(case: Case, sides: Sequence[Side], repetitions: int, name: str, tick: Callable[[], None]) -> Result:
    """Measure a case `repetitions` times, or a multiple, on each side, alternately; who goes first takes turns.

    A case whose pairs of runs do not agree on a bar, whatever their median says, is measured more often.
    """
    result = Result(case=case)
    others = Others(sides)
    try:
        with contextlib.ExitStack() as stack:
            for side in sides:
                if case.partitions:
                    stack.enter_context(side.topic(name, case.partitions))
                if case.prepare is not None:
                    case.prepare(side, name)
            least = repetitions * case.times
            for repetition in range(PATIENCE * least):
                if repetition == least and not any(row.undecided for row in result.rows()):
                    break
                order = (0, 1) if repetition % 2 == 0 else (1, 0)
                for index in order:
                    result.samples[index].append(case.measure(sides[index], name))
                    if repetition < least:
                        tick()
    except _FAILURES as failure:
        result.failure = str(failure).strip() or type(failure).__name__
        for side in sides:
            side.replace()
    else:
        result.others = others.cpus()
    return result
