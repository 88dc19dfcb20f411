"""Bugs that were real once, put back: each is caught, by one of the checks that were written for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.sim.batch import Job, run_job
from ottla.sim.mutation import Mutation
from ottla.sim.mutations import MUTATIONS, mutated
from ottla.sim.options import Mode

QUICK = (
    "unclean-restart-stays-a-candidate",
    "double-ownership",
    "growth-with-stale-broker-epoch",
    "old-topic-served",
    "damaged-metadata-replayed",
)
"""Of replication, of coordinators and of disks: those that the first few seeds show."""


@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(each, marks=pytest.mark.slow if each.name in QUICK else pytest.mark.long, id=each.name)
        for each in MUTATIONS.values()
    ],
)
def test_a_historic_bug_is_caught(mutation: Mutation) -> None:
    for seed in range(mutation.seeds):
        result = run_job(Job(seed=seed, mode=Mode.SAFETY, mutation=mutation.name))
        if result.failure is not None:
            assert result.failure.split(":")[0] in mutation.breaks, result.failure
            return
    pytest.fail(f"{mutation.name} was not caught within {mutation.seeds} seeds")


def test_a_mutation_leaves_nothing_behind() -> None:
    from ottla.log.log import Log

    before = Log.__dict__["flush"]
    with mutated("recovery-point-ahead-of-flush"):
        assert Log.__dict__["flush"] is not before
    assert Log.__dict__["flush"] is before


def test_the_page_lists_them_with_their_bounds() -> None:
    page = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
    rows = [line for line in page.partition("| mutation |")[2].splitlines()[2:] if line.startswith("|")]
    expected = [
        f"| {each.name} | {each.what} | {each.seeds}{' *' if each.kinds else ''} |" for each in MUTATIONS.values()
    ]
    assert sorted(rows) == sorted(expected)
