"""The exactly-once sink on Apache Kafka itself, under both versions of its transactions: the steps at which a death
matters most, played without Spark as tests/spark/test_sink_crashes.py does it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from ottla.spark.sink.driver import commit, undo
from ottla.spark.sink.handover import SinkError
from tests.spark.forked import Raised
from tests.spark.sink_world import FENCED, Query, committed, create_topic, set_transaction_version

from .apache_kafka import ApacheKafka

pytestmark = pytest.mark.oracle

PARTITIONS = 2
STEPS = (
    "rows-acknowledged",
    "before-Committing-RecordDecision",
    "decision-written",
    "after-Committing-RecordDecision",
    "end-sent-1",
    "ended-1",
    "after-Committing-EndTransactions",
    "after-Committing-RecordCompletion",
)
_names = itertools.count()


@pytest.fixture(scope="module", params=[2, 1], ids=["version2", "version1"])
def bootstrap(request: pytest.FixtureRequest, apache: ApacheKafka) -> Iterator[str]:
    set_transaction_version(apache.bootstrap, request.param)
    yield apache.bootstrap
    set_transaction_version(apache.bootstrap, 2)


@pytest.fixture
def query(bootstrap: str) -> Query:
    name = f"apache-sink-{next(_names)}"
    create_topic(bootstrap, name, PARTITIONS)
    return Query(bootstrap, name, sink=name)


@pytest.mark.parametrize("driver_survives", [False, True], ids=["driver-dies", "spark-aborts"])
@pytest.mark.parametrize("step", STEPS)
def test_each_row_is_there_once(query: Query, step: str, driver_survives: bool) -> None:
    query.crashes = [step]
    query.driver_survives = driver_survives
    query.run_batch(0)
    assert query.died_at == [step]
    query.run_batch(1)
    assert committed(query.bootstrap, query.topic, PARTITIONS) == query.expected(2)


def test_what_an_attempt_that_died_left_open_ends_with_its_batch(query: Query) -> None:
    query.crashes = ["rows-acknowledged"]
    query.try_batch(0)
    assert query.died_at == ["rows-acknowledged"]
    assert committed(query.bootstrap, query.topic, PARTITIONS) == query.expected(1)


def test_a_copy_that_still_writes_is_stopped_when_its_batch_ends(query: Query) -> None:
    with pytest.raises(Raised, match=FENCED):
        query.commit_while_a_copy_writes(0)
    assert committed(query.bootstrap, query.topic, PARTITIONS) == query.expected(1)


def test_a_driver_that_was_replaced_cannot_commit_nor_harm(query: Query) -> None:
    old = query.open()
    theirs = [query.stage(old, 0, task) for task in range(query.tasks)]
    new = query.open()
    ours = [query.stage(new, 0, task) for task in range(query.tasks)]
    with pytest.raises(SinkError, match="not open any more"):
        commit(query.sink_options, theirs)
    undo(query.sink_options, theirs)
    commit(query.sink_options, ours)
    assert committed(query.bootstrap, query.topic, PARTITIONS) == query.expected(1)
