"""Time that a test moves: what grows old does, and who watches whom does not notice."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

import ottla.testing

PATIENCE_S = 60


def wait_until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_is_older_than_its_retention_goes_at_once() -> None:
    with ottla.testing.node() as node:
        node.create_topic("short", config={"retention.ms": 1000 * 3600})
        node.create_topic("long", config={"retention.ms": -1})
        node.produce("short", "one")
        node.produce("long", "one")
        node.clock.advance(1800)
        assert len(node.records("short")) == 1
        node.clock.advance(1801)
        assert node.records("short") == []
        assert len(node.records("long")) == 1
        assert node.produce("short", "two").offset == 1


def test_append_time_is_the_broker_s() -> None:
    with ottla.testing.node() as node:
        node.create_topic("t", config={"message.timestamp.type": "LogAppendTime"})
        node.clock.advance(timedelta(days=400))
        node.produce("t", "from next year")
        (record,) = node.records("t")
        ahead_s = record.timestamp_ms / 1000 - time.time()
        assert abs(ahead_s - timedelta(days=400).total_seconds()) < PATIENCE_S


def test_a_transaction_is_aborted_when_its_time_is_up() -> None:
    with ottla.testing.node() as node:
        node.create_topic("t")
        producer: Any = Producer(
            {
                "bootstrap.servers": node.bootstrap,
                "transactional.id": "slow",
                "transaction.timeout.ms": 600_000,
                "linger.ms": 0,
            }
        )
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce("t", value="half")
        assert producer.flush(PATIENCE_S) == 0
        assert node.records("t") == []
        assert len(node.records("t", committed=False)) == 1
        node.clock.advance(610)
        node.produce("t", "after it")
        wait_until(lambda: [record.value for record in node.records("t")] == [b"after it"])
        with pytest.raises(KafkaException):
            producer.commit_transaction(PATIENCE_S)


def test_a_member_whose_session_has_run_out_is_missed() -> None:
    with ottla.testing.node() as node:
        node.create_topic("t")
        events: list[str] = []
        consumer: Any = Consumer(
            {
                "bootstrap.servers": node.bootstrap,
                "group.id": "g",
                "session.timeout.ms": 300_000,
                "max.poll.interval.ms": 400_000,
                "heartbeat.interval.ms": 20,
            }
        )
        consumer.subscribe(
            ["t"],
            on_assign=lambda *_: events.append("assigned"),
            on_revoke=lambda *_: events.append("revoked"),
            on_lost=lambda *_: events.append("lost"),
        )

        def has(count: int) -> bool:
            consumer.poll(0.05)
            return events.count("assigned") >= count

        wait_until(lambda: has(1))
        node.clock.advance(200)
        consumer.poll(0.2)
        assert events == ["assigned"]
        node.clock.advance(600)
        wait_until(lambda: has(2))
        assert events == ["assigned", "lost", "assigned"]
        consumer.close()


@pytest.mark.slow
def test_a_week_costs_no_node_of_a_cluster_its_place() -> None:
    """Nodes watch one another by the machine's time: no session ends, no leader moves, nobody leaves the ISR."""
    # Long enough for a busy machine, and far less than a week.
    with ottla.testing.cluster(broker_session_timeout_ms=60_000, replica_lag_time_max_ms=60_000) as cluster:
        cluster.create_topic("t", partitions=3, config={"min.insync.replicas": 3, "retention.ms": -1})
        leaders = [cluster.leader_of("t", each) for each in range(3)]
        cluster.clock.advance(timedelta(days=7))
        for each in range(3):
            cluster.produce("t", "all are in sync", partition=each)
        assert [cluster.leader_of("t", each) for each in range(3)] == leaders
        assert {record.partition for record in cluster.records("t")} == {0, 1, 2}


def test_time_does_not_go_back() -> None:
    with ottla.testing.node() as node, pytest.raises(ValueError, match="only ever set ahead"):
        node.clock.advance(-1)
