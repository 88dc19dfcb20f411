"""The example of a stateful pipeline: clicks become sessions when their time has come."""

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from ottla.spark.pipelines.definition import PipelineError, load
from ottla.spark.pipelines.home import Home
from ottla.spark.pipelines.runner import run_pipeline
from tests.spark.conftest import Broker, NewTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[3] / "examples" / "sessions.py"
MINUTE_MS = 60_000
T0_MS = time.time_ns() // 1_000_000 - 10 * 60 * MINUTE_MS
"""Ten hours ago: clicks of long ago would be gone by retention before Spark reads them."""


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sessions_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_click_joins_what_it_is_close_to() -> None:
    joined = example().joined
    gap = example().GAP_MS
    assert joined([], 5) == [(5, 5, 1)]
    assert joined([(5, 5, 1)], 5 + gap) == [(5, 5 + gap, 2)]
    assert joined([(5, 5, 1)], 6 + gap) == [(5, 5, 1), (6 + gap, 6 + gap, 1)]
    assert joined([(0, 0, 1), (gap + 2, gap + 9, 3)], gap) == [(0, gap + 9, 5)]


@pytest.mark.spark
@pytest.mark.long
def test_sessions_end_once(
    spark: SparkSession,
    node: Broker,
    new_topic: NewTopic,
    crash_plan: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clicks = new_topic(2)
    sessions = new_topic(1, name=f"{clicks}-sessions")
    for key, value in {"BOOTSTRAP": node.bootstrap, "CLICKS": clicks, "SESSIONS": sessions}.items():
        monkeypatch.setenv(key, value)

    def click(*those: tuple[str, int]) -> None:
        producer = Producer({"bootstrap.servers": node.bootstrap})
        for user, minute in those:
            producer.produce(clicks, b"", user, timestamp=T0_MS + minute * MINUTE_MS)
        assert producer.flush(60) == 0

    def run() -> None:
        made = load(EXAMPLE)
        run_pipeline(made, Home(tmp_path / made.name), once=True, interval_s=0, tell=lambda status: None)

    click(("ada", 0), ("ada", 20), ("bob", 5), ("ada", 200), ("bob", 10))
    run()
    click(("ada", 210), ("bob", 300))
    crash_plan.write_text("after-Committing-RecordDecision")
    with pytest.raises(PipelineError):
        run()
    assert not crash_plan.exists(), "it died when sessions were decided on, and before they were committed"
    run()
    for minute in (400, 401):  # Time goes on with the clicks, and timers go off in the batch after.
        click(("carl", minute))
        run()
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", node.bootstrap)
    rows = reader.option("kafka.isolation.level", "read_committed").option("subscribe", sessions).load().collect()
    said = [json.loads(bytes(row.value)) for row in rows]
    found = [(each["user"], (each["first_ms"] - T0_MS) // MINUTE_MS, each["clicks"]) for each in said]
    assert sorted(found) == [("ada", 0, 2), ("ada", 200, 2), ("bob", 5, 2), ("bob", 300, 1)]
