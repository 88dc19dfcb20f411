"""`ottla sim`: clusters of real nodes in one process, under seeds, with everything failing around them."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ottla.cli.output import plural
from ottla.errors import UsageError
from ottla.sim.batch import Job, Summary, run_jobs
from ottla.sim.batch import Progress as Done
from ottla.sim.faults import KINDS
from ottla.sim.mutations import MUTATIONS
from ottla.sim.options import FAULTS_MIN, SECONDS, Mode
from ottla.sim.run import Result


def parse_seeds(text: str) -> list[int]:
    """`7`, `0-99` or `3,10-12`."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            seeds += range(int(first), int(last if dash else first) + 1)
        except ValueError:
            raise UsageError(f"--seeds {text} is not of the form 0-99.") from None
    if not seeds:
        raise UsageError(f"--seeds {text} names no seed: the smaller number comes first, as in 0-99.")
    return seeds


def run_sim(
    *,
    seeds: list[int],
    mode: str,
    nodes: int | None,
    seconds: float,
    jobs: int,
    story: bool,
    mutation: str | None,
    resume: Path | None,
) -> None:
    """Exits with status 1 if any seed fails; its number is on the last line, where else the verdict is."""
    try:
        chosen = Mode(mode)
    except ValueError:
        raise UsageError(f"--mode {mode} is none of {', '.join(each.value for each in Mode)}.") from None
    if mutation is not None and mutation not in MUTATIONS:
        raise UsageError(f"--mutation {mutation} is not known: --mutations lists them.")
    if seconds <= 0:
        raise UsageError("--seconds must be more than none.")
    console = Console(highlight=False)
    # With a bug put back nothing is proved for later, and what passed without it says nothing.
    done = None
    if resume is not None and mutation is None:
        done = Done(resume, chosen, nodes=nodes, seconds=seconds)
    wanted = [seed for seed in seeds if done is None or seed not in done.done]
    if done is not None and len(wanted) < len(seeds):
        console.print(f"{len(seeds) - len(wanted)} of {len(seeds)} seeds have passed before with this build.")
    work = [Job(seed=seed, mode=chosen, nodes=nodes, seconds=seconds, mutation=mutation) for seed in wanted]
    if len(work) == 1:  # More have a bar.
        print(f"seed {work[0].seed} runs; this takes some seconds", file=sys.stderr, flush=True)
    summary = Summary()
    if done is not None:
        for seed in seeds:
            if seed in done.done:
                summary.add(done.done[seed])
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=len(work) < 2,
    ) as progress:
        task = progress.add_task(f"{chosen.value}", total=len(work))
        for result in run_jobs(work, jobs):
            summary.add(result)
            if done is not None:
                done.note(result)
            if story:
                _tell(console, result)
            if result.failure is not None:
                _report(console, result, _choices(nodes, seconds, mutation))
            progress.advance(task)
    if summary.seeds > 1 or not story:
        _summarise(console, summary)
    if summary.quiet:
        seeds_named = " ".join(map(str, sorted(summary.quiet)))
        console.print(f"seeds with fewer than {FAULTS_MIN} faults: {seeds_named}", soft_wrap=True)
    missing = summary.never_happened(KINDS)
    if missing:
        console.print(f"never happened in {summary.seeds} seeds: {', '.join(missing)}")
    console.print(
        f"{plural(summary.seeds, 'seed')}, {summary.simulated_s:.0f} simulated seconds, {summary.speed}", soft_wrap=True
    )
    if summary.failures:
        failing = " ".join(str(result.seed) for result in sorted(summary.failures, key=lambda each: each.seed))
        console.print(f"failing seeds: {failing}")
    if summary.failures or missing:
        sys.exit(1)
    console.print("Everything that must hold held.")


def _choices(nodes: int | None, seconds: float, mutation: str | None) -> str:
    """What it takes, beside the seed and the mode, to run a simulation again."""
    return "".join(
        (
            "" if nodes is None else f" --nodes {nodes}",
            "" if seconds == SECONDS else f" --seconds {seconds}",
            "" if mutation is None else f" --mutation {mutation}",
        )
    )


def _report(console: Console, result: Result, choices: str) -> None:
    for line in (
        f"seed {result.seed} fails: {result.failure}",
        f"  {result.options}",
        f"  replay: ottla sim --seed {result.seed} --mode {result.mode.value}{choices} --story",
    ):
        console.print(line, markup=False, soft_wrap=True)


def _tell(console: Console, result: Result) -> None:
    console.print(f"seed {result.seed}: {result.options}", markup=False)
    for when, who, what in result.story:
        console.print(f"{when:10.4f}  {who:<10}  {what}", markup=False, soft_wrap=True)
    console.print(f"trace {result.digest}", markup=False)


def _summarise(console: Console, summary: Summary) -> None:
    table = Table(show_header=True, header_style="bold")
    table.add_column("faults")
    table.add_column("", justify="right")
    table.add_column("events")
    table.add_column("", justify="right")
    faults = sorted(summary.faults.items())
    events = list(summary.counts.items())
    for at in range(max(len(faults), len(events))):
        fault = faults[at] if at < len(faults) else ("", "")
        event = events[at] if at < len(events) else ("", "")
        table.add_row(fault[0], str(fault[1]), event[0], str(event[1]))
    console.print(table)


def list_mutations() -> None:
    console = Console(highlight=False)
    table = Table(show_header=True, header_style="bold")
    for column in ("mutation", "breaks", "what it does", "within seeds"):
        table.add_column(column)
    for mutation in MUTATIONS.values():
        table.add_row(mutation.name, ", ".join(mutation.breaks), mutation.what, str(mutation.seeds))
    console.print(table)
