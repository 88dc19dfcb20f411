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
    """By a checker. Where a node may trip over the bug by itself (`BUG`), that seed proves no checker, and the next one
    is asked."""
    tripped = 0
    for seed in range(mutation.seeds):
        result = run_job(Job(seed=seed, mode=Mode.SAFETY, mutation=mutation.name))
        if result.failure is None:
            continue
        assert not result.failure.startswith("BUG: in the simulation"), result.failure
        noticed = result.failure.partition(":")[0]
        assert noticed in mutation.breaks, result.failure
        if noticed != "BUG":
            return
        tripped += 1
    pytest.fail(f"no checker caught {mutation.name} within {mutation.seeds} seeds; nodes tripped over it in {tripped}")


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
