"""`ottla registry` beside Apache Kafka: two of them, one topic, one id a schema."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.gateway.test_node import ask, register
from tests.oracle.apache_kafka import ApacheKafka, KafkaTools

pytestmark = pytest.mark.oracle


@pytest.fixture
def apache(tools: KafkaTools, tmp_path: Path) -> Iterator[ApacheKafka]:
    node = ApacheKafka(tmp_path / "apache")
    node.format(tools)
    node.spawn()
    try:
        node.wait_ready()
        yield node
    finally:
        node.stop()


def test_two_registries_agree_on_apache_kafka(apache: ApacheKafka) -> None:
    command = [
        sys.executable,
        "-m",
        "ottla.cli",
        "registry",
        "--bootstrap",
        apache.bootstrap,
        "--listen",
        "127.0.0.1:0",
    ]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        urls = []
        for process in processes:
            assert process.stdout is not None
            urls.append(process.stdout.readline().removeprefix("ready: ").strip())
        work = [(url, f"s{n}", {"type": "enum", "name": f"e{n}", "symbols": ["A"]}) for n in range(5) for url in urls]
        with ThreadPoolExecutor(2) as pool:
            ids = list(pool.map(lambda each: register(*each), work))
        assert ids[::2] == ids[1::2]
        assert len(set(ids)) == 5
        for url in urls:
            assert ask(url, "/subjects") == [f"s{n}" for n in range(5)]
        assert ask(urls[0], "/subjects/s0", method="DELETE") == [1]
        assert ask(urls[1], "/subjects/s0?permanent=true", method="DELETE") == [1]
        assert json.loads(ask(urls[0], f"/schemas/ids/{ids[2]}")["schema"])["name"] == "e1"
    finally:
        for process in processes:
            process.terminate()
            process.wait(60)
            assert process.stdout is not None
            process.stdout.close()
