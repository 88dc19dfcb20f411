"""Consumers of three libraries in classic groups: they share partitions, come, go, die, and go on where they were."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from tests.node_process import NodeProcess, running_node

pytestmark = pytest.mark.slow

LIBRARIES = ["confluent", "kafka-python", "aiokafka"]
PARTITIONS = 3
SETTINGS = ("group.min.session.timeout.ms=1000", "group.initial.rebalance.delay.ms=0")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    arguments = [part for setting in SETTINGS for part in ("--set", setting)]
    with running_node(tmp_path_factory.mktemp("node"), *arguments) as node:
        yield node


class Worker:
    """A consumer in a process of its own (`group_worker.py`), and what it told."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.clients.group_worker", *command], stdout=subprocess.PIPE, text=True
        )
        self.owned: list[int] = []
        self.turns: list[list[int]] = []
        """All that it ever owned, one after the other."""
        self.saw: list[tuple[int, int, str]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            match json.loads(line):
                case ["owns", partitions]:
                    self.turns.append(partitions)
                    self.owned = partitions
                case ["saw", partition, offset, value]:
                    self.saw.append((partition, offset, value))

    def stop(self) -> None:
        """Leave the group, if its library does so."""
        self.process.terminate()
        self._end()

    def kill(self) -> None:
        self.process.kill()
        self._end()

    def _end(self) -> None:
        self.process.wait(60)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def running(self) -> bool:
        return self.process.poll() is None


class Group:
    def __init__(self, node: NodeProcess, topic: str) -> None:
        self._node = node
        self.topic = topic
        self.group_id = f"group-{uuid.uuid4().hex[:8]}"
        self.workers: list[Worker] = []
        self.sent: list[str] = []

    def start(self, library: str, **options: str) -> Worker:
        settings = [f"{name}={value}" for name, value in options.items()]
        worker = Worker([library, self._node.bootstrap, self.group_id, self.topic, *settings])
        self.workers.append(worker)
        return worker

    def shared(self, *workers: Worker) -> bool:
        """Do these own all partitions between them, none of them twice, and each what is its due?"""
        owned = sorted(partition for worker in workers for partition in worker.owned)
        least = PARTITIONS // len(workers)
        return owned == list(range(PARTITIONS)) and all(len(worker.owned) >= least for worker in workers)

    def until(self, good: Callable[[], bool], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not good():
            told = [(worker.owned, len(worker.saw)) for worker in self.workers if worker.running]
            assert time.monotonic() < deadline, f"still {told} after {seconds} s"
            time.sleep(0.05)

    def produce(self, count: int) -> list[str]:
        """So many records to each partition."""
        producer = Producer({"bootstrap.servers": self._node.bootstrap})
        values = [f"{len(self.sent) + index}" for index in range(count * PARTITIONS)]
        for index, value in enumerate(values):
            producer.produce(self.topic, value.encode(), partition=index % PARTITIONS)
        assert producer.flush(30) == 0
        self.sent += values
        return values

    def seen(self) -> list[str]:
        return sorted((value for worker in self.workers for _, _, value in worker.saw), key=int)

    def end(self) -> None:
        for worker in self.workers:
            if worker.running:
                worker.kill()


@pytest.fixture
def group(node: NodeProcess, new_topic: Callable[..., str]) -> Iterator[Group]:
    group = Group(node, new_topic(PARTITIONS))
    yield group
    group.end()


@pytest.mark.parametrize("library", LIBRARIES)
def test_members_share_and_take_over_and_go_on_where_they_were(group: Group, library: str) -> None:
    first = group.start(library)
    group.until(lambda: group.shared(first))
    second = group.start(library)
    group.until(lambda: group.shared(first, second))
    group.produce(10)
    group.until(lambda: group.seen() == group.sent)
    # One leaves as it should: the other hears of it at once.
    second.stop()
    group.until(lambda: group.shared(first))
    # One is killed: the other gets its partitions when its session is over.
    third = group.start(library)
    group.until(lambda: group.shared(first, third))
    third.kill()
    group.until(lambda: group.shared(first))
    first.stop()
    # Whoever comes next begins where they were.
    new = group.produce(5)
    last = group.start(library)
    group.until(lambda: {value for _, _, value in last.saw} >= set(new))
    assert group.seen() == group.sent, "a record was read twice, though its offset was committed"


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_static_member_comes_back_and_nobody_else_notices(group: Group, library: str) -> None:
    first = group.start(library, instance="one")
    group.until(lambda: group.shared(first))
    second = group.start(library, instance="two")
    group.until(lambda: group.shared(first, second))
    owned, turns = second.owned, list(first.turns)
    second.kill()
    again = group.start(library, instance="two")
    group.until(lambda: again.owned == owned)
    assert first.turns == turns
    group.produce(3)
    group.until(lambda: group.seen() == group.sent)


def test_five_members_on_three_partitions(group: Group) -> None:
    workers: list[Worker] = []
    for _ in range(5):
        workers.append(group.start("confluent"))
        group.until(lambda: sorted(p for worker in workers for p in worker.owned) == [0, 1, 2])

    def owners() -> list[Worker]:
        return [worker for worker in workers if worker.owned]

    def spread() -> bool:
        return sorted(p for worker in workers for p in worker.owned) == [0, 1, 2] and len(owners()) == min(
            3, len(workers)
        )

    group.until(spread)
    for _ in range(2):
        gone = owners()[0]
        gone.kill()
        workers.remove(gone)
        gone.owned = []
        group.until(spread)
    group.produce(2)
    group.until(lambda: group.seen() == group.sent)


def test_cooperative_members_keep_what_they_need_not_give(group: Group) -> None:
    first = group.start("confluent", strategy="cooperative-sticky")
    group.until(lambda: group.shared(first))
    second = group.start("confluent", strategy="cooperative-sticky")
    group.until(lambda: group.shared(first, second))
    kept = set(first.owned)
    second.stop()
    group.until(lambda: group.shared(first))
    # Since it had all it gave up one, and had the others all the time.
    since = first.turns[first.turns.index([0, 1, 2]) :]
    assert all(kept <= set(owned) for owned in since), since


def test_members_of_three_libraries_are_one_group(group: Group) -> None:
    workers: list[Worker] = []
    for library in LIBRARIES:
        workers.append(group.start(library))
        group.until(lambda: group.shared(*workers))
    group.produce(5)
    group.until(lambda: group.seen() == group.sent)
