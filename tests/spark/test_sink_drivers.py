"""The whole of Spark dies, driver and all, at a step of the sink; started again from its checkpoint, it ends well."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.spark.crash_points import VARIABLE
from tests.spark.conftest import Broker
from tests.spark.sink_world import committed, create_topic

pytestmark = [pytest.mark.spark, pytest.mark.long]

PROGRAM = Path(__file__).with_name("sink_program.py")


def run(node: Broker, topic: str, directory: Path) -> int:
    """In a session of its own, so that everything which belongs to it can be killed at once."""
    plan = {VARIABLE: f"@{directory / 'plan'}"}
    with (directory / "output").open("a") as output:
        return subprocess.run(
            [sys.executable, str(PROGRAM), node.bootstrap, topic, str(directory / "in"), str(directory / "checkpoint")],
            env={**os.environ, **plan},
            stdout=output,
            stderr=output,
            start_new_session=True,
            timeout=600,
            check=False,
        ).returncode


@pytest.mark.parametrize(
    "step",
    [
        "rows-acknowledged!",
        "before-Committing-RecordDecision!",
        "decision-written!",
        "after-Committing-RecordDecision!",
        "ended-1!",
        "after-Committing-RecordCompletion!",
        "after-Opening-TakeClaim!",
    ],
)
def test_a_driver_dies_with_all_its_processes(node: Broker, topic: str, tmp_path: Path, step: str) -> None:
    create_topic(node.bootstrap, topic, 2)
    (tmp_path / "in").mkdir()
    for file in range(2):
        (tmp_path / "in" / f"{file}.txt").write_text("".join(f"{file}/{line}\n" for line in range(50)))
    (tmp_path / "plan").write_text(step)
    assert run(node, topic, tmp_path) != 0, (tmp_path / "output").read_text()
    assert not (tmp_path / "plan").exists(), "it died there"
    assert run(node, topic, tmp_path) == 0, (tmp_path / "output").read_text()
    found = committed(node.bootstrap, topic, 2)
    assert sorted(found.elements()) == sorted(f"{file}/{line}" for file in range(2) for line in range(50))


def test_a_task_that_dies_is_tried_again_within_the_batch(node: Broker, topic: str, tmp_path: Path) -> None:
    create_topic(node.bootstrap, topic, 2)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.txt").write_text("".join(f"{line}\n" for line in range(50)))
    (tmp_path / "plan").write_text("rows-acknowledged")
    assert run(node, topic, tmp_path) == 0, (tmp_path / "output").read_text()
    assert not (tmp_path / "plan").exists(), "one of its tasks died"
    found = committed(node.bootstrap, topic, 2)
    assert sorted(found.elements(), key=int) == [str(line) for line in range(50)]
