"""What the sink promises beside crashes: about copies of tasks and drivers, timeouts, batches that come again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import admin

from ottla.client.blocking import CoordinatorKind
from ottla.errors import ErrorCode, KafkaError
from ottla.spark.sink import decision_log, driver
from ottla.spark.sink.connections import connections
from ottla.spark.sink.driver import commit, open_sink, undo
from ottla.spark.sink.handover import OpenSink, SinkError, TaskResult
from ottla.spark.sink.staging import _take_id
from ottla.spark.sink.two_phase import Claim, Staged
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from tests.node_process import NodeProcess, running_node
from tests.spark.forked import Died, Raised
from tests.spark.sink_world import (
    FENCED,
    Query,
    committed,
    create_topic,
    open_partitions,
    rows_of,
    set_transaction_version,
    wait_until_stable,
)

pytestmark = pytest.mark.slow

PARTITIONS = 2
FIRST = Claim(1, 0)
_names = itertools.count()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One that looks for transactions which have timed out ten times a second."""
    setting = "transaction.abort.timed.out.transaction.cleanup.interval.ms=100"
    with running_node(tmp_path_factory.mktemp("protocol"), "--set", setting) as running:
        yield running


@pytest.fixture
def new_query(node: NodeProcess) -> Callable[..., Query]:
    def make(**options: str) -> Query:
        name = f"protocol-{next(_names)}"
        create_topic(node.bootstrap, name, PARTITIONS)
        return Query(node.bootstrap, name, sink=name, options=options)

    return make


def rows(query: Query) -> list[str]:
    return sorted(committed(query.bootstrap, query.topic, PARTITIONS).elements())


def stage_all(query: Query, opened: OpenSink, batch_id: int) -> list[TaskResult]:
    return [query.stage(opened, batch_id, task) for task in range(query.tasks)]


def test_of_two_copies_of_a_task_one_is_committed(new_query: Callable[..., Query]) -> None:
    """Speculation: both have staged everything, and Spark names one of them. The other ends with the batch."""
    query = new_query()
    opened = query.open()
    results: list[TaskResult | None] = [query.run_task(opened, 0, task) for task in range(query.tasks)]
    assert query.run_task(opened, 0, 1) is not None
    query.commit(results)
    assert rows(query) == sorted(query.expected(1).elements())


@pytest.fixture(params=[2, 1], ids=["version2", "version1"])
def level(node: NodeProcess, request: pytest.FixtureRequest) -> Iterator[int]:
    """Of `transaction.version`, as the processes that are forked from now on find it."""
    set_transaction_version(node.bootstrap, request.param)
    yield request.param
    set_transaction_version(node.bootstrap, 2)


def test_what_an_attempt_that_died_left_open_ends_with_its_batch(
    level: int, new_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No batch comes after it, and it is not time to look for such: the second attempt tells of the first."""
    query = new_query()
    monkeypatch.setitem(driver._swept_s, query.sink, math.inf)
    query.crashes = ["rows-acknowledged"]
    query.try_batch(0)
    assert query.died_at == ["rows-acknowledged"]
    assert rows(query) == sorted(query.expected(1).elements())


def test_a_copy_that_still_writes_is_stopped_when_its_batch_ends(level: int, new_query: Callable[..., Query]) -> None:
    query = new_query()
    with pytest.raises(Raised, match=FENCED):
        query.commit_while_a_copy_writes(0)
    assert rows(query) == sorted(query.expected(1).elements())


def test_a_driver_that_is_replaced_while_it_opens_aborts_nothing_of_its_successor(
    new_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands still after its claim; when it looks for orphans at last, what it finds is not its own."""
    query = new_query()
    coordination = connections(query.sink_options.client).coordination
    open_under = coordination.open_under
    staged: list[TaskResult] = []

    def late(prefix: str, patience_ms: int | None = None) -> list[Staged]:
        staged.extend(stage_all(query, query.open(), 0))
        return open_under(prefix, patience_ms)

    with monkeypatch.context() as patched:
        patched.setattr(coordination, "open_under", late)
        open_sink(query.sink_options, query.sink)
    commit(query.sink_options, staged)
    assert rows(query) == sorted(query.expected(1).elements())


def test_a_cluster_that_does_not_list_transactions_holds_nothing_up(
    new_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    query = new_query()

    def refused(prefix: str, patience_ms: int | None = None) -> list[Staged]:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    monkeypatch.setattr(connections(query.sink_options.client).coordination, "open_under", refused)
    opened = open_sink(query.sink_options, query.sink)
    commit(query.sink_options, stage_all(query, opened, 0))
    assert rows(query) == sorted(query.expected(1).elements())
    assert [record.getMessage() for record in caplog.records if record.name == "ottla.spark.sink.driver"] == [
        f"What attempts that died have left open under the sink {query.sink} cannot be found "
        "(CLUSTER_AUTHORIZATION_FAILED): readers of committed records may wait for it, until the sink is opened again "
        "or kafka.transaction.timeout.ms is over."
    ] * 2


def test_a_batch_that_spark_runs_again_is_not_written_again(new_query: Callable[..., Query]) -> None:
    """The driver died after the sink's commit and before Spark's own note of it."""
    query = new_query()
    query.run_batch(0)
    query.run_batch(1)
    opened = query.open()
    again = query.stage(opened, 1, 0)
    assert again.skipped
    assert again.staged is None
    query.run_batch(1)
    query.run_batch(2)
    assert rows(query) == sorted(query.expected(3).elements())


def test_a_query_with_a_new_checkpoint_counts_from_the_beginning(new_query: Callable[..., Query]) -> None:
    query = new_query()
    query.run_batch(0)
    query.query_id = "with-a-new-checkpoint"
    query.run_batch(0)
    assert rows(query) == sorted([*query.expected(1).elements()] * 2)


def test_a_topic_that_is_deleted_between_the_two_phases_holds_nothing_up(new_query: Callable[..., Query]) -> None:
    """Its rows are gone with it; the batch is committed, and the next goes into the topic that is there then."""
    query = new_query()
    results = stage_all(query, query.open(), 0)
    client = admin.AdminClient({"bootstrap.servers": query.bootstrap})
    client.delete_topics([query.topic])[query.topic].result(60)
    commit(query.sink_options, results)
    create_topic(query.bootstrap, query.topic, PARTITIONS)
    query.run_batch(0)
    query.run_batch(1)
    assert rows(query) == sorted(row for task in range(query.tasks) for row in rows_of(1, task))


def test_a_driver_that_was_replaced_cannot_commit_nor_harm(new_query: Callable[..., Query]) -> None:
    query = new_query()
    old = query.open()
    theirs = stage_all(query, old, 0)
    new = query.open()
    ours = stage_all(query, new, 0)
    with pytest.raises(SinkError, match="not open any more"):
        commit(query.sink_options, theirs)
    undo(query.sink_options, theirs)
    commit(query.sink_options, ours)
    assert rows(query) == sorted(query.expected(1).elements())


def test_a_driver_that_is_replaced_between_its_look_and_its_decision_cannot_decide(
    new_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    query = new_query()
    theirs = stage_all(query, query.open(), 0)
    new = query.open()
    coordination = connections(query.sink_options.client).coordination
    with monkeypatch.context() as patched:
        patched.setattr(coordination, "not_open", lambda staged: [])
        with pytest.raises(SinkError, match="Another query has taken over"):
            commit(query.sink_options, theirs)
    undo(query.sink_options, theirs)
    commit(query.sink_options, stage_all(query, new, 0))
    assert rows(query) == sorted(query.expected(1).elements())


def time_out(query: Query, transactional_id: str) -> None:
    """As the coordinator does it when the time is up: an abort, with a higher epoch. No clock, so no luck."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    connections(query.sink_options.client).client.to_coordinator(
        CoordinatorKind.TRANSACTION,
        transactional_id,
        request,
        InitProducerIdResponse,
        # The abort has begun; a second request would begin anew.
        errors=lambda answer: () if answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS else (answer.error_code,),
    )


def test_a_transaction_that_times_out_before_the_decision_fails_the_batch_whole(
    new_query: Callable[..., Query],
) -> None:
    query = new_query()
    results = stage_all(query, query.open(), 0)
    assert results[1].staged is not None
    time_out(query, results[1].staged.transactional_id)
    with pytest.raises(SinkError, match=r"1 of its 2 transactions are not open any more.*kafka.transaction.timeout.ms"):
        commit(query.sink_options, results)
    undo(query.sink_options, results)
    assert rows(query) == []


def test_a_transaction_that_times_out_after_the_decision_is_told_and_never_hidden(
    new_query: Callable[..., Query],
) -> None:
    query = new_query()
    query.run_batch(0)
    query.crashes = ["after-Committing-RecordDecision"]
    opened = query.open()
    results = stage_all(query, opened, 1)
    assert results[1].staged is not None
    with pytest.raises(Died):
        query.commit([*results])
    time_out(query, results[1].staged.transactional_id)
    for _ in range(2):
        with pytest.raises(SinkError, match=r"Batch 1 .* was decided, but 1 of its 2 transactions had timed out"):
            open_sink(query.sink_options, query.sink)
    query.options["failOnLostTransaction"] = "false"
    query.run_batch(1)
    query.run_batch(2)
    lost = set(rows_of(1, 1))
    assert rows(query) == sorted(row for row in query.expected(3).elements() if row not in lost)


@pytest.mark.slow
def test_the_clock_of_the_coordinator_is_what_times_out(new_query: Callable[..., Query]) -> None:
    query = new_query(**{"kafka.transaction.timeout.ms": "4000"})
    results = stage_all(query, query.open(), 0)
    wait_until_stable(query.bootstrap, query.topic, PARTITIONS, within_s=60)
    with pytest.raises(SinkError, match="not open any more"):
        commit(query.sink_options, results)


@pytest.mark.parametrize(("staged_at", "ended_at"), [(2, 1), (1, 2)])
@pytest.mark.parametrize("step", ["before-Committing-RecordDecision", "after-Committing-RecordDecision", "ended-1"])
def test_the_level_of_transactions_is_changed_between_the_two_phases(
    new_query: Callable[..., Query], staged_at: int, ended_at: int, step: str
) -> None:
    query = new_query()
    try:
        set_transaction_version(query.bootstrap, staged_at)
        query.crashes = [step]
        with pytest.raises(Died):
            query.try_batch(0)
        set_transaction_version(query.bootstrap, ended_at)
        query.run_batch(0)
        query.run_batch(1)
        assert rows(query) == sorted(query.expected(2).elements())
    finally:
        set_transaction_version(query.bootstrap, 2)


def test_a_batch_write_that_died_after_its_decision_is_finished_by_another_sink(
    new_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    query = new_query()
    query.crashes = ["after-Committing-RecordDecision"]
    opened = query.call(lambda: open_sink(query.sink_options, f"write-{query.topic}", forsaken=True))
    results: list[TaskResult | None] = [query.run_task(opened, 0, task) for task in range(query.tasks)]
    with pytest.raises(Died):
        query.commit(results)
    assert open_partitions(query.bootstrap, query.topic, PARTITIONS)
    another = new_query()
    open_sink(another.sink_options, another.sink)
    assert open_partitions(query.bootstrap, query.topic, PARTITIONS), "its own driver might still be at it"
    monkeypatch.setattr(decision_log, "FORSAKEN_AFTER_MS", -1)
    open_sink(another.sink_options, another.sink)
    assert rows(query) == sorted(query.expected(1).elements())
    log = connections(query.sink_options.client).decisions(decision_log.DEFAULT_TOPIC)
    assert log.read(f"write-{query.topic}").own is None, "nothing is left of it in the log"


def test_a_batch_write_whose_tasks_all_failed_leaves_nothing_open(new_query: Callable[..., Query]) -> None:
    query = new_query()
    opened = query.open()
    assert query.run_task(opened, 0, 0) is not None
    assert open_partitions(query.bootstrap, query.topic, PARTITIONS)
    undo(query.sink_options, [], opened)
    assert rows(query) == []


def test_a_process_takes_its_transactional_ids_again_only_under_a_later_claim() -> None:
    def opened(epoch: int, producer_id: int = 7) -> OpenSink:
        return OpenSink(sink="again", claim=Claim(producer_id, epoch), forsaken=False, decided=None)

    first, second = _take_id(opened(1)), _take_id(opened(1))
    assert first != second, "one batch may have several tasks in one process"
    assert [_take_id(opened(2)), _take_id(opened(2))] == [first, second]
    assert _take_id(opened(1)) not in (first, second), "a task of a driver that was replaced"
    assert _take_id(opened(3, producer_id=8)) not in (first, second), "no telling which is later"


def test_the_last_batch_of_a_query_is_known_again_and_earlier_ones_are_refused() -> None:
    opened = OpenSink(sink="s", claim=FIRST, forsaken=False, decided=("q", 7))
    assert opened.has_written("q", 7)
    with pytest.raises(SinkError, match=r"Batch 6 comes to the sink .*, which has written batch 7 already"):
        opened.has_written("q", 6)
    assert not opened.has_written("q", 8)
    assert not opened.has_written("another", 7), "a query with a checkpoint of its own counts its own batches"
