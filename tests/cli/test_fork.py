"""A snapshot served by a node of its own, and a member that is in the way of a seek."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.cli.transcripts import run_ottla
from tests.node_process import running_node


@pytest.fixture(autouse=True)
def no_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "none.toml"))


@pytest.mark.slow
def test_a_snapshot_is_forked(tmp_path: Path) -> None:
    file = str(tmp_path / "saved.zip")
    with running_node(tmp_path / "node", "--registry", "off") as node:
        at = ("-b", node.bootstrap)
        assert run_ottla(["produce", "orders", "-X", "linger.ms=60000", *at], b"a\nb\nc\n")[0] == 0
        assert run_ottla(["group", "seek", "billing", "--to", "2", "orders", *at])[0] == 0
        assert run_ottla(["snapshot", "save", file, "orders", *at])[0] == 0
    fork = subprocess.Popen(
        [sys.executable, "-m", "ottla.cli", "snapshot", "fork", file], stdout=subprocess.PIPE, text=True
    )
    assert fork.stdout is not None
    try:
        words = fork.stdout.readline().split()
        assert (words[0], words[2:]) == ("ready:", ["with", "3", "records", "of", "1", "topics"])
        assert run_ottla(["consume", "orders", "-o", "beginning", "-e", "-b", words[1]])[1] == b"a\nb\nc\n"
        described = json.loads(run_ottla(["group", "describe", "billing", "--json", "-b", words[1]])[1])
        assert [each["committed"] for each in described["partitions"]] == [2]
    finally:
        fork.send_signal(signal.SIGTERM)
        assert fork.wait(60) == 0
        fork.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_shown_and_not_moved(tmp_path: Path, protocol: str) -> None:
    with running_node(tmp_path / "node", "--registry", "off") as node:
        at = ("-b", node.bootstrap)
        assert run_ottla(["produce", "orders", *at], b"a\nb\n")[0] == 0
        consumer = Consumer(
            {
                "bootstrap.servers": node.bootstrap,
                "group.id": "billing",
                "client.id": "reader",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.metrics.push": False,
            }
        )
        try:
            consumer.subscribe(["orders"])
            message = None
            for _ in range(600):  # At most a minute.
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    break
            assert message is not None
            consumer.commit(message, asynchronous=False)
            described = json.loads(run_ottla(["group", "describe", "billing", "--json", *at])[1])
            assert (described["state"], described["protocol"], described["lag"]) == ("Stable", protocol, 1)
            (member,) = described["members"]
            assert (member["client"], member["assigned"]) == ("reader", ["orders-0"])
            assert described["partitions"][0]["member"] == member["member"]
            status, _, said = run_ottla(["group", "seek", "billing", "--to", "end", *at])
            assert status == 1
            assert said.startswith("ottla: The group billing is Stable and has members: stop them first")
            status, _, said = run_ottla(["group", "delete", "billing", *at])
            assert (status, "the group has members; stop them first" in said) == (1, True)
        finally:
            consumer.close()


@pytest.mark.slow
def test_a_transaction_is_seen_and_ended(tmp_path: Path) -> None:
    from confluent_kafka import Producer

    with running_node(tmp_path / "node", "--registry", "off") as node:
        at = ("-b", node.bootstrap)
        producer = Producer(
            {"bootstrap.servers": node.bootstrap, "transactional.id": "payments-1", "enable.metrics.push": False}
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("orders", b"open")
        assert producer.flush(60) == 0
        (listed,) = [json.loads(line) for line in run_ottla(["txn", "list", "--json", *at])[1].splitlines()]
        assert (listed["transactional_id"], listed["state"]) == ("payments-1", "Ongoing")
        described = json.loads(run_ottla(["txn", "describe", "payments-1", "--json", *at])[1])
        assert described["partitions"] == ["orders-0"]
        read = ("consume", "orders", "-o", "beginning", "-e", *at)
        assert run_ottla([*read])[1] == b""
        assert run_ottla([*read, "--uncommitted"])[1] == b"open\n"
        assert run_ottla(["txn", "hanging", "--silent", "0ms", *at])[1] == b""  # Its coordinator will end it.
        assert run_ottla(["txn", "abort", "payments-1", "--yes", *at])[0] == 0
        assert json.loads(run_ottla(["txn", "describe", "payments-1", "--json", *at])[1])["partitions"] == []
        status, _, said = run_ottla(["txn", "abort", "payments-1", "--yes", *at])
        assert (status, "has nothing open" in said) == (1, True)
        producer.purge()
