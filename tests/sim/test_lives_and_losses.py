"""What is lost everywhere, begins elsewhere, is of another topic or was found to be damaged: each is noticed."""

from __future__ import annotations

from random import Random

import pytest

from ottla.broker.hosted import HostedPartition
from ottla.log.checkpoints import encode_partition_metadata
from ottla.log.files import CLEAN_SHUTDOWN
from ottla.model import ZERO_UUID, TopicPartition, Uuid
from ottla.records import BatchBuilder, read_header
from ottla.sim import view
from ottla.sim.checkers.kept import check_kept
from ottla.sim.checkers.ledger import Ledger
from ottla.sim.checkers.mirror import Batch
from ottla.sim.checkers.storage import Damage, check_identity, check_log_start
from ottla.sim.checkers.violation import Violation
from ottla.sim.disk import SimDisk
from ottla.sim.faults import KINDS
from ottla.sim.faults.damage import _repair, _spoil_metadata, flip
from ottla.sim.faults.operations import reassign
from ottla.sim.fleeting import FLEETING_TOPIC, PLACE
from ottla.sim.history import Poll, Read, Send
from ottla.sim.run import Simulation
from ottla.sim.volume import FileNode, Volume
from tests.sim.test_cluster import passes, running

TOPIC_ID = Uuid(b"t" * 16)
AT = TopicPartition("t", 0)


def strike(simulation: Simulation, kind: str, seed: int = 1) -> bool | None:
    return KINDS[kind].strike(simulation.faults, Random(seed))


# Lost everywhere.


def stored(*offsets: int, topic_id: Uuid = TOPIC_ID) -> Volume:
    """A disk that holds batches of one record each."""
    volume = Volume(random=Random(1))
    disk = SimDisk(volume)
    disk.make_dirs("/data/t-0")
    disk.open("/data/t-0/partition.metadata", create=True).write(0, encode_partition_metadata(topic_id))
    file = disk.open("/data/t-0/00000000000000000000.log", create=True)
    for offset in offsets:
        file.write(file.size(), _batch(offset)[1])
    return volume


def _batch(offset: int) -> tuple[Batch, bytes]:
    builder = BatchBuilder(base_offset=offset)
    builder.append(0, None, b"%d" % offset)
    data = bytes(builder.build())
    node = FileNode()
    node.write(0, data)
    header = read_header(data)
    return Batch(offset, offset + 1, header.leader_epoch, header.crc, len(data), node, 0, "", -1), data


def committed(*offsets: int) -> Ledger:
    ledger = Ledger("t-0")
    for offset in offsets:
        ledger.commit(_batch(offset)[0], "n1")
    return ledger


def test_what_is_on_some_disk_is_not_lost() -> None:
    check_kept(AT, TOPIC_ID, committed(0, 1, 2), [], [stored(0, 1), stored(2)])


def test_what_is_on_no_disk_is() -> None:
    ledger = committed(0, 1, 2)
    with pytest.raises(Violation, match=r"A7: .*2\.\.2 .* on no disk"):
        check_kept(AT, TOPIC_ID, ledger, [], [stored(0, 1), stored(0)])
    ledger.start = 3
    check_kept(AT, TOPIC_ID, ledger, [], [stored(0)])


def test_a_copy_with_a_wrong_checksum_or_of_another_topic_is_none() -> None:
    spoiled = stored(0)
    node = spoiled.find("/data/t-0/00000000000000000000.log")
    assert isinstance(node, FileNode)
    node.content[-1] ^= 1
    for volume in (spoiled, stored(0, topic_id=Uuid(b"u" * 16))):
        with pytest.raises(Violation, match="A7"):
            check_kept(AT, TOPIC_ID, committed(0), [], [volume])


def test_it_is_asked_when_somebody_has_lost_something() -> None:
    with running() as simulation:
        place = simulation.places[0]
        simulation.workload.start(simulation.scheduler.now + 1)
        passes(simulation, 3)
        simulation.workload.stop()
        for machine in simulation.cluster.machines.values():
            machine.crash()
        for machine in simulation.cluster.machines.values():
            SimDisk(machine.volume).remove_tree(f"{view.DATA}/{place}")
            simulation.forgive(machine)
        image = simulation.inspection.metadata.newest
        assert image is not None
        with pytest.raises(Violation, match="A7"):
            simulation.inspection.replicas.check_kept(image)


# Another life, another beginning.


def leading(simulation: Simulation, place: TopicPartition) -> HostedPartition:
    found = [view.hosted(machine, place) for machine in simulation.cluster.brokers]
    return next(hosted for hosted in found if hosted is not None and hosted.leader is not None)


def test_a_log_of_another_topic_is_noticed() -> None:
    with running() as simulation:
        place = simulation.places[0]
        hosted = leading(simulation, place)
        assert hosted.leader is not None
        volume = simulation.cluster.machines[hosted.leader.replica_id].volume
        check_identity(volume, hosted.log, hosted.topic_id, "it")
        with pytest.raises(Violation, match=r"A27: .*and is of"):
            check_identity(volume, hosted.log, ZERO_UUID, "it")
        node = volume.find(f"{hosted.log.directory}/partition.metadata")
        assert isinstance(node, FileNode)
        node.content[:] = encode_partition_metadata(TOPIC_ID)
        with pytest.raises(Violation, match=r"A27: .*its disk says"):
            check_identity(volume, hosted.log, hosted.topic_id, "it")


def test_a_value_of_another_topic_is_noticed() -> None:
    with running(with_fleeting=True) as simulation:
        fleeting = simulation.fleeting
        assert fleeting is not None
        one, other = fleeting._life(TOPIC_ID), fleeting._life(ZERO_UUID)
        fleeting._written[b"a"] = TOPIC_ID
        poll = Poll(
            client="d1",
            place=PLACE,
            position=0,
            invoked=1.0,
            completed=2.0,
            node=1,
            high_watermark=1,
            reads=[Read(0, b"a", 0)],
            log_start=0,
        )
        one.history.sends.append(Send(client="d0", place=PLACE, values=(b"a",), acks=-1, idempotent=False, invoked=0.0))
        one.history.polls.append(poll)
        fleeting._news = {TOPIC_ID: one}
        assert fleeting.after_step() == []
        other.history.polls.append(poll)
        fleeting._news = {ZERO_UUID: other}
        with pytest.raises(Violation, match="A27"):
            fleeting.after_step()


def test_a_log_begins_where_somebody_asked_for_it() -> None:
    with running() as simulation:
        simulation.workload.start(simulation.scheduler.now + 1)
        passes(simulation, 3)
        simulation.workload.stop()
        replicas = simulation.inspection.replicas
        place = simulation.places[0]
        hosted = leading(simulation, place)
        watch = next(
            watch for watches in replicas._watches.values() for watch in watches.values() if watch.hosted is hosted
        )
        assert watch.ledger.end > 1
        check_log_start(watch, 0)
        with pytest.raises(Violation, match=r"E15: .*nobody has asked"):
            check_log_start(watch, 1)
        replicas.allow_start(place, 1)
        check_log_start(watch, 1)
        with pytest.raises(Violation, match=r"E15: .*is committed"):
            check_log_start(watch, watch.ledger.end + 1)


@pytest.mark.slow
def test_topics_come_and_go_under_their_clients() -> None:
    with running(with_fleeting=True) as simulation:
        fleeting = simulation.fleeting
        assert fleeting is not None
        fleeting.start()
        for _ in range(3):
            before = view.newest_image(simulation.cluster).topic(FLEETING_TOPIC)
            passes(simulation, 4)
            assert strike(simulation, "topic anew") is None
            passes(simulation, 10)
            after = view.newest_image(simulation.cluster).topic(FLEETING_TOPIC)
            assert before is not None
            assert after is not None
            assert before.topic_id != after.topic_id
        assert fleeting.lives == 4
        passes(simulation, 3)
        fleeting.stopped = True
        passes(simulation, 3)
        simulation.until(fleeting.read_all(simulation.scheduler.now + 30), 30, "the last of them can be read")
        fleeting.at_end()


# Damage that was found.


def test_what_was_found_to_be_damaged_is_not_served() -> None:
    with running() as simulation:
        place, replicas = simulation.places[0], simulation.inspection.replicas
        machine = simulation.cluster.machines[1]
        machine.crash()
        # As if all of it had been found to be damaged.
        simulation.forgive(machine, damaged=True, damage=Damage(f"{view.DATA}/{place}", 1 << 40))
        machine.start()
        passes(simulation, 15)
        with pytest.raises(Violation, match=r"E16: .*still serves"):
            replicas.check_corrupt(place, machine.id)
        simulation.forgive(machine)
        replicas.check_corrupt(place, machine.id)


def test_a_replica_that_lacks_what_it_had_does_not_lead() -> None:
    with running() as simulation:
        place, replicas = simulation.places[0], simulation.inspection.replicas
        hosted = leading(simulation, place)
        assert hosted.leader is not None
        machine = simulation.cluster.machines[hosted.leader.replica_id]
        assert machine.process is not None
        watch = replicas._watches[machine.process][hosted.log]
        replicas._on_leadership(machine, watch)
        hosted.log.missing_until = hosted.log.log_end_offset + 1
        with pytest.raises(Violation, match=r"E16: .*once had all"):
            replicas._on_leadership(machine, watch)


@pytest.mark.slow
def test_a_node_with_damaged_metadata_does_not_start_and_is_replaced() -> None:
    with running(nodes=3) as simulation:
        cluster = simulation.cluster
        identities = {machine.id: view.metadata_directory_id(machine) for machine in cluster.controllers}
        assert strike(simulation, "metadata damage") is None
        for _ in range(60):
            passes(simulation, 0.25)
            if simulation.inspection.quorum.damaged:
                break
        damaged = [cluster.machines[number] for number in simulation.inspection.quorum.damaged]
        assert len(damaged) == 1
        # It was started at once, and again by whoever looks after it, but nobody has replaced its disk yet.
        passes(simulation, 2.5)
        assert damaged[0].id in simulation.inspection.quorum.damaged
        assert not damaged[0].serving
        refusals = [what for _, who, what in simulation.trace.story if who == damaged[0].name and "is damaged" in what]
        assert len(refusals) > 1
        others = [machine for machine in cluster.machines.values() if machine not in damaged]
        assert all(machine.serving for machine in others)
        assert sum(view.is_active_controller(machine) for machine in others) == 1
        passes(simulation, 30)
        assert damaged[0].serving
        assert view.metadata_directory_id(damaged[0]) != identities[damaged[0].id]
        assert view.quorum_is_whole(cluster)
        assert simulation.faults.counts == {"metadata damage": 1}


def test_a_node_that_serves_with_damaged_metadata_is_noticed() -> None:
    with running() as simulation:
        machine = simulation.cluster.machines[1]
        simulation.on_metadata_damaged(machine)
        machine.crash()
        machine.start()
        with pytest.raises(Violation, match=r"E16: .*its metadata log is damaged"):
            passes(simulation, 20)


@pytest.mark.parametrize("marked", [True, False])
def test_metadata_is_damaged_only_where_the_disk_says_that_its_node_stopped_in_order(marked: bool) -> None:
    """A disk that was full says nothing: the next start reads the log as after a crash, and cuts it at the damage."""
    with running() as simulation:
        faults, machine = simulation.faults, simulation.cluster.machines[1]
        faults.keep_down(machine)
        machine.stop()
        passes(simulation, 5)
        assert machine.process is None
        if not marked:
            SimDisk(machine.volume).remove(f"{view.DATA}/{CLEAN_SHUTDOWN}")
        simulation.spawn(_spoil_metadata(faults, Random(1), machine))
        passes(simulation, 2)
        assert faults.counts == ({"metadata damage": 1} if marked else {})
        assert bool(faults.tampered) is bool(simulation.inspection.quorum.damaged) is marked
        assert machine.serving is not marked


def test_nobody_loses_what_another_has_only_damaged() -> None:
    """Who is in sync with damage on its disk may lead, and nobody can copy from it what is damaged."""
    with running() as simulation:
        faults = simulation.faults
        one, two = simulation.cluster.machines[1], simulation.cluster.machines[2]
        assert faults.may_lose_data(two, even_synced=True)
        faults.tampered[one.id] = None
        assert not faults.may_lose_data(two, even_synced=True)
        assert faults.may_crash(two)
        assert faults.may_lose_data(one, even_synced=True), "or it could not be repaired"


@pytest.mark.slow
def test_a_damaged_leader_is_repaired_though_nobody_can_be_added_before() -> None:
    """What is damaged cannot be copied from it; and with who is being added nothing is lost that was promised."""
    with running(nodes=4) as simulation:
        cluster, faults, place = simulation.cluster, simulation.faults, simulation.places[0]
        simulation.workload.start(simulation.scheduler.now + 3)
        passes(simulation, 8)
        before = view.newest_image(cluster).partition(*place)
        assert before is not None
        damaged = cluster.machines[before.leader]
        (spare,) = [machine for machine in cluster.brokers if machine.id not in before.replicas]
        hosted = view.hosted(damaged, place)
        assert hosted is not None
        node = damaged.volume.find(hosted.log._segments[0].path(".log"))
        assert isinstance(node, FileNode)
        offset = flip(node, Random(1))
        assert offset is not None
        faults.tampered[damaged.id] = None
        simulation.forgive(damaged, damaged=True, damage=Damage(hosted.log.directory, offset))
        stay = [replica for replica in before.replicas if replica != damaged.id]
        simulation.until(reassign(faults, place, [*stay, spare.id]), 10, "it is to move")
        passes(simulation, 10)
        during = view.newest_image(cluster).partition(*place)
        assert during is not None
        assert during.leader == damaged.id
        assert spare.id in during.adding_replicas
        assert spare.id not in during.isr
        # And it was killed before, and has been in sync since with all but this.
        faults.spoiled[spare.id] = 0.0
        simulation.spawn(_repair(faults, damaged, 0.0))
        passes(simulation, 60)
        assert not faults.tampered
        after = view.newest_image(cluster).partition(*place)
        assert after is not None
        assert set(after.replicas) == set(after.isr) == {*stay, spare.id}


# A directory of two.


@pytest.mark.slow
def test_a_node_goes_on_without_one_of_its_directories() -> None:
    with running(two_directories=True) as simulation:
        cluster = simulation.cluster
        machine = next(
            machine
            for machine in cluster.brokers
            if any(hosted.log.directory.startswith(view.SPARE) for hosted in view.partitions(machine))
        )
        process = machine.process
        simulation.workload.start(simulation.scheduler.now + 30)
        machine.volume.faults.failed = view.SPARE
        machine.rearm()
        passes(simulation, 15)
        assert machine.process is process
        assert machine.serving
        for hosted in view.partitions(machine):
            assert hosted.offline == hosted.log.directory.startswith(view.SPARE)
            partition = view.newest_image(cluster).partition(hosted.topic, hosted.index)
            assert partition is not None
            assert (machine.id in partition.isr) == (not hosted.offline)
            assert partition.leader >= 0
