"""Starts that wait, starts that are refused, and nodes that come and go."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ottla.errors import ErrorCode, KafkaError, StartupError
from ottla.log.checkpoints import read_meta_properties, write_meta_properties
from ottla.raft.roles import Follower, Leader
from ottla.wire.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from ottla.wire.messages.add_raft_voter_response import AddRaftVoterResponse
from ottla.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from ottla.wire.messages.remove_raft_voter_response import RemoveRaftVoterResponse
from ottla.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.messages.update_features_response import UpdateFeaturesResponse
from tests.control.quorum import Cluster, PlaneNode, play, topics


def test_a_node_waits_for_the_quorum_however_long_it_takes() -> None:
    async def story() -> None:
        cluster = Cluster(combined=False, brokers=(11,))
        early = [asyncio.ensure_future(cluster.start(node_id)) for node_id in (11, 1)]
        await asyncio.sleep(15)
        assert not any(start.done() for start in early), "there is no majority yet"
        await cluster.start(2)
        await asyncio.wait_for(asyncio.gather(*early), 30)
        assert [broker.broker_id for broker in cluster.active.image.alive_brokers()] == [11]
        await cluster.stop()

    play(story)


def test_a_start_that_waits_can_be_given_up() -> None:
    async def story() -> None:
        cluster = Cluster()
        start = asyncio.ensure_future(cluster.start(1))
        await asyncio.sleep(5)
        node = cluster.running[1]
        start.cancel()
        await asyncio.wait([start])
        began = asyncio.get_running_loop().time()
        await node.stop()
        assert asyncio.get_running_loop().time() - began < 10
        cluster.running.clear()

    play(story)


def test_a_node_of_another_cluster_is_told_so() -> None:
    async def story() -> None:
        cluster = Cluster(brokers=(11,))
        await cluster.start(1, 2, 3)
        cluster.format(11, cluster_id="another")
        stranger = cluster.node(11)
        with pytest.raises(StartupError, match=r"memory:930. belongs to another cluster, not to another: correct"):
            await stranger.start()
        await cluster.stop()

    play(story)


def belongs_to(cluster: Cluster, node_id: int, cluster_id: str) -> str:
    """Have a node that is down belong to another cluster; the id of that to which it did."""
    identity = read_meta_properties(cluster.disks[node_id], "/data")
    assert identity is not None
    write_meta_properties(cluster.disks[node_id], "/data", replace(identity, cluster_id=cluster_id))
    return identity.cluster_id


def test_a_voter_that_comes_back_as_of_another_cluster_is_told_so() -> None:
    """It knows from its own disk who leads, and asks in vain: it does not ask for ever."""

    async def story() -> None:
        cluster = Cluster()
        await cluster.start()
        await cluster.running[2].crash()
        right = belongs_to(cluster, 2, "another")
        stranger = cluster.node(2)
        with pytest.raises(StartupError, match=r"belongs to another cluster, not to another: correct"):
            await stranger.start()
        await stranger.crash()
        belongs_to(cluster, 2, right)
        await cluster.start(2)
        await cluster.converge()
        await cluster.stop()

    play(story)


def test_a_voter_does_not_give_up_for_one_other_that_is_of_another_cluster() -> None:
    async def story() -> None:
        cluster = Cluster()
        await cluster.start()
        await cluster.stop()
        belongs_to(cluster, 3, "another")
        stranger, first = cluster.node(3), cluster.node(1)
        refused, waits = asyncio.ensure_future(stranger.start()), asyncio.ensure_future(first.start())
        await asyncio.sleep(60)
        assert not waits.done()
        await cluster.start(2)
        await waits
        with pytest.raises(StartupError, match=r"belongs to another cluster, not to another: correct"):
            await refused
        await cluster.stop()

    play(story)


def test_a_node_id_that_is_alive_elsewhere_is_not_given_twice() -> None:
    async def story() -> None:
        cluster = Cluster(brokers=(11,))
        await cluster.start()
        (first,) = (node for node in cluster.running.values() if node.node_id == 11)
        cluster.format(11)
        second = PlaneNode(cluster, 11)
        with pytest.raises(StartupError, match=r"DUPLICATE_BROKER_REGISTRATION.*its own node.id"):
            await second.start()
        await second.plane.abandon()
        registered = cluster.active.image.broker(11)
        assert registered is not None
        assert registered.epoch == first.plane.broker_epoch, "the first goes on as if nothing had been"
        assert not registered.fenced
        await cluster.stop()

    play(story)


def test_a_broker_that_was_killed_is_let_in_when_its_old_session_is_over() -> None:
    async def story() -> None:
        cluster = Cluster(brokers=(11,))
        await cluster.start()
        old = cluster.running[11]
        loop = asyncio.get_running_loop()
        await old.crash()
        began = loop.time()
        (back,) = await cluster.start(11)
        assert 7 < loop.time() - began < 12
        assert back.plane.broker_epoch > old.plane.broker_epoch
        assert not back.plane.lifecycle.fenced
        await cluster.stop()

    play(story)


def test_a_broker_that_stops_in_order_may_come_back_at_once() -> None:
    async def story() -> None:
        cluster = Cluster(brokers=(11,))
        await cluster.start()
        loop = asyncio.get_running_loop()
        await cluster.running[11].stop()
        registered = cluster.active.image.broker(11)
        assert registered is not None
        began = loop.time()
        await cluster.start(11)
        assert loop.time() - began < 12
        await cluster.stop()

    play(story)


def test_a_paused_broker_is_fenced_and_let_in_again() -> None:
    async def story() -> None:
        cluster = Cluster(combined=False, brokers=(11, 12))
        await cluster.start()
        active = cluster.active
        cluster.isolate(11)
        await asyncio.sleep(15)
        registered = active.image.broker(11)
        assert registered is not None
        assert registered.fenced
        cluster.heal()
        await asyncio.sleep(5)
        registered = active.image.broker(11)
        assert registered is not None
        assert not registered.fenced
        assert registered.epoch == cluster.running[11].plane.broker_epoch, "the same incarnation"
        await cluster.stop()

    play(story)


def test_the_last_node_to_stop_does_not_wait_for_the_dead() -> None:
    async def story() -> None:
        cluster = Cluster()
        nodes = await cluster.start()
        loop = asyncio.get_running_loop()
        for node in nodes:
            began = loop.time()
            await node.stop()
            assert loop.time() - began < 10

    play(story)


# Voters that change (KIP-853).


async def add(cluster: Cluster, node: PlaneNode) -> int:
    local = node.plane.raft.machine.local
    request = AddRaftVoterRequest(
        cluster_id="a-cluster-of-many-nodes",
        timeout_ms=10_000,
        voter_id=local.id,
        voter_directory_id=local.directory_id,
        listeners=[Listener(name="CONTROLLER", host="memory", port=9300 + local.id)],
    )
    answer = await cluster.active.plane.raft.request(request, 1)
    assert isinstance(answer, AddRaftVoterResponse)
    return answer.error_code


async def remove(cluster: Cluster, node: PlaneNode) -> int:
    local = node.plane.raft.machine.local
    request = RemoveRaftVoterRequest(
        cluster_id="a-cluster-of-many-nodes", voter_id=local.id, voter_directory_id=local.directory_id
    )
    answer = await cluster.active.plane.raft.request(request, 0)
    assert isinstance(answer, RemoveRaftVoterResponse)
    return answer.error_code


def test_a_quorum_grows_and_shrinks_while_it_works() -> None:
    async def story() -> None:
        cluster = Cluster(voters=1, joining=(2, 3))
        await cluster.start()
        first = cluster.active
        assert first.node_id == 1
        for node_id in (2, 3):
            node = cluster.running[node_id]
            assert not node.plane.raft.machine.is_voter
            assert await add(cluster, node) == 0
            assert await first.create(f"with-{node_id}") == [0]
        assert await add(cluster, cluster.running[3]) == ErrorCode.DUPLICATE_VOTER
        await cluster.converge()
        for node in cluster.running.values():
            assert node.plane.raft.machine.voters.latest.ids == (1, 2, 3)
        # The first voter dies, and two of the three carry on.
        await first.crash()
        second = await cluster.new_active()
        assert await second.create("without-the-first") == [0]
        await cluster.start(1)
        # The leader itself is voted out: it leads until the others have agreed, and then no more (B15).
        assert await remove(cluster, second) == 0
        third = await cluster.new_active(second)
        assert isinstance(third.plane.raft.machine.role, Leader)
        assert await third.create("after") == [0]
        await cluster.converge()
        for node in cluster.running.values():
            assert node.plane.raft.machine.voters.latest.ids == tuple(n for n in (1, 2, 3) if n != second.node_id)
            assert topics(node.image) == ["after", "with-2", "with-3", "without-the-first"]
        assert isinstance(second.plane.raft.machine.role, Follower), "it watches from now on"
        await cluster.stop()

    play(story)


def test_the_same_chance_gives_the_same_story() -> None:
    def told() -> list[tuple[int, int, str]]:
        sent: list[tuple[int, int, str]] = []

        async def story() -> None:
            cluster = Cluster(voters=3, brokers=(11,))
            await cluster.start()
            await cluster.active.crash()
            active = await cluster.new_active()
            await active.create("a")
            await cluster.converge()
            sent.extend(cluster.sent)
            await cluster.stop()

        play(story)
        return sent

    assert told() == told()


def test_a_node_that_has_all_there_is_starts_though_nothing_more_is_decided() -> None:
    """Its snapshot ends where the log does, and a silent controller appends nothing to tell it so."""

    async def story() -> None:
        cluster = Cluster(combined=False, brokers=(11,), metadata_max_idle_interval_ms="0")
        await cluster.start()
        await cluster.active.create("a")
        late = next(n for n in cluster.running.values() if n.node_id in (1, 2, 3) and not n.plane.is_active_controller)
        await cluster.converge()
        await late.snapshot()
        await late.stop()
        (back,) = await asyncio.wait_for(cluster.start(late.node_id), 10)
        assert topics(back.image) == ["a"]
        await cluster.stop()

    play(story)


def test_a_controller_may_add_itself() -> None:
    async def story() -> None:
        cluster = Cluster(voters=1, joining=(2, 3), controller_quorum_auto_join_enable="true")
        await cluster.start()
        for _ in range(300):
            if cluster.running[1].plane.raft.machine.voters.latest.ids == (1, 2, 3):
                break
            await asyncio.sleep(0.1)
        assert cluster.running[1].plane.raft.machine.voters.latest.ids == (1, 2, 3)
        await cluster.running[1].crash()
        active = await cluster.new_active()
        assert await active.create("without-the-first") == [0]
        await cluster.stop()

    play(story)


def test_a_quorum_by_configuration_learns_to_change() -> None:
    """kraft.version is raised from 0 to 1: from then on voters have directories, and can be removed."""

    async def story() -> None:
        cluster = Cluster(voters=3, static=True)
        nodes = await cluster.start()
        assert all(node.plane.raft.machine.kraft_version == 0 for node in nodes)
        request = UpdateFeaturesRequest(
            feature_updates=[FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=1)]
        )
        for _ in range(100):
            # The leader learns the directories of the others before it can write them down.
            try:
                await cluster.active.plane.channel.send(request, UpdateFeaturesResponse)
                break
            except KafkaError:
                await asyncio.sleep(0.1)
        await cluster.converge()
        for node in nodes:
            machine = node.plane.raft.machine
            assert machine.kraft_version == 1
            assert {voter.key for voter in machine.voters.latest.voters} == {n.plane.raft.machine.local for n in nodes}
        follower = next(node for node in nodes if not node.plane.is_active_controller)
        assert await remove(cluster, follower) == 0
        assert await cluster.active.create("after") == [0]
        await cluster.stop()

    play(story)


def test_a_cluster_that_stopped_as_a_whole_is_back_at_once() -> None:
    """Nothing was handed over, so every broker is still registered, and alive as far as anybody knows; but each can
    prove that it stopped in good order."""

    async def story() -> None:
        cluster = Cluster()
        nodes = await cluster.start()
        await cluster.active.create("kept")
        epochs = {node.node_id: node.plane.broker_epoch for node in nodes}
        for node in nodes:
            await node.stop(hand_over=False)
        began = asyncio.get_running_loop().time()
        back = await cluster.start()
        assert asyncio.get_running_loop().time() - began < 5, "no session has to run out"
        assert all(node.plane.broker_epoch > epochs[node.node_id] for node in back)
        assert topics(cluster.active.image) == ["kept"]
        await cluster.stop()

    play(story)
