"""A cluster in the simulator on which nothing happens but what a scene makes happen.

It is a seed of the simulator without faults and without clients of its own: real nodes, virtual time, and every checker
at work. What a scene draws has therefore been found to be right.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

from ottla.sim import view
from ottla.sim.checkers.violation import Violation
from ottla.sim.client import SimClient
from ottla.sim.cluster import Cluster, Machine
from ottla.sim.errands import create_topics
from ottla.sim.lanes import Lane, LaneOptions
from ottla.sim.options import Mode, expand
from ottla.sim.run import Simulation
from tools.pictures.recording import Recording

PATIENCE_S = 60.0
_STEP_S = 0.005


class Stage:
    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.place = simulation.places[0]
        self.recording = Recording(simulation.cluster, self.place)
        self.watchers: list[Callable[[], None]] = []
        """Called after every step, too."""
        check = simulation.scheduler.after_step
        assert check is not None

        def look(touched: dict[Any, None]) -> None:
            check(touched)
            self.recording.look()
            for watcher in self.watchers:
                watcher()

        simulation.scheduler.after_step = look

    @property
    def cluster(self) -> Cluster:
        return self.simulation.cluster

    @property
    def now(self) -> float:
        return self.simulation.scheduler.now

    @property
    def client(self) -> SimClient:
        return self.simulation.admin

    @property
    def leader(self) -> Machine:
        """Of the partition."""
        return self.cluster.machines[self.recording.moments[-1].leader]

    @property
    def controller(self) -> Machine:
        """The active one."""
        return next(machine for machine in self.cluster.controllers if view.is_active_controller(machine))

    def passes(self, seconds: float) -> None:
        self._run(self.now + seconds)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = self.now + PATIENCE_S
        while not condition():
            assert self.now < deadline, "a scene waits for what does not come"
            self._run(self.now + _STEP_S)

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Until it is done."""
        task = self.simulation.scheduler.world.create_task(work)
        self.until(task.done)
        return task.result()

    def meanwhile(self, work: Coroutine[Any, Any, Any]) -> None:
        self.simulation.spawn(work)

    def another_client(self, name: str) -> SimClient:
        simulation = self.simulation
        return SimClient(name, simulation.scheduler, simulation.fabric, self.cluster.bootstrap, Random(name))

    def producer(self, number: int, *, acks: int = -1) -> Lane:
        options = LaneOptions(
            acks=acks,
            idempotent=False,
            retry_uncertain=False,
            request_timeout_s=PATIENCE_S / 2,
            delivery_timeout_s=PATIENCE_S,
        )
        return Lane(self.client, number, self.place, options, self.simulation.history)

    def cut_off(self, machine: Machine) -> None:
        """From all other nodes, and from no client."""
        for other in self.cluster.machines.values():
            if other is not machine:
                self.simulation.fabric.cut(machine.name, other.name)
                self.simulation.fabric.cut(other.name, machine.name)

    def _run(self, until: float) -> None:
        self.simulation.scheduler.run(until)
        if self.simulation.failure is not None:
            raise self.simulation.failure


@contextmanager
def stage(
    *,
    seed: int = 1,
    partitions: int = 1,
    min_isr: int = 2,
    latency_s: float = 0.01,
    coordinated: bool = False,
    compacted: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    topic: Mapping[str, str] | None = None,
) -> Iterator[Stage]:
    """Three nodes, each a broker and a controller, with a topic of three replicas, all in sync."""
    options = expand(
        seed, Mode.SAFETY, kinds=(), nodes=3, with_groups=coordinated, with_compaction=compacted is not None
    )
    simulation = Simulation(
        replace(
            options,
            separate_controllers=0,
            min_isr=min_isr,
            partitions=partitions,
            latency_s=latency_s,
            coordinated=coordinated,
            grouped=False,
            follower_reads=False,
            compacted=None if compacted is None else dict(compacted),
            producers=0,
            consumers=0,
            transactors=0,
            settings={**options.settings, "leader.imbalance.check.interval.seconds": "300", **(settings or {})},
            topic={"min.insync.replicas": str(min_isr), **(topic or {})},
        )
    )
    scheduler = simulation.scheduler
    try:
        shown = Stage(simulation)
        simulation.cluster.start()
        if not shown.do(create_topics(simulation)):
            raise Violation("L0", "the topic could not be created")
        shown.passes(5.0)
        yield shown
    finally:
        scheduler.after_step = None
        simulation.cluster.on_error = lambda what, error: None
        scheduler.world.on_error = None
        simulation.cluster.dispose()
