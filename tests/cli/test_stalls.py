"""Who produces and hears nothing is told what is waited for."""

from __future__ import annotations

import queue
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import ottla.testing
from ottla.admin import topics
from ottla.cli import stalls
from ottla.cli.commands.produce import Draft, Sender
from ottla.cli.librdkafka import librdkafka_config
from ottla.cli.output import Output
from ottla.cli.session import Session, open_session
from ottla.cli.stalls import AGAIN_S, QUIET_S, Stall, reason

PATIENCE_S = 60


@pytest.fixture(autouse=True)
def no_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "none.toml"))


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> queue.Queue[str]:
    heard: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(Output, "note", lambda self, text: heard.put(text))
    return heard


@pytest.mark.slow
def test_a_leader_that_is_dead_is_named_and_waited_for(said: queue.Queue[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "QUIET_S", 0.1)
    with ottla.testing.cluster() as cluster, ThreadPoolExecutor(1) as pool:
        cluster.create_topic("orders", replication_factor=1)
        leader = cluster.leader_of("orders")
        session = open_session(bootstrap=cluster.bootstrap, properties=["reconnect.backoff.max.ms=200"])
        cluster.kill(leader)
        sender = Sender(session, "orders", librdkafka_config(session.properties, session.settings), None)
        sender.send(Draft(None, b"three apples", []))
        finished = pool.submit(sender.finish)
        try:
            told = said.get(timeout=PATIENCE_S)
            assert not finished.done()
        finally:
            cluster.restart(leader)
        dead = f"the leader of orders-0, broker {leader}, does not answer (127.0.0.1:"
        gone = f"orders-0 has no leader (replicas: {leader})"
        assert told.startswith((f"1 record not acknowledged yet: {dead}", f"1 record not acknowledged yet: {gone}"))
        assert told.endswith("They are sent when that has passed; Ctrl-C gives up.")
        finished.result(PATIENCE_S)
        assert sender.delivered == {0: 1}
        assert [record.value for record in cluster.records("orders")] == [b"three apples"]


def test_it_is_said_after_a_while_and_again_when_it_is_something_else(
    said: queue.Queue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    why = "the leader is gone."
    monkeypatch.setattr(stalls, "reason", lambda session, topic: why)
    stall = Stall(open_session(), "orders", now=lambda: now_s)

    def after(seconds: float) -> list[str]:
        nonlocal now_s
        now_s += seconds
        stall.look(2)
        return [said.get() for _ in range(said.qsize())]

    assert after(QUIET_S - 1) == []
    stall.on_progress()
    assert after(QUIET_S - 1) == []
    assert after(1) == ["2 records not acknowledged yet: the leader is gone."]
    assert after(AGAIN_S) == []
    why = "there is none."
    assert after(AGAIN_S - 1) == []
    assert after(1) == ["2 records not acknowledged yet: there is none."]


def test_why_a_topic_may_not_take_records(monkeypatch: pytest.MonkeyPatch) -> None:
    with ottla.testing.node() as node:
        session: Session = open_session(bootstrap=node.bootstrap)
        node.create_topic("orders", partitions=2)
        assert reason(session, "orders") == "every leader answers, so it may just be slow. Ctrl-C gives up."
        assert reason(session, "ordres") == "The topic ordres cannot be described: there is no such topic or partition."
        really = topics.list_topics

        def thin(*arguments: object) -> list[topics.Topic]:
            (topic,) = really(*arguments)  # type: ignore[arg-type]
            first, second = topic.partitions
            return [replace(topic, partitions=(replace(first, replicas=(1, 2, 3)), second))]

        monkeypatch.setattr(topics, "list_topics", thin)
        assert reason(session, "orders") == (
            "not all replicas are in sync: orders-0 (1 of 3); see `ottla doctor`. Ctrl-C gives up."
        )
    assert reason(session, "orders").startswith(
        f"the cluster at {node.bootstrap} does not answer ({node.bootstrap} cannot be reached"
    )
