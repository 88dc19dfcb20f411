"""`python -m benchmarks`: start both sides, run the cases, print the table, write the page and the plot."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from tests.oracle.apache_kafka import KafkaTools, OracleTimeout, OracleUnavailable
from tests.oracle.ottla_node import OttlaFailed, ottla_command

from . import load, report, series
from .cases import Case, all_cases
from .runner import Result, warm_up
from .servers import KafkaSide, OttlaSide, Side, remove

REPETITIONS, QUICK_REPETITIONS = 5, 2
WARM_UP_ROUNDS, QUICK_WARM_UP_ROUNDS = 20, 8


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description="Ottla and Apache Kafka side by side.")
    parser.add_argument("--quick", action="store_true", help="a short subset, each line measured twice only")
    parser.add_argument(
        "--only", metavar="PATTERN", help="only cases whose title holds PATTERN (a glob, or plain text)"
    )
    parser.add_argument(
        "--pure", action="store_true", help="run Ottla with OTTLA_PURE=1: without the compiled function"
    )
    parser.add_argument("--ottla", metavar="CMD", help="the command that starts Ottla (default: this environment's)")
    parser.add_argument("--control", action="store_true", help="Apache Kafka on both sides: shows the machine's noise")
    parser.add_argument("--repetitions", type=int, metavar="N", help="measure each line N times on each side")
    parser.add_argument("--output", type=Path, metavar="DIR", help="where results.md and its plot go")
    parser.add_argument("--check", action="store_true", help="end with status 1 when a bar was missed or a case failed")
    parser.add_argument("--list", action="store_true", help="print the titles of the cases and end")
    return parser.parse_args(given)


def chosen(options: argparse.Namespace) -> list[Case]:
    cases = series.chosen([case for case in all_cases() if case.quick or not options.quick], options.only)
    return [without_compiler(case) for case in cases] if options.pure else cases


def without_compiler(case: Case) -> Case:
    """The same, with the bar for those who have no compiled functions: no throughput below Apache Kafka's."""
    metrics = tuple(
        replace(metric, bar=1.0)
        if metric.bar is not None and metric.better == "more" and not metric.of_itself
        else metric
        for metric in case.metrics
    )
    return replace(case, metrics=metrics)


def make_sides(options: argparse.Namespace, tools: KafkaTools, scratch: Path) -> tuple[Side, Side]:
    kafka = KafkaSide(scratch / "kafka", tools)
    if options.control:
        return KafkaSide(scratch / "control", tools, name="Apache Kafka again"), kafka
    command = shlex.split(options.ottla) if options.ottla else ottla_command()
    # The first start, unmeasured, compiles.
    environment = {**series.COMPILED, **({"OTTLA_PURE": "1"} if options.pure else {})}
    return OttlaSide(scratch / "ottla", command, environment), kafka


def run(options: argparse.Namespace, console: Console, scratch: Path) -> tuple[list[Result], tuple[str, str]]:
    cases = chosen(options)
    repetitions = options.repetitions or (QUICK_REPETITIONS if options.quick else REPETITIONS)
    rounds = QUICK_WARM_UP_ROUNDS if options.quick else WARM_UP_ROUNDS
    with contextlib.ExitStack() as stack:
        tools = stack.enter_context(KafkaTools())
        sides = make_sides(options, tools, scratch)
        for side in sides:
            stack.callback(side.end)
        results = series.run_series(
            cases,
            sides,
            repetitions,
            console,
            warm_up=lambda tick: warm_up(sides, rounds, tick),
            warm_up_rounds=rounds if any(case.partitions for case in cases) else 0,
        )
        return results, (sides[0].name, sides[1].name)


def main(given: Sequence[str]) -> int:
    options = arguments(given)
    # Piped into a file, the table would be squeezed into 80 columns.
    console = Console() if sys.stdout.isatty() else Console(width=180)
    if options.list:
        for case in chosen(options):
            print(f"{case.group}: {case.title}")
        return 0
    if not chosen(options):
        console.print("no case has that title; --list shows them all")
        return 2
    partial = options.quick or options.only or options.control
    output: Path = options.output or (load.CACHE if partial else Path(__file__).parent)
    output.mkdir(parents=True, exist_ok=True)
    load.CACHE.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="run-", dir=load.CACHE))
    started = time.monotonic()
    try:
        ceiling = load.ceiling()
        results, names = run(options, console, scratch)
        setting = report.Setting(
            names=names,
            repetitions=options.repetitions or (QUICK_REPETITIONS if options.quick else REPETITIONS),
            data=scratch,
            pure=options.pure,
            ceiling=ceiling,
        )
        rows = report.all_rows(results)
        stem = "results-pure" if options.pure else "results"
        report.plot(rows, setting, output / f"{stem}.svg")
        (output / f"{stem}.md").write_text(report.markdown(rows, setting, f"{stem}.svg"))
    except (load.LoadFailed, OracleUnavailable, OracleTimeout, OttlaFailed) as failure:
        console.print(f"the benchmarks could not run: {failure}", style="red", highlight=False)
        return 2
    finally:
        remove(scratch)
    samples = {row.title: [row.values(side) for side in (0, 1)] for row in rows if not row.result.failure}
    (load.CACHE / "samples.json").write_text(json.dumps(samples, indent=1))
    console.print(report.table(rows, names))
    verdicts = [row.verdict for row in rows]
    counted = ", ".join(f"{verdicts.count(word)} {word}" for word in ("met", "missed", "failed"))
    busiest = max((sample.client_cpu for result in results for side in result.samples for sample in side), default=0)
    console.print(f"{counted}; the generator used at most {busiest:.2f} of a core.")
    if disturbed := sum(row.disturbed for row in rows):
        console.print(f"† {disturbed} lines were measured while other processes used the machine.", style="yellow")
    console.print(f"{time.monotonic() - started:.0f} s; written to {output / stem}.md", highlight=False)
    return int(options.check and report.is_short(rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
