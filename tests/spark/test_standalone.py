"""A real Spark cluster on this machine, a master and two workers: source and sink run on its executors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from ottla.spark.session import java_home
from tests.spark import on_speculation
from tests.spark.conftest import Broker, NewTopic
from tests.spark.on_standalone import ROWS
from tests.spark.sink_world import committed

pytestmark = [pytest.mark.spark, pytest.mark.long]

PATIENCE_S = 120.0
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
PROGRAM = Path(__file__).with_name("on_standalone.py")


@contextmanager
def daemon(log: Path, name: str, *arguments: str, host: str = "127.0.0.1") -> Iterator[None]:
    """One of Spark's own, on a free port."""
    command = [str(SPARK_CLASS), f"org.apache.spark.deploy.{name}", "--host", host, "--webui-port", "0"]
    environment = {**os.environ, "JAVA_HOME": java_home(), "SPARK_LOCAL_IP": host}
    with log.open("w") as output:
        process = subprocess.Popen([*command, *arguments], stdout=output, stderr=output, env=environment)
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def said(log: Path, pattern: str) -> str:
    """Waits until it is in the log."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := re.search(pattern, log.read_text())) is None:
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.1)
    return found.group(0)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    log = tmp_path / "master.log"
    with daemon(log, "master.Master", "--port", "0"):
        address = said(log, r"spark://127\.0\.0\.1:\d+")
        logs = [tmp_path / f"worker-{number}.log" for number in (1, 2)]
        one_core = ["--cores", "1", "--memory", "1g"]
        # On two machines, as far as Spark knows: it never runs a task and its copy on one.
        with (
            daemon(logs[0], "worker.Worker", *one_core, "--work-dir", str(tmp_path / "work-1"), address),
            daemon(
                logs[1], "worker.Worker", *one_core, "--work-dir", str(tmp_path / "work-2"), address, host="127.0.0.2"
            ),
        ):
            for each in logs:
                said(each, "Successfully registered with master")
            yield address


def test_a_copy_of_a_task_that_spark_kills_leaves_nothing_open(
    master: str, node: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """The task that wins is a first attempt, and tells of no other."""
    topic = new_topic(2)
    program = Path(__file__).with_name("on_speculation.py")
    command = [sys.executable, str(program), master, node.bootstrap, topic, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "copied").exists(), "Spark ran a copy"
    tasks, rows = range(on_speculation.TASKS), range(on_speculation.ROWS)
    expected = Counter(["before", *(on_speculation.value(task, row) for task in tasks for row in rows)])
    assert committed(node.bootstrap, topic, 2) == expected


def test_source_and_sink_run_on_executors(master: str, node: Broker, new_topic: NewTopic, tmp_path: Path) -> None:
    new_topic(4, name="from")
    new_topic(2, name="to")
    command = [sys.executable, str(PROGRAM), master, node.bootstrap, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"executors": 2, "read": ROWS, "written": list(range(ROWS))}
