"""Requests are traced while somebody wants that, by the level of a logger, as Apache Kafka's are."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.runtime.system import free_ports
from ottla.wire.messages import describe_configs_request, incremental_alter_configs_request
from ottla.wire.messages.describe_configs_response import DescribeConfigsResponse
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from tests.broker.test_metrics_endpoint import batch_of, create_topic, eventually, fetch, fetch_page, produce
from tests.node_process import NodeProcess, running_node
from tests.wire_client import WireClient

LOGGER = "kafka.request.logger"
BROKER_LOGGER = 8


def set_level(client: WireClient, level: str) -> int:
    wire = incremental_alter_configs_request
    config = wire.AlterableConfig(name=LOGGER, config_operation=0, value=level)
    resource = wire.AlterConfigsResource(resource_type=BROKER_LOGGER, resource_name="1", configs=[config])
    request = wire.IncrementalAlterConfigsRequest(resources=[resource])
    return client.call(request, IncrementalAlterConfigsResponse).responses[0].error_code


def level(client: WireClient) -> str | None:
    wire = describe_configs_request
    resource = wire.DescribeConfigsResource(resource_type=BROKER_LOGGER, resource_name="1", configuration_keys=[LOGGER])
    request = wire.DescribeConfigsRequest(resources=[resource])
    return client.call(request, DescribeConfigsResponse).results[0].configs[0].value


def traces(node: NodeProcess) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in node.log().splitlines() if line.startswith("{")]
    return [line for line in lines if line["logger"] == LOGGER]


def until(found: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    deadline = time.monotonic() + 60
    while not (traced := found()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return traced


def test_requests_are_told_of_while_the_logger_says_so(tmp_path: Path) -> None:
    with (
        running_node(tmp_path, "--log-format", "json") as node,
        WireClient(node.address, client_id="tr\nace") as client,
    ):
        create_topic(client, "orders")
        assert level(client) == "WARN"
        assert traces(node) == []
        assert set_level(client, "TRACE") == 0
        assert level(client) == "DEBUG"
        for _ in range(3):  # The second and third begin like the first, and take the short way.
            assert produce(client, "orders", batch_of(b"secret")) == 0
        fetch(client, "orders", 3, max_wait_ms=50)
        assert set_level(client, "WARN") == 0
        before = len(traces(node))
        assert produce(client, "orders", batch_of(b"untold")) == 0
        told = traces(node)
        assert len(told) == before
    produced = [line for line in told if line["api"] == "Produce"]
    assert [line["about"] for line in produced] == [["orders"]] * 3
    assert {line["client_id"] for line in produced} == {"tr\nace"}
    ids = [line["correlation_id"] for line in produced]
    assert ids == list(range(ids[0], ids[0] + 3))
    assert all(line["request_bytes"] > 60 and line["response_bytes"] > 20 for line in produced)
    assert all(line["total_ms"] >= line["local_ms"] >= 0 for line in told)
    (waited,) = [line for line in told if line["api"] == "Fetch"]
    assert waited["total_ms"] >= 49
    assert "secret" not in node.log()


def test_a_request_that_is_cut_off_is_told_of_too(tmp_path: Path) -> None:
    with running_node(tmp_path, "--log-format", "text") as node:
        with WireClient(node.address) as client:
            assert set_level(client, "DEBUG") == 0
        with WireClient(node.address) as client:
            client.send_raw(b"\0\0\0\x0a\x7f\x01\x00\x00\x00\x00\x00\x07\xff\xff")
            assert client.is_hung_up()
        with WireClient(node.address) as client:
            assert set_level(client, "WARN") == 0
        assert 'request api="32513" version=0 correlation_id=7' in node.log()
        assert "closed=" in node.log()


def test_metrics_have_a_port_of_their_own_where_that_is_wanted(tmp_path: Path) -> None:
    (port,) = free_ports("127.0.0.1", 1)
    with running_node(tmp_path, "--set", f"ottla.metrics.listener={port}") as node:
        assert "kafka_server_kafkaserver_brokerstate 3\n" in fetch_page(("127.0.0.1", port))
        assert fetch_page(("127.0.0.1", port), "/health") == "live\n"
        assert fetch_page(("127.0.0.1", port), "/ready") == "ready\n"
        with WireClient(("127.0.0.1", port)) as client:
            client.send_raw(b"\0\0\0\x0a\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff")
            assert client.is_hung_up()
        eventually(node.address, 'kafka_network_socketserver_malformedrequests_total{listener="METRICS"}', 1)
