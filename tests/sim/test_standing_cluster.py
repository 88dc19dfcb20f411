"""A cluster that works is shown to the checkers with one thing changed: whatever must not be so is noticed.

Time does not pass in these tests. The nodes are real, and what is changed of them is put back before anybody could act
on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ottla.broker.hosted import HostedPartition
from ottla.log.epochs import LeaderEpochCache
from ottla.model import TopicPartition
from ottla.partition import IsrMember, PartitionLeader, ProposeIsr
from ottla.sim import restarts, view
from ottla.sim.checkers.ledger import Ledger
from ottla.sim.checkers.liveness import unmet
from ottla.sim.checkers.mirror import Mirror
from ottla.sim.checkers.storage import (
    Watch,
    check_clean_close,
    check_recovery_point,
    check_synced,
    check_whole,
)
from ottla.sim.checkers.violation import Violation
from ottla.sim.cluster import Machine
from ottla.sim.disk import SimDisk
from ottla.sim.errands import TOPIC
from ottla.sim.run import Simulation
from tests.sim.test_checkers import batch
from tests.sim.test_cluster import passes, running

pytestmark = pytest.mark.slow

PLACE = TopicPartition(TOPIC, 0)


@pytest.fixture(scope="module")
def simulation() -> Iterator[Simulation]:
    with running() as simulation:
        simulation.workload.start(simulation.scheduler.now + 2)
        passes(simulation, 3)
        simulation.workload.stop()
        passes(simulation, 3)
        yield simulation


@pytest.fixture
def machine(simulation: Simulation) -> Machine:
    """The one that leads."""
    partition = view.newest_image(simulation.cluster).partition(*PLACE)
    assert partition is not None
    return simulation.cluster.machines[partition.leader]


@pytest.fixture
def hosted(machine: Machine) -> HostedPartition:
    found = view.hosted(machine, PLACE)
    assert found is not None
    assert found.leader is not None
    return found


@pytest.fixture
def leader(hosted: HostedPartition) -> PartitionLeader:
    assert hosted.leader is not None
    return hosted.leader


@pytest.fixture
def watch(simulation: Simulation, machine: Machine, hosted: HostedPartition) -> Iterator[Watch]:
    """What the checker knows of the leader's log, which has records; all of it is as before when a test is over."""
    assert machine.process is not None
    found = simulation.inspection.replicas._watches[machine.process][hosted.log]
    assert found.mirror.batches
    before = {name: getattr(found, name) for name in Watch.__slots__}
    yield found
    for name, value in before.items():
        setattr(found, name, value)


def look(simulation: Simulation, machine: Machine) -> None:
    """As after a step in which that machine ran."""
    assert machine.process is not None
    simulation.inspection.after_step({machine.process.loop: None})


def test_nothing_is_wrong_with_it(simulation: Simulation, watch: Watch, machine: Machine) -> None:
    for each in simulation.cluster.machines.values():
        look(simulation, each)
    check_whole(machine, watch)
    assert unmet(simulation.cluster, list(simulation.cluster.machines.values()), simulation.places) == []


# Replicas.


def test_bounds_that_do_not_hold(
    simulation: Simulation, machine: Machine, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = watch.log.log_end_offset
    monkeypatch.setattr(watch.log, "high_watermark", end + 1)
    with pytest.raises(Violation, match=f"A11: .*high watermark {end + 1}, end {end}"):
        look(simulation, machine)


def test_segments_that_are_replaced_while_nothing_else_moves(
    simulation: Simulation, machine: Machine, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each replacement is looked at when it begins and when it is done: two of them are not taken for one."""
    looks: list[object] = []
    update = Mirror.update

    def updated(mirror: Mirror) -> int | None:
        if mirror is watch.mirror:
            looks.append(mirror.log._swap)
        return update(mirror)

    monkeypatch.setattr(Mirror, "update", updated)
    swaps = [object(), None, object(), None]
    for swap in swaps:
        with monkeypatch.context() as changed:
            changed.setattr(watch.log, "_swap", swap)
            for _ in range(2):
                look(simulation, machine)
    assert looks == swaps


def test_a_leader_that_copies(
    simulation: Simulation, machine: Machine, watch: Watch, hosted: HostedPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch.leader = None  # As if it had only now begun to lead.
    monkeypatch.setattr(hosted, "following", (2, 1))
    with pytest.raises(Violation, match=r"A21: .*leads, and copies from \(2, 1\)"):
        look(simulation, machine)


def test_what_is_committed_without_the_others(
    simulation: Simulation, machine: Machine, watch: Watch, leader: PartitionLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a leader that does not wait for those in sync, by one that has too few, and by a follower."""
    replicas = simulation.inspection.replicas
    committed = watch.high_watermark
    replicas._on_committed(machine, watch, committed)
    follower = next(iter(leader.followers.values()))
    with monkeypatch.context() as changed:
        changed.setattr(follower, "log_end", committed - 1)
        with pytest.raises(Violation, match=f"A9: .*is known to end at {committed - 1}"):
            replicas._on_committed(machine, watch, committed)
    with monkeypatch.context() as changed:
        changed.setattr(leader, "isr", frozenset({leader.replica_id}))
        changed.setattr(leader, "maximal_isr", frozenset({leader.replica_id}))
        with pytest.raises(Violation, match="A8: "):
            replicas._on_committed(machine, watch, committed)
    with monkeypatch.context() as changed:
        changed.setattr(watch.hosted, "leader", None)
        with pytest.raises(Violation, match=r"A9: .*follows"):
            replicas._on_committed(machine, watch, committed)


def test_what_a_leader_committed_in_the_moment_of_its_death(
    simulation: Simulation, machine: Machine, watch: Watch, leader: PartitionLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has told a follower, and was killed in the same step: it counts, by the rules that hold for all leaders. What
    a follower believes when it dies does not."""
    replicas, process, batches = simulation.inspection.replicas, machine.process, watch.mirror.batches
    assert process is not None
    assert watch.log.high_watermark == batches[-1].next
    monkeypatch.setattr(replicas, "_watches", {})
    monkeypatch.setattr(replicas, "_remains", {})
    monkeypatch.setattr(replicas, "on_committed", lambda place, batch: None)

    def committed_after_death() -> bool:
        watch.ledger = Ledger(str(PLACE))
        for each in batches[:-1]:
            watch.ledger.commit(each, "some leader before")
        watch.high_watermark, watch.committed = batches[-1].base, len(batches) - 1
        replicas._watches[process] = {watch.log: watch}
        replicas.on_death(machine, process, power=False)
        return watch.ledger.end == watch.log.high_watermark

    assert committed_after_death()
    with monkeypatch.context() as changed:
        changed.setattr(next(iter(leader.followers.values())), "log_end", batches[-1].base)
        with pytest.raises(Violation, match=f"A9: .*is known to end at {batches[-1].base}"):
            committed_after_death()
    with monkeypatch.context() as changed:
        changed.setattr(watch.hosted, "leader", None)
        assert not committed_after_death()


def test_a_candidate_that_lacks_something(simulation: Simulation, watch: Watch) -> None:
    replicas = simulation.inspection.replicas
    replicas.check_candidates(PLACE, watch.log.topic_id, watch.ledger)
    more = Ledger(str(PLACE))
    more.commit(batch(watch.end), "somewhere else")
    with pytest.raises(Violation, match=f"A2: .*ends at {watch.end}, where {watch.end + 1} is committed"):
        replicas.check_candidates(PLACE, watch.log.topic_id, more)


def test_a_leader_that_lacks_something(simulation: Simulation, machine: Machine, watch: Watch) -> None:
    """The end of what is committed, or a batch of it, for which it has another."""
    replicas = simulation.inspection.replicas
    replicas._on_leadership(machine, watch)
    watch.ledger = Ledger(str(PLACE))
    watch.ledger.commit(batch(watch.end), "somewhere else")
    with pytest.raises(Violation, match=f"A1: .*ends at {watch.end}; {watch.end + 1} is committed"):
        replicas._on_leadership(machine, watch)
    first = watch.mirror.batches[0]
    watch.ledger = Ledger(str(PLACE))
    watch.ledger.commit(batch(first.base, first.next - first.base, epoch=first.epoch, crc=first.crc + 1), "elsewhere")
    with pytest.raises(Violation, match=r"A1: .*without .*, which is committed"):
        replicas._on_leadership(machine, watch)


def test_a_leader_that_does_not_count_whoever_may_be_elected(
    simulation: Simulation, watch: Watch, leader: PartitionLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_sync = simulation.inspection.replicas.in_sync
    partition = view.newest_image(simulation.cluster).partition(*PLACE)
    assert partition is not None
    in_sync._check_counted(PLACE, watch.log.topic_id, partition)
    other = next(replica for replica in partition.isr if replica != leader.replica_id)
    monkeypatch.setattr(leader, "maximal_isr", leader.maximal_isr - {other})
    with pytest.raises(Violation, match="A3: "):
        in_sync._check_counted(PLACE, watch.log.topic_id, partition)


def test_a_log_that_does_not_end_with_its_last_batch(
    simulation: Simulation, machine: Machine, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch.log, "log_end_offset", watch.end + 3)
    try:
        with pytest.raises(Violation, match="A22: "):
            look(simulation, machine)
    finally:
        watch.mirror.end = watch.end


# Disks.


def test_what_is_not_on_the_disk_and_said_to_be(machine: Machine, watch: Watch) -> None:
    """By a recovery point, by an acknowledgement where every append is synced, by the marker of a clean shutdown."""
    end = watch.mirror.batches[-1].next
    watch.recovery_point = end
    with pytest.raises(Violation, match=f"E3: .*recovery point {end}"):
        check_recovery_point(machine, watch)
    with pytest.raises(Violation, match="E2: "):
        check_synced(machine, watch, 0)
    check_clean_close(machine, watch)
    disk = SimDisk(machine.volume)
    marker = f"{watch.log.directory.rpartition('/')[0]}/.kafka_cleanshutdown"
    disk.open(marker, create=True)
    try:
        with pytest.raises(Violation, match="E5: "):
            check_clean_close(machine, watch)
    finally:
        disk.remove(marker)


def test_epochs_that_are_not_those_of_the_batches(
    machine: Machine, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = watch.log.epochs.entries
    for wrong in ([], [*epochs, (epochs[-1][0] + 1, watch.end - 1)]):
        monkeypatch.setattr(watch.log, "epochs", LeaderEpochCache(wrong))
        with pytest.raises(Violation, match="E7: "):
            check_whole(machine, watch)


def test_a_restart_that_changes_a_log() -> None:
    with running() as simulation:
        simulation.workload.start(simulation.scheduler.now + 1)
        passes(simulation, 2)
        simulation.workload.stop()
        passes(simulation, 2)
        serve_again = restarts._serve_again

        async def spoil(simulation: Simulation) -> bool:
            done = await serve_again(simulation)
            machine = simulation.cluster.machines[2]
            log = view.log(machine, PLACE)
            assert log is not None
            prefix = f"{log.directory}/0"
            found = ((path, node) for path, node in machine.volume.files() if path.startswith(prefix))
            next(node for path, node in found if path.endswith(".log")).content.extend(b"more")
            return done

        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(restarts, "_serve_again", spoil)
            changed.setattr(simulation.inspection, "after_step", lambda touched: None)
            with pytest.raises(Violation, match="E18: n2:"):
                restarts.restart_twice(simulation)


# What a healed core must come to do.


def missing(simulation: Simulation) -> set[str]:
    """The properties that are not met yet."""
    core = list(simulation.cluster.machines.values())
    return {each.partition(":")[0] for each in unmet(simulation.cluster, core, simulation.places)}


def test_what_a_core_owes(
    simulation: Simulation, leader: PartitionLeader, hosted: HostedPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = view.newest_image(simulation.cluster)
    partition = image.partition(*PLACE)
    assert partition is not None

    def shown(**changes: object) -> None:
        """The partition, otherwise."""
        other = partition._replace(**changes)  # type: ignore[arg-type]
        found = SimpleNamespace(last_offset=image.last_offset, partition=lambda *place: other, broker=image.broker)
        changed.setattr(view, "newest_image", lambda cluster: found)

    with monkeypatch.context() as changed:
        changed.setattr(view, "is_member", lambda machine: False)
        assert missing(simulation) == {"L1"}
    with monkeypatch.context() as changed:
        changed.setattr(leader, "pending", ProposeIsr(0, 0, (IsrMember(1, -1),), (), ()))
        assert missing(simulation) == {"L2"}
    with monkeypatch.context() as changed:
        ahead = image.provenance._replace(offset=image.last_offset + 100)
        newest = replace(image, provenance=ahead)
        changed.setattr(view, "newest_image", lambda cluster: newest)
        assert missing(simulation) == {"L3"}
    with monkeypatch.context() as changed:
        shown(leader=-1)
        changed.setattr(simulation, "places", [PLACE])
        assert missing(simulation) == {"L4"}
    with monkeypatch.context() as changed:
        changed.setattr(hosted.log, "high_watermark", hosted.log.log_end_offset + 1)
        assert missing(simulation) == {"L5"}
    with monkeypatch.context() as changed:
        shown(adding_replicas=(2,))
        changed.setattr(simulation, "places", [PLACE])
        assert missing(simulation) == {"L6"}
    for answer in (False, True):
        with monkeypatch.context() as changed:
            changed.setattr(view, "is_active_controller", lambda machine, answer=answer: answer)
            assert missing(simulation) == {"L7"}
    with monkeypatch.context() as changed:
        changed.setattr(view, "uncommitted_voters", lambda machine: True)
        assert missing(simulation) == {"L8"}
    with monkeypatch.context() as changed:
        shown(isr=(partition.leader,))
        changed.setattr(simulation, "places", [PLACE])
        assert missing(simulation) == {"L11"}
