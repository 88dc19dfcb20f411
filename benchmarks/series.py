"""What every command of the benchmarks does: choose cases, run them with a progress bar, say each line when known."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from . import load, report
from .cases import Case
from .runner import Result, run_case
from .servers import Side

COMPILED = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(load.CACHE / "bytecode")}
"""Of Ottla's environment: what is installed is compiled, whatever this shell says of bytecode."""


def chosen(cases: Sequence[Case], only: str | None) -> list[Case]:
    """Those whose group and title hold `only`: a glob, or plain text."""
    if not only:
        return list(cases)
    pattern = only if any(sign in only for sign in "*?[") else f"*{only}*"
    return [case for case in cases if fnmatch.fnmatch(f"{case.group}: {case.title}".lower(), pattern.lower())]


def run_series(
    cases: Sequence[Case],
    sides: Sequence[Side],
    repetitions: int,
    console: Console,
    *,
    warm_up: Callable[[Callable[[], None]], None] | None = None,
    warm_up_rounds: int = 0,
) -> list[Result]:
    """Run the cases in order. The first that uses the shared nodes is preceded by `warm_up`, which is given what to
    call after each of its rounds."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeElapsedColumn(),
    )
    results: list[Result] = []
    with Progress(*columns, console=console) as progress:
        total = 2 * repetitions * sum(case.times for case in cases)
        task = progress.add_task("", total=total + warm_up_rounds)
        for position, case in enumerate(cases):
            if case.partitions and warm_up is not None:
                progress.update(task, description="warming up")
                warm_up(lambda: progress.advance(task))
                warm_up = None
            progress.update(task, description=case.title)
            result = run_case(case, sides, repetitions, f"bench-{position}", lambda: progress.advance(task))
            results.append(result)
            for row in result.rows():
                told = report.cells(row)
                console.print(f"{told[0]}: {told[1]} against {told[2]}, ratio {told[3]}, {told[6]}", highlight=False)
    return results
