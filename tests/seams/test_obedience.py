"""What is configured is obeyed, and what was stored is found again as it was."""

from __future__ import annotations

import pytest

from ottla.broker.node import Node
from ottla.model import TopicPartition
from ottla.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.wire.messages.produce_response import ProduceResponse
from tests.log.faulty_disk import FaultyDisk, Operation
from tests.seams.surroundings import LoopClock, MemoryNetwork, memory_runtime
from tests.seams.test_maintenance import stage, until
from tests.seams.test_node_in_memory import Client, fetch, fresh, produce, serving

TOO_LARGE = 10
BROKER = 4


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


async def test_log_starts_are_on_the_disk_before_retention_renames_a_file() -> None:
    async with stage(log_retention_check_interval_ms="20") as it:
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


async def test_cold_bytes_are_brought_in_before_they_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage() as it:
        await it.create()
        await it.produce(b"cold")
        prefetched: list[tuple[int, int]] = []
        file_type = type(it.disk.open("/data/meta.properties"))
        monkeypatch.setattr(file_type, "cached", lambda self, position, size: False)
        monkeypatch.setattr(file_type, "prefetch", lambda self, position, size: prefetched.append((position, size)))
        assert await fetch(it.client) == [b"cold"]
        assert len(prefetched) == 1


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
