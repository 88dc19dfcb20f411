"""What the benchmarks say of a bar, and the status with which they end."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from benchmarks import hostile, load, locked, report
from benchmarks.__main__ import without_compiler
from benchmarks.cases import Case, Metric, Sample
from benchmarks.runner import PATIENCE, Result, run_case
from benchmarks.series import Command
from benchmarks.servers import Side


def never_measured(side: Side, topic: str) -> Sample:
    raise AssertionError("these results are made up")


def result(
    pairs: list[tuple[float, float]], *, better: Literal["more", "less"] = "more", bar: float | None = 2.0
) -> Result:
    """Of pairs of runs, ours and Kafka's."""
    case = Case(title="a line", metrics=(Metric(unit="MB/s", better=better, bar=bar),), measure=never_measured)
    return Result(
        case=case,
        samples=([Sample(values=(ours,)) for ours, _ in pairs], [Sample(values=(kafkas,)) for _, kafkas in pairs]),
    )


MET = result([(20.0, 10.0), (22.0, 10.0), (18.0, 10.0)])
MISSED = result([(19.0, 10.0), (18.0, 10.0), (17.0, 10.0)])
MISSED_BUT_FOR_A_PAIR = result([(21.0, 10.0), (18.0, 10.0), (17.0, 10.0)])
NO_BAR = result([(1.0, 10.0)], bar=None)


@pytest.mark.parametrize(
    ("given", "verdict", "told"),
    [
        (MET, "met", "met"),
        (MISSED, "missed", "missed"),
        (MISSED_BUT_FOR_A_PAIR, "missed", "missed (a pair met it)"),
        (result([(9.0, 10.0), (4.0, 10.0), (8.0, 10.0)], better="less", bar=0.5), "missed", "missed (a pair met it)"),
        (NO_BAR, "", "–"),
    ],
)
def test_the_medians_decide(given: Result, verdict: str, told: str) -> None:
    (row,) = given.rows()
    assert row.verdict == verdict
    assert report.cells(row)[6] == told


@pytest.mark.parametrize(
    ("ratios", "times"),
    [
        ([2.1, 2.2, 2.3], 3),
        ([1.7, 1.8, 1.9], 3),
        ([2.1, 1.9, 2.1], 3 * PATIENCE),
        ([1.9, 1.9, 2.1], 3 * PATIENCE),
    ],
)
def test_a_line_whose_pairs_do_not_agree_is_measured_more_often(ratios: list[float], times: int) -> None:
    ours, kafkas = FakeSide(), FakeSide()

    def measure(side: Side, topic: str) -> Sample:
        side.measured += 1  # type: ignore[attr-defined]
        if side is kafkas:
            return Sample(values=(1.0,))
        return Sample(values=(ratios[(ours.measured - 1) % len(ratios)],))

    case = Case(title="a line", metrics=(Metric(unit="MB/s", bar=2.0),), measure=measure, partitions=0)
    measured = run_case(case, (ours, kafkas), 3, "bench-0", lambda: None)
    assert not measured.failure
    assert (ours.measured, kafkas.measured) == (times, times)


class FakeSide(Side):
    """A side that is no server."""

    def __init__(self) -> None:
        self.measured = 0

    def cpu_seconds(self) -> float:
        return 0.0


def test_without_compiled_functions_only_throughput_has_another_bar() -> None:
    case = Case(
        title="a line",
        metrics=(
            Metric(unit="MB/s", bar=2.0),
            Metric(unit="ms", better="less", bar=0.6),
            Metric(unit="of its own", bar=0.7, of_itself=True),
            Metric(unit="req/s"),
        ),
        measure=never_measured,
    )
    assert [metric.bar for metric in without_compiler(case).metrics] == [1.0, 0.6, 0.7, None]


@pytest.mark.parametrize(
    ("results", "status"),
    [
        ([MET, NO_BAR], 0),
        ([MET, MISSED], 1),
        ([MISSED_BUT_FOR_A_PAIR], 1),
        ([MET, Result(case=MET.case, failure="it did not start")], 1),
    ],
)
def test_a_series_that_is_checked_ends_with_what_it_found(
    results: list[Result], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(report, "plot", lambda rows, setting, target: None)
    monkeypatch.setattr(report, "surroundings", lambda setting: [])
    command = Command(
        name="made-up",
        description="Nothing is run.",
        repetitions=3,
        cases=list,
        run=lambda options, console, scratch: results,
        facts=["Nothing was run."],
    )
    where = ["--output", str(tmp_path)]
    assert command.main([*where, "--check"]) == status
    assert command.main(where) == 0


# The hostile run.


def phase(name: str, p99_ms: float, peak_mb: float = 100.0) -> hostile.Phase:
    latencies = {"count": 1000.0, "p50_ms": 1.0, "p99_ms": p99_ms, "max_ms": 50.0}
    return hostile.Phase(name, f"{name} was done", latencies, peak_mb)


WHOLE, TORN = {"sent": 5000.0, "complete": True}, {"sent": 5000.0, "complete": False}


@pytest.mark.parametrize(
    ("phases", "end", "found"),
    [
        ([phase("idle", 2.0), phase("attack", 4.0)], WHOLE, []),
        ([phase("idle", 2.0), phase("attack", 4.1)], WHOLE, ["attack: p99 is 2.05 times the idle one"]),
        ([phase("idle", 2.0), phase("attack", 3.0, 700.0)], WHOLE, ["attack: 700 MB"]),
        ([phase("idle", 2.0)], TORN, ["records are missing"]),
    ],
)
def test_what_a_hostile_run_missed_is_said(
    phases: list[hostile.Phase], end: dict[str, float], found: list[str]
) -> None:
    assert hostile.missed(phases, end) == found
    page = "\n".join(hostile.section(phases, end))
    assert ("missed" in page or "NOT all" in page or "700 MB" in page) == bool(found)


@pytest.mark.parametrize(("part", "status"), [("attack", 1), ("locks", 0)])
def test_a_hostile_run_that_is_checked_ends_with_what_it_found(
    part: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "CACHE", tmp_path)
    monkeypatch.setattr(report, "surroundings", lambda setting: ["A made-up machine."])
    monkeypatch.setattr(hostile, "attack", lambda options, console: (["## Under attack", "", "row"], ["a bar"]))
    monkeypatch.setattr(locked, "measured", lambda part, options, console, scratch: [MET, NO_BAR])
    page = tmp_path / "page.md"
    assert hostile.main([part, "--check", "--output", str(page)]) == status
    assert hostile.main([part, "--output", str(page)]) == 0
    assert "A made-up machine." in page.read_text()


def test_a_hostile_run_that_fails_is_no_success(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(options: object, console: object) -> tuple[list[str], list[str]]:
        raise load.LoadFailed("node 2 died")

    monkeypatch.setattr(load, "CACHE", tmp_path)
    monkeypatch.setattr(hostile, "attack", fails)
    assert hostile.main(["attack"]) == 1
