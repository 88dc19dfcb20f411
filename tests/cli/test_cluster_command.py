"""`ottla cluster` beside clusters that are made up: what is shown where nobody knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ottla.testing
from ottla.admin import cluster
from ottla.errors import ErrorCode, KafkaError
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
