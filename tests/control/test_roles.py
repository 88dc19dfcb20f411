"""Whole nodes, with their listeners, in one process: brokers, controllers and both, over a network in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from ottla.broker.control.format import FormatOptions, format_node
from ottla.broker.node import Node
from ottla.client.network_peer import NetworkPeers
from ottla.config.node import NodeConfig
from ottla.model import METADATA_TOPIC
from ottla.runtime.timers import TimerWheel
from ottla.wire.message import Message
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from ottla.wire.messages.describe_quorum_response import DescribeQuorumResponse
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.metadata_response import MetadataResponse
from tests.control.quorum import DIRECTORY_IDS, M, play
from tests.log.faulty_disk import FaultyDisk
from tests.seams.surroundings import LoopClock, MemoryNetwork, memory_runtime


class Nodes:
    """Nodes of one cluster by id: clients at 9200 + id, controllers at 9300 + id."""

    def __init__(self, voters: tuple[int, ...]) -> None:
        self.voters = voters
        self.network = MemoryNetwork()
        self.clock = LoopClock()
        self.disks: dict[int, FaultyDisk] = {}
        self.running: dict[int, Node] = {}

    def config(self, node_id: int, roles: str) -> NodeConfig:
        listeners = []
        if "broker" in roles:
            listeners.append(f"PLAINTEXT://memory:{9200 + node_id}")
        if "controller" in roles:
            listeners.append(f"CONTROLLER://memory:{9300 + node_id}")
        return NodeConfig(
            {
                "process.roles": roles,
                "node.id": str(node_id),
                "listeners": ",".join(listeners),
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.bootstrap.servers": ",".join(f"memory:{9300 + v}" for v in self.voters),
                "log.dirs": "/data",
            }
        )

    def node(self, node_id: int, roles: str) -> Node:
        config = self.config(node_id, roles)
        if node_id not in self.disks:
            disk = self.disks[node_id] = FaultyDisk()
            voters = ",".join(f"{v}@memory:{9300 + v}:{DIRECTORY_IDS[i]}" for i, v in enumerate(self.voters))
            options = FormatOptions(cluster_id="roles", initial_controllers=voters if "controller" in roles else None)
            format_node(disk, config, options, random=Random(node_id), now_ms=self.clock.wall_ms())
        runtime = memory_runtime(self.disks[node_id], self.clock, self.network, seed=node_id)
        node = self.running[node_id] = Node(config, runtime)
        return node

    async def start(self, roles: dict[int, str]) -> None:
        await asyncio.gather(*(self.node(node_id, role).start() for node_id, role in roles.items()))

    async def stop(self) -> None:
        for node in self.running.values():
            await node.stop()

    async def ask(self, port: int, request: Message, response: type[M]) -> M:
        timers = TimerWheel(self.clock)
        peer = NetworkPeers(self.network, timers, "test").at("memory", port)
        try:
            return await peer.send(request, response, timeout_ms=10_000)
        finally:
            peer.close()
            timers.close()


@asynccontextmanager
async def cluster(voters: tuple[int, ...], roles: dict[int, str]) -> AsyncIterator[Nodes]:
    nodes = Nodes(voters)
    await nodes.start(roles)
    yield nodes
    await nodes.stop()


def of_the_quorum() -> DescribeQuorumRequest:
    return DescribeQuorumRequest(topics=[TopicData(METADATA_TOPIC, [PartitionData(0)])])


def creation(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])


def test_three_controllers_and_two_brokers_apart() -> None:
    roles = {1: "controller", 2: "controller", 3: "controller", 11: "broker", 12: "broker"}

    async def story() -> None:
        async with cluster((1, 2, 3), roles) as nodes:
            for broker in (11, 12):
                created = await nodes.ask(9200 + broker, creation(f"by-{broker}"), CreateTopicsResponse)
                assert created.topics[0].error_code == 0
                seen = await nodes.ask(9200 + broker, MetadataRequest(topics=None), MetadataResponse)
                assert sorted(b.node_id for b in seen.brokers) == [11, 12], "controllers are no brokers"
                assert seen.cluster_id == "roles"
                # Whoever is asked, the leader of the quorum answers.
                quorum = await nodes.ask(9200 + broker, of_the_quorum(), DescribeQuorumResponse)
                assert quorum.error_code == 0
                (partition,) = quorum.topics[0].partitions
                assert partition.leader_id in (1, 2, 3)
                assert [v.replica_id for v in partition.current_voters] == [1, 2, 3]
                assert sorted(o.replica_id for o in partition.observers) == [11, 12]
                assert [n.node_id for n in quorum.nodes] == [1, 2, 3]
            for node_id in roles:
                services = nodes.running[node_id].services
                assert sorted(t.name for t in services.control.image.topics.by_name.values()) == ["by-11", "by-12"]
                hosts = [str(p.topic_partition) for p in services.replicas.partitions()]
                assert not hosts or node_id in (11, 12), "a controller alone hosts nothing"
            assert nodes.running[1].client_addresses == []
            assert nodes.running[11].client_addresses == [("memory", 9211)]

    play(story)


def test_one_controller_and_one_broker() -> None:
    async def story() -> None:
        async with cluster((1,), {1: "controller", 2: "broker"}) as nodes:
            created = await nodes.ask(9202, creation("t"), CreateTopicsResponse)
            assert created.topics[0].error_code == 0
            assert nodes.running[1].services.control.is_active_controller
            assert nodes.running[2].services.control.leader_id == 1

    play(story)


def test_a_cluster_that_stopped_comes_back_as_it_was() -> None:
    roles = {1: "broker,controller", 2: "broker,controller", 3: "broker,controller"}

    async def story() -> None:
        nodes = Nodes((1, 2, 3))
        await nodes.start(roles)
        await nodes.ask(9201, creation("t"), CreateTopicsResponse)
        await nodes.stop()
        began = asyncio.get_running_loop().time()
        await nodes.start(roles)
        assert asyncio.get_running_loop().time() - began < 9, "nobody waits for a session of a node that took its leave"
        for node in nodes.running.values():
            topic = node.services.control.image.topic("t")
            assert topic is not None
            assert topic.partitions[0].leader >= 1
        await nodes.stop()

    play(story)


def test_a_node_waits_for_the_others_with_its_door_shut_to_clients_only() -> None:
    async def story() -> None:
        nodes = Nodes((1, 2, 3))
        first = asyncio.ensure_future(nodes.start({1: "broker,controller"}))
        await asyncio.sleep(20)
        assert not first.done()
        doors = {listener.address[1]: listener.open for listener in nodes.network.listeners}
        assert doors == {9201: False, 9301: True}
        await nodes.start({2: "broker,controller"})
        await first
        assert {n.services.control.leader_id for n in nodes.running.values()} <= {1, 2}
        await nodes.stop()

    play(story)


def test_a_start_that_is_given_up_leaves_nothing_behind() -> None:
    async def story() -> None:
        nodes = Nodes((1, 2, 3))
        first = asyncio.ensure_future(nodes.start({1: "broker,controller"}))
        await asyncio.sleep(20)
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled()
        nodes.running.clear()
        await nodes.start({1: "broker,controller", 2: "broker,controller", 3: "broker,controller"})
        await nodes.stop()

    play(story)
