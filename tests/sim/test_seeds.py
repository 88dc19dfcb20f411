"""Whole simulations: the same seed is the same story, and a bounded number of seeds find nothing wrong."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ottla.sim.batch import Job, Summary, run_job
from ottla.sim.options import Mode
from ottla.sim.run import Result


def run(seed: int, **changes: object) -> Result:
    return run_job(Job(seed=seed, mode=Mode.SAFETY, nodes=1, seconds=60.0))


def test_the_same_seed_gives_the_same_trace() -> None:
    first, second = run(5), run(5)
    assert first.digest == second.digest
    assert first.story == second.story
    assert run(6).digest != first.digest


def test_the_trace_does_not_depend_on_the_process() -> None:
    """Nor on the order that hashes give to sets, which differs from process to process."""
    program = (
        "from ottla.sim.batch import Job, run_job; from ottla.sim.options import Mode;"
        "print(run_job(Job(seed=5, mode=Mode.SAFETY, nodes=1)).digest)"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "4242")
    }
    assert len(digests) == 1


@pytest.mark.parametrize("first", [0, 5])
def test_a_node_alone_keeps_its_promises(first: int) -> None:
    summary = Summary()
    for seed in range(first, first + 5):
        result = run(seed)
        assert result.failure is None, f"seed {seed}: {result.failure}"
        summary.add(result)
    assert summary.simulated_s >= 300
    assert summary.counts["acknowledged"] > 1000
    assert sum(summary.faults.values()) >= 50
    assert summary.counts["unclean restarts"] > 10
