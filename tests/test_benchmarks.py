"""What the benchmarks say of a bar, and the status with which they end."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from benchmarks import load, report
from benchmarks.cases import Case, Metric, Sample
from benchmarks.runner import Result
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
