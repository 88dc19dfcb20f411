"""Machines, cores and operators: what the simulation itself has to get right for its verdicts to mean anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random

import pytest

from ottla.broker.purgatory import DelayedProduce
from ottla.metrics.instruments import Meter
from ottla.partition.effects import ProposeIsr
from ottla.sim import view
from ottla.sim.checkers.leftovers import leftovers
from ottla.sim.checkers.liveness import choose_core
from ottla.sim.checkers.violation import Violation
from ottla.sim.errands import TOPIC, create_topics
from ottla.sim.faults import KINDS
from ottla.sim.faults.disks import disk_error
from ottla.sim.faults.operations import set_min_isr
from ottla.sim.options import Mode, expand
from ottla.sim.run import UNDER_WAY_S, Simulation


@contextmanager
def running(
    seed: int = 2, nodes: int = 3, *, with_fleeting: bool = False, two_directories: bool = False
) -> Iterator[Simulation]:
    """A cluster with its topic, and no trouble but what a test makes."""
    options = expand(seed, Mode.LIVENESS, kinds=tuple(KINDS), nodes=nodes, with_fleeting=with_fleeting)
    directories = ",".join(view.LOG_DIRS if two_directories else view.LOG_DIRS[:1])
    settings = {**options.settings, "log.dirs": directories}
    fleeting = options.fleeting if with_fleeting else None
    partitions = 3 if two_directories else options.partitions
    simulation = Simulation(replace(options, settings=settings, fleeting=fleeting, partitions=partitions))
    try:
        simulation.cluster.start()
        simulation.until(create_topics(simulation), 60, "the topic could be created")
        passes(simulation, 5)
        yield simulation
    finally:
        simulation.scheduler.after_step = None
        simulation.cluster.on_error = lambda what, error: None
        simulation.scheduler.world.on_error = None
        simulation.cluster.dispose()


def passes(simulation: Simulation, seconds: float) -> None:
    simulation._pass(simulation.scheduler.now + seconds)


def test_a_core_does_not_rest_on_a_process_that_nobody_has_registered() -> None:
    """It was killed and is back, and the metadata still has its former life in the in-sync set. When it registers it
    will be taken out, and a core of which nobody else was in sync would wait for ever."""
    with running() as simulation:
        cluster = simulation.cluster
        one = cluster.machines[1]
        one.crash()
        one.start()
        assert not view.is_registered(one)
        for place in simulation.places:
            partition = view.newest_image(cluster).partition(*place)
            assert partition is not None
            assert 1 in partition.isr
        for seed in range(30):
            core = choose_core(cluster, simulation.places, 2, Random(seed))
            assert core is not None
            assert any(machine.id != 1 and view.is_registered(machine) for machine in core)
        passes(simulation, 10)
        assert view.is_registered(one)
        assert view.is_member(one)


def test_a_core_does_not_rest_on_a_replica_that_its_leader_has_asked_to_leave_out() -> None:
    """The request is on its way. Should the leader stay outside, nobody in the core may be elected when it arrives."""
    with running() as simulation:
        cluster = simulation.cluster
        place = simulation.places[0]
        partition = view.newest_image(cluster).partition(*place)
        assert partition is not None
        hosted = view.hosted(cluster.machines[partition.leader], place)
        assert hosted is not None
        assert hosted.leader is not None
        others = tuple(sorted({*partition.isr} - {partition.leader}))
        hosted.leader.pending = ProposeIsr(partition.leader_epoch, partition.partition_epoch, (), leaving=others)
        for seed in range(30):
            core = choose_core(cluster, [place], 2, Random(seed))
            assert core is not None
            assert partition.leader in {machine.id for machine in core}


def test_where_nobody_knows_of_a_partition_no_core_is_chosen() -> None:
    """All were down, and who is back has not read the metadata yet: any two of them would seem enough."""
    with running() as simulation:
        cluster = simulation.cluster
        for machine in cluster.machines.values():
            machine.crash()
        cluster.machines[3].start()
        assert view.every_place(cluster) == []
        assert choose_core(cluster, view.every_place(cluster), 2, Random(0)) is None


def test_where_nobody_knows_of_a_partition_nobody_may_lose_it() -> None:
    """All were down, and who is back has not read the metadata yet: no partition would seem to be held by anybody."""
    with running() as simulation:
        cluster, faults = simulation.cluster, simulation.faults
        assert faults.may_lose_data(cluster.machines[3], even_synced=True)
        for machine in cluster.machines.values():
            machine.crash()
        assert not faults.may_lose_data(cluster.machines[3], even_synced=True)
        cluster.machines[3].start()
        assert view.every_place(cluster) == []
        assert not faults.may_lose_data(cluster.machines[3], even_synced=True)
        cluster.start()
        passes(simulation, 20)
        assert faults.may_lose_data(cluster.machines[3], even_synced=True)


def test_nobody_loses_all_while_another_is_about_to_be_killed() -> None:
    """Its disk fails for a while, and then it is started anew: two would come back without a clean shutdown."""
    with running() as simulation:
        simulation.options = replace(simulation.options, flush_each=True)
        cluster, faults = simulation.cluster, simulation.faults
        others = [machine for machine in cluster.machines.values() if machine is not cluster.machines[1]]
        for machine in others:
            machine.pause()
        assert disk_error("read_errors")(faults, Random(0))
        for machine in others:
            machine.resume()
        assert not any(faults.may_lose_data(machine, even_synced=True) for machine in others)
        passes(simulation, 20)
        assert all(faults.may_lose_data(machine, even_synced=True) for machine in cluster.machines.values())


def test_the_last_look_is_at_the_core_alone() -> None:
    with running() as simulation:
        core = [simulation.cluster.machines[1], simulation.cluster.machines[2]]
        simulation.heal(core)
        final, outside = simulation.final.name, simulation.cluster.machines[3].name
        assert simulation.fabric.link(final, outside).cut
        assert simulation.fabric.link(outside, final).cut
        assert not any(simulation.fabric.link(final, each.name).cut for each in core)


def test_a_new_disk_has_none_of_the_faults_of_the_old_one() -> None:
    with running() as simulation:
        two = simulation.cluster.machines[2]
        two.volume.faults.sync_errors = 1.0
        two.rearm()
        two.lose_disk()
        simulation.on_disk_lost(two)
        two.start()
        passes(simulation, 20)
        assert two.serving


def test_the_operator_puts_the_minimum_in_sync_back_whatever_came_late() -> None:
    def known(simulation: Simulation) -> str | None:
        return view.newest_image(simulation.cluster).topic_config(TOPIC).get("min.insync.replicas")

    with running() as simulation:
        for value in (3, 1, 3):
            simulation.spawn(set_min_isr(simulation.faults, value))
        passes(simulation, 2)
        assert known(simulation) == "3", "one after the other"
        simulation.heal(list(simulation.cluster.machines.values()))
        passes(simulation, 2)
        assert known(simulation) == "2"
        simulation.spawn(set_min_isr(simulation.faults, 3))
        passes(simulation, 5)
        assert known(simulation) == "2"


def test_once_all_is_healed_the_operator_is_sure_of_the_minimum_some_time() -> None:
    """He waits for it before he throws damaged replicas away."""
    with running() as simulation:
        simulation.faults.min_isr_lowered = True
        simulation.heal(list(simulation.cluster.machines.values()))
        passes(simulation, UNDER_WAY_S - 2)
        assert simulation.faults.min_isr_lowered
        passes(simulation, 4)
        assert not simulation.faults.min_isr_lowered


def test_a_failure_of_the_simulation_itself_is_no_success() -> None:
    async def broken() -> None:
        raise OSError("a fault that could not be made")

    with running() as simulation:
        simulation.spawn(broken())
        with pytest.raises(Violation, match=r"BUG: in the simulation: .*could not be made"):
            passes(simulation, 1)


def test_what_waits_for_clients_that_are_gone_is_noticed() -> None:
    with running() as simulation:
        cluster = simulation.cluster
        core = list(cluster.machines.values())
        assert leftovers(cluster, core, 0) == []
        place = simulation.places[0]
        leader = next(machine for machine in core if (found := view.hosted(machine, place)) and found.leader)
        hosted = view.hosted(leader, place)
        assert hosted is not None
        delayed = DelayedProduce(lambda unsafe: None, Meter())
        delayed.wait_for(hosted, hosted.log.log_end_offset + 1, committed=True)
        assert [name for name in leftovers(cluster, core, 0) if "delayed writes" in name] == leftovers(cluster, core, 0)
        assert leftovers(cluster, core, 0) != []
