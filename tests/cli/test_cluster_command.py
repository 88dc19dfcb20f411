"""What is said where a cluster does not know, or where it is not the cluster that was asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ottla.testing
from ottla.admin import cluster
from ottla.client.blocking import BlockingClient
from ottla.client.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.model import METADATA_TOPIC
from ottla.wire.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from ottla.wire.messages.describe_quorum_response import DescribeQuorumResponse
from tests.cli.sessions import run_ottla


@pytest.fixture(autouse=True)
def no_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "none.toml"))


def replica(node: int, *, end: int, lag: int) -> cluster.QuorumReplica:
    return cluster.QuorumReplica(
        node=node, directory_id="", log_end_offset=end, lag=lag, last_fetch_ms=-1, last_caught_up_ms=-1
    )


def test_how_far_a_voter_is_that_the_leader_has_not_heard_of_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs get the numbers as Kafka tells them."""
    voters = (replica(1, end=70, lag=0), replica(2, end=-1, lag=71))
    quorum = cluster.Quorum(leader=1, leader_epoch=3, high_watermark=70, voters=voters, observers=())
    monkeypatch.setattr(cluster, "describe_quorum", lambda client: quorum)
    status, out, _ = run_ottla(["cluster", "quorum"])
    assert status == 0
    assert [line.split() for line in out.decode().splitlines()[-2:]] == [
        ["1", "leader", "70", "0"],
        ["2", "voter", "-", "-"],
    ]
    told = json.loads(run_ottla(["cluster", "quorum", "--json"])[1])
    assert [each["log_end_offset"] for each in told["replicas"]] == [70, -1]


@pytest.mark.parametrize(
    ("refusal", "named"),
    [
        (ErrorCode.UNSUPPORTED_VERSION, 9),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None),
        (ErrorCode.REQUEST_TIMED_OUT, None),
    ],
)
def test_the_controller_that_brokers_name_counts_only_without_a_quorum(
    monkeypatch: pytest.MonkeyPatch, refusal: ErrorCode, named: int | None
) -> None:
    def refuse(client: object, *, timeout_ms: int) -> cluster.Quorum:
        raise KafkaError(refusal)

    found = cluster.Cluster(cluster_id="old", controller=9, brokers=())
    monkeypatch.setattr(cluster, "describe_cluster", lambda client: found)
    monkeypatch.setattr(cluster, "describe_quorum", refuse)
    with ottla.testing.node() as node:
        status, out, _ = run_ottla(["cluster", "status", "--json", "-b", node.bootstrap])
    assert (status, json.loads(out)["controller"]) == (0, named)


@pytest.mark.parametrize(
    "words", ["cluster status", "topic list", "doctor", "config get broker 1", "consume orders -e"]
)
def test_a_port_of_a_controller_is_called_so(words: str) -> None:
    with ottla.testing.node() as node:
        port = controller_port(node.bootstrap)
        told = run_ottla([*words.split(), "-b", f"127.0.0.1:{port}"])
    said = f"ottla: 127.0.0.1:{port} is a controller's port: name a broker's with --bootstrap.\n"
    assert told == (1, b"", said)


def test_who_produces_to_a_controller_hears_that_it_does_not_go() -> None:
    """In librdkafka's words, which takes it for an old broker."""
    with ottla.testing.node() as node:
        at = f"127.0.0.1:{controller_port(node.bootstrap)}"
        status, _, said = run_ottla(["produce", "orders", "-b", at], b"two apples\n")
    assert (status, said.startswith("ottla: A record was not taken: ")) == (1, True)


def controller_port(bootstrap: str) -> int:
    asked = TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])
    with BlockingClient(ClientSettings.parse({"bootstrap.servers": bootstrap})) as client:
        answer = client.ask_any(DescribeQuorumRequest(topics=[asked]), DescribeQuorumResponse)
    (listener,) = answer.nodes[0].listeners
    return listener.port
