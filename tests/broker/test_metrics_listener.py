"""A port of its own for metrics, on a node whose clients have to log in."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.monitoring.metrics_listener import parse_address
from ottla.errors import StartupError
from ottla.runtime.system import free_ports
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from tests.behaviour.client import eventually
from tests.broker.test_metrics_endpoint import fetch_page
from tests.node_process import NodeProcess, running_node, start_node
from tests.wire_client import WireClient

JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required username=n password=n user_n=n user_ann=a;"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9644", ("127.0.0.1", 9644)),
        (" 9644 ", ("127.0.0.1", 9644)),
        ("0.0.0.0:9644", ("0.0.0.0", 9644)),
        ("[::1]:9644", ("::1", 9644)),
        ("metrics.example:0", ("metrics.example", 0)),
    ],
)
def test_an_address_is_a_host_and_a_port_or_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "localhost", "localhost:", "localhost:http", "localhost:-1", "localhost:65536"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(StartupError, match="host:port"):
        parse_address(text)


class Site:
    def __init__(self, node: NodeProcess, clients: int, metrics: int) -> None:
        self.node = node
        self.clients = clients
        self.metrics = metrics

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics, timeout=60)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    clients, controller, metrics = free_ports("127.0.0.1", 3)
    settings = {
        "listeners": f"LOCKED://127.0.0.1:{clients},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": "LOCKED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "LOCKED",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.locked.plain.sasl.jaas.config": JAAS,
        "ottla.metrics.listener": str(metrics),
    }
    arguments = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    with running_node(tmp_path_factory.mktemp("node"), *arguments) as node:
        yield Site(node, clients, metrics)


def test_metrics_and_health_are_served_without_a_login(site: Site) -> None:
    status, page = site.get("/metrics")
    assert status == 200
    assert "\nkafka_server_" in page
    assert site.get("/health/live")[0] == 200
    assert site.get("/health/ready")[0] == 200
    assert site.get("/elsewhere")[0] == 404
    for secret in ("user_ann", "password", "sasl.jaas"):
        assert secret not in page


def test_where_clients_log_in_there_are_no_pages(site: Site) -> None:
    with socket.create_connection(("127.0.0.1", site.clients), 60) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
        assert sock.recv(1) == b""


def test_where_pages_are_nobody_speaks_kafka(site: Site) -> None:
    with WireClient(("127.0.0.1", site.metrics)) as client:
        client.send(ApiVersionsRequest(), 0)
        assert client.is_hung_up()
    assert site.get("/health/live")[0] == 200


def test_a_port_that_is_taken_keeps_the_node_from_starting(site: Site, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=f"Port {site.metrics} of 127.0.0.1 cannot be used for metrics"):
        start_node(tmp_path, "--set", f"ottla.metrics.listener={site.metrics}")


# Where some may not know what others have.

_AUTHORIZER = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.mark.parametrize("guarded", [True, False])
def test_the_clients_port_names_nothing_that_an_authorizer_guards(tmp_path: Path, guarded: bool) -> None:
    (metrics,) = free_ports("127.0.0.1", 1)
    settings = [f"ottla.metrics.listener={metrics}", "super.users=User:ANONYMOUS", *([_AUTHORIZER] * guarded)]
    with running_node(tmp_path, *(part for each in settings for part in ("--set", each))) as node:
        with WireClient(node.address) as client:
            topic = CreatableTopic(name="secret-plans", num_partitions=1, replication_factor=1)
            client.call(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
            partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
            topics = [OffsetCommitRequestTopic(name="secret-plans", partitions=partitions)]
            commit = OffsetCommitRequest(group_id="secret-readers", generation_id_or_member_epoch=-1, topics=topics)
            find = FindCoordinatorRequest(key_type=0, coordinator_keys=["secret-readers"])

            def committed() -> bool:
                client.call(find, FindCoordinatorResponse)
                answer = client.call(commit, OffsetCommitResponse, 9)
                return answer.topics[0].partitions[0].error_code == 0

            eventually(committed, bool)
        everything, shown = (fetch_page(address) for address in (("127.0.0.1", metrics), node.address))
        assert 'topic="secret-plans"' in everything
        assert 'consumergroup="secret-readers"' in everything
        assert "logdirectory=" in everything
        assert "kafka_server_replicamanager_partitioncount" in shown
        for name in ("secret-plans", "secret-readers", "logdirectory="):
            assert (name in shown) != guarded
