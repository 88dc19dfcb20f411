"""One cluster of our nodes and Apache Kafka's: they vote for one another, and each leads in its turn."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse
from tests.oracle.apache_kafka import KafkaTools
from tests.oracle.clusters import Cluster, KafkaCluster, OttlaCluster

pytestmark = pytest.mark.oracle

APACHE = 3
"""The one node of Apache Kafka; 1 and 2 are ours."""

FEATURES = ("share.version", "streams.version")


class MixedCluster(Cluster):
    def __init__(self, directory: Path, tools: KafkaTools) -> None:
        super().__init__(directory)
        self._tools = tools
        self._ours = OttlaCluster(directory / "ours", size=1)
        self._theirs = KafkaCluster(directory / "theirs", tools, size=1)

    def format(self) -> None:
        options = ["--initial-controllers", self.initial_controllers]
        for node in self.nodes.values():
            if node.node_id == APACHE:
                levels = [part for name in FEATURES for part in ("--feature", f"{name}=0")]
                release = ["--release-version", "4.3-IV0"]
                self._tools.check(
                    "kafka-storage", "format", "-t", self.cluster_id, *options, *release, *levels, "-c",
                    str(node.properties_file),
                )  # fmt: skip
            else:
                command = self._ours.command()[:-1]
                arguments = ["format", "--cluster-id", self.cluster_id, *options, str(node.properties_file)]
                subprocess.run([*command, *arguments], check=True, capture_output=True)

    def spawn(self) -> None:
        for node_id, node in self.nodes.items():
            if not node.is_running:
                kind = self._theirs if node_id == APACHE else self._ours
                node.spawn(kind.command(), kind.environment())

    def restart(self, node_id: int) -> None:
        self.spawn()
        self.nodes[node_id].wait_ready()

    def create(self, name: str, *, through: int, replicas: int = 3) -> None:
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=2, replication_factor=replicas)], timeout_ms=20_000
        )
        with self.client(through) as client:
            answer = client.call(request, CreateTopicsResponse)
        assert answer.topics[0].error_code == 0, answer.topics[0]

    def wait_for_topics(self, *names: str) -> None:
        """Until every node knows them, with all replicas in sync."""
        for node_id in self.nodes:
            deadline = time.monotonic() + 60
            while True:
                with contextlib.suppress(OSError):
                    if self._in_sync(node_id, names):
                        break
                assert time.monotonic() < deadline, f"node {node_id} does not see {names}"
                time.sleep(0.1)

    def _in_sync(self, node_id: int, names: tuple[str, ...]) -> bool:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
        )
        with self.client(node_id) as client:
            topics = client.call(request, MetadataResponse).topics
        return all(not t.error_code and all(len(p.isr_nodes) == 3 for p in t.partitions) for t in topics)

    def lead_by(self, *node_ids: int) -> int:
        """Kill and restart whoever leads, until one of `node_ids` does."""
        for _ in range(8):
            leader = self.active_controller().node_id
            if leader in node_ids:
                return leader
            self.nodes[leader].kill()
            time.sleep(5)
            self.restart(leader)
        raise AssertionError(f"none of {node_ids} was elected")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[MixedCluster]:
    with KafkaTools() as tools:
        cluster = MixedCluster(tmp_path, tools)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.end()


def test_ours_and_theirs_lead_one_quorum_in_turn(cluster: MixedCluster) -> None:
    cluster.create("first", through=1)
    assert cluster.lead_by(APACHE) == APACHE
    cluster.create("under-apache-kafka", through=2)
    cluster.wait_for_topics("first", "under-apache-kafka")
    cluster.nodes[APACHE].kill()
    assert cluster.active_controller(timeout=60).node_id in (1, 2)
    cluster.create("under-ours", through=1, replicas=2)
    cluster.restart(APACHE)
    cluster.create("with-all", through=APACHE)
    cluster.wait_for_topics("first", "under-apache-kafka", "with-all")
    # They have left the very same log behind. (Apache Kafka's own node would not stop in order without a majority.)
    cluster.end()
    logs = [(node.data / "__cluster_metadata-0" / f"{0:020}.log").read_bytes() for node in cluster.nodes.values()]
    shortest = min(len(log) for log in logs)
    assert shortest > 5_000
    assert len({log[:shortest] for log in logs}) == 1
