"""One node of three has a bad day: it says what is wrong and what to do, the others go on, and nothing is lost.

The third node is stopped or killed, spoilt, seen to refuse its start with one sentence or to mend what it lost, and put
right. Meanwhile writes with acks=all go on, and in the end every acknowledged record is there, once.
"""

from __future__ import annotations

import re
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.broker.control.format import FormatOptions, format_node
from ottla.cli.settings import build_config
from ottla.config.properties import format_properties, parse_properties
from ottla.runtime.system import free_ports, system_runtime
from tests.cluster.clients import Writer, read_all
from tests.cluster.harness import Cluster, NodeProcess, eventually, running_cluster

pytestmark = pytest.mark.slow

TOPIC = "t"
VICTIM = 3
STRANGE_ID = "M7SJc-RSRxG5rpmI1j7tPw"


class Day:
    """The cluster, and whoever writes to it all day."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.data = cluster.directory / f"node-{VICTIM}"
        self.properties = cluster.directory / f"node-{VICTIM}.properties"
        self.segment = self.data / f"{TOPIC}-0" / f"{0:020d}.log"
        cluster.create_topic(TOPIC, min_insync_replicas="2")
        self._writer = Writer(cluster, TOPIC, idempotent=True)

    @property
    def victim(self) -> NodeProcess:
        return self.cluster.nodes[VICTIM]

    def goes_on(self) -> None:
        """Writes are acknowledged."""
        self._writer.write(20)
        assert self._writer.refused == []

    def begin(self) -> None:
        """All have all."""
        self.goes_on()
        self.cluster.wait_in_sync(TOPIC, self.cluster.nodes)

    def end(self) -> None:
        """The victim is back, all are in sync, and everything that was acknowledged is there."""
        self.goes_on()
        if not self.victim.is_running:
            self.cluster.restart(VICTIM)
        self.cluster.wait_in_sync(TOPIC, self.cluster.nodes)
        assert read_all(self.cluster, TOPIC, len(self._writer.acknowledged)) == self._writer.acknowledged

    def refusal(self, node: NodeProcess) -> str:
        """Of a node that is started, and must not serve: its last words."""
        node.start()
        assert node.wait() == 1
        self.goes_on()
        assert "Traceback" not in node.log()
        last = node.log().splitlines()[-1]
        assert last.startswith("ottla: ")
        return last


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    with running_cluster(tmp_path_factory.mktemp("bad-days")) as cluster:
        yield Day(cluster)


@contextmanager
def spoilt(path: Path, spoil: Callable[[str], str]) -> Iterator[None]:
    """A file with other content, for a while."""
    before = path.read_text()
    path.write_text(spoil(before))
    assert path.read_text() != before
    yield
    path.write_text(before)


@contextmanager
def unreadable(path: Path) -> Iterator[None]:
    """In the place of a file there is something that cannot be opened as one."""
    aside = path.with_suffix(".aside")
    path.rename(aside)
    path.mkdir()
    yield
    path.rmdir()
    aside.rename(path)


def test_who_must_not_start_says_why_and_what_to_do(day: Day) -> None:
    """A voter that does not know for whom it has voted, a node of another cluster, the directory of a node that runs,
    the disk of another in this machine, a segment that cannot be read."""
    day.begin()
    assert day.cluster.stop(VICTIM) == 0
    other, meta = str(day.cluster.directory / "node-2"), day.data / "meta.properties"

    with spoilt(day.data / "__cluster_metadata-0" / "quorum-state", lambda text: text[: len(text) // 2]):
        said = day.refusal(day.victim)
    assert "quorum-state is damaged" in said
    assert "remove this voter from the quorum and format its directory anew" in said

    with spoilt(meta, lambda text: re.sub(r"(?m)^cluster\.id=.*$", f"cluster.id={STRANGE_ID}", text)):
        said = day.refusal(day.victim)
    assert f"belongs to another cluster, not to {STRANGE_ID}" in said
    assert "correct controller.quorum.bootstrap.servers, or format this node for that cluster" in said

    with spoilt(day.properties, lambda text: text.replace(str(day.data), other)):
        said = day.refusal(day.victim)
    assert f"{other} is in use by another node: stop that one, or give this one a directory of its own" in said

    with spoilt(meta, lambda text: text.replace("node.id=3", "node.id=2")):
        said = day.refusal(day.victim)
    assert f"{day.data} belongs to node 2, not to node 3" in said
    assert "give the node its own log.dirs, or its own node.id" in said

    with unreadable(day.segment):
        assert str(day.segment) in day.refusal(day.victim)
    day.end()


@pytest.mark.long
def test_a_node_id_that_is_taken_is_not_given_twice(day: Day, tmp_path: Path) -> None:
    """Whoever has it goes on as if nothing had been."""
    day.begin()
    pid = day.victim.pid
    client_port, controller_port = free_ports("127.0.0.1", 2)
    properties = parse_properties(day.properties.read_text()) | {
        "listeners": f"PLAINTEXT://127.0.0.1:{client_port},CONTROLLER://127.0.0.1:{controller_port}",
        "log.dirs": str(tmp_path / "data"),
        "initial.broker.registration.timeout.ms": "1000",
    }
    cluster_id = parse_properties((day.data / "meta.properties").read_text())["cluster.id"]
    runtime = system_runtime(durable=False)
    options = FormatOptions(cluster_id=cluster_id, no_initial_controllers=True)
    config, now_ms = build_config(properties), runtime.clock.wall_ms()
    format_node(runtime.disk, config, options, random=runtime.random, now_ms=now_ms)
    file = tmp_path / "second.properties"
    file.write_text(format_properties(properties))
    second = NodeProcess(VICTIM, file, ("127.0.0.1", client_port), tmp_path / "second.stderr")
    said = day.refusal(second)
    assert "DUPLICATE_BROKER_REGISTRATION" in said
    assert "stop the other broker, or give this one its own node.id" in said
    assert (day.victim.is_running, day.victim.pid) == (True, pid)
    day.end()


@pytest.mark.long
def test_a_disk_that_takes_no_more_costs_a_node_and_no_record(day: Day) -> None:
    """As with one that is full: the node stops, and takes up what it missed when there is room again."""
    day.begin()
    # No file may grow beyond what the partition's segment has by now.
    largest = day.segment.stat().st_size
    resource.prlimit(day.victim.pid, resource.RLIMIT_FSIZE, (largest, largest))
    day.goes_on()
    eventually(lambda: not day.victim.is_running or None, "the end of a node without a disk")
    assert day.victim.wait() == 1
    assert f"cannot write {day.segment}" in day.victim.log()
    day.end()


@pytest.mark.long
def test_records_that_were_damaged_are_copied_again(day: Day) -> None:
    """E16: after a crash the damage is found, and the replica has what the others have before it counts again."""
    day.begin()
    day.cluster.kill(VICTIM)
    content = bytearray(day.segment.read_bytes())
    content[-3] ^= 4
    day.segment.write_bytes(content)
    day.end()
    assert "is broken there" in day.victim.log()
    whole = day.cluster.directory / "node-1" / day.segment.relative_to(day.data)
    assert day.segment.read_bytes() == whole.read_bytes()


@pytest.mark.long
def test_a_replica_that_is_gone_is_copied_again(day: Day) -> None:
    """Its node does not count as one that was stopped in order, though it was."""
    day.begin()
    assert day.cluster.stop(VICTIM) == 0
    shutil.rmtree(day.segment.parent)
    day.end()
    told = f"1 logs of {day.data} are gone, and are to be copied from other replicas: {TOPIC}-0"
    assert told in day.victim.log()
