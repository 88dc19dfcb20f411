"""A node's control plane from its first start on: leads, registers, answers when durable, comes back."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.broker.control.format import FormatOptions
from ottla.controller.controller import Controller
from ottla.controller.generated import Generated
from ottla.errors import ErrorCode, KafkaError, StartupError
from ottla.log import LogConfig
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.images import NO_LEADER, MetadataImage
from ottla.raft.checkpoint import SnapshotId, parse_file_name
from ottla.runtime.seams import DiskError
from ottla.wire.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from ottla.wire.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest
from ottla.wire.messages.delete_topics_response import DeleteTopicsResponse
from ottla.wire.messages.describe_quorum_request import DescribeQuorumRequest
from ottla.wire.messages.describe_quorum_response import DescribeQuorumResponse
from tests.control.staging import StagedNode, creation

METADATA = "__cluster_metadata-0"


async def test_the_first_start_makes_a_cluster_of_one(tmp_path: Path) -> None:
    node = await StagedNode(tmp_path).start()
    plane = node.plane
    broker = node.image.broker(1)
    assert broker is not None
    assert broker.active
    assert broker.epoch == plane.broker_epoch
    assert list(node.image.cluster.controllers) == [1]
    assert plane.is_active_controller
    assert plane.finalized_features == {
        "metadata.version": 30,
        "kraft.version": 1,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "transaction.version": 2,
    }
    status = plane.quorum_status()
    assert status is not None
    assert (status.leader_id, status.leader_epoch) == (1, 1)
    assert status.high_watermark == node.log.log_end_offset == node.log.high_watermark
    (voter,) = status.voters
    assert voter.log_end_offset == status.high_watermark
    assert voter.last_caught_up_ms > 0
    state = json.loads((tmp_path / METADATA / "quorum-state").read_text())
    assert (state["leaderId"], state["leaderEpoch"], state["votedId"], state["data_version"]) == (1, 1, -1, 1)
    await node.stop()
    assert plane.quorum_status() is None


async def test_an_answer_comes_after_the_image_has_it(tmp_path: Path) -> None:
    node = await StagedNode(tmp_path).start()
    assert await node.create("orders", partitions=3) == [0]
    topic = node.image.topic("orders")
    assert topic is not None
    assert len(topic.partitions) == 3
    image, delta, offset = node.published[-1]
    assert image is node.image
    assert offset == image.last_offset == node.log.log_end_offset - 1
    assert [c.partition for c in delta.local_changes(1).leaders] == [0, 1, 2]
    await node.stop()


async def test_a_clean_restart_brings_everything_back_in_one_publication(tmp_path: Path) -> None:
    node = await StagedNode(tmp_path).start()
    await node.create("orders", "payments", partitions=2)
    before, epoch = node.image, node.plane.broker_epoch
    await node.stop()
    node = StagedNode(tmp_path)
    node.plane.load()
    await node.plane.start()
    orders = node.image.partition("orders", 0)
    assert orders is not None
    assert (orders.leader, orders.leader_epoch) == (NO_LEADER, 1), "it shut down in order"
    assert node.published == [], "nothing is done about what was decided before this incarnation is known"
    await node.join()
    image, delta, _ = node.published[0]
    assert sorted(t.name for t in delta.topics_changed.values()) == ["orders", "payments"]
    assert image.last_offset >= node.plane.broker_epoch
    again = node.image.partition("orders", 0)
    assert again is not None
    assert (again.leader, again.leader_epoch, again.isr) == (1, 2, (1,))
    assert node.plane.broker_epoch > epoch
    assert node.plane.raft.epoch == 2
    old, new = before.topic("orders"), node.image.topic("orders")
    assert old is not None
    assert new is not None
    assert old.topic_id == new.topic_id
    await node.stop()


async def test_after_kill_9_every_answer_that_was_given_still_holds(tmp_path: Path) -> None:
    node = await StagedNode(tmp_path).start()
    await node.create("a", "b")
    await node.send(DeleteTopicsRequest(topic_names=["a"]), DeleteTopicsResponse)
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=node.plane.broker_epoch)
    first = await node.send(request, AllocateProducerIdsResponse)
    await node.crash()
    node = await StagedNode(tmp_path).start()
    assert [t.name for t in node.image.topics.by_name.values()] == ["b"]
    b = node.image.partition("b", 0)
    assert b is not None
    assert (b.leader, b.leader_epoch) == (1, 2), "leaderless while the broker was registered anew, then led again"
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=node.plane.broker_epoch)
    second = await node.send(request, AllocateProducerIdsResponse)
    assert (first.producer_id_start, second.producer_id_start) == (0, 1000)
    await node.stop()


async def test_nothing_is_answered_or_published_before_it_is_on_the_disk(tmp_path: Path) -> None:
    node = await StagedNode(tmp_path).start()
    published = len(node.published)
    node.disk.gate.clear()
    first = node.plane.submit_request(creation("orders"))
    await asyncio.sleep(0.02)
    second = node.plane.submit_request(creation("orders"))
    third = node.plane.submit_request(creation("payments"))
    await asyncio.sleep(0.05)
    assert not first.done()
    assert not second.done(), "even a refusal may rest on what is not yet committed"
    assert len(node.published) == published
    assert node.image.topic("orders") is None
    active = node.plane.controller.active
    assert active is not None
    assert active.image.topic("payments") is not None, "requests go on while the disk is slow"
    node.disk.gate.set()
    answers = [await answer for answer in (first, second, third)]
    codes = [answer.topics[0].error_code for answer in answers if isinstance(answer, CreateTopicsResponse)]
    assert codes == [0, ErrorCode.TOPIC_ALREADY_EXISTS, 0]
    assert len(node.published) == published + 2
    await node.stop()


async def test_requests_of_one_turn_share_a_flush(tmp_path: Path) -> None:
    node = await StagedNode(tmp_path).start()
    node.disk.syncs.clear()
    answers = [node.plane.submit_request(creation(f"t{n}")) for n in range(50)]
    await asyncio.gather(*answers)
    assert node.disk.syncs == ["00000000000000000000.log"]
    assert node.image.topics.partition_count == 50
    await node.stop()


async def test_starts_wait_for_the_disk_only_as_often_as_they_must(tmp_path: Path) -> None:
    node = StagedNode(tmp_path)
    for allowed in (8, 7):
        node.disk.syncs.clear()
        await node.start()
        # quorum-state, the log's first batch with all that makes a new log, registration, unfencing.
        assert len(node.disk.syncs) <= allowed, node.disk.syncs
        await node.stop()
        node = StagedNode(tmp_path)
    await node.start()
    await node.stop()


# Disks that fail.


@pytest.mark.parametrize("action", ["sync", "write"])
async def test_a_failing_disk_ends_the_controller_and_nobody_is_told_yes(tmp_path: Path, action: str) -> None:
    node = await StagedNode(tmp_path).start()
    await node.create("kept")
    published = len(node.published)
    node.disk.fails = lambda what, path: what == action and path.endswith(".log")
    doomed = [node.plane.submit_request(creation(name)) for name in ("lost", "also")]
    results = await asyncio.gather(*doomed, return_exceptions=True)
    assert all(isinstance(result, KafkaError) for result in results)
    codes = [result.code for result in results if isinstance(result, KafkaError)]
    assert set(codes) == {ErrorCode.NOT_CONTROLLER}, "whoever asked finds the next controller"
    assert len(node.published) == published
    assert node.image.topic("lost") is None
    assert not node.plane.is_active_controller
    assert node.plane.failed is not None
    assert node.plane.failed.done(), "the node hears that it must stop"
    with pytest.raises(KafkaError) as refusal:
        await node.create("later")
    assert refusal.value.code is ErrorCode.NOT_CONTROLLER
    await node.crash()
    node = await StagedNode(tmp_path).start()
    assert node.image.topic("kept") is not None
    assert await node.create("later") == [0]
    await node.stop()


async def test_a_log_that_fails_right_after_the_append_has_kept_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records are in, and what the quorum writes behind them fails in the same turn: the controller is gone when
    its answer is made up, and has nothing uncommitted to wait for."""
    node = await StagedNode(tmp_path).start()
    raft = node.plane.raft
    error = DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "staged")
    monkeypatch.setattr(raft, "_on", lambda effects: raft.fail(error) if raft._failure is None else None)
    with pytest.raises(KafkaError) as refusal:
        await node.plane.submit_request(creation("lost"))
    assert refusal.value.code is ErrorCode.NOT_CONTROLLER
    assert not node.plane.is_active_controller
    monkeypatch.undo()
    await node.crash()


async def test_a_promise_that_cannot_be_kept_stops_the_start(tmp_path: Path) -> None:
    node = StagedNode(tmp_path)
    node.disk.fails = lambda what, path: path.endswith("quorum-state")
    node.plane.load()
    with pytest.raises(StartupError, match=r"the metadata log cannot be used: .*: see that the disk is sound"):
        await node.plane.start()
    assert node.log.log_end_offset == 0, "nothing was appended"
    await node.crash()


async def test_a_disk_that_fails_at_the_first_flush_stops_the_start(tmp_path: Path) -> None:
    node = StagedNode(tmp_path)
    node.disk.fails = lambda what, path: what == "sync" and path.endswith(".log")
    node.plane.load()
    with pytest.raises(StartupError, match=r"the metadata log cannot be used: .*: see that the disk is sound"):
        await node.plane.start()
    await node.crash()


async def test_a_publisher_that_fails_stops_the_node_rather_than_go_on_wrong(tmp_path: Path) -> None:
    node = await StagedNode(tmp_path).start()

    def broken(image: MetadataImage, delta: MetadataDelta, offset: int) -> None:
        raise RuntimeError("a bug")

    node.plane.add_publisher(broken)
    with pytest.raises(KafkaError) as refusal:
        await node.create("orders")
    assert refusal.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert node.plane.failed is not None
    assert isinstance(node.plane.failed.result(), RuntimeError)
    await node.crash()


async def test_a_broker_that_cannot_register_does_not_start(tmp_path: Path) -> None:
    node = StagedNode(tmp_path)
    node.plane.lifecycle._cluster_id = "another"
    node.plane.load()
    await node.plane.start()
    with pytest.raises(StartupError, match="could not join the cluster: INCONSISTENT_CLUSTER_ID"):
        await node.join()
    await node.stop()


async def script(node: StagedNode, acknowledged: list[str]) -> None:
    await node.start()
    for n in range(6):
        if await node.create(f"t{n}") == [0]:
            acknowledged.append(f"t{n}")
        if n == 2:
            await snapshot_now(node)
    await node.plane.stop()


@pytest.mark.slow
async def test_whichever_disk_operation_is_the_last_no_answer_is_taken_back(tmp_path: Path) -> None:
    """The disk dies at the first operation, at the second, and so on, until the script gets through."""
    for allowed in range(200):
        directory = tmp_path / str(allowed)
        node = StagedNode(directory)
        left = [allowed]

        def dead(action: str, path: str, left: list[int] = left) -> bool:
            left[0] -= 1
            return left[0] < 0

        node.disk.fails = dead
        acknowledged: list[str] = []
        with suppress(KafkaError, StartupError):
            await script(node, acknowledged)
        survived = left[0] >= 0
        await node.crash()
        node = await StagedNode(directory).start()
        found = [topic.name for topic in node.image.topics.by_name.values()]
        assert set(acknowledged) <= set(found), (allowed, acknowledged, found)
        assert len(found) <= len(acknowledged) + 1, "at most the one that was under way"
        assert await node.create("after") == [0]
        await node.crash()
        if survived:
            assert len(acknowledged) == 6
            break
    else:
        pytest.fail("the script never got through")
    assert allowed > 20


# Starts that are refused.


async def refused_start(node: StagedNode) -> str:
    async def load_and_start() -> None:
        node.plane.load()
        await node.plane.start()

    with pytest.raises(StartupError) as refusal:
        await load_and_start()
    await node.crash()
    return str(refusal.value)


async def test_a_damaged_quorum_state_is_not_guessed_at(tmp_path: Path) -> None:
    await (await StagedNode(tmp_path).start()).stop()
    (tmp_path / METADATA / "quorum-state").write_text("{")
    assert "quorum-state is damaged" in await refused_start(StagedNode(tmp_path))


async def test_a_lost_quorum_state_costs_no_epoch(tmp_path: Path) -> None:
    await (await StagedNode(tmp_path).start()).stop()
    (tmp_path / METADATA / "quorum-state").unlink()
    node = await StagedNode(tmp_path).start()
    assert node.plane.raft.epoch == 2
    await node.stop()


async def test_a_directory_of_another_replica_is_refused(tmp_path: Path) -> None:
    await (await StagedNode(tmp_path).start()).stop()
    properties = tmp_path / "meta.properties"
    lines = [line for line in properties.read_text().splitlines() if "directory.id" not in line]
    properties.write_text("\n".join([*lines, "directory.id=M7SJc-RSRxG5rpmI1j7tPw"]) + "\n")
    assert "is not among the voters" in await refused_start(StagedNode(tmp_path))


async def test_a_node_without_voters_is_refused(tmp_path: Path) -> None:
    node = StagedNode(tmp_path, format_as=FormatOptions(no_initial_controllers=True))
    assert "no voters are known" in await refused_start(node)


async def test_a_metadata_log_that_is_not_what_was_written_is_refused(tmp_path: Path) -> None:
    """After a clean stop nothing is scanned, so the replay itself has to look."""
    node = await StagedNode(tmp_path).start()
    await node.create("orders")
    await node.stop()
    segment = tmp_path / METADATA / "00000000000000000000.log"
    written = segment.read_bytes()
    assert written.count(b"orders") == 1
    segment.write_bytes(written.replace(b"orders", b"nrders"))
    said = await refused_start(StagedNode(tmp_path))
    assert "is damaged at offset" in said
    assert "let it join again" in said
    segment.write_bytes(written)
    node = await StagedNode(tmp_path).start()
    assert node.image.topic("orders") is not None
    await node.stop()


async def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    node = StagedNode(tmp_path)
    checkpoint = tmp_path / METADATA / SnapshotId(0, 0).file_name
    checkpoint.write_bytes(checkpoint.read_bytes()[:-5])
    assert "damaged" in await refused_start(node)


async def test_a_static_quorum_of_one_starts_too(tmp_path: Path) -> None:
    properties = {"controller_quorum_voters": "1@127.0.0.1:9093", "controller_quorum_bootstrap_servers": ""}
    for epoch in (1, 2):
        node = StagedNode(tmp_path, format_as=FormatOptions(), properties=properties)
        await node.start()
        assert node.plane.raft.epoch == epoch
        assert node.plane.finalized_features == {
            "metadata.version": 30,
            "eligible.leader.replicas.version": 1,
            "group.version": 1,
            "transaction.version": 2,
        }
        state = json.loads((tmp_path / METADATA / "quorum-state").read_text())
        assert (state["data_version"], state["currentVoters"]) == (0, [{"voterId": 1}])
        await node.stop()


# Snapshots.


def snapshots(directory: Path) -> list[SnapshotId]:
    found = (parse_file_name(path.name) for path in (directory / METADATA).iterdir())
    return sorted(snapshot for snapshot in found if snapshot is not None)


async def snapshot_now(node: StagedNode) -> SnapshotId:
    return await node.plane._snapshotter.write(node.image, node.runtime.clock.wall_ms())


async def test_a_node_starts_from_its_snapshot_and_the_log_after_it(tmp_path: Path) -> None:
    node = await StagedNode(tmp_path).start()
    await node.create("before", partitions=3)
    snapshot = await snapshot_now(node)
    assert snapshot == SnapshotId(node.log.log_end_offset, 1)
    await node.create("after")
    await node.stop()
    assert snapshots(tmp_path) == [SnapshotId(0, 0), snapshot]
    node = StagedNode(tmp_path)
    loaded = node.plane.raft.load()
    assert loaded is not None
    assert loaded.snapshot == snapshot
    assert node.plane.raft.metadata_log.uncommitted[0].base_offset == snapshot.end_offset
    await node.crash()
    node = await StagedNode(tmp_path).start()
    assert [t.name for t in node.image.topics.by_name.values()] == ["after", "before"]
    assert node.image.topics.partition_count == 4
    assert node.plane.finalized_features["kraft.version"] == 1
    await node.stop()


async def test_the_log_behind_a_snapshot_goes_when_the_directory_is_too_big(tmp_path: Path) -> None:
    small = LogConfig(segment_bytes=6000, retention_ms=-1, retention_bytes=-1, file_delete_delay_ms=0)
    node = StagedNode(tmp_path, log_config=small, properties={"metadata.max.retention.bytes": "8000"})
    await node.start()
    for n in range(60):
        await node.create(f"t{n}", partitions=1)
        if n % 15 == 14:
            await snapshot_now(node)
    names, start = [t.name for t in node.image.topics.by_name.values()], node.log.log_start_offset
    assert start > 0
    assert start in {snapshot.end_offset for snapshot in snapshots(tmp_path)}, "the log begins with a snapshot (B10)"
    assert min(snapshots(tmp_path)).end_offset >= start
    await node.stop()
    # It shut down cleanly, and says so: else its partitions would all change, more than a segment this small can hold.
    node = StagedNode(tmp_path, log_config=small, previous_broker_epoch=node.plane.broker_epoch)
    await node.start()
    assert [t.name for t in node.image.topics.by_name.values()] == names
    assert node.log.log_start_offset == start
    assert await node.create("more") == [0]
    await node.stop()


async def test_a_log_whose_snapshot_is_gone_is_refused(tmp_path: Path) -> None:
    small = LogConfig(segment_bytes=1000, retention_ms=-1, retention_bytes=-1, file_delete_delay_ms=0)
    node = StagedNode(tmp_path, log_config=small, properties={"metadata.max.retention.bytes": "0"})
    await node.start()
    for n in range(10):
        await node.create(f"t{n}", partitions=2)
    await snapshot_now(node)
    assert node.log.log_start_offset > 0
    await node.stop()
    for snapshot in snapshots(tmp_path):
        (tmp_path / METADATA / snapshot.file_name).unlink()
    assert "no snapshot holds what was before" in await refused_start(StagedNode(tmp_path, log_config=small))


async def test_a_log_that_ends_before_the_snapshot_goes_on_after_it(tmp_path: Path) -> None:
    """As when a snapshot was fetched from a leader, and the crash came before the log had moved up."""
    node = await StagedNode(tmp_path).start()
    await node.create("orders", partitions=3)
    snapshot = await snapshot_now(node)
    await node.stop()
    (tmp_path / ".kafka_cleanshutdown").unlink()
    for path in (tmp_path / METADATA).iterdir():
        if path.suffix != ".checkpoint":
            path.unlink()
    node = await StagedNode(tmp_path).start()
    assert node.log.log_start_offset == snapshot.end_offset
    assert node.plane.raft.epoch == snapshot.epoch + 1
    assert node.image.topics.partition_count == 3
    assert await node.create("more") == [0]
    await node.crash()
    node = await StagedNode(tmp_path).start()
    assert node.image.topics.partition_count == 4
    await node.stop()


async def test_snapshots_come_by_themselves_when_enough_was_written(tmp_path: Path) -> None:
    node = StagedNode(tmp_path, properties={"metadata.log.max.record.bytes.between.snapshots": "3000"})
    await node.start()
    for n in range(30):
        await node.create(f"t{n}")
    for _ in range(3_000):
        if len(snapshots(tmp_path)) > 1:
            break
        await asyncio.sleep(0.01)
    assert len(snapshots(tmp_path)) > 1
    await node.stop()
    node = await StagedNode(tmp_path).start()
    assert node.image.topics.partition_count == 30
    await node.stop()


async def test_an_unfinished_snapshot_is_thrown_away(tmp_path: Path) -> None:
    await (await StagedNode(tmp_path).start()).stop()
    part = tmp_path / METADATA / (SnapshotId(7, 1).file_name + ".part")
    part.write_bytes(b"half")
    await (await StagedNode(tmp_path).start()).stop()
    assert not part.exists()


# Life and death.


async def test_a_controller_that_moved_tells_the_voters(tmp_path: Path) -> None:
    await (await StagedNode(tmp_path).start()).stop()
    moved = {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9999"}
    node = StagedNode(tmp_path, properties=moved)
    node.plane.load()
    await node.plane.start()
    await node.join()
    assert await node.create("orders") == [0]
    for _ in range(2):
        status = node.plane.quorum_status()
        assert status is not None
        assert [v.endpoints[0].port for v in status.nodes] == [9999]
        await node.stop()
        node = StagedNode(tmp_path, properties=moved)
        node.plane.load()
        await node.plane.start()
    assert node.image.topic("orders") is not None
    await node.stop()


@pytest.mark.slow
async def test_a_broker_that_is_heard_of_stays_and_one_that_falls_silent_is_fenced(tmp_path: Path) -> None:
    node = StagedNode(tmp_path, properties={"broker.heartbeat.interval.ms": "20", "broker.session.timeout.ms": "1000"})
    await node.start()
    await asyncio.sleep(1.2)
    assert len(node.image.alive_brokers()) == 1
    node.plane.lifecycle._stopping = True
    for _ in range(3_000):
        await asyncio.sleep(0.02)
        if not node.image.alive_brokers():
            break
    assert node.image.alive_brokers() == []
    node.plane.lifecycle._stopping = False
    node.plane.lifecycle._beat()
    for _ in range(3_000):
        await asyncio.sleep(0.02)
        if node.image.alive_brokers():
            break
    assert len(node.image.alive_brokers()) == 1
    await node.stop()


async def test_the_controller_serves_its_own_apis_only(tmp_path: Path) -> None:
    node = await StagedNode(tmp_path).start()
    with pytest.raises(KafkaError, match="UNSUPPORTED_VERSION"):
        await node.send(DescribeQuorumRequest(), DescribeQuorumResponse)
    await node.stop()


async def test_a_controller_with_a_bug_stops_the_node_rather_than_go_on_wrong(tmp_path: Path) -> None:
    node = await StagedNode(tmp_path).start()

    def broken(controller: Controller, now_ms: int) -> Generated[None]:
        raise AssertionError("the impossible")

    with pytest.raises(KafkaError) as refusal:
        await node.plane.submit(broken)
    assert refusal.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not node.plane.is_active_controller
    assert node.plane.failed is not None
    assert isinstance(node.plane.failed.result(), AssertionError)
    await node.crash()
