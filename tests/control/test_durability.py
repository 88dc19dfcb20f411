"""What is on the disk before something is said, and what comes back from there."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.model import METADATA_TOPIC, Uuid, uuid_from_text
from ottla.raft.checkpoint import SnapshotId
from ottla.raft.election import ElectionState, decode_quorum_state
from ottla.raft.voters import ReplicaKey
from ottla.runtime.seams import DiskError
from ottla.wire.message import Message
from ottla.wire.messages.vote_request import PartitionData, TopicData, VoteRequest
from ottla.wire.messages.vote_response import VoteResponse
from tests.control.quorum import DIRECTORY_IDS, Cluster, PlaneNode, creation, play, topics
from tests.log.faulty_disk import Operation, Survival


def promised(node: PlaneNode) -> ElectionState:
    path = f"{node.log.directory}/quorum-state"
    return decode_quorum_state(node.disk.read_file(path), path)


def directory_of(voter: int) -> Uuid:
    return uuid_from_text(DIRECTORY_IDS[voter - 1])


def vote_for(candidate: int, voter: int, epoch: int) -> VoteRequest:
    partition = PartitionData(
        partition_index=0,
        replica_epoch=epoch,
        replica_id=candidate,
        replica_directory_id=directory_of(candidate),
        voter_directory_id=directory_of(voter),
        last_offset_epoch=0,
        last_offset=0,
    )
    return VoteRequest(
        cluster_id="a-cluster-of-many-nodes",
        voter_id=voter,
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
    )


async def granted(answer: asyncio.Future[Message]) -> bool:
    response = await answer
    assert isinstance(response, VoteResponse)
    return response.topics[0].partitions[0].vote_granted


def test_a_vote_is_durable_before_it_is_told_and_nothing_overtakes_it() -> None:
    async def story() -> None:
        cluster = Cluster()
        node = cluster.node(2)
        node.plane.load()
        starting = asyncio.ensure_future(node.plane.start())
        await asyncio.sleep(0.1)
        node.offload.hold()
        first = asyncio.ensure_future(node.plane.raft.request(vote_for(1, 2, epoch=5), 2))
        await asyncio.sleep(0.01)
        second = asyncio.ensure_future(node.plane.raft.request(vote_for(3, 2, epoch=5), 2))
        third = asyncio.ensure_future(node.plane.raft.request(vote_for(1, 2, epoch=4), 2))
        await asyncio.sleep(0.1)
        assert not first.done(), "a vote that could be forgotten is no promise"
        assert not second.done()
        assert not third.done(), "and even a refusal that rests on it waits"
        assert promised(node).epoch < 5
        node.offload.release()
        assert await granted(first)
        assert promised(node) == ElectionState(epoch=5, voted=ReplicaKey(1, directory_of(1)))
        assert not await granted(second), "one vote an epoch"
        assert not await granted(third)
        starting.cancel()
        await asyncio.wait([starting])
        await cluster.stop()

    play(story)


def test_a_promise_that_cannot_be_written_is_never_told() -> None:
    async def story() -> None:
        cluster = Cluster()
        node = cluster.node(2)
        node.plane.load()
        starting = asyncio.ensure_future(node.plane.start())
        await asyncio.sleep(0.1)

        def refuse(operation: Operation) -> None:
            if "quorum-state" in operation.path:
                raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is broken")

        node.disk.hook = refuse
        with pytest.raises(KafkaError) as refusal:
            await node.plane.raft.request(vote_for(1, 2, epoch=5), 2)
        assert refusal.value.code is ErrorCode.BROKER_NOT_AVAILABLE
        assert node.plane.failed is not None
        assert node.plane.failed.done(), "the node must stop"
        await asyncio.wait([starting])
        assert starting.exception() is not None
        await cluster.stop()

    play(story)


def test_a_follower_says_that_it_has_records_when_they_are_on_its_disk() -> None:
    async def story() -> None:
        cluster = Cluster()
        nodes = await cluster.start()
        active = cluster.active
        followers = [node for node in nodes if node is not active]
        for node in followers:
            node.offload.hold()
        answer = active.plane.submit_request(creation("orders"))
        await asyncio.sleep(1)
        assert active.log.recovery_point == active.log.log_end_offset, "the leader has them"
        assert all(node.log.log_end_offset == active.log.log_end_offset for node in followers), "all have them"
        assert not answer.done(), "but no other disk has"
        followers[0].offload.release()
        await asyncio.sleep(0.1)
        assert answer.done(), "two of three are enough"
        assert topics(active.image) == ["orders"]
        followers[1].offload.release()
        await cluster.stop()

    play(story)


@pytest.mark.parametrize("survival", list(Survival))
def test_what_was_acknowledged_outlives_a_power_cut_of_all_nodes(survival: Survival) -> None:
    async def story() -> None:
        cluster = Cluster()
        await cluster.start()
        for number in range(5):
            assert await cluster.active.create(f"topic-{number}") == [0]
        disks = {
            node_id: node.disk.after_power_loss(survival, Random(node_id)) for node_id, node in cluster.running.items()
        }
        await cluster.stop()
        cluster.disks.update(disks)
        nodes = await cluster.start()
        for node in nodes:
            assert topics(node.image) == [f"topic-{number}" for number in range(5)]
        assert await nodes[0].create("after") == [0]
        await cluster.stop()

    play(story)


def test_a_leader_whose_disk_fails_steps_down_and_the_others_go_on() -> None:
    async def story() -> None:
        cluster = Cluster()
        await cluster.start()
        broken = cluster.active
        assert await broken.create("kept") == [0]

        def refuse(operation: Operation) -> None:
            if operation.path.endswith(".log"):
                raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is broken")

        broken.disk.hook = refuse
        with pytest.raises(KafkaError):
            await broken.create("lost", timeout_ms=1_000)
        assert broken.plane.failed is not None
        assert broken.plane.failed.done()
        assert not broken.plane.is_active_controller
        new = await cluster.new_active(broken, within_s=5)
        assert await new.create("after") == [0]
        assert topics(new.image) == ["after", "kept"]
        await cluster.stop()

    play(story)


@pytest.mark.parametrize(("action", "code"), [("write", 0), ("sync", ErrorCode.TOPIC_ALREADY_EXISTS)])
def test_what_was_forwarded_to_a_leader_whose_disk_fails_is_decided_by_the_next(action: str, code: int) -> None:
    """Before it is appended, or after that and before the leader has it for good. A client of another node hears of
    neither: the next controller does it, or finds it done, as in Apache Kafka."""

    async def story() -> None:
        cluster = Cluster()
        nodes = await cluster.start()
        broken = cluster.active
        other = next(node for node in nodes if node is not broken)

        def refuse(operation: Operation) -> None:
            if operation.kind == action and operation.path.endswith(".log"):
                raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is broken")

        broken.disk.hook = refuse
        assert await other.create("orders") == [code]
        assert broken.plane.failed is not None
        assert isinstance(broken.plane.failed.result(), DiskError)
        assert cluster.active is not broken
        assert topics(other.image) == ["orders"]
        await cluster.stop()

    play(story)


def test_a_node_that_was_killed_resumes_where_it_was() -> None:
    async def story() -> None:
        cluster = Cluster(brokers=(11,))
        await cluster.start()
        await cluster.active.create("a", "b")
        await cluster.converge()
        broker = cluster.running[11]
        before = broker.log.log_end_offset
        await broker.crash()
        await cluster.active.create("c")
        cluster.sent.clear()
        (back,) = await cluster.start(11)
        assert back.log.log_start_offset == 0
        assert topics(back.image) == ["a", "b", "c"]
        assert before > 10
        assert not any(kind == "FetchSnapshotRequest" for _, _, kind in cluster.sent), "it had most of it"
        assert back.plane.broker_epoch > before
        await cluster.stop()

    play(story)


def test_a_node_that_is_far_behind_loads_a_snapshot() -> None:
    async def story() -> None:
        cluster = Cluster(
            brokers=(11,),
            segment_bytes=3000,
            metadata_max_retention_bytes="0",
            controller_quorum_fetch_snapshot_max_bytes="300",
        )
        await cluster.start()
        late = [cluster.running[11], next(n for n in cluster.running.values() if not n.plane.is_active_controller)]
        for node in late:
            await node.crash()
        active = cluster.active
        for number in range(30):
            assert await active.create(f"topic-{number:02}") == [0]
        snapshot = await active.snapshot()
        assert active.log.log_start_offset == snapshot.end_offset, "there is nothing to fetch but the snapshot"
        await active.create("after-the-snapshot")
        cluster.sent.clear()
        await cluster.start(*(node.node_id for node in late))
        for node in (cluster.running[n.node_id] for n in late):
            assert topics(node.image) == topics(active.image)
            assert node.log.log_start_offset == snapshot.end_offset
            assert list(node.plane.raft.metadata_log.snapshots.sizes) == [snapshot], "what it made unnecessary is gone"
            names = node.disk.list(node.log.directory)
            assert snapshot.file_name in names
            assert not any(name.endswith(".part") for name in names)
            asked = [kind for sender, _, kind in cluster.sent if sender == node.node_id]
            assert asked.count("FetchSnapshotRequest") > 5, "piece by piece"
        # It is a full member: what it loaded is what it starts from next time, and leads from.
        await active.crash()
        new = await cluster.new_active()
        assert len(topics(new.image)) == 31
        assert await new.create("under-the-next") == [0]
        await cluster.stop()

    play(story)


def test_snapshots_come_with_time_and_go_with_age() -> None:
    """One a minute, kept for two and a half; the log begins with the oldest that is left."""

    async def story() -> None:
        cluster = Cluster(voters=1, metadata_log_max_snapshot_interval_ms="60000", metadata_max_retention_ms="150000")
        (node,) = await cluster.start()
        store = node.plane.raft.metadata_log.snapshots

        async def pass_seconds(seconds: int) -> list[SnapshotId]:
            """Then something is committed; the snapshots that are there after it."""
            cluster.clock.advance(1000 * seconds)
            assert await node.create(f"topic-{node.image.last_offset}") == [0]
            await asyncio.sleep(1)
            return list(store.sizes)

        kept = await pass_seconds(59)
        assert await pass_seconds(0) == kept, "not before it is due"
        beginnings = set()
        for minute in range(8):
            before, kept = kept, await pass_seconds(60)
            assert kept[-1] not in before
            if minute >= 3:
                assert len(kept) == 3
                assert node.log.log_start_offset == kept[0].end_offset
                beginnings.add(node.log.log_start_offset)
        assert len(beginnings) == 5
        await cluster.stop()

    play(story)


def test_a_snapshot_that_arrives_damaged_is_fetched_again() -> None:
    async def story() -> None:
        cluster = Cluster(segment_bytes=3000, metadata_max_retention_bytes="0")
        await cluster.start()
        late = next(node for node in cluster.running.values() if not node.plane.is_active_controller)
        await late.crash()
        active = cluster.active
        for number in range(20):
            await active.create(f"topic-{number:02}")
        snapshot = await active.snapshot()
        for _ in range(2):
            await active.create("again", "and-again")
        spoiled: list[str] = []

        node = cluster.node(late.node_id)

        original = node.plane.raft.metadata_log.snapshots.write_part

        def write_spoiled(of: object, position: int, data: bytes) -> None:
            if not spoiled:
                spoiled.append("once")
                data = bytes(len(data))
            original(snapshot, position, data)

        node.plane.raft.metadata_log.snapshots.write_part = write_spoiled  # type: ignore[method-assign,assignment]
        await node.start()
        assert spoiled == ["once"]
        assert topics(node.image) == topics(active.image)
        await cluster.stop()

    play(story)
