"""What is configured is obeyed, and what was stored is found again as it was."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.broker.control.control_plane import metadata_log_config
from ottla.broker.fetching.partition_reader import IN_LINE_BYTES_MAX
from ottla.broker.node import Node
from ottla.broker.publisher import MetadataPublisher
from ottla.config.node import NodeConfig
from ottla.errors import ErrorCode, StartupError
from ottla.metadata.images import DEFAULT_BROKER, RESOURCE_BROKER, ConfigResource, MetadataImage
from ottla.model import TopicPartition
from ottla.runtime import DiskError, ListenOptions
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import ProduceResponse
from tests.log.faulty_disk import FaultyDisk, Operation
from tests.seams.surroundings import LoopClock, MemoryConnection, MemoryNetwork, memory_runtime
from tests.seams.test_listeners import DOORS
from tests.seams.test_maintenance import stage, until
from tests.seams.test_node_in_memory import CONFIG, Client, batch, fetch, fresh, produce, serving

TOO_LARGE = 10
BROKER = 4
OUTSIDE = 9192
HELLO = ApiVersionsRequest(client_software_name="test", client_software_version="1")


async def alter_brokers(client: Client, name: str, value: str) -> None:
    """Change the default of all brokers."""
    change = AlterableConfig(name=name, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = await client.ask(request, IncrementalAlterConfigsResponse, 1)
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message


async def test_a_dynamic_broker_config_reaches_the_topics_under_it() -> None:
    async with stage() as it:
        await it.create()
        await it.produce(b"small enough")
        await alter_brokers(it.client, "message.max.bytes", "20")
        refused = await it.client.ask(produce(b"too large by now"), ProduceResponse, 12)
        assert refused.responses[0].partition_responses[0].error_code == TOO_LARGE


async def test_connection_limits_hold_when_they_change_too() -> None:
    async with stage() as it:
        connections = it.node.services.connections
        assert len(connections) == 1
        await alter_brokers(it.client, "max.connections", "1")
        extra = Client()
        await it.network.connect("memory", 9092, extra)
        await until(lambda: extra.lost)
        assert len(connections) == 1
        await alter_brokers(it.client, "max.connections", "2")
        welcome = Client()
        await it.network.connect("memory", 9092, welcome)
        await until(lambda: len(connections) == 2)
        assert not welcome.lost


async def test_a_listener_may_have_a_limit_of_its_own() -> None:
    async with stage(**{"listener.name.plaintext.max.connections": "1"}) as it:
        extra = Client()
        await it.network.connect("memory", 9092, extra)
        await until(lambda: extra.lost)
        controller = Client()
        await it.network.connect("memory", 9093, controller)
        await until(lambda: len(it.node.services.connections) == 2)


async def test_clients_that_take_every_connection_do_not_keep_nodes_apart() -> None:
    """KIP-402: whoever is silent for longest makes room for a broker; controllers are counted by themselves."""
    async with stage(**DOORS, **{"max.connections": "3"}) as it:
        connections = it.node.services.connections
        silent, busy, refused = [Client() for _ in range(3)]
        for client in (silent, busy, refused):
            await it.network.connect("memory", OUTSIDE, client)
            await asyncio.sleep(0.01)
        await until(lambda: refused.lost)
        await busy.ask(HELLO, ApiVersionsResponse, 3)
        controller = Client()
        await it.network.connect("memory", 9093, controller)
        assert (await controller.ask(HELLO, ApiVersionsResponse, 3)).error_code == 0
        assert not silent.lost
        brokers = [Client() for _ in range(2)]
        for broker, gone in zip(brokers, (silent, busy), strict=True):
            await it.network.connect("memory", 9092, broker)
            await until(lambda gone=gone: gone.lost)  # type: ignore[misc]
            assert (await broker.ask(HELLO, ApiVersionsResponse, 3)).error_code == 0
        assert not controller.lost
        assert len(connections) == 4


async def test_an_address_may_have_a_limit_of_its_own() -> None:
    limits = {"max.connections.per.ip": "1", "max.connections.per.ip.overrides": "memory:2"}
    async with stage(**limits) as it:
        second, third = Client(), Client()
        await it.network.connect("memory", 9092, second)
        await it.network.connect("memory", 9092, third)
        await until(lambda: third.lost)
        assert not second.lost


def derived(disk: FaultyDisk) -> dict[str, bytes]:
    return {path: data for path, data in disk.files().items() if path.startswith("/data/t-0/")}


async def test_a_restart_without_input_changes_nothing_in_a_topic_with_its_own_configs() -> None:
    disk, clock, network = FaultyDisk(), LoopClock(), MemoryNetwork()
    async with serving(fresh(disk, clock, network), network) as (_, client):
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        topic.configs = [
            CreatableTopicConfig(name="index.interval.bytes", value="100"),
            CreatableTopicConfig(name="segment.bytes", value="1048576"),
        ]
        await client.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 7)
        for _ in range(30):
            await client.ask(produce(*[b"x" * 1000] * 50), ProduceResponse, 12)
    before = derived(disk)
    assert sum(path.endswith(".log") for path in before) > 1
    async with serving(memory_runtime(disk, clock, network), network):
        pass
    assert derived(disk) == before


async def test_a_log_that_the_metadata_does_not_know_is_set_apart() -> None:
    disk, clock, network = FaultyDisk(), LoopClock(), MemoryNetwork()
    async with serving(fresh(disk, clock, network), network) as (_, client):
        topics = [CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
        await client.ask(CreateTopicsRequest(topics=topics), CreateTopicsResponse, 7)
        await client.ask(produce(b"mine"), ProduceResponse, 12)
    for path, data in derived(disk).items():
        disk.make_dirs("/data/ghost-0")
        copy = disk.open(path.replace("/t-0/", "/ghost-0/"), create=True)
        copy.write(0, _other_identity(data) if "metadata" in path else data)
    async with serving(memory_runtime(disk, clock, network), network) as (node, client):
        assert TopicPartition("ghost", 0) not in node.services.logs.logs
        assert any(name.startswith("ghost-0.") and name.endswith("-stray") for name in disk.list("/data"))
        assert await fetch(client) == [b"mine"]


def _other_identity(data: bytes) -> bytes:
    head, _, _ = data.partition(b"topic_id: ")
    return head + b"topic_id: MkU3OEVBNTcwNTJENDM2Qg\n"


async def test_a_log_of_an_older_topic_of_the_same_name_is_not_served() -> None:
    disk, clock, network = FaultyDisk(), LoopClock(), MemoryNetwork()
    async with serving(fresh(disk, clock, network), network) as (_, client):
        topics = [CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
        await client.ask(CreateTopicsRequest(topics=topics), CreateTopicsResponse, 7)
        await client.ask(produce(b"of another life"), ProduceResponse, 12)
    identity = disk.open("/data/t-0/partition.metadata")
    identity.write(0, _other_identity(disk.read_file("/data/t-0/partition.metadata")))
    async with serving(memory_runtime(disk, clock, network), network) as (_, client):
        assert await fetch(client) == []


async def test_damaged_metadata_is_refused_at_every_start() -> None:
    """A supervisor starts the node again: the log must not be taken for one that a crash left, and cut."""
    disk, clock, network = FaultyDisk(), LoopClock(), MemoryNetwork()
    async with serving(fresh(disk, clock, network), network) as (_, client):
        topics = [CreatableTopic(name="damaged", num_partitions=1, replication_factor=1)]
        await client.ask(CreateTopicsRequest(topics=topics), CreateTopicsResponse, 7)
    path = "/data/__cluster_metadata-0/00000000000000000000.log"
    sound = disk.read_file(path)
    disk.open(path).write(0, sound.replace(b"damaged", b"dbmaged"))
    for _ in range(3):
        disk = disk.copy()
        with pytest.raises(StartupError, match="is damaged at offset"):
            await Node(CONFIG, memory_runtime(disk, clock, MemoryNetwork())).start()
    disk = disk.copy()
    disk.open(path).write(0, sound)
    async with serving(memory_runtime(disk, clock, network), network) as (node, _):
        assert node.services.image.topic("damaged") is not None


async def test_log_starts_are_on_the_disk_before_retention_renames_a_file() -> None:
    async with stage(log_retention_check_interval_ms="20", log_initial_task_delay_ms="0") as it:
        await it.create(retention_ms="60000")
        await it.produce(b"old")
        checkpoints: list[bytes] = []

        def look(operation: Operation) -> None:
            if operation.kind == "rename" and operation.path.endswith("t-0/00000000000000000000.log"):
                checkpoints.append(it.disk.files().get("/data/log-start-offset-checkpoint", b""))

        it.disk.hook = look
        it.clock.advance(60_001)
        await until(lambda: bool(checkpoints))
        it.disk.hook = None
        assert b"t 0 1" in checkpoints[0]


def make_cold(file_type: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_type, "cached", lambda self, position, size: False)
    monkeypatch.setattr(file_type, "read_now", lambda self, position, size: None)


FEW_AND_MANY = pytest.mark.parametrize("value", [b"cold", b"cold" * IN_LINE_BYTES_MAX], ids=["few", "many"])
"""Bytes that are copied into their answer, and bytes that are sent from their file."""


@FEW_AND_MANY
async def test_cold_bytes_are_brought_in_before_they_are_sent(monkeypatch: pytest.MonkeyPatch, value: bytes) -> None:
    async with stage() as it:
        await it.create()
        await it.produce(value)
        prefetched: list[tuple[int, int]] = []
        file_type = type(it.disk.open("/data/meta.properties"))
        make_cold(file_type, monkeypatch)
        monkeypatch.setattr(file_type, "prefetch", lambda self, position, size: prefetched.append((position, size)))
        assert await fetch(it.client) == [value]
        assert len(prefetched) == 1


async def test_a_few_warm_bytes_leave_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage() as it:
        await it.create()
        await it.produce(b"warm")
        sent: list[int] = []
        monkeypatch.setattr(MemoryConnection, "write_file_span", lambda self, file, position, size: sent.append(size))
        assert await fetch(it.client) == [b"warm"]
        assert not sent


async def test_a_few_bytes_that_cannot_be_read_take_their_partition_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage() as it:
        await it.create()
        await it.produce(b"warm")

        def broken(self: object, position: int, size: int) -> None:
            raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is broken")

        monkeypatch.setattr(type(it.disk.open("/data/meta.properties")), "read_now", broken)
        hosted = it.node.services.replicas.partition("t", 0)
        assert hosted is not None
        assert await fetch(it.client) == []
        assert hosted.offline


@FEW_AND_MANY
async def test_cold_bytes_that_cannot_be_read_take_their_partition_offline(
    monkeypatch: pytest.MonkeyPatch, value: bytes
) -> None:
    async with stage() as it:
        await it.create()
        await it.produce(value)

        def broken(self: object, position: int, size: int) -> None:
            raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is broken")

        file_type = type(it.disk.open("/data/meta.properties"))
        make_cold(file_type, monkeypatch)
        monkeypatch.setattr(file_type, "prefetch", broken)
        hosted = it.node.services.replicas.partition("t", 0)
        assert hosted is not None
        failed: list[object] = []
        monkeypatch.setattr(it.node.services.replicas, "on_offline", lambda partition, error: failed.append(partition))
        assert await fetch(it.client) == []
        assert hosted.offline
        assert failed == [hosted]


async def test_work_that_does_not_end_does_not_keep_a_node_from_stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.services.DRAIN_S_MAX", 0.01)
    async with stage() as it:
        ended: list[str] = []

        async def hang() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("hang")

        it.node.services.spawn(hang())
    assert ended == ["hang"]


async def test_background_work_that_fails_an_assertion_stops_the_node() -> None:
    async with stage() as it:
        stopped: list[Node] = []
        it.node.on_fatal = lambda: stopped.append(it.node)

        async def impossible() -> None:
            raise AssertionError("cannot be")

        it.node.services.spawn(impossible())
        await until(lambda: bool(stopped))
        assert isinstance(it.node.failure, AssertionError)


async def test_a_failed_assertion_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage() as it:
        await it.create()
        stopped: list[Node] = []
        it.node.on_fatal = lambda: stopped.append(it.node)

        def impossible(*arguments: object) -> None:
            raise AssertionError("cannot be")

        monkeypatch.setattr(it.node.services.replicas, "produce", impossible)
        victim = Client()
        await it.network.connect("memory", 9092, victim)
        with pytest.raises(ConnectionError):
            await victim.ask(produce(b"x"), ProduceResponse, 12)
        assert stopped == [it.node]
        assert isinstance(it.node.failure, AssertionError)


async def test_peers_over_the_creation_rate_wait_and_are_served_later() -> None:
    """The window is cut to one sample, so that a rate of 20 a second lets 20 in at once and then one in 50 ms."""
    settings = {"quota.window.num": "1", "max.connection.creation.rate": "20"}
    async with stage(**settings) as it:
        clients = [Client() for _ in range(30)]
        began_s = asyncio.get_running_loop().time()
        dials = [asyncio.create_task(it.network.connect("memory", 9092, client)) for client in clients]
        await asyncio.sleep(0.01)
        assert sum(dial.done() for dial in dials) == 20  # With the stage's own client that is one too many.
        await asyncio.wait_for(asyncio.gather(*dials), 60)
        assert asyncio.get_running_loop().time() - began_s >= 0.4
        assert len(it.node.services.connections) == 31


async def test_a_creation_rate_can_change_while_the_node_runs() -> None:
    async with stage(**{"quota.window.num": "1"}) as it:
        await alter_brokers(it.client, "listener.name.plaintext.max.connection.creation.rate", "1")
        for _ in range(2):
            await it.network.connect("memory", 9092, Client())
        waiting = asyncio.create_task(it.network.connect("memory", 9092, Client()))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await it.network.connect("memory", 9093, Client())  # The controller's door stays open.
        await waiting


async def test_the_expiration_of_producer_ids_can_change_while_the_node_runs() -> None:
    async with stage(producer_id_expiration_check_interval_ms="10") as it:
        await it.create()
        data = PartitionProduceData(index=0, records=batch(b"x", producer_id=4000))
        topics = [TopicProduceData(name="t", partition_data=[data])]
        answer = await it.client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), ProduceResponse, 12)
        assert answer.responses[0].partition_responses[0].error_code == 0
        log = it.node.services.logs.logs[TopicPartition("t", 0)]
        it.clock.advance(3_600_000)
        await asyncio.sleep(0.05)
        assert list(log.producers.entries) == [4000]
        await alter_brokers(it.client, "producer.id.expiration.ms", "3000000")
        await until(lambda: not log.producers.entries)
        later = it.node.services.logs.create(TopicPartition("later", 0), log.topic_id, log.config, 0)
        assert later.producers.expiration_ms == 3_000_000


async def test_log_starts_have_a_checkpoint_interval_of_their_own() -> None:
    settings = {"log.flush.start.offset.checkpoint.interval.ms": "20", "log.initial.task.delay.ms": "0"}
    async with stage(**settings) as it:
        await it.create()
        await it.produce(b"one", b"two")
        it.node.services.logs.logs[TopicPartition("t", 0)].advance_log_start(1)
        await until(lambda: b"t 0 1" in it.disk.files().get("/data/log-start-offset-checkpoint", b""))


async def test_retention_begins_after_the_initial_delay_and_not_after_its_interval() -> None:
    async with stage(log_initial_task_delay_ms="300") as it:
        await it.create(retention_ms="60000")
        await it.produce(b"old")
        log = it.node.services.logs.logs[TopicPartition("t", 0)]
        it.clock.advance(60_001)
        await asyncio.sleep(0.05)
        assert log.log_start_offset == 0
        await until(lambda: log.log_start_offset == 1)


async def test_a_node_listens_as_its_socket_keys_say() -> None:
    config = NodeConfig(
        {
            **CONFIG.static,
            "socket.listen.backlog.size": "7",
            "socket.send.buffer.bytes": "30000",
            "socket.receive.buffer.bytes": "20000",
        }
    )
    network = MemoryNetwork()
    runtime = fresh(FaultyDisk(), LoopClock(), network)
    node = Node(config, runtime)
    await node.start()
    wanted = ListenOptions(backlog=7, send_buffer_bytes=30000, receive_buffer_bytes=20000)
    assert [listener.options for listener in network.listeners] == [wanted, wanted]
    await node.stop()


async def test_unset_socket_keys_leave_the_buffers_to_the_system() -> None:
    async with stage() as it:
        assert all(listener.options == ListenOptions() for listener in it.network.listeners)


def test_the_metadata_log_obeys_the_keys_that_tests_of_it_need() -> None:
    keys = {"internal.metadata.log.segment.bytes": "5000", "internal.metadata.delete.delay.millis": "7"}
    config = metadata_log_config(NodeConfig({**CONFIG.static, **keys}))
    assert (config.segment_bytes, config.file_delete_delay_ms) == (5000, 7)
    config = metadata_log_config(NodeConfig({**CONFIG.static, "metadata.log.segment.bytes": "9000000"}))
    assert (config.segment_bytes, config.file_delete_delay_ms) == (9_000_000, 60_000)


async def test_a_dynamic_config_that_this_node_cannot_have_leaves_the_others_in_force(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was stored by whoever knew another release, or before the node's own properties ruled it out."""
    committed = {"log.retention.ms": "soon", "max.connections": "7"}
    image = SimpleNamespace(config=lambda resource: committed if resource == DEFAULT_BROKER else {})
    async with stage() as it:
        own = ConfigResource(RESOURCE_BROKER, "1")
        MetadataPublisher(it.node.services)._reconfigure(cast(MetadataImage, image), own)
        assert it.node.services.config.get_int("max.connections") == 7
    assert "The dynamic config log.retention.ms is ignored" in caplog.text
