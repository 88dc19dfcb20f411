"""A node of a test's own: with `with` and `async with`, from threads, beside others, and gone afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer

import ottla.testing
from ottla.admin import transactions
from ottla.client.blocking import BlockingClient
from ottla.errors import ErrorCode, KafkaError, StartupError
from ottla.testing import conveniences
from ottla.testing.starting import NodeGone

ROOT = Path(__file__).parent.parent.parent


def is_served(bootstrap: str) -> bool:
    host, _, port = bootstrap.partition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=60):
            return True
    except ConnectionRefusedError:
        return False


def test_a_node_is_there_inside_and_gone_afterwards() -> None:
    with ottla.testing.node() as node:
        assert is_served(node.bootstrap)
        process = Path(f"/proc/{node.pid}")
        directory = Path(node._layout.directory)
        assert process.exists()
        assert list(directory.glob("node-1/__cluster_metadata-0/*.log"))
    assert not is_served(node.bootstrap)
    assert not process.exists()
    assert not directory.exists()


def test_two_nodes_know_nothing_of_each_other() -> None:
    with ottla.testing.node() as one, ottla.testing.node(num_partitions=4) as other:
        one.create_topic("mine")
        other.create_topic("theirs", partitions=-1)
        assert one.topics() == {"mine": 1}
        assert other.topics() == {"theirs": 4}


def test_a_topic_comes_to_be_with_its_first_record() -> None:
    with ottla.testing.node(num_partitions=2) as node:
        assert node.produce("orders", "three apples").offset == 0
        node.produce("by-key", "two pears", key="ann")
        assert [record.value for record in node.records("by-key")] == [b"two pears"]
        assert node.topics() == {"by-key": 2, "orders": 2}


def test_who_names_a_topic_that_is_not_there_is_told_at_once() -> None:
    with ottla.testing.node(auto_create_topics_enable=False) as node:
        begun = time.monotonic()
        for attempt in (
            lambda: node.produce("ordres", "three apples"),
            lambda: node.records("ordres"),
            lambda: node.leader_of("ordres"),
        ):
            with pytest.raises(KafkaError, match="The topic ordres does not exist: create_topic makes it") as refused:
                attempt()
            assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert time.monotonic() - begun < 60  # As long as one of them would have waited.
        assert node.topics() == {}


def test_who_names_a_partition_that_is_not_there_is_told_at_once() -> None:
    with ottla.testing.node() as node:
        node.create_topic("orders", partitions=2)
        begun = time.monotonic()
        for attempt in (
            lambda: node.produce("orders", "three apples", partition=2),
            lambda: node.records("orders", 2),
            lambda: node.leader_of("orders", 2),
        ):
            with pytest.raises(KafkaError, match="no partition 2 in orders") as refused:
                attempt()
            assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert time.monotonic() - begun < 60  # As long as one of them would have waited.


def test_what_is_no_text_and_no_bytes_is_refused_in_a_sentence() -> None:
    with ottla.testing.node() as node:
        with pytest.raises(TypeError, match=r"The value is of type dict: give text or bytes, as json.dumps makes them"):
            node.produce("orders", {"apples": 3})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="The key is of type int"):
            node.produce("orders", "three apples", key=7)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="The header n is of type int"):
            node.produce("orders", "three apples", headers={"n": 3})  # type: ignore[arg-type]
        assert node.topics() == {}
        assert node.produce("orders", "three apples", headers={"n": "3", "none": None}).offset == 0
        assert node.records("orders")[0].headers == (("n", b"3"), ("none", None))


def test_what_is_committed_is_there_when_its_markers_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    really = transactions.list_transactions
    with ottla.testing.node() as node:
        node.create_topic("orders")
        producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "till"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("orders", "three apples")
        assert producer.flush(60) == 0
        assert node.records("orders") == []  # Open: nobody waits for it.

        def decided_at_first(client: BlockingClient) -> list[transactions.ListedTransaction]:
            monkeypatch.setattr(transactions, "list_transactions", really)
            producer.commit_transaction(60)
            return [
                transactions.ListedTransaction(
                    transactional_id="till", producer_id=0, state="PrepareCommit", coordinator=1
                )
            ]

        monkeypatch.setattr(transactions, "list_transactions", decided_at_first)
        assert [record.value for record in node.records("orders")] == [b"three apples"]


def test_records_are_put_in_and_looked_at() -> None:
    with ottla.testing.node() as node:
        node.create_topic("t", partitions=3, config={"message.timestamp.type": "CreateTime", "flush.messages": 1})
        sent = [
            node.produce("t", "text", key="a key"),
            node.produce(
                "t", b"bytes", partition=2, headers=[("h", b"1"), ("n", None)], timestamp_ms=1_700_000_000_000
            ),
            node.produce("t", None, partition=2),
        ]
        assert [record.offset for record in sent] == [0, 0, 1] if sent[0].partition != 2 else [0, 1, 2]
        assert sorted(node.records("t")) == sorted(sent)
        assert node.records("t", 2) == [record for record in sent if record.partition == 2]
        assert node.leader_of("t", 2) == node.node_id == 1
        with pytest.raises(KafkaError) as refusal:
            node.create_topic("t")
        assert refusal.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_log_that_has_less_than_it_said_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after the election of a leader that was not in sync."""
    really = conveniences._offset

    def one_more(client: BlockingClient, topic: str, partition: int, when: int, committed: bool) -> int:
        return really(client, topic, partition, when, committed) + (when == conveniences._LATEST)

    monkeypatch.setattr(conveniences, "_offset", one_more)
    monkeypatch.setattr(conveniences, "_STALLED_S", 0.0)
    with ottla.testing.node() as node:
        node.produce("orders", "three apples")
        with pytest.raises(KafkaError, match="orders-0 said that it ends at 2, and has nothing behind 1"):
            node.records("orders")


def test_a_start_that_fails_says_why_and_leaves_nothing() -> None:
    before = set(os.listdir("/proc/self/fd"))
    for settings, sentence in (
        ({"num.partitions": "many"}, "num.partitions"),
        ({"listeners": "PLAINTEXT://:9092"}, "listeners cannot be set"),
        ({"create.topic.policy.class.name": "Mine"}, "create.topic.policy.class.name"),
    ):
        with pytest.raises(StartupError, match=sentence), ottla.testing.node(settings):
            pass
    assert set(os.listdir("/proc/self/fd")) == before


def test_from_many_threads_at_once() -> None:
    def use(number: int) -> list[bytes | None]:
        with ottla.testing.node() as node:
            node.create_topic("t")
            node.produce("t", f"of thread {number}")
            return [record.value for record in node.records("t")]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(use, range(8))) == [[b"of thread %d" % number] for number in range(8)]


async def test_with_asyncio_the_loop_goes_on_meanwhile() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    async with ottla.testing.node() as node:
        assert is_served(node.bootstrap)
        seen = turns
    counting.cancel()
    assert seen > 10
    assert turns > seen
    assert not is_served(node.bootstrap)


async def test_inside_a_running_loop_the_plain_form_works_too() -> None:
    with ottla.testing.node() as node:
        assert is_served(node.bootstrap)


async def test_whoever_is_cancelled_while_a_node_starts_leaves_none() -> None:
    entered = threading.Event()
    embedding = ottla.testing.node()
    plain = embedding.__enter__
    started: list[ottla.testing.Node] = []

    def enter() -> ottla.testing.Node:
        started.append(plain())
        entered.set()
        return started[0]

    embedding.__enter__ = enter  # type: ignore[method-assign]
    entering = asyncio.ensure_future(embedding.__aenter__())
    await asyncio.sleep(0)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert entered.is_set()
    assert not is_served(started[0].bootstrap)


def test_a_node_that_dies_says_so() -> None:
    with ottla.testing.node() as node:
        os.kill(node.pid, signal.SIGKILL)
        with pytest.raises(NodeGone, match="Node 1 has ended"):
            node.faults.clear()


def test_a_test_may_compute_without_starving_the_broker() -> None:
    """The node has a processor of its own to ask for, whatever the test's interpreter does meanwhile."""
    with ottla.testing.node() as node:
        done = threading.Event()

        def compute() -> None:
            while not done.is_set():
                sum(range(100_000))

        busy = threading.Thread(target=compute)
        busy.start()
        try:
            node.create_topic("t")
            node.produce("t", "still served")
        finally:
            done.set()
            busy.join()


@pytest.mark.slow
@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)", "raise SystemExit"])
def test_whatever_ends_the_test_process_ends_its_nodes(end: str) -> None:
    script = f"""
import os, signal
import ottla.testing
entered = ottla.testing.node()
node = entered.__enter__()
print(node.pid, node._layout.directory, flush=True)
{end}
"""
    run = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        text=True,
    )
    # The output ends when the last process that holds it has ended: nursery and node have closed theirs.
    said, _ = run.communicate(timeout=60)
    pid, directory = said.split()
    _wait_until_gone(Path(f"/proc/{pid}"))
    _wait_until_gone(Path(directory))


def _wait_until_gone(path: Path) -> None:
    import time

    deadline = time.monotonic() + 60
    while path.exists():
        assert time.monotonic() < deadline, f"{path} is still there"
        time.sleep(0.01)


@pytest.mark.slow
def test_a_fork_of_the_test_process_has_nodes_of_its_own() -> None:
    script = """
import os
import ottla.testing
with ottla.testing.node() as node:
    pid = os.fork()
    if pid == 0:
        with ottla.testing.node() as other:
            other.create_topic("t")
            assert other.pid != node.pid
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert status == 0
    node.create_topic("t")
print("both")
"""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (run.stdout, run.stderr) == ("both\n", "")


@pytest.mark.slow
def test_a_hundred_nodes_leave_nothing(tmp_path: Path) -> None:
    """No descriptor, thread, handler of logs, process or file; nor does a cluster, whatever became of its nodes."""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.testing.many_nodes", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (run.stdout, run.stderr) == ("nodes True\ncluster True\n", "")
