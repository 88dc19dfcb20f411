"""Three real processes are one cluster: any one of them may die, stop or go away, and what was promised is kept."""

from __future__ import annotations

from functools import partial

import pytest

from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from tests.cluster.clients import Writer, read_all
from tests.cluster.harness import Cluster, eventually

pytestmark = pytest.mark.slow


def others(cluster: Cluster, node_id: int) -> list[int]:
    return [each for each in cluster.nodes if each != node_id]


def knows(cluster: Cluster, node_id: int, topic: str) -> bool | None:
    return cluster.metadata(topic, of=node_id).topics[0].error_code == 0 or None


def test_three_nodes_are_one_cluster(cluster: Cluster) -> None:
    """Asked about, each names all of them, and a topic made through one is known to all."""
    cluster.create_topic("t", partitions=3)
    for node_id in cluster.nodes:
        eventually(partial(knows, cluster, node_id, "t"), f"the topic, at node {node_id}")
        answer = cluster.metadata("t", of=node_id)
        assert sorted(broker.node_id for broker in answer.brokers) == [1, 2, 3]
        assert {(broker.host, broker.port) for broker in answer.brokers} == {
            node.address for node in cluster.nodes.values()
        }
        assert [sorted(each.replica_nodes) for each in answer.topics[0].partitions] == [[1, 2, 3]] * 3
    assert {cluster.leader_of("t", partition) for partition in range(3)} == {1, 2, 3}
    assert cluster.active_controller() in cluster.nodes


@pytest.mark.slow
def test_every_broker_hands_on_what_only_the_controller_can_do(cluster: Cluster) -> None:
    controller = cluster.active_controller()
    for node_id in (controller, *others(cluster, controller)):
        topic = CreatableTopic(name=f"by-{node_id}", num_partitions=1, replication_factor=3)
        answer = cluster.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), CreateTopicsResponse, of=node_id)
        assert answer.topics[0].error_code == 0
        # Known here as soon as it was said, whoever the controller is.
        assert knows(cluster, node_id, f"by-{node_id}")


@pytest.mark.parametrize("idempotent", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_leader_is_killed_and_writes_go_on(cluster: Cluster, idempotent: bool) -> None:
    cluster.create_topic("t")
    writer = Writer(cluster, "t", idempotent=idempotent)
    writer.write(200)
    leader = cluster.leader_of("t")
    cluster.kill(leader)
    writer.write(200)
    assert writer.refused == []
    assert cluster.leader_of("t") != leader
    cluster.wait_in_sync("t", others(cluster, leader))
    found = read_all(cluster, "t", 400)
    assert_kept(writer, found, once=idempotent)


@pytest.mark.slow
def test_a_killed_node_comes_back_and_catches_up(cluster: Cluster) -> None:
    cluster.create_topic("t")
    writer = Writer(cluster, "t")
    writer.write(100)
    leader = cluster.leader_of("t")
    cluster.kill(leader)
    writer.write(100)
    cluster.restart(leader)
    cluster.wait_in_sync("t", cluster.nodes)
    # The one that came back has everything: the others may go, one after the other.
    survivor = leader
    second = others(cluster, survivor)[0]
    cluster.kill(second)
    writer.write(100)
    assert writer.refused == []
    assert_kept(writer, read_all(cluster, "t", 300), once=False)


@pytest.mark.slow
def test_the_active_controller_is_killed_and_the_next_takes_over(cluster: Cluster) -> None:
    first = cluster.active_controller()
    cluster.create_topic("before")
    cluster.kill(first)
    second = cluster.active_controller()
    assert second != first
    # The dead one is not fenced yet, so it may well be given a replica.
    cluster.create_topic("after", replicas=2, min_insync_replicas="1")
    writer = Writer(cluster, "after")
    writer.write(50)
    assert writer.refused == []
    cluster.restart(first)
    cluster.wait_in_sync("before", cluster.nodes)


@pytest.mark.slow
def test_a_paused_leader_is_replaced_and_follows_when_it_wakes(cluster: Cluster) -> None:
    cluster.create_topic("t")
    writer = Writer(cluster, "t")
    writer.write(100)
    leader = cluster.leader_of("t")
    cluster.pause(leader)
    writer.write(100)
    assert writer.refused == []
    assert cluster.leader_of("t") != leader
    cluster.resume(leader)
    cluster.wait_in_sync("t", cluster.nodes)
    assert_kept(writer, read_all(cluster, "t", 200), once=False)


@pytest.mark.slow
def test_a_node_that_stops_in_order_hands_over_first(cluster: Cluster) -> None:
    """Nobody waits for a timeout: the leadership has moved before the process ends (KIP-841)."""
    cluster.create_topic("t")
    writer = Writer(cluster, "t")
    writer.write(50)
    leader = cluster.leader_of("t")
    assert cluster.stop(leader) == 0
    partition = cluster.partition("t")
    assert partition.leader_id in others(cluster, leader)
    writer.write(50)
    assert writer.refused == []
    cluster.restart(leader)
    cluster.wait_in_sync("t", cluster.nodes)
    assert_kept(writer, read_all(cluster, "t", 100), once=False)


@pytest.mark.slow
def test_all_stop_and_all_come_back(cluster: Cluster) -> None:
    cluster.create_topic("t")
    writer = Writer(cluster, "t")
    writer.write(100)
    cluster.stop_all()
    assert [node.wait() for node in cluster.nodes.values()] == [0, 0, 0]
    cluster.start()
    assert_kept(writer, read_all(cluster, "t", 100), once=True)
    Writer(cluster, "t").write(1)


@pytest.mark.slow
def test_all_are_killed_at_once_and_all_come_back(cluster: Cluster) -> None:
    """Nobody lost what had reached its page cache, so nothing that was acknowledged is lost."""
    cluster.create_topic("t")
    writer = Writer(cluster, "t")
    writer.write(100)
    for node_id in cluster.nodes:
        cluster.kill(node_id)
    cluster.start()
    cluster.wait_in_sync("t", cluster.nodes)
    assert_kept(writer, read_all(cluster, "t", 100), once=True)


def assert_kept(writer: Writer, found: list[int], *, once: bool) -> None:
    """Every acknowledged record is there, in order; once, where nobody had to guess whether it was there already."""
    assert set(writer.acknowledged) <= set(found)
    first_seen = list(dict.fromkeys(found))
    assert first_seen == sorted(first_seen)
    if once:
        assert len(found) == len(first_seen)
