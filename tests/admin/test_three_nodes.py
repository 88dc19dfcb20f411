"""The room `admin` and the doctor beside a cluster of three real nodes: what they say while one of them is dead."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.admin import cluster as admin_cluster
from ottla.admin import reassignment, topics
from ottla.admin.replicas import replica_picture
from ottla.client.blocking import BlockingClient
from ottla.client.settings import ClientSettings
from tests.cli.sessions import run_ottla
from tests.cluster.harness import eventually, running_cluster


@pytest.mark.slow
def test_what_operators_see_while_a_node_is_dead_and_after_its_replicas_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "none.toml"))
    with running_cluster(tmp_path) as cluster:
        settings = ClientSettings.parse({"bootstrap.servers": cluster.bootstrap})
        with BlockingClient(settings) as client:
            topics.create_topic(client, "orders", assignment=[[1, 2], [2, 1], [1, 2], [2, 1]])
            cluster.wait_in_sync("orders", [1, 2])
            producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.metrics.push": False})
            for number in range(10):
                producer.produce("orders", f"record {number}", partition=0)
            assert producer.flush(60) == 0

            # Every replica tells its own log end; the leader tells what is committed.
            def all_have_ten() -> bool | None:
                picture = replica_picture(client, "orders", 0)
                assert picture.high_watermark == 10
                return [each.end_offset for each in picture.replicas] == [10, 10] or None

            eventually(all_have_ten, "both replicas have ten records")
            picture = replica_picture(client, "orders", 0)
            assert [(each.node, each.is_leader, each.in_sync, each.error) for each in picture.replicas] == [
                (1, True, True, None),
                (2, False, True, None),
            ]
            quorum = admin_cluster.describe_quorum(client)
            leader = next(each for each in quorum.voters if each.node == quorum.leader)
            assert leader.last_caught_up_ms > 1_600_000_000_000  # The doctor compares clocks by it.

            # Replicas are spread over all three, and the move is waited for.
            status, out, err = run_ottla(["cluster", "reassign", "orders", "--wait", "--json", "-b", cluster.bootstrap])
            assert status == 0, err
            assert out.endswith(b'{"done": true}\n')
            (described,) = topics.describe_topics(client, ["orders"])
            held = [sum(node in each.replicas for each in described.partitions) for node in (1, 2, 3)]
            assert sorted(held) == [2, 3, 3]
            assert reassignment.list_moves(client) == []

            cluster.kill(3)

            def missed() -> bool | None:
                (now,) = topics.describe_topics(client, ["orders"])
                return all(3 not in each.isr for each in now.partitions) or None

            eventually(missed, "the dead node is out of every in-sync set")
            where = next(each for each in described.partitions if 3 in each.replicas)
            dead = next(each for each in replica_picture(client, "orders", where.partition).replicas if each.node == 3)
            assert (dead.in_sync, dead.end_offset) == (False, None)
            assert dead.error is not None
        status, out, _ = run_ottla(["doctor", "--free", "0", "-b", cluster.bootstrap])
        said = out.decode().splitlines()
        assert status == 1
        assert any(line.startswith("error: broker 3: ") for line in said), said
        assert any("Under-replicated: brokers 3 are not in sync." in line for line in said), said
