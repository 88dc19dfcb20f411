"""What every command of the benchmarks does: choose cases, run them with a progress bar, say each line when known."""

from __future__ import annotations

import argparse
import fnmatch
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tests.oracle.apache_kafka import OracleTimeout, OracleUnavailable
from tests.oracle.ottla_node import OttlaFailed

from . import load, report, servers
from .cases import Case
from .load import LoadFailed
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


@dataclass(frozen=True, kw_only=True)
class Command:
    """A series with a page of its own: `benchmarks.<name>`, made by `make bench-<name>`, which writes
    `<name>-results.md` and its plot."""

    name: str
    description: str
    repetitions: int
    cases: Callable[[], list[Case]]
    run: Callable[[argparse.Namespace, Console, Path], list[Result]]
    facts: Sequence[str]
    """What a reader must know of how it was measured."""

    def arguments(self, given: Sequence[str]) -> argparse.Namespace:
        parser = argparse.ArgumentParser(prog=f"benchmarks.{self.name}", description=self.description)
        add = parser.add_argument
        add("--only", metavar="PATTERN", help="only cases whose title holds PATTERN (a glob, or plain text)")
        add("--repetitions", type=int, default=self.repetitions, metavar="N", help="runs of a line on each side")
        add("--ottla", metavar="CMD", help="the command that starts Ottla (default: this environment's)")
        add("--output", type=Path, metavar="DIR", help=f"where {self.name}-results.md and its plot go")
        add("--check", action="store_true", help="end with status 1 when a bar was missed or a case failed")
        add("--list", action="store_true", help="print the titles of the cases and end")
        return parser.parse_args(given)

    def main(self, given: Sequence[str]) -> int:
        options = self.arguments(given)
        console = Console() if sys.stdout.isatty() else Console(width=180)
        if options.list:
            for case in chosen(self.cases(), options.only):
                print(f"{case.group}: {case.title}")
            return 0
        output: Path = options.output or (load.CACHE if options.only else Path(__file__).parent)
        output.mkdir(parents=True, exist_ok=True)
        load.CACHE.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f"{self.name}-", dir=load.CACHE))
        started = time.monotonic()
        try:
            results = self.run(options, console, scratch)
        except (LoadFailed, OracleUnavailable, OracleTimeout, OttlaFailed) as failure:
            console.print(f"the benchmarks could not run: {failure}", style="red", highlight=False)
            return 2
        finally:
            servers.remove(scratch)
        rows = report.all_rows(results)
        names = ("Ottla", "Apache Kafka")
        setting = report.Setting(names=names, repetitions=options.repetitions, data=load.CACHE, pure=False, ceiling={})
        stem = f"{self.name}-results"
        report.plot(rows, setting, output / f"{stem}.svg")
        made_by = f"make bench-{self.name}"
        page = report.markdown(rows, setting, f"{stem}.svg", told=list(self.facts), made_by=made_by)
        (output / f"{stem}.md").write_text(page)
        console.print(report.table(rows, names))
        console.print(f"{time.monotonic() - started:.0f} s; written to {output / f'{stem}.md'}", highlight=False)
        return int(options.check and report.is_short(rows))
