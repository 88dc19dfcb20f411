"""Whole simulations: the same seed is the same story, and a bounded number of seeds find nothing wrong.

`make test` runs many more of them by the command, and `make sim SEEDS=…` as many as you like.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ottla.sim import run as simulation
from ottla.sim.batch import Job, Summary, run_job
from ottla.sim.faults import damage
from ottla.sim.options import FAULTS_MIN, Mode
from ottla.sim.run import Result, run_seed
from ottla.sim.volume import FileNode

pytestmark = pytest.mark.slow


def run(seed: int, mode: Mode = Mode.SAFETY, *, nodes: int | None = None, seconds: float = 60.0) -> Result:
    return run_job(Job(seed=seed, mode=mode, nodes=nodes, seconds=seconds))


@pytest.mark.long
def test_the_same_seed_gives_the_same_trace() -> None:
    first, second = run(5, nodes=3, seconds=20), run(5, nodes=3, seconds=20)
    assert first.digest == second.digest
    assert first.story == second.story
    assert run(6, nodes=3, seconds=20).digest != first.digest


@pytest.mark.slow
def test_the_trace_does_not_depend_on_the_process() -> None:
    """Nor on the order that hashes give to sets, which differs from process to process."""
    program = (
        "from ottla.sim.batch import Job, run_job; from ottla.sim.options import Mode;"
        "print([run_job(Job(seed=seed, mode=Mode.SAFETY, seconds=30)).digest for seed in (17, 40)])"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "4242")
    }
    assert len(digests) == 1


def test_a_node_alone_keeps_its_promises() -> None:
    """On a disk that loses whatever was not synced, with every append synced."""
    summary = Summary()
    for seed in range(3):
        result = run(seed, nodes=1)
        assert result.failure is None, f"seed {seed}: {result.failure}"
        summary.add(result)
    assert summary.simulated_s >= 180
    assert sum(summary.faults.values()) >= 30
    assert summary.counts["acknowledged"] > 500
    assert summary.counts["unclean restarts"] > 5


def test_groups_and_compaction_on_a_node_alone() -> None:
    """Clients have nobody else to ask, and what was lost on the way is sent again."""
    result = run_seed(1, nodes=1, seconds=20, with_groups=True, with_compaction=True)
    assert result.failure is None, result.failure
    for event in ("assignments", "offsets committed", "segments compacted", "records compacted away"):
        assert result.counts[event] > 0, event


@pytest.mark.long
@pytest.mark.parametrize("mode", Mode, ids=lambda mode: mode.value)
def test_clusters_keep_their_promises(mode: Mode) -> None:
    summary = Summary()
    for seed in range(8):
        result = run(seed, mode)
        assert result.failure is None, f"seed {seed}: {result.failure}"
        assert result.simulated_s >= 60
        assert sum(result.faults.values()) >= 10
        assert result.counts["operations"] >= 20 * 60
        summary.add(result)
    assert summary.counts["acknowledged"] > 8 * 400
    for event in ("elections", "truncations", "isr shrinks", "isr growths", "unclean restarts", "quorum elections"):
        assert summary.counts[event] > 0, event


@pytest.mark.slow
def test_damage_at_rest_is_counted_where_there_was_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "MORE_TROUBLE_S", 0.0)
    assert run_seed(1, nodes=2, seconds=12, kinds=("bit flip",)).faults["bit flip"] > 0
    monkeypatch.setattr(damage, "flip", lambda node, random: None)
    result = run_seed(1, nodes=2, seconds=12, kinds=("bit flip",))
    assert (result.failure, result.faults) == (None, {})
    assert "could strike only 0 times" in [what for _, _, what in result.story]


@pytest.mark.slow
def test_torn_writes_are_counted_where_something_was_torn(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_seed(1, nodes=3, seconds=12, kinds=("torn write",))
    assert result.failure is None, result.failure
    assert result.faults["torn write"] > 0
    monkeypatch.setattr(FileNode, "_surviving", lambda node, random: ([], 0))
    assert set(run_seed(1, nodes=3, seconds=12, kinds=("torn write",)).faults) == {"power loss"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["silent return", "metadata damage"])
def test_what_takes_several_steps_happens_and_costs_nothing(kind: str) -> None:
    result = run_seed(3, nodes=5, seconds=30, kinds=(kind,))
    assert result.failure is None, result.failure
    assert result.faults[kind] > 0


@pytest.mark.slow
def test_trouble_goes_on_until_there_was_enough_of_it() -> None:
    """Where most of what the seed allows could not be done: within the minute only seven faults strike."""
    result = run(64)
    assert result.failure is None, result.failure
    assert sum(result.faults.values()) >= FAULTS_MIN
    assert not [what for _, _, what in result.story if what.startswith("could strike only")]


@pytest.mark.parametrize(
    "seed",
    [
        # Metadata in one batch: a lower minimum in sync, and a new leader. The old one must not commit alone first.
        51,
        # A control batch that follows a batch of the controller before that has been replayed.
        68,
        # All of a partition's followers out of sync, at the log's end, and nobody able to write.
        7,
        # A leader of the quorum that was deposed hears late how far the others had been.
        90,
    ],
)
@pytest.mark.long
def test_seeds_that_found_something_once(seed: int) -> None:
    result = run(seed)
    assert result.failure is None, result.failure
