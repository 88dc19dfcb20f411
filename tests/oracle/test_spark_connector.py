"""Programs with `format("kafka")`, on Spark's own connector, run against three of our nodes, one of which is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.harness import running_cluster
from tests.oracle.spark_connector_program import ROWS

from .apache_kafka import spark_connector

pytestmark = [pytest.mark.oracle, pytest.mark.long]


def test_batch_stream_and_sink_go_on_when_a_leader_is_killed(tmp_path: Path) -> None:
    jars = ",".join(str(jar) for jar in spark_connector())
    program = Path(__file__).with_name("spark_connector_program.py")
    with running_cluster(tmp_path / "cluster") as cluster, (tmp_path / "stderr").open("w+") as stderr:
        for topic in ("copied-from", "copied-to"):
            cluster.create_topic(topic, partitions=3, min_insync_replicas="2")
        running = subprocess.Popen(
            [sys.executable, str(program), cluster.bootstrap, str(tmp_path), jars],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        try:
            assert running.stdout is not None
            said = running.stdout.readline()
            assert said == "midway\n", (said, Path(stderr.name).read_text()[-4000:])
            cluster.kill(cluster.leader_of("copied-from"))
            out, _ = running.communicate("go on\n", timeout=600)
            assert running.returncode == 0, Path(stderr.name).read_text()[-4000:]
        finally:
            running.kill()
            running.wait()
    counted = json.loads(out.splitlines()[-1])
    assert counted["batch"] == {"rows": ROWS, "keys": ROWS, "bytes": 100 * ROWS}
    assert counted["from"] == {"rows": 2 * ROWS, "keys": 2 * ROWS, "bytes": 200 * ROWS}
    # Its sink delivers at least once.
    assert counted["to"]["keys"] == 2 * ROWS
    assert counted["to"]["rows"] >= 2 * ROWS
