"""The dashboard and the alert rules ask for metrics that a node really has, by their names."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ottla.metrics.reference import shown_names
from ottla.metrics.rows import ROWS
from ottla.wire.messages import offset_commit_request
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from tests.broker.test_metrics_endpoint import batch_of, create_topic, eventually, fetch, produce, values
from tests.node_process import NodeProcess, running_node
from tests.wire_client import WireClient

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "ottla.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
METRIC = re.compile(r"\b(?:kafka|process)_[a-z0-9_]+")
RULE = re.compile(r"\bottla:[a-z_]+")

SILENT = {
    "kafka_cluster_partition_followerlag",
    "kafka_cluster_partition_insyncreplicascount",
    "kafka_log_logflushstats_logflushrateandtimems",
    "kafka_network_requestmetrics_errors",
    "kafka_server_brokertopicmetrics_bytesrejected",
    "kafka_server_brokertopicmetrics_failedfetchrequests",
    "kafka_server_fetcherlagmetrics_consumerlag",
    "kafka_server_transaction_coordinator_metrics_transactional_id_count",
}
"""Rows that have nothing to tell of a node by itself, on which nothing of the kind has happened."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("node")) as node, WireClient(node.address) as client:
        create_topic(client, "orders")
        assert produce(client, "orders", batch_of(b"a", b"b", b"c")) == 0
        assert produce(client, "orders", b"\0" * 80) != 0
        fetch(client, "orders", 0)
        commit(client, "shop", "orders", 1)
        eventually(node.address, 'kafka_consumergroup_lag{consumergroup="shop",topic="orders",partition="0"}', 2)
        yield node


def commit(client: WireClient, group: str, topic: str, offset: int) -> None:
    wire = offset_commit_request
    request = wire.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[
            wire.OffsetCommitRequestTopic(
                name=topic,
                partitions=[wire.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)],
            )
        ],
    )
    for _ in range(600):  # The first question makes the coordinator's topic.
        client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), FindCoordinatorResponse)
        if not client.call(request, OffsetCommitResponse, 9).topics[0].partitions[0].error_code:
            return
        time.sleep(0.1)
    raise AssertionError("the offset was never committed")


@pytest.fixture(scope="module")
def shown(node: NodeProcess) -> set[str]:
    return {series.partition("{")[0] for series in values(node.address)}


@pytest.mark.parametrize("file", [DASHBOARD, ALERTS], ids=lambda file: file.name)
def test_every_metric_that_is_asked_for_is_there(file: Path, shown: set[str]) -> None:
    wanted = set(METRIC.findall(file.read_text())) - {"kafka_exporter"}
    assert len(wanted) > 10
    assert wanted <= shown


def test_rules_that_are_used_are_defined() -> None:
    defined = set(re.findall(r"record: (\S+)", ALERTS.read_text()))
    used = set(RULE.findall(DASHBOARD.read_text() + ALERTS.read_text()))
    assert used == defined


def test_the_dashboard_is_whole() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert all(target["expr"].count("(") == target["expr"].count(")") for target in panel["targets"])


def test_every_alert_says_how_bad_it_is_and_what_to_look_at() -> None:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert all(rule["expr"].count("(") == rule["expr"].count(")") for rule in rules)
    assert all(set(rule) <= {"record", "alert", "expr", "for", "labels", "annotations"} for rule in rules)
    alerts = [rule for rule in rules if "alert" in rule]
    assert len({alert["alert"] for alert in alerts}) == len(alerts) > 10
    for alert in alerts:
        assert alert["labels"]["severity"] in ("critical", "warning"), alert
        assert alert["annotations"]["summary"].endswith((".", "?")), alert
        assert re.fullmatch(r"\d+m", alert.get("for", "1m")), alert


def test_a_row_is_filled_or_known_to_be_silent(shown: set[str]) -> None:
    silent = {row.name for row in ROWS if not shown & set(shown_names(row))}
    assert silent <= SILENT


def test_lag_and_refusals_are_counted(node: NodeProcess) -> None:
    page = values(node.address)
    assert page['kafka_consumergroup_current_offset{consumergroup="shop",topic="orders",partition="0"}'] == 1
    assert page['kafka_network_requestmetrics_errors_total{request="Produce",error="CORRUPT_MESSAGE"}'] == 1
    assert page["process_resident_memory_bytes"] > 1 << 20
    assert page["process_cpu_seconds_total"] > 0
    assert page["process_open_fds"] < page["process_max_fds"]
    assert page["kafka_server_raft_metrics_commit_latency_count"] > 0
