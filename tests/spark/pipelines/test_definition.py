"""Pipeline files, homes and what a runner tells, without Spark."""

from __future__ import annotations

import fcntl
import os
import re
import sys
from pathlib import Path
from threading import Timer
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import cloudpickle

import ottla.testing
from ottla.cli import pipeline
from ottla.errors import StartupError
from ottla.spark.failures import first_cause
from ottla.spark.pipelines.definition import PipelineError, load
from ottla.spark.pipelines.home import Home, State, Status, homes
from ottla.spark.pipelines.runner import after
from ottla.spark.pipelines.sinks import Run, TopicSink, to_table, to_topic
from ottla.spark.sink.options import SinkOptions

SOUND = """
from ottla.spark.pipelines import to_topic

def pipeline(spark):
    return spark.range(3)

sink = to_topic("127.0.0.1:9092", "numbers", kafka_acks="all")
"""


def written(directory: Path, text: str, name: str = "orders.py") -> Path:
    path = directory / name
    path.write_text(text)
    return path


def test_a_file_defines_a_pipeline(tmp_path: Path) -> None:
    made = load(written(tmp_path, SOUND, "three_numbers.py"))
    assert made.name == "three_numbers"
    assert isinstance(made.sink, TopicSink)
    assert made.sink.options == {"kafka.acks": "all"}
    assert load(written(tmp_path, SOUND + "name = 'daily'")).name == "daily"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sink = None", "defines no function pipeline"),
        ("def pipeline(spark): ...", "defines no sink: add sink = to_topic"),
        ("1 / 0", "cannot be loaded: ZeroDivisionError: division by zero"),
        ("def pipeline(", "cannot be loaded: SyntaxError"),
    ],
)
def test_a_file_that_defines_none(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        load(written(tmp_path, text))


def test_tasks_need_not_import_the_file(tmp_path: Path) -> None:
    """They run where it may not lie; what they are sent has the functions in it."""
    pickler: Any = cloudpickle
    made = load(written(tmp_path, SOUND + "def twice(n): return 2 * n\n", "far_away.py"))
    assert made.name == "far_away"
    sent = pickler.dumps(sys.modules["far_away"].twice)
    del sys.modules["far_away"]
    sys.path.remove(str(tmp_path.resolve()))
    assert pickler.loads(sent)(21) == 42


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="There is no pipeline file"):
        load(tmp_path / "none.py")


def test_a_table_of_an_unknown_format() -> None:
    with pytest.raises(PipelineError, match="choose iceberg, delta, parquet"):
        to_table("orders", "csv")


def test_options_of_a_topic() -> None:
    sink = to_topic("127.0.0.1:9092", kafka_security_protocol="SSL")
    assert sink.options == {"kafka.security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("options", "exact"),
    [
        ({}, True),
        ({"deliveryGuarantee": "EXACTLY_ONCE"}, True),
        ({"deliveryguarantee": "at-least-once"}, False),
        ({"sinkid": "mine"}, False),
    ],
)
def test_a_run_is_numbered_where_its_sink_can_tell_it_again(options: dict[str, str], exact: bool) -> None:
    """Options are spelled as Spark's users spell them."""
    assert to_topic("127.0.0.1:9092", "orders", **options)._is_exact() is exact


def test_a_name_that_is_no_id_becomes_one() -> None:
    run = Run(name="Bücher & Co " + 200 * "x", checkpoint=Path("c"), identity=32 * "0")
    given = {"kafka.bootstrap.servers": "127.0.0.1:9092", "sinkId": run.sink_id}
    assert SinkOptions.parse(given).sink_id == run.sink_id
    assert run.sink_id.startswith("B_cher___Co_xxx")


def test_one_runner_at_a_time(tmp_path: Path) -> None:
    home = Home(tmp_path / "orders")
    assert home.runner() is None
    with home.held():
        assert home.runner() == os.getpid()
        with pytest.raises(PipelineError, match=f"runs already .process {os.getpid()}.: stop it first"), home.held():
            pass
    assert home.runner() is None
    with home.held():
        pass


def test_who_only_looks_keeps_nobody_from_running(tmp_path: Path) -> None:
    home = Home(tmp_path / "orders")
    with home.held():
        pass
    with open(tmp_path / "orders" / "lock", "r+", encoding="ascii") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        done = Timer(0.2, lambda: fcntl.flock(looking, fcntl.LOCK_UN))
        done.start()
        with home.held():
            assert home.runner() == os.getpid()
        done.join()


def test_the_status_of_a_runner_that_was_killed(tmp_path: Path) -> None:
    home = Home(tmp_path / "orders")
    with pytest.raises(PipelineError, match="No pipeline orders has run here"):
        home.read_status()
    with home.held():
        home.write_status(Status(state=State.RUNNING, batch=3, rows=10, lag={"orders-0": 7}))
        assert home.read_status().state is State.RUNNING
        assert home.read_status().lag_in_all == 7
    assert home.read_status().state is State.KILLED
    assert home.read_status().batch == 3
    assert homes(tmp_path) == [home]


def test_what_a_batch_adds_to_the_status() -> None:
    source = SimpleNamespace(
        endOffset='{"orders": {"0": 10, "1": 5}}', latestOffset='{"orders": {"0": 12, "1": 5, "2": 4}}'
    )
    other = SimpleNamespace(endOffset="17", latestOffset="18")
    progress = SimpleNamespace(batchId=4, numInputRows=15, processedRowsPerSecond=3.5, sources=[source, other])
    status = after(Status(rows=100, state=State.RUNNING), progress)  # type: ignore[arg-type]
    assert status.rows == 115
    assert status.batch == 4
    assert status.lag == {"orders-0": 2, "orders-1": 0, "orders-2": 4}
    assert status.state is State.RUNNING


def test_how_far_a_pipeline_is_stands_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = Status(
        state=State.RUNNING, batch=3, rows=12_000, rows_per_second=4_000.4, lag={"orders-0": 7, "orders-1": 1}
    )
    with pipeline.Display("orders") as display:
        display.show(Status(state=State.RUNNING))
        display.show(done)
    said = capsys.readouterr()
    assert (said.out, said.err) == (
        "",
        "orders: running\norders: batch 3, 12,000 rows, 4,000 rows/s, lag 8\n",
    )
    home = Home(tmp_path / "orders")
    with home.held():
        home.write_status(done)
        pipeline.show_status(None, root=tmp_path)
    assert re.search(r"orders +│ running │ 3 +│ 12,000 │ 4,000 +│ 8 +│ \d+ s ago", capsys.readouterr().out)


def test_what_went_wrong_is_one_sentence() -> None:
    told = (
        "[STREAM_FAILED] Query [id = 1] terminated\npy4j.Py4JException: An exception\n"
        "  File 'x'\nottla.spark.offsets.SourceError: orders-0 is gone: its topic was deleted.\n\n\tat org.apache.spark"
    )
    assert first_cause(RuntimeError(told)) == "orders-0 is gone: its topic was deleted."
    lost = "ConnectionRefusedError: [Errno 111] Connection refused\nottla.client.peer.PeerLost: 10.0.0.1:9092 is away"
    assert first_cause(RuntimeError(lost)) == "10.0.0.1:9092 is away"
    assert first_cause(RuntimeError("no more room")) == "no more room"
    assert first_cause(RuntimeError()) == "RuntimeError"


def test_a_pipeline_whose_topic_or_cluster_is_not_there_says_so_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        pytest.fail("Spark would have been started.")

    monkeypatch.setattr(pipeline, "run", never)
    monkeypatch.setattr(pipeline, "CHECK_PATIENCE_MS", 200)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with ottla.testing.node() as node:
        where = node.bootstrap
        with pytest.raises(StartupError, match=f"The cluster at {where} has no topic ordres: see `ottla topic list`"):
            table("ordres", where, tmp_path)
        with pytest.raises(StartupError, match=r"has no topic orders\.dead: see"):
            pipeline.run_redrive(
                topic="orders.dead",
                to=None,
                where=None,
                properties={"bootstrap.servers": where},
                name=None,
                root=tmp_path,
            )
    with pytest.raises(StartupError, match=f"The cluster at {where} does not answer: {where} cannot be reached"):
        table("orders", where, tmp_path)


def table(topic: str, bootstrap: str, root: Path) -> None:
    pipeline.run_table(
        topic=topic,
        location=root / "lake",
        format="iceberg",
        by="day",
        back=False,
        properties={"bootstrap.servers": bootstrap},
        name=None,
        root=root,
        once=True,
        interval_s=0.0,
    )
