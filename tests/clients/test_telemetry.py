"""Telemetry of real clients (KIP-714): librdkafka pushes by itself once it is subscribed to, and we show it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType

from ottla.wire.messages import incremental_alter_configs_request as wire
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from tests.node_process import ROOT, NodeProcess, running_node
from tests.wire_client import WireClient


def subscribe(node: NodeProcess, name: str, configs: dict[str, str], operation: AlterConfigOpType) -> None:
    """By a raw request: confluent-kafka's admin client does not know the resource type."""
    request = wire.IncrementalAlterConfigsRequest(
        resources=[
            wire.AlterConfigsResource(
                resource_type=16,
                resource_name=name,
                configs=[
                    wire.AlterableConfig(name=key, config_operation=operation.value, value=value)
                    for key, value in configs.items()
                ],
            )
        ]
    )
    with WireClient(node.address) as client:
        response = client.call(request, IncrementalAlterConfigsResponse)
    assert response.responses[0].error_code == 0, response.responses[0].error_message


def page(node: NodeProcess) -> str:
    with urlopen(f"http://{node.bootstrap}/metrics", timeout=10) as response:
        text: str = response.read().decode()
    return text


def test_a_producer_pushes_its_metrics_and_they_are_on_the_page(node: NodeProcess, topic: str) -> None:
    configs = {"metrics": "org.apache.kafka.", "interval.ms": "200", "match": "client_id=watched-.*"}
    subscribe(node, "watch", configs, AlterConfigOpType.SET)
    try:
        watched = Producer({"bootstrap.servers": node.bootstrap, "client.id": "watched-1"})
        unwatched = Producer({"bootstrap.servers": node.bootstrap, "client.id": "free"})
        deadline = time.monotonic() + 60
        shown = re.compile(
            r'^client_org_apache_kafka_producer_node_request_latency_avg\{[^}]*client_id="watched-1"[^}]*\} ([\d.]+)$',
            re.MULTILINE,
        )
        while (found := shown.search(page(node))) is None:
            assert time.monotonic() < deadline, "nothing was pushed"
            for producer in (watched, unwatched):
                producer.produce(topic, b"x")
                producer.poll(0)
            time.sleep(0.05)
        assert 0 < float(found[1]) < 20_000  # Milliseconds.
        assert watched.flush(10) == unwatched.flush(10) == 0
        text = page(node)
        assert 'client_id="free"' not in text
        pushes = re.search(r"^kafka_server_clientmetrics_telemetrypushes_total (\d+)$", text, re.MULTILINE)
        assert pushes is not None
        assert int(pushes[1]) >= 1
        # Every line is one that Prometheus can read, also those that a client had a say in.
        line = re.compile(r'[a-zA-Z_][a-zA-Z0-9_]*(\{([a-zA-Z_]\w*="([^"\\]|\\.)*",?)*\})? \S+')
        assert [text for text in text.splitlines() if not text.startswith("#") and not line.fullmatch(text)] == []
    finally:
        subscribe(node, "watch", dict.fromkeys(configs, ""), AlterConfigOpType.DELETE)


def test_a_client_that_nobody_subscribed_to_pushes_nothing(node: NodeProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "client.id": "quiet"})
    producer.produce(topic, b"x")
    assert producer.flush(10) == 0
    time.sleep(0.5)
    assert 'client_id="quiet"' not in page(node)


def test_the_first_example_prints_its_record_and_nothing_else(tmp_path: Path) -> None:
    """librdkafka says on standard error when it is given an instance id, which it asks for wherever telemetry is
    offered: to a newcomer that looks like something gone wrong."""
    found = re.search(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    example = found[1]
    assert example.count("127.0.0.1:9092") == 2
    assert example.count("poll(10)") == 1
    with running_node(tmp_path) as node:
        # However slow the machine is.
        program = example.replace("127.0.0.1:9092", node.bootstrap).replace("poll(10)", "poll(600)")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "b'hello'\n", "")
