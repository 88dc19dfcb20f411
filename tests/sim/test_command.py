"""`ottla sim` as a command: what it prints, when it fails, and how a long run is taken up again."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.sim import batch
from ottla.sim.batch import MUST_HAPPEN_SEEDS, Job, Progress, Summary
from ottla.sim.faults import KINDS
from ottla.sim.mutations import MUTATIONS
from ottla.sim.options import FAULTS_MIN, SECONDS, Mode, expand
from ottla.sim.run import Result, Simulation

EVENTS = ("elections", "truncations", "snapshot loads")


def result(seed: int, *, failure: str | None = None, without: tuple[str, ...] = (), mode: Mode = Mode.SAFETY) -> Result:
    return Result(
        seed=seed,
        mode=mode,
        failure=failure,
        digest=f"{seed:016x}",
        simulated_s=60.0,
        real_s=2.0,
        cpu_s=1.5,
        counts={event: 0 if event in without else 1 for event in EVENTS},
        faults={kind: 1 for kind in KINDS if kind not in without},
        options="three nodes",
    )


def run(
    monkeypatch: pytest.MonkeyPatch,
    *arguments: str,
    without: tuple[str, ...] = (),
    fails: tuple[int, ...] = (),
    columns: int = 200,
) -> tuple[int, list[str], list[int]]:
    """The command over seeds that are made up: its status, what it printed, and which seeds it ran."""
    ran: list[int] = []

    def made_up(job: Job) -> Result:
        ran.append(job.seed)
        failure = "A1: a committed batch is missing" if job.seed in fails else None
        return result(job.seed, failure=failure, without=without, mode=job.mode)

    monkeypatch.setattr(batch, "run_job", made_up)
    done = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, ["sim", *arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output.splitlines(), ran


def test_the_summary_has_every_fault_every_event_and_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    status, printed, ran = run(monkeypatch, "--seeds", "0-4,9")
    assert (status, ran) == (0, [0, 1, 2, 3, 4, 9])
    page = "\n".join(printed)
    for name in (*KINDS, *EVENTS):
        assert name in page, name
    assert printed[-2:] == [
        "6 seeds, 360 simulated seconds, 30 simulated seconds per real second and process (40 per second of CPU)",
        "Everything that must hold held.",
    ]


def test_a_seed_counts_all_that_must_happen_over_many() -> None:
    """What is left out of the counts could never be missed."""
    counted = Simulation(expand(0, Mode.SAFETY, kinds=tuple(KINDS))).inspection.counts()
    wanted = ("elections", "truncations", "isr shrinks", "isr growths", "unclean restarts", "snapshot loads")
    assert {*wanted, "voter changes", "quorum elections", "operations", "acknowledged"} <= set(counted)


def test_who_waits_for_one_seed_is_told_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, printed, _ = run(monkeypatch, "--seed", "7", "--story")
    assert printed[0] == "seed 7 runs; this takes some seconds"
    assert printed[-2].startswith("1 seed, ")


def test_the_last_line_is_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one seed as of many. A run that failed, or that proves too little, does not end with it."""
    held = "Everything that must hold held."
    for seeds in (("--seed", "7", "--story"), ("--seed", "7"), ("--seeds", "0-2")):
        assert run(monkeypatch, *seeds)[1][-1] == held
        assert held not in run(monkeypatch, *seeds, fails=(2, 7))[1]
    enough = ("--seeds", f"0-{MUST_HAPPEN_SEEDS - 1}")
    assert held not in run(monkeypatch, *enough, without=("bit flip",))[1]


def test_a_failure_prints_how_to_replay_it_and_the_seeds_on_the_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    status, printed, _ = run(monkeypatch, "--seeds", "0-9", "--mode", "liveness", fails=(7, 3))
    assert status == 1
    assert "seed 3 fails: A1: a committed batch is missing" in printed
    assert "  replay: ottla sim --seed 3 --mode liveness --story" in printed
    assert printed[-1] == "failing seeds: 3 7"


def test_what_replays_a_failure_is_one_line_with_all_that_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """However narrow the terminal is."""
    chosen = ("--nodes", "1", "--seconds", "2.5", "--mutation", "ack-before-fsync")
    _, printed, _ = run(monkeypatch, "--seed", "3", *chosen, fails=(3,), columns=40)
    assert f"  replay: ottla sim --seed 3 --mode safety {' '.join(chosen)} --story" in printed


def test_a_seed_with_few_faults_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    few = tuple(KINDS)[FAULTS_MIN - 1 :]
    assert f"seeds with fewer than {FAULTS_MIN} faults: 4 5" in run(monkeypatch, "--seeds", "4-5", without=few)[1]
    enough = tuple(KINDS)[FAULTS_MIN:]
    assert "seeds with fewer" not in "\n".join(run(monkeypatch, "--seeds", "4-5", without=enough)[1])


@pytest.mark.parametrize("name", ["bit flip", "snapshot loads"])
def test_what_never_happens_fails_a_long_run(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Of faults and of events alike; a short run proves nothing about either."""
    enough = f"0-{MUST_HAPPEN_SEEDS - 1}"
    status, printed, _ = run(monkeypatch, "--seeds", enough, without=(name,))
    assert status == 1
    assert f"never happened in {MUST_HAPPEN_SEEDS} seeds: {name}" in printed
    assert run(monkeypatch, "--seeds", enough)[0] == 0
    assert run(monkeypatch, "--seeds", "0-9", without=(name,))[0] == 0


def test_a_run_is_taken_up_where_it_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What has passed counts in the summary, and what has failed is run again."""
    resume = ("--resume", str(tmp_path))
    assert run(monkeypatch, "--seeds", "0-5", *resume, fails=(2,))[2] == [0, 1, 2, 3, 4, 5]
    status, printed, ran = run(monkeypatch, "--seeds", "0-7", *resume)
    assert (status, ran) == (0, [2, 6, 7])
    assert printed[0] == "5 of 8 seeds have passed before with this build."
    assert printed[-2].startswith("8 seeds, 480 simulated seconds, ")
    for other in (("--mode", "liveness"), ("--nodes", "1"), ("--seconds", "2"), ("--nodes", "1", "--seconds", "2")):
        assert run(monkeypatch, "--seeds", "0-7", *other, *resume)[2] == list(range(8)), other
    assert run(monkeypatch, "--seeds", "0-7", *resume)[2] == []
    monkeypatch.setattr(batch, "build_identity", lambda: "another")
    assert run(monkeypatch, "--seeds", "0-7", *resume)[2] == list(range(8))


def test_what_passed_without_a_bug_is_run_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    resume = ("--resume", str(tmp_path))
    run(monkeypatch, "--seeds", "0-2", *resume)
    broken = ("--seeds", "0-2", "--mutation", "ack-before-fsync", *resume)
    for _ in range(2):  # Nor does passing with the bug prove anything for later.
        assert run(monkeypatch, *broken)[2] == [0, 1, 2]


def test_what_is_kept_of_a_seed_is_what_the_summary_needs(tmp_path: Path) -> None:
    Progress(tmp_path, Mode.SAFETY, nodes=None, seconds=SECONDS).note(result(4))
    kept = Progress(tmp_path, Mode.SAFETY, nodes=None, seconds=SECONDS).done[4]
    one, other = Summary(), Summary()
    one.add(result(4))
    other.add(kept)
    assert one == other


def test_a_story_is_a_timeline_that_ends_with_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    told = replace(result(7), story=[(0.5, "n1", "leads t-0 in epoch 1 from 0"), (61.25, "faults", "[n2] is paused")])
    monkeypatch.setattr(batch, "run_job", lambda job: told)
    done = CliRunner(env={"COLUMNS": "40"}).invoke(app, ["sim", "--seed", "7", "--story"])
    assert done.exit_code == 0
    assert done.stdout.splitlines()[:4] == [
        "seed 7: three nodes",
        "    0.5000  n1          leads t-0 in epoch 1 from 0",
        "   61.2500  faults      [n2] is paused",
        f"trace {7:016x}",
    ]


def test_who_waits_for_many_seeds_sees_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, and nowhere else."""
    monkeypatch.setattr(batch, "run_job", lambda job: result(job.seed))
    for environment, shown in (({"FORCE_COLOR": "1", "TERM": "xterm"}, True), ({}, False)):
        done = CliRunner(env={"COLUMNS": "100", **environment}).invoke(app, ["sim", "--seeds", "0-4"])
        assert done.exit_code == 0
        assert ("5/5" in done.output) is shown


def test_the_bugs_that_can_be_put_in_are_listed() -> None:
    done = CliRunner(env={"COLUMNS": "250"}).invoke(app, ["sim", "--mutations"])
    assert done.exit_code == 0
    assert len(MUTATIONS) >= 12
    for mutation in MUTATIONS.values():
        (line,) = [line for line in done.output.splitlines() if f" {mutation.name} " in line]
        assert mutation.what in line
        assert f" {mutation.seeds} " in line


def test_the_page_has_every_bug_with_the_number_of_its_seeds() -> None:
    """And a star at those that are looked for with certain faults alone."""
    page = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
    for mutation in MUTATIONS.values():
        star = r" \*" if mutation.kinds else ""
        assert re.search(rf"^\| {mutation.name} \| .* \| {mutation.seeds}{star} \|$", page, re.MULTILINE), mutation.name


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--seed", "-1"), "Invalid value for '--seed'"),
        (("--seeds", "-1"), "not of the form"),
        (("--nodes", "0"), "Invalid value for '--nodes'"),
        (("--jobs", "0"), "Invalid value for '--jobs'"),
        (("--seeds", "few"), "not of the form"),
        (("--seeds", "5-1"), "names no seed"),
        (("--mode", "mixed"), "none of safety, liveness"),
        (("--mutation", "none-such"), "--mutations lists them"),
        (("--seconds", "0"), "more than none"),
    ],
)
def test_a_wrong_option_is_named(arguments: tuple[str, ...], complaint: str) -> None:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["sim", *arguments])
    assert done.exit_code != 0
    assert complaint in f"{done.output}{done.exception}"
