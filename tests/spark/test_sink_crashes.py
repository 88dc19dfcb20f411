"""A process of the sink dies, at every step that it has a name for; a reader of committed records sees each row once.

Two batches, the first of which meets the crash. What Spark does is played by `sink_world.Query`: a task that died is
tried again, a driver that died starts again from its checkpoint, and where only its Python process died it aborts.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import pytest

from ottla.spark.sink import two_phase
from ottla.spark.sink.two_phase import Committing, Done, Effect, Failed, Opening, Undoing
from tests.node_process import NodeProcess, running_node
from tests.spark.sink_world import Query, committed, create_topic, set_transaction_version

pytestmark = pytest.mark.slow

PARTITIONS = 2
TASK = ("before-begin", "after-begin", "rows-sent", "rows-acknowledged")
OPENING = tuple(
    f"{when}-Opening-{effect}"
    for effect in ("TakeClaim", "ReadDecisions", "FindOrphans")
    for when in ("before", "after")
)
BEFORE_DECISION = (
    "before-Committing-LookAt",
    "after-Committing-LookAt",
    "before-Committing-RecordDecision",
    "decision-written",
)
AFTER_DECISION = (
    "after-Committing-RecordDecision",
    "before-Committing-EndTransactions",
    *(f"end-sent-{number}" for number in (1, 2)),
    *(f"ended-{number}" for number in (1, 2)),
    "after-Committing-EndTransactions",
    "before-Committing-RecordCompletion",
    "after-Committing-RecordCompletion",
)
FINISHING = (
    "before-Opening-EndTransactions",
    "end-sent-2",
    "ended-1",
    "after-Opening-EndTransactions",
    "before-Opening-RecordCompletion",
    "after-Opening-RecordCompletion",
)
UNDOING_UNDECIDED = (
    "before-Undoing-TakeClaim",
    "after-Undoing-TakeClaim",
    "after-Undoing-ReadDecisions",
    "ended-1",
    "after-Undoing-EndTransactions",
    "after-Undoing-FindOrphans",
)
UNDOING_DECIDED = (
    "after-Undoing-TakeClaim",
    "after-Undoing-ReadDecisions",
    "ended-2",
    "after-Undoing-EndTransactions",
    "after-Undoing-RecordCompletion",
    "after-Undoing-FindOrphans",
)
LEFT_OPEN = "before-Committing-FenceOrphans"
SWEEPING = (
    LEFT_OPEN,
    "before-Committing-FindOrphans",
    "after-Committing-FindOrphans",
    "after-Committing-FenceOrphans",
)
SWEEPING_WHEN_OPENED = ("before-Opening-FenceOrphans", "after-Opening-FenceOrphans")
SWEEPING_WHEN_UNDONE = ("before-Undoing-FenceOrphans", "after-Undoing-FenceOrphans")


BOTH = pytest.mark.parametrize("node", [2, 1], indirect=True, ids=["version2", "version1"])
"""Levels of `transaction.version`: where a transaction is ended, the rules differ."""
ONE_NOW = pytest.mark.parametrize(
    "node", [2, pytest.param(1, marks=pytest.mark.long)], indirect=True, ids=["version2", "version1"]
)


def first_now(steps: Sequence[str]) -> list[object]:
    """The others take as long again, and are for `make long`."""
    return [pytest.param(step, marks=[pytest.mark.long] if place else []) for place, step in enumerate(steps)]


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp(f"sink-{request.param}")) as running:
        if request.param != 2:
            set_transaction_version(running.bootstrap, request.param)
        yield running


_names = itertools.count()


@pytest.fixture
def query(node: NodeProcess) -> Query:
    name = f"crashes-{next(_names)}"
    create_topic(node.bootstrap, name, PARTITIONS)
    return Query(node.bootstrap, name, sink=name)


def play(query: Query, *crashes: str, driver_survives: bool = False) -> None:
    """Two batches, and the judgement."""
    query.crashes = list(crashes)
    query.driver_survives = driver_survives
    query.run_batch(0)
    assert not query.crashes, f"{query.crashes} was never reached, after {query.died_at}"
    query.driver_survives = False
    query.run_batch(1)
    assert committed(query.bootstrap, query.topic, PARTITIONS) == query.expected(2)


@ONE_NOW
@pytest.mark.parametrize("step", TASK)
def test_a_task_dies(query: Query, step: str) -> None:
    play(query, step)


@ONE_NOW
@pytest.mark.parametrize("step", OPENING)
def test_the_driver_dies_while_it_opens_the_sink(query: Query, step: str) -> None:
    play(query, step)


@BOTH
@pytest.mark.parametrize("step", [*BEFORE_DECISION, *AFTER_DECISION])
def test_the_driver_dies_while_it_commits(query: Query, step: str) -> None:
    play(query, step)


@BOTH
@pytest.mark.parametrize("step", [*BEFORE_DECISION, *AFTER_DECISION])
def test_its_python_process_dies_while_it_commits_and_spark_aborts(query: Query, step: str) -> None:
    play(query, step, driver_survives=True)


@ONE_NOW
@pytest.mark.parametrize("step", FINISHING)
def test_the_driver_dies_again_while_it_finishes_what_was_decided(query: Query, step: str) -> None:
    play(query, "after-Committing-RecordDecision", step)


@ONE_NOW
@pytest.mark.parametrize("step", UNDOING_UNDECIDED)
def test_the_driver_dies_again_while_it_aborts(query: Query, step: str) -> None:
    play(query, "before-Committing-RecordDecision", step, driver_survives=True)


@ONE_NOW
@pytest.mark.parametrize("step", UNDOING_DECIDED)
def test_the_driver_dies_again_while_it_finishes_instead_of_aborting(query: Query, step: str) -> None:
    play(query, "after-Committing-RecordDecision", step, driver_survives=True)


@ONE_NOW
@pytest.mark.parametrize("driver_survives", [False, True], ids=["driver-dies", "spark-aborts"])
@pytest.mark.parametrize("step", first_now(SWEEPING))
def test_the_driver_dies_while_it_ends_what_an_attempt_left_open(
    query: Query, step: str, driver_survives: bool
) -> None:
    play(query, "rows-acknowledged", step, driver_survives=driver_survives)


@ONE_NOW
@pytest.mark.parametrize("step", first_now(SWEEPING_WHEN_OPENED))
def test_the_next_driver_dies_while_it_ends_what_an_attempt_left_open(query: Query, step: str) -> None:
    play(query, "rows-acknowledged", LEFT_OPEN, step)


@ONE_NOW
@pytest.mark.parametrize("step", first_now(SWEEPING_WHEN_UNDONE))
def test_the_driver_dies_while_it_aborts_what_an_attempt_left_open(query: Query, step: str) -> None:
    play(query, "rows-acknowledged", LEFT_OPEN, step, driver_survives=True)


def test_every_named_step_of_a_task_and_a_driver_is_tried() -> None:
    """A step of the sink that is added must be added here too."""
    driver = {*OPENING, *BEFORE_DECISION, *AFTER_DECISION, *FINISHING, *UNDOING_UNDECIDED, *UNDOING_DECIDED}
    tried = {*TASK, *driver, *SWEEPING, *SWEEPING_WHEN_OPENED, *SWEEPING_WHEN_UNDONE}
    text = "".join(path.read_text() for path in Path(two_phase.__file__).parent.glob("*.py"))
    named = set(re.findall(r'reached\(f?"([^"{]+)', text))  # With a number or a machine's step behind it, perhaps.
    assert named >= {"rows-sent", "decision-written", "ended-", "before-"}, "steps are looked for where they are"
    assert {name for name in named if not any(step.startswith(name) for step in tried)} == set()
    effects = [kind.__name__ for kind in get_args(Effect) if kind not in (Done, Failed)]
    asked = {
        f"{machine.__name__}-{effect}"
        for machine in (Opening, Committing, Undoing)
        for effect in effects
        if f" {effect}(" in inspect.getsource(machine)
    }
    assert asked >= {"Opening-FenceOrphans", "Committing-RecordDecision", "Undoing-EndTransactions"}
    assert asked - {step.partition("-")[2] for step in tried} == set()
