"""A replica that led is killed, and its disk loses what was committed: it is mended from a peer before it counts (E16).

At no moment does it lead without the records, nor hand out other bytes than were written. In the end it leads again,
and has every acknowledged record.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ottla.records import batches
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.elect_leaders_response import ElectLeadersResponse
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse
from tests.cluster.clients import Writer, read_all
from tests.cluster.harness import Cluster, eventually, running_cluster
from tests.wire_client import WireClient

pytestmark = pytest.mark.slow

TOPIC = "t"
VICTIM = 3
PREFERRED = 0
SETTINGS = {"replica.high.watermark.checkpoint.interval.ms": "200"}
"""What a replica knows to be committed is what it has written down when it dies."""


class Story:
    """A partition that the victim leads while it is in sync, and somebody who writes to it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        placed = CreatableReplicaAssignment(partition_index=0, broker_ids=[VICTIM, 1, 2])
        topic = CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=[placed])
        topic.configs = [CreatableTopicConfig(name="min.insync.replicas", value="2")]
        answer = cluster.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse)
        assert answer.topics[0].error_code == 0
        self.writer = Writer(cluster, TOPIC, idempotent=True)

    def segment(self, node_id: int) -> Path:
        return self.cluster.directory / f"node-{node_id}" / f"{TOPIC}-0" / f"{0:020d}.log"

    def write(self) -> None:
        """Ten batches, and all are acknowledged."""
        for _ in range(10):
            self.writer.write(10)
        assert self.writer.refused == []

    def kill_the_leader(self) -> None:
        """When it knows, also after its death, that all it has is committed. The others go on without it."""
        self.cluster.wait_in_sync(TOPIC, self.cluster.nodes)
        assert self.cluster.leader_of(TOPIC) == VICTIM
        checkpoint = self.cluster.directory / f"node-{VICTIM}" / "replication-offset-checkpoint"
        committed = f"{TOPIC} 0 {len(self.writer.acknowledged)}"
        eventually(lambda: committed in checkpoint.read_text().splitlines() or None, f"a checkpoint of {committed}")
        self.cluster.kill(VICTIM)
        self.write()

    def mend(self, offset: int, whole: bytes) -> None:
        """The victim starts, and lacks the batch at `offset`, with which `whole` begins, and all that follows. Returns
        when it is in sync again."""
        self.cluster.restart(VICTIM)

        def is_in_sync() -> bool | None:
            found = self.cluster.partition(TOPIC)
            in_sync = VICTIM in found.isr_nodes
            assert in_sync or found.leader_id != VICTIM
            assert whole.startswith(self.served_by_victim(offset))
            return in_sync or None

        eventually(is_in_sync, "the victim in sync again")
        # It hears of the high watermark by its next fetch.
        eventually(lambda: self.served_by_victim(offset) == whole or None, "all that was lost, from the victim")

    def served_by_victim(self, offset: int) -> bytes:
        """Where it does not lead it is asked as the replica nearby (KIP-392)."""
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=TOPIC, partitions=[wanted])])
        with WireClient(self.cluster.nodes[VICTIM].address) as client:
            answer = client.call(request, FetchResponse, 12)
        return b"".join(bytes(each.records or b"") for topic in answer.responses for each in topic.partitions)

    def end(self) -> None:
        """It leads again, and has everything."""
        again = [TopicPartitions(topic=TOPIC, partitions=[0])]
        request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=again, timeout_ms=30_000)
        (elected,) = self.cluster.ask(request, ElectLeadersResponse).replica_election_results
        assert elected.partition_result[0].error_code == 0
        eventually(lambda: self.cluster.leader_of(TOPIC) == VICTIM or None, "the victim in the lead")
        assert read_all(self.cluster, TOPIC, len(self.writer.acknowledged)) == self.writer.acknowledged
        first, *others = (self.segment(node_id).read_bytes() for node_id in self.cluster.nodes)
        assert all(each == first for each in others)


def test_what_a_leader_lost_is_copied_before_it_leads_again(tmp_path: Path) -> None:
    """A bit in the midst of the log, and then the whole of it."""
    with running_cluster(tmp_path, settings=SETTINGS) as cluster:
        story = Story(cluster)
        story.write()

        story.kill_the_leader()
        content = bytearray(story.segment(VICTIM).read_bytes())
        found = list(batches(memoryview(bytes(content))))
        header, batch = found[len(found) // 2]
        offset, at = header.base_offset, content.index(bytes(batch))
        content[at + len(batch) - 3] ^= 4
        story.segment(VICTIM).write_bytes(content)
        story.mend(offset, story.segment(1).read_bytes()[at:])
        assert f"{TOPIC}-0: committed records from offset {offset} to 100 are missing" in cluster.nodes[VICTIM].log()
        story.end()

        story.kill_the_leader()
        shutil.rmtree(story.segment(VICTIM).parent)
        story.mend(0, story.segment(1).read_bytes())
        story.end()
