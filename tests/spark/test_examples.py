"""The examples that need Spark; the page of all examples is docs/examples.md."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from ottla.spark.pipelines.definition import load
from ottla.spark.pipelines.home import Home
from ottla.spark.pipelines.runner import run_pipeline
from tests.spark.conftest import Broker, NewTopic, despite_slow_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
MINUTE_MS = 60_000


def test_brno_goes_on_where_prague_stopped(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    from examples import geo_replication

    despite_slow_workers(geo_replication.main)
    page = (ROOT / "docs" / "examples.md").read_text()
    _, _, shown = page.partition("$ python examples/geo_replication.py\n")
    assert capsys.readouterr().out == shown.partition("```")[0]


def test_totals_of_each_minute_are_written_once(
    spark: SparkSession, node: Broker, new_topic: NewTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = new_topic(2)
    totals = new_topic(1, name=f"{orders}-totals")
    for key, value in {"BOOTSTRAP": node.bootstrap, "ORDERS": orders, "TOTALS": totals}.items():
        monkeypatch.setenv(key, value)
    begin_ms = time.time_ns() // 1_000_000 // MINUTE_MS * MINUTE_MS - 60 * MINUTE_MS

    def order(*those: tuple[str, int, int]) -> None:
        producer = Producer({"bootstrap.servers": node.bootstrap})
        for city, amount, minute in those:
            value = json.dumps({"city": city, "amount": amount})
            producer.produce(orders, value, city, timestamp=begin_ms + minute * MINUTE_MS)
        assert producer.flush(60) == 0

    def run() -> None:
        made = load(ROOT / "examples" / "running_totals.py")
        run_pipeline(made, Home(tmp_path / made.name), once=True, interval_s=0, tell=lambda status: None)

    order(("Prague", 3, 0), ("Prague", 4, 0), ("Brno", 5, 0), ("Prague", 1, 1), ("Brno", 9, 30))
    run()
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", node.bootstrap)
    rows = reader.option("kafka.isolation.level", "read_committed").option("subscribe", totals).load().collect()
    said = [json.loads(bytes(row.value)) for row in rows]
    found = sorted(((each["minute_ms"] - begin_ms) // MINUTE_MS, each["city"], each["amount"]) for each in said)
    assert found == [(0, "Brno", 5), (0, "Prague", 7), (1, "Prague", 1)]
