"""Many nodes, one metadata log: they elect, commit, fail over, and come back."""

from __future__ import annotations

import asyncio

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.raft.roles import Follower
from tests.control.quorum import Cluster, creation, play, topics


def test_three_nodes_that_start_together_become_one_cluster() -> None:
    async def story() -> None:
        cluster = Cluster()
        nodes = await cluster.start()
        active = cluster.active
        assert {node.plane.leader_id for node in nodes} == {active.node_id}
        assert [broker.broker_id for broker in active.image.alive_brokers()] == [1, 2, 3]
        await cluster.converge()
        for node in nodes:
            assert sorted(node.image.cluster.controllers) == [1, 2, 3]
            assert node.plane.finalized_features == {
                "metadata.version": 30,
                "kraft.version": 1,
                "eligible.leader.replicas.version": 1,
                "group.version": 1,
                "transaction.version": 2,
            }
        await cluster.stop()

    play(story)


def test_whoever_is_asked_the_controller_decides_and_all_hear_of_it() -> None:
    async def story() -> None:
        cluster = Cluster()
        nodes = await cluster.start()
        for number, node in enumerate(nodes):
            assert await node.create(f"topic-{number}") == [0]
        await cluster.converge()
        for node in nodes:
            assert topics(node.image) == ["topic-0", "topic-1", "topic-2"]
            assert node.published[-1][0] is node.image
        await cluster.stop()

    play(story)


def test_the_death_of_the_active_controller_moves_the_role_and_loses_nothing() -> None:
    async def story() -> None:
        cluster = Cluster()
        await cluster.start()
        first = cluster.active
        assert await first.create("before") == [0]
        epoch = first.plane.raft.epoch
        await first.crash()
        second = await cluster.new_active()
        assert second.plane.raft.epoch > epoch
        assert topics(second.image) == ["before"]
        for node in list(cluster.running.values()):
            assert await node.create(f"after-{node.node_id}") == [0]
        # The dead one comes back, hears what it missed, and is let in again.
        (back,) = await cluster.start(first.node_id)
        assert topics(back.image) == topics(second.image)
        assert len(second.image.alive_brokers()) == 3
        assert isinstance(back.plane.raft.machine.role, Follower)
        await cluster.stop()

    play(story)


def test_a_controller_that_stops_in_order_hands_over_at_once() -> None:
    async def story() -> None:
        cluster = Cluster()
        await cluster.start()
        first = cluster.active
        loop = asyncio.get_running_loop()
        await first.stop()
        began = loop.time()
        second = await cluster.new_active(within_s=2)
        assert loop.time() - began < 1.5, "nobody waits for a fetch to time out"
        assert second.image.broker(first.node_id) is not None
        assert await second.create("after") == [0]
        await cluster.stop()

    play(story)


def test_requests_wait_for_the_next_controller() -> None:
    async def story() -> None:
        cluster = Cluster()
        nodes = await cluster.start()
        first = cluster.active
        other = next(node for node in nodes if node is not first)
        await first.crash()
        assert await other.create("during") == [0], "asked while nobody leads"
        await cluster.stop()

    play(story)


def test_without_a_majority_nothing_is_decided() -> None:
    async def story() -> None:
        cluster = Cluster()
        nodes = await cluster.start()
        last = nodes[0]
        for node in nodes[1:]:
            await node.crash()
        with pytest.raises(KafkaError) as refusal:
            await last.create("never", timeout_ms=20_000)
        assert refusal.value.code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER)
        assert topics(last.image) == []
        assert not last.plane.is_active_controller, "a leader without a majority steps down"
        await cluster.stop()

    play(story)


def test_what_a_leader_appended_alone_is_refused_and_gone() -> None:
    """Leadership is lost between append and commit: nobody is told yes, and nothing leaks into any image."""

    async def story() -> None:
        cluster = Cluster()
        await cluster.start()
        old = cluster.active
        await old.create("kept")
        cluster.isolate(old.node_id)
        doomed = old.plane.submit_request(creation("lost"))
        active = old.plane.controller.active
        assert active is not None
        assert active.image.topic("lost") is not None, "it is there, speculatively"
        new = await cluster.new_active(old)
        assert await new.create("decided") == [0]
        with pytest.raises(KafkaError) as refusal:
            await doomed
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER
        assert topics(old.image) == ["kept"]
        cluster.heal()
        await cluster.converge(new.image.last_offset)
        for node in cluster.running.values():
            assert topics(node.image) == ["decided", "kept"]
        logs = {bytes(node.disk.read_file(f"{node.log.directory}/{'0' * 20}.log")) for node in cluster.running.values()}
        assert len(logs) == 1, "the log that went astray was cut and filled again"
        await cluster.stop()

    play(story)


@pytest.mark.parametrize("voters", [1, 3, 5])
def test_controllers_apart_from_brokers(voters: int) -> None:
    async def story() -> None:
        cluster = Cluster(voters=voters, combined=False, brokers=(11, 12))
        await cluster.start()
        await cluster.converge()
        active = cluster.active
        assert [broker.broker_id for broker in active.image.alive_brokers()] == [11, 12]
        assert sorted(active.image.cluster.controllers) == list(range(1, voters + 1))
        broker = cluster.running[11]
        assert broker.plane.quorum_status() is None
        assert await broker.create("orders") == [0]
        await cluster.converge(active.image.last_offset)
        for node in cluster.running.values():
            assert topics(node.image) == ["orders"]
        status = active.plane.quorum_status()
        assert status is not None
        assert [row.replica.id for row in status.voters] == list(range(1, voters + 1))
        assert sorted(row.replica.id for row in status.observers) == [11, 12]
        await cluster.stop()

    play(story)


@pytest.mark.slow
def test_five_controllers_commit_with_three() -> None:
    async def story() -> None:
        cluster = Cluster(voters=5)
        await cluster.start()
        for _ in range(2):
            await cluster.active.crash()
            await cluster.new_active()
        survivor = cluster.active
        assert await survivor.create("with-three") == [0]
        await survivor.crash()
        rest = list(cluster.running.values())
        with pytest.raises(KafkaError):
            await rest[0].create("with-two", timeout_ms=10_000)
        await cluster.start(survivor.node_id)
        assert await rest[0].create("with-three-again") == [0]
        await cluster.stop()

    play(story)


@pytest.mark.slow
def test_a_broker_outlives_its_controllers() -> None:
    async def story() -> None:
        cluster = Cluster(voters=3, combined=False, brokers=(11,))
        await cluster.start()
        broker = cluster.running[11]
        epoch = broker.plane.broker_epoch
        for _ in range(3):
            old = cluster.active
            await old.crash()
            active = await cluster.new_active()
            await cluster.start(old.node_id)
            await asyncio.sleep(12)
            registered = active.image.broker(11)
            assert registered is not None
            assert not registered.fenced, "the next controller heard of it before its session was over"
            assert registered.epoch == epoch
        assert await broker.create("orders") == [0]
        await cluster.stop()

    play(story)
