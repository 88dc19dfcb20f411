"""Stories that no transcript can tell: with members, with transactions, with a node of a snapshot's own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer

import ottla.testing
from ottla.admin.groups import committed_offsets
from ottla.cli.commands import consume
from ottla.client.blocking import BlockingClient
from ottla.client.settings import ClientSettings
from tests.cli.sessions import run_ottla
from tests.hanging import UNVERIFIED, hang
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
        assert run_ottla(["group", "seek", "billing", "--new", "--to", "2", "orders", *at])[0] == 0
        assert run_ottla(["snapshot", "save", file, "orders", *at])[0] == 0
    fork = subprocess.Popen(
        [sys.executable, "-m", "ottla.cli", "snapshot", "fork", file], stdout=subprocess.PIPE, text=True
    )
    assert fork.stdout is not None
    try:
        words = fork.stdout.readline().split()
        assert (words[0], words[2:]) == ("ready:", ["with", "3", "records", "of", "1", "topic"])
        assert run_ottla(["consume", "orders", "-o", "beginning", "-e", "-b", words[1]])[1] == b"a\nb\nc\n"
        described = json.loads(run_ottla(["group", "describe", "billing", "--json", "-b", words[1]])[1])
        assert [each["committed"] for each in described["partitions"]] == [2]
    finally:
        fork.send_signal(signal.SIGTERM)
        assert fork.wait(60) == 0
        fork.stdout.close()


@pytest.mark.slow
def test_a_bootstrap_server_that_does_not_resolve_is_passed_over(tmp_path: Path) -> None:
    """No part of a host's name is so long, so that nobody need be asked for it."""
    nobody = f"{'x' * 64}:9092"
    with running_node(tmp_path / "node", "--registry", "off") as node:
        at = ("-b", f"{nobody},{node.bootstrap}")
        assert run_ottla(["produce", "orders", *at], b"a\n")[0] == 0
        assert run_ottla(["consume", "orders", "-o", "beginning", "-e", *at])[1] == b"a\n"
        assert run_ottla(["consume", "orders", "-G", "billing", "-o", "beginning", "-e", *at])[1] == b"a\n"
    status, _, said = run_ottla(["produce", "orders", "-b", nobody], b"a\n")
    assert status == 1
    assert said.startswith(f"ottla: The cluster at {nobody} does not answer ({nobody}")
    assert "resolve" in said


def test_large_records_and_raw_keys(tmp_path: Path) -> None:
    large = tmp_path / "large.bin"
    large.write_bytes(bytes(3_000_000))
    with ottla.testing.node() as node:
        at = ("-b", node.bootstrap)
        status, _, said = run_ottla(["produce", "orders", "--whole", str(large), *at])
        assert (status, said) == (
            1,
            "ottla: A record of 3000000 bytes is more than a producer sends unless told so: raise -X "
            "message.max.bytes, and max.message.bytes of the topic.\n",
        )
        assert run_ottla(["produce", "orders", "-k", "\udcff", "-H", "h=\udcfe", *at], b"raw\n")[0] == 0
        assert [(record.key, record.headers) for record in node.records("orders")] == [(b"\xff", (("h", b"\xfe"),))]
        node.create_topic("films", config={"max.message.bytes": 4_000_000})
        assert run_ottla(["produce", "films", "--whole", str(large), "-X", "message.max.bytes=4000000", *at])[0] == 0
        assert [len(record.value or b"") for record in node.records("films")] == [3_000_000]
        status, _, said = run_ottla(["bench", "-n", "1", "--size", "3000000", *at])
        assert (status, said.startswith("ottla: Records of 3000000 bytes are not taken: ")) == (1, True)
        assert said.endswith(" See --size.\n")


def test_a_group_that_reads_on_is_seen_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has printed is committed while it waits for more."""
    monkeypatch.setattr(consume, "_KEEP_S", 0.0)
    with ottla.testing.node() as node, ThreadPoolExecutor(1) as pool:
        for value in ("a", "b", "c"):
            node.produce("orders", value)
        reading = ("consume", "orders", "-G", "billing", "-o", "beginning", "-c", "4", "-b", node.bootstrap)
        ended = pool.submit(run_ottla, [*reading])
        try:
            with BlockingClient(ClientSettings.parse({"bootstrap.servers": node.bootstrap})) as client:
                deadline_s = time.monotonic() + 60
                committed: list[int] = []
                while committed != [3] and time.monotonic() < deadline_s:
                    committed = [each.offset for each in committed_offsets(client, "billing").values()]
                assert committed == [3]
                assert not ended.done()
        finally:
            node.produce("orders", "d")
        assert ended.result(60) == (0, b"a\nb\nc\nd\n", "")


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
            status, _, said = run_ottla(["group", "delete", "billing", "--yes", *at])
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


@pytest.mark.slow
def test_a_transaction_that_hangs_is_found_and_ended(tmp_path: Path) -> None:
    """Readers of committed records stand still before it, and go on when it is aborted."""
    with running_node(tmp_path / "node", "--registry", "off", *UNVERIFIED) as node:
        at = ("-b", node.bootstrap)
        assert run_ottla(["topic", "create", "orders", *at])[0] == 0
        producer_id = hang(node.address, "orders")
        assert run_ottla(["produce", "orders", *at], b"later\n")[0] == 0
        read = ("consume", "orders", "-o", "beginning", "-e", *at)
        assert run_ottla([*read])[1] == b""
        _, told, _ = run_ottla(["txn", "hanging", "--silent", "0ms", "--json", *at])
        found = json.loads(told)
        assert (found["topic"], found["partition"], found["producer_id"]) == ("orders", 0, producer_id)
        assert (found["start_offset"], found["aborted"]) == (0, False)
        assert run_ottla(["txn", "hanging", *at])[2] == "No transaction hangs.\n"  # It was written to just now.
        status, told, _ = run_ottla(["doctor", "--hanging", "0ms", *at])
        assert (status, b"End it with `ottla txn hanging orders --abort`." in told) == (1, True)
        status, _, said = run_ottla(["txn", "hanging", "--silent", "0ms", "--abort", *at])
        assert (status, said) == (1, "ottla: This aborts 1 transaction. Say --yes to do it without being asked.\n")
        assert run_ottla([*read])[1] == b""
        assert run_ottla(["txn", "hanging", "orders", "--silent", "0ms", "--abort", "--yes", *at])[0] == 0
        assert run_ottla([*read])[1] == b"later\n"
        assert run_ottla(["txn", "hanging", "--silent", "0ms", *at])[2] == "No transaction hangs.\n"


@pytest.mark.slow
def test_what_transactions_left_is_not_restored_and_positions_go_with_their_records(tmp_path: Path) -> None:
    from confluent_kafka import Producer

    file = str(tmp_path / "saved.zip")
    with running_node(tmp_path / "node", "--registry", "off") as node:
        at = ("-b", node.bootstrap)
        assert run_ottla(["topic", "create", "orders", "-p", "1", *at])[0] == 0
        producer = Producer(
            {"bootstrap.servers": node.bootstrap, "transactional.id": "t", "enable.metrics.push": False}
        )
        producer.init_transactions(60)
        for value, commit in ((b"first", True), (b"taken back", False), (b"second", True)):
            producer.begin_transaction()
            producer.produce("orders", value)
            if commit:
                producer.commit_transaction(60)
            else:
                producer.abort_transaction(60)
        # Records at 0, 2 (aborted) and 4, markers between; the group has read the first.
        assert run_ottla(["group", "seek", "billing", "--new", "--to", "2", "orders", *at])[0] == 0
        assert run_ottla(["snapshot", "save", file, *at])[0] == 0
        status, out, said = run_ottla(["snapshot", "restore", file, "--rename", "orders=again", *at])
        assert (status, out.decode()) == (
            0,
            f"2 records of 1 topic and the positions of 1 group restored from {file}\n",
        )
        assert "offsets behind a hole are smaller now" in said
        assert (
            run_ottla(["consume", "again", "-o", "beginning", "-e", "-f", "%o %s\\n", *at])[1] == b"0 first\n1 second\n"
        )
        described = json.loads(run_ottla(["group", "describe", "billing", "--json", *at])[1])
        assert {each["topic"]: each["committed"] for each in described["partitions"]} == {"again": 1, "orders": 2}


def last_partition(key: bytes | None, topic: str, count: int) -> int:
    return count - 1


def no_partition(key: bytes | None, topic: str, count: int) -> int:
    return count


@pytest.mark.slow
def test_a_function_of_the_users_chooses_partitions(tmp_path: Path) -> None:
    with running_node(tmp_path / "node", "--registry", "off") as node:
        at = ("-b", node.bootstrap)
        assert run_ottla(["topic", "create", "orders", "-p", "5", *at])[0] == 0
        chosen = ("--partitioner", f"{__name__}:last_partition")
        _, out, _ = run_ottla(["produce", "orders", "--json", *chosen, *at], b"a\nb\n")
        assert json.loads(out)["partitions"] == {"4": 2}
        status, _, said = run_ottla(["produce", "orders", "--partitioner", f"{__name__}:no_partition", *at], b"a\n")
        assert (status, said.split(": ", 2)[1:]) == (
            1,
            [
                f"The partitioner {__name__}:no_partition chose 5 for a topic of 5 partitions",
                "it must return a number from 0 to 4.\n",
            ],
        )
