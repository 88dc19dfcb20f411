"""Pipelines on real Spark against a real node: run, run again, killed, stopped."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer

from ottla.spark.crash_points import VARIABLE
from ottla.spark.pipelines.definition import Pipeline, PipelineError, load
from ottla.spark.pipelines.home import Home, State, Status
from ottla.spark.pipelines.runner import run_pipeline
from ottla.spark.pipelines.sinks import to_table
from ottla.spark.pipelines.table_pipeline import table_to_topic, topic_to_table
from ottla.spark.pipelines.tables.iceberg import IcebergTable
from ottla.spark.pipelines.tables.sink import read_table
from tests.node_process import NodeProcess
from tests.spark.conftest import NewTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PATIENCE_S = 300.0


def produce(node: NodeProcess, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, str(value), key=str(value % 7), headers=[("n", b"%d" % value)])
    assert producer.flush(60) == 0


def abort(node: NodeProcess, topic: str, values: range) -> None:
    """Produces them in a transaction that is not committed."""
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": f"aborting-{topic}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, str(value))
    assert producer.flush(60) == 0
    producer.abort_transaction(60)


def consumed(node: NodeProcess, topic: str, count: int, reader: str = "reader") -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": f"{reader}-of-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(values) < count and time.monotonic() < deadline:
        record = consumer.poll(1.0)
        if record is not None and record.error() is None:
            values.append(record.value() or b"")
    consumer.close()
    return values


def values_of(frame: DataFrame) -> Counter[int]:
    return Counter(int(bytes(row.value)) for row in frame.select("value").collect())


def run_once(pipeline: Pipeline, root: Path) -> Status:
    return run_pipeline(pipeline, Home(root / pipeline.name), once=True, interval_s=0, tell=lambda status: None)


@pytest.mark.parametrize("format", ["iceberg", "delta", "parquet"])
def test_a_topic_becomes_a_table_and_a_topic_again(
    spark: SparkSession, node: NodeProcess, new_topic: NewTopic, tmp_path: Path, format: str
) -> None:
    topic = new_topic(2)
    table = tmp_path / "lake" / "orders"
    pipeline = topic_to_table(bootstrap=node.bootstrap, topic=topic, location=table, format=format, by="day", name=None)
    produce(node, topic, range(100))
    abort(node, topic, range(1000, 1010))
    status = run_once(pipeline, tmp_path)
    assert (status.state, status.rows, status.lag_in_all) == (State.FINISHED, 100, 0)
    produce(node, topic, range(100, 130))
    assert run_once(pipeline, tmp_path).rows == 30
    assert values_of(read_table(spark, table, format)) == Counter(range(130))
    elsewhere = tmp_path / "lake" / "elsewhere"
    moved = topic_to_table(
        bootstrap=node.bootstrap, topic=topic, location=elsewhere, format=format, by="day", name=None
    )
    with pytest.raises(PipelineError, match=r"has come to batch 1, and the table .*elsewhere lacks what it has read"):
        run_once(moved, tmp_path)  # It would go on where the other has come to.
    shutil.rmtree(Home(tmp_path / pipeline.name).checkpoint)
    with pytest.raises(PipelineError, match="was filled from another checkpoint"):
        run_once(pipeline, tmp_path)  # Its first batch would be taken for the table's.
    assert values_of(read_table(spark, table, format)) == Counter(range(130))
    again = new_topic(2, name=f"{topic}-again")
    back = table_to_topic(bootstrap=node.bootstrap, topic=again, location=table, format=format, name=None)
    assert run_once(back, tmp_path).state is State.FINISHED
    assert Counter(map(int, consumed(node, again, 130))) == Counter(range(130))
    shutil.rmtree(tmp_path / back.name)
    run_once(back, tmp_path)  # Its home was lost: this is its first run, and no repetition of what was written.
    assert set(Counter(map(int, consumed(node, again, 260, "anew"))).values()) == {2}


def test_a_file_runs_with_new_columns(
    spark: SparkSession, node: NodeProcess, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic()
    produce(node, topic, range(10))
    text = f"""
from pyspark.sql import functions as F
from ottla.spark.pipelines import to_table

def pipeline(spark):
    records = (spark.readStream.format("ottla").option("kafka.bootstrap.servers", "{node.bootstrap}")
        .option("subscribe", "{topic}").option("startingOffsets", "earliest").load())
    return records.select(F.col("value").cast("string").cast("int").alias("n"), "timestamp" MORE)

sink = to_table("{tmp_path}/lake/numbers")
"""
    file = tmp_path / f"numbers_{topic.replace('-', '_')}.py"
    file.write_text(text.replace("MORE", ""))
    run_once(load(file), tmp_path)
    produce(node, topic, range(10, 15))
    file.write_text(text.replace("MORE", ', F.lit("new").alias("colour")'))
    run_once(load(file), tmp_path)
    rows = read_table(spark, tmp_path / "lake" / "numbers", "iceberg").collect()
    assert sorted(row.n for row in rows) == list(range(15))
    assert sorted(row.n for row in rows if row.colour == "new") == list(range(10, 15))


def test_the_pipeline_of_the_readme_runs(
    spark: SparkSession, node: NodeProcess, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic()
    produce(node, topic, range(5))
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    (text,) = [block.partition("```")[0] for block in readme.split("```python\n") if block.startswith("# orders.py")]
    assert sum(bool(line) for line in text.splitlines()) <= 10
    places = {
        "127.0.0.1:9092": node.bootstrap,
        'subscribe="orders"': f'subscribe="{topic}"',
        "lake/orders": f"{tmp_path}/lake",
    }
    for shown, here in places.items():
        assert text.count(shown) == 1
        text = text.replace(shown, here)
    file = tmp_path / f"readme_{topic.replace('-', '_')}.py"
    file.write_text(text)
    assert run_once(load(file), tmp_path).rows == 5
    rows = read_table(spark, tmp_path / "lake", "iceberg").collect()
    assert sorted(row.item for row in rows) == list("01234")


def test_a_pipeline_that_fails_says_why(spark: SparkSession, tmp_path: Path) -> None:
    def build(spark: SparkSession) -> DataFrame:
        return spark.range(1)

    pipeline = Pipeline(name="timeless", build=build, sink=to_table(tmp_path / "lake" / "timeless"))
    with pytest.raises(PipelineError, match="timeless failed: The rows have no column timestamp"):
        run_once(pipeline, tmp_path)
    status = Home(tmp_path / "timeless").read_status()
    assert status.state is State.FAILED
    assert status.error.startswith("The rows have no column timestamp")


def test_plain_files_of_a_run_that_broke_off_are_not_doubled(spark: SparkSession, tmp_path: Path) -> None:
    def build(spark: SparkSession) -> DataFrame:
        return spark.range(3).selectExpr("id", "timestamp_seconds(id * 86400) AS timestamp")

    table = tmp_path / "lake" / "nightly"
    pipeline = Pipeline(name="nightly", build=build, sink=to_table(table, "parquet"))
    run_once(pipeline, tmp_path)
    (tmp_path / "nightly" / "runs").unlink()  # As if it had been killed before it noted that it has finished,
    kept = sorted(table.rglob("*.parquet"))
    (table / "_unfinished").mkdir(exist_ok=True)
    kept[0].rename(table / "_unfinished" / kept[0].name)  # and with one of its files not in its place yet.
    run_once(pipeline, tmp_path)
    assert sorted(row.id for row in read_table(spark, table, "parquet").collect()) == [0, 1, 2]
    assert list((table / "_unfinished").rglob("*.parquet")) == []
    run_once(pipeline, tmp_path)
    assert sorted(row.id for row in read_table(spark, table, "parquet").collect()) == [0, 0, 1, 1, 2, 2]
    days = read_table(spark, table, "parquet").select("timestamp_day").distinct().collect()
    assert sorted(str(row.timestamp_day) for row in days) == ["1970-01-01", "1970-01-02", "1970-01-03"]


@pytest.mark.long
def test_a_file_whose_topic_does_not_exist_is_told_in_a_sentence(node: NodeProcess, tmp_path: Path) -> None:
    (tmp_path / "lost.py").write_text(f"""
from ottla.spark.pipelines import to_topic

def pipeline(spark):
    return (spark.readStream.format("ottla").option("kafka.bootstrap.servers", "{node.bootstrap}")
        .option("subscribe", "no-such-topic").load())

sink = to_topic("{node.bootstrap}", "copy")
""")
    command = [sys.executable, "-m", "ottla.cli", "pipeline", "run", "lost.py", "--once"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=os.environ
    )
    assert done.returncode == 1
    # A worker of PySpark's that Java leaves behind may have a last word, on a busy machine.
    last_words = r"Traceback \(most recent call last\):\n  File \S+/pyspark/daemon\.py(.*\n)+?BrokenPipeError: .*\n"
    told = re.sub(last_words, "", done.stderr)
    _, said = " ".join(told.splitlines()).split("lost failed: ")
    assert "Traceback" not in told
    assert "Exception" not in told
    assert said.startswith("The topic no-such-topic does not exist: create it, or correct the option.")
    assert "SourceError" in (tmp_path / "ottla-pipelines" / "lost" / "failure.log").read_text()


def test_a_pipeline_that_is_killed_and_stopped(node: NodeProcess, new_topic: NewTopic, tmp_path: Path) -> None:
    """Killed with its files staged, killed after its commit and before Spark's own, then run until it is stopped."""
    topic = new_topic(2)
    produce(node, topic, range(50))
    command = [sys.executable, "-m", "ottla.cli", "pipeline"]
    options = [topic, "lake/orders", "--bootstrap", node.bootstrap, "--name", "orders"]

    def start(crash: str | None) -> subprocess.Popen[str]:
        environment = {**os.environ, **({VARIABLE: crash} if crash is not None else {})}
        return subprocess.Popen(
            [*command, "table", *options],
            cwd=tmp_path,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    table = IcebergTable(tmp_path / "lake" / "orders", None)
    home = Home(tmp_path / "ottla-pipelines" / "orders")
    for step, batch in (("table-staged", -1), ("table-committed", 0)):
        with start(f"{step}!") as crashed:
            assert crashed.wait(PATIENCE_S) < 0
        assert table.last_batch("orders") == batch
        assert home.read_status().state is State.KILLED
    produce(node, topic, range(50, 80))
    with start(None) as running:
        deadline = time.monotonic() + PATIENCE_S
        while table.last_batch("orders") < 1 and running.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        stopped = subprocess.run(
            [*command, "stop", "orders"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S
        )
        if stopped.returncode:
            running.kill()
        assert running.wait(PATIENCE_S) == 0, running.stderr.read() if running.stderr else ""
    assert stopped.returncode == 0, stopped.stderr
    assert home.read_status().state is State.STOPPED
    import pyarrow.parquet as pq

    values: Counter[int] = Counter()
    for path in table.files():
        values.update(int(value) for value in pq.ParquetFile(path.removeprefix("file://")).read()["value"].to_pylist())
    assert values == Counter(range(80))
    unknown = set((tmp_path / "lake").rglob("*.parquet")) - {Path(p.removeprefix("file://")) for p in table.files()}
    assert unknown == set(), "nothing is left of the attempt that was killed"
