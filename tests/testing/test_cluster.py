"""Three nodes of a test's own: leaders are moved, nodes are killed, stopped and started again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

import ottla.testing
from ottla.testing import Cluster
from ottla.testing.starting import NodeGone

pytestmark = pytest.mark.slow

PATIENCE_S = 60


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with ottla.testing.cluster(nodes=3) as cluster:
        cluster.create_topic("t")
        yield cluster


def values(cluster: Cluster) -> list[bytes | None]:
    return [record.value for record in cluster.records("t")]


def test_leaders_move_where_they_are_told(cluster: Cluster) -> None:
    for node_id in (3, 1, 2, 2):
        cluster.move_leader("t", 0, to=node_id)
        assert cluster.leader_of("t") == node_id
        cluster.produce("t", f"led by {node_id}")
    assert values(cluster) == [b"led by 3", b"led by 1", b"led by 2", b"led by 2"]
    cluster.create_topic("single", replication_factor=1)
    others = [node_id for node_id in cluster.nodes if node_id != cluster.leader_of("single")]
    with pytest.raises(ValueError, match="has no copy of single-0"):
        cluster.move_leader("single", to=others[0])
    with pytest.raises(ValueError, match="There is no node 4"):
        cluster.move_leader("t", to=4)


def test_a_producer_goes_on_when_its_leader_is_killed(cluster: Cluster) -> None:
    cluster.move_leader("t", to=1)
    producer: Any = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True})
    sent = []
    for number in range(30):
        if number == 10:
            cluster.kill(1)
        elif number == 20:
            cluster.restart(1)
        producer.produce("t", value=f"{number}")
        assert producer.flush(PATIENCE_S) == 0
        sent.append(b"%d" % number)
    assert values(cluster) == sent
    assert cluster.nodes[1].is_running


def test_a_node_that_is_stopped_hands_over(cluster: Cluster) -> None:
    cluster.move_leader("t", to=2)
    cluster.stop(2)
    assert not cluster.nodes[2].is_running
    assert cluster.leader_of("t") != 2
    with pytest.raises(NodeGone, match=r"start it with restart\(2\)"):
        cluster.nodes[2].faults.clear()
    cluster.restart(2)
    cluster.move_leader("t", to=2)
    cluster.produce("t", "back")
    assert values(cluster) == [b"back"]


def test_faults_are_those_of_one_node_and_its_peers_are_spared(cluster: Cluster) -> None:
    """A leader that refuses every fetch of a client still serves its followers, or acks=all would wait for ever."""
    cluster.move_leader("t", to=1)
    fault = cluster.nodes[1].faults.fail("Fetch", error="NOT_LEADER_OR_FOLLOWER", times=None)
    cluster.produce("t", "replicated")
    assert values(cluster) == [b"replicated"]
    assert fault.seen == 0
