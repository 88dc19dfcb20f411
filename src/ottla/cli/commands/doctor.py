"""`ottla doctor`: what is wrong with a cluster, and what to do about it."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Annotated

import typer

from ottla.admin import health
from ottla.cli.output import visible
from ottla.cli.session import Session, command, single
from ottla.cli.times import now_ms, parse_duration

app = single()


@command(app, "doctor", examples=["ottla doctor", "ottla doctor --lag 1000 --json"])
def doctor(
    session: Session,
    lag: Annotated[int, typer.Option(help="A group that is so far behind is worth a word.")] = 10_000,
    skew: Annotated[str, typer.Option(help="Clocks may differ by so much.")] = "5s",
    free: Annotated[
        float | None,
        typer.Option(help="So many percent of a volume should be free. By default 10, unless 20 GiB are."),
    ] = None,
    hanging: Annotated[str, typer.Option(help="A transaction may be silent for so long.")] = "15m",
) -> None:
    """Find what is wrong with a cluster and say what to do about it. Status 1 if anything is."""
    limits = health.Limits(
        group_lag=lag,
        clock_skew_ms=parse_duration(skew),
        hanging_ms=parse_duration(hanging),
    )
    if free is not None:
        limits = replace(limits, free_share_min=free / 100, free_bytes_enough=inf)
    with session.out.waiting("Not everybody answers at once; this may take a minute …"), session.client() as client:
        found = health.examine(client, clock=now_ms, limits=limits)
    for each in found:
        session.out.item(
            {"severity": each.severity, "subject": each.subject, "problem": each.problem, "advice": each.advice},
            visible(f"{each.severity}: {each.subject}: {each.problem} {each.advice}"),
        )
    if not found:
        session.out.note("Nothing is wrong.")
    else:
        raise typer.Exit(1)
