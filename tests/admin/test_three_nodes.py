"""The room `admin` and the doctor beside a cluster of three real nodes: what they say while one of them is dead.

Brokers hear of a change one after the other, so that every look is repeated until it shows what must come.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.admin import cluster as admin_cluster
from ottla.admin import reassignment, topics
from ottla.admin.replicas import replica_picture
from ottla.client.blocking import BlockingClient
from ottla.client.settings import ClientSettings
from ottla.errors import KafkaError
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

            def described() -> tuple[topics.Partition, ...]:
                try:
                    (found,) = topics.describe_topics(client, ["orders"])
                except KafkaError:
                    return ()
                return found.partitions

            topics.create_topic(client, "orders", assignment=[[1, 2], [2, 1], [1, 2], [2, 1]])
            eventually(lambda: [len(each.isr) for each in described()] == [2] * 4 or None, "all are in sync")
            producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.metrics.push": False})
            for number in range(10):
                producer.produce("orders", f"record {number}", partition=0)
            assert producer.flush(60) == 0

            # Every replica tells its own log end; the leader tells what is committed.
            def whole_picture() -> list[tuple[int, bool, bool, int | None]] | None:
                picture = replica_picture(client, "orders", 0)
                ends = [each.end_offset for each in picture.replicas]
                if picture.high_watermark != 10 or ends != [10, 10]:
                    return None
                return [(each.node, each.is_leader, each.in_sync, each.end_offset) for each in picture.replicas]

            seen = eventually(whole_picture, "both replicas have ten records")
            assert seen == [(1, True, True, 10), (2, False, True, 10)]
            quorum = admin_cluster.describe_quorum(client)
            leader = next(each for each in quorum.voters if each.node == quorum.leader)
            assert leader.last_caught_up_ms > 1_600_000_000_000  # The doctor compares clocks by it.

            # The brokers name any of themselves as the controller; whoever asks for it wants the one that leads.
            named = [
                json.loads(run_ottla(["cluster", "status", "--json", "-b", cluster.bootstrap])[1]) for _ in range(8)
            ]
            assert {each["controller"] for each in named} == {quorum.leader}

            # Replicas are spread over all three, and the move is waited for.
            status, out, err = run_ottla(["cluster", "reassign", "orders", "--wait", "--json", "-b", cluster.bootstrap])
            assert status == 0, err
            assert out.endswith(b'{"done": true}\n')
            assert reassignment.list_moves(client) == []

            def spread() -> tuple[topics.Partition, ...] | None:
                found = described()
                held = sorted(sum(node in each.replicas for each in found) for node in (1, 2, 3))
                return found if held == [2, 3, 3] else None

            where = next(each for each in eventually(spread, "the replicas are spread") if 3 in each.replicas)

            cluster.kill(3)

            def missed() -> bool | None:
                found = described()
                return (bool(found) and all(3 not in each.isr for each in found)) or None

            eventually(missed, "the dead node is out of sync")
            dead = next(each for each in replica_picture(client, "orders", where.partition).replicas if each.node == 3)
            assert dead.end_offset is None
            assert dead.error is not None

        def found_by_the_doctor() -> bool | None:
            status, out, _ = run_ottla(["doctor", "--free", "0", "-b", cluster.bootstrap])
            said = out.decode()
            return (
                status == 1 and "error: broker 3: " in said and "Under-replicated: broker 3 is not in sync." in said
            ) or None

        eventually(found_by_the_doctor, "the doctor finds the dead broker and what it leaves under-replicated")
