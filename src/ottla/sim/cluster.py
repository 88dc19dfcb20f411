"""Machines with real nodes on them: formatted, started, paused, crashed, and started again on what the disk kept.

A `Machine` has a disk, clocks and an address, which outlive its processes. A process is an incarnation: a loop, a way
to the disk and to the network, and a `Node`, exactly as `cli/serve` would run it. When it dies nothing of it runs any
more: its loop is dead, and so are its ways to disk and network.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from ottla.broker.control.format import FormatOptions, format_node
from ottla.broker.node import Node
from ottla.config.node import NodeConfig
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.metadata.ids import random_uuid
from ottla.model import Uuid, uuid_to_text
from ottla.runtime.seams import Runtime
from ottla.sim.clock import SimClock
from ottla.sim.disk import SimDisk
from ottla.sim.loop import WALL_MS, Scheduler, SimLoop
from ottla.sim.network import Fabric, SimNetwork
from ottla.sim.offload import SimOffload
from ottla.sim.trace import Trace
from ottla.sim.view import DATA
from ottla.sim.volume import Volume

ELR_VERSION = "eligible.leader.replicas.version"

CLIENT_PORT = 9092
CONTROLLER_PORT = 10092


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePlan:
    """What a node is to be."""

    node_id: int
    broker: bool = True
    controller: bool = True
    voter: bool = True
    """Is it in the quorum from the beginning? A controller that is not may be added later."""
    rack: str | None = None

    @property
    def host(self) -> str:
        return f"n{self.node_id}"


class OnDeath(Protocol):
    def __call__(self, machine: Machine, process: Process, *, power: bool) -> None: ...


class Process:
    """One incarnation of a node, from the start of its process to its end."""

    def __init__(self, machine: Machine, number: int) -> None:
        cluster = machine.cluster
        self.number = number
        self.machine = machine
        self.began = cluster.scheduler.now
        random = Random(f"{cluster.seed}/{machine.id}/{number}")
        self.loop = SimLoop(cluster.scheduler, machine.clock, f"{machine.plan.host}.{number}")
        self.loop.on_error = cluster.on_loop_error
        self.disk = SimDisk(machine.volume)
        self.disk.rearm()
        offload = SimOffload(self.loop, random)
        self.disk.on_sync = offload.on_sync
        self.node = Node(
            machine.config,
            Runtime(
                clock=machine.clock,
                disk=self.disk,
                network=SimNetwork(cluster.fabric, machine.plan.host, self.loop),
                random=random,
                offload=offload,
            ),
        )
        self.stopping = asyncio.Event()
        self.serving = False
        self.clean = False
        """Was it asked to stop, and did it?"""
        self.failure: BaseException | None = None
        self.loop.call_soon(self._begin)

    def _begin(self) -> None:
        self.node.on_fatal = self.stopping.set
        self.task = self.loop.create_task(self._live())
        self.task.add_done_callback(self._on_end)

    async def _live(self) -> None:
        """As `cli/serve` does it."""
        node = self.node
        await node.start()
        self.serving = True
        self.machine.on_serving(self)
        try:
            await self.stopping.wait()
        finally:
            self.serving = False
            await node.stop()
        if node.failure is not None:
            raise node.failure

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self.failure = None if task.cancelled() else task.exception()
        self.clean = self.failure is None
        self.machine.on_exit(self)


class Machine:
    """A computer, its disk and its node. States of the process: none → starting → serving → none."""

    def __init__(self, cluster: Cluster, plan: MachinePlan, config: NodeConfig, random: Random) -> None:
        self.cluster = cluster
        self.plan = plan
        self.id = plan.node_id
        self.config = config
        self.random = random
        self.volume = Volume(random=Random(f"{cluster.seed}/disk/{plan.node_id}"))
        self.clock = SimClock(
            cluster.scheduler,
            wall_ms=WALL_MS + random.randrange(-50, 50),
            uptime_s=1000 + 1000 * random.random(),
            rate=1.0 + random.uniform(-1e-4, 1e-4),
        )
        self.process: Process | None = None
        self.incarnations = 0
        self.paused = False
        self.last_end_clean = True
        self.blocked_until = 0.0
        """No supervisor starts it before."""
        cluster.fabric.host(plan.host)

    @property
    def name(self) -> str:
        return self.plan.host

    @property
    def node(self) -> Node | None:
        """The node, if there is a process and it has come so far that it can be looked at."""
        process = self.process
        return process.node if process is not None else None

    @property
    def serving(self) -> bool:
        return self.process is not None and self.process.serving

    @property
    def running(self) -> bool:
        """Is there a process that can do anything?"""
        return self.process is not None and not self.paused

    # Life.

    def start(self) -> None:
        if self.process is None:
            self.incarnations += 1
            self.cluster.fabric.host(self.name).up = True
            self.cluster.trace.note(self.name, "starts")
            self.process = Process(self, self.incarnations)

    def crash(self, *, power: bool = False) -> None:
        """The process dies here and now; with `power`, the machine."""
        process = self.process
        if process is None:
            return
        self.cluster.trace.note(self.name, "loses power" if power else "is killed")
        self.last_end_clean = False
        self._bury(process, power=power)
        if power:
            self.volume.lose_power(self.random)
        self.cluster.fabric.vanish(self.name, machine=power)

    def stop(self) -> None:
        """Ask it to stop, as SIGTERM does."""
        process = self.process
        if process is not None and process.serving:
            self.cluster.trace.note(self.name, "is asked to stop")
            process.loop.call_soon(process.stopping.set)

    def pause(self) -> None:
        if self.process is not None and not self.paused:
            self.paused = True
            self.process.loop.pause()
            self.cluster.trace.note(self.name, "is stopped (SIGSTOP)")

    def resume(self) -> None:
        if self.process is not None and self.paused:
            self.paused = False
            self.process.loop.resume()
            self.cluster.trace.note(self.name, "goes on")

    def crash_in(self, operations: int, *, power: bool) -> None:
        """Have it die in the middle of something: before its `operations`th change to the disk."""
        process = self.process

        def die() -> bool:
            if self.process is process:
                self.crash(power=power)
            return True

        if process is not None:
            process.disk.crash_in(operations, die)

    def lose_disk(self) -> None:
        """Everything on it is gone. The next start is on a freshly formatted one, with a new identity."""
        self.crash(power=True)
        self.cluster.trace.note(self.name, "loses its disk")
        self.volume.wipe()
        self.cluster.format(self, new=True)

    def rearm(self) -> None:
        """The volume's faults have changed."""
        if self.process is not None:
            self.process.disk.rearm()

    def _bury(self, process: Process, *, power: bool = False) -> None:
        self.cluster.on_death(self, process, power=power)
        self.process = None
        self.paused = False
        process.serving = False
        process.disk.die()
        self.cluster.graveyard.append((process, process.loop.kill()))

    # What the process tells.

    def on_serving(self, process: Process) -> None:
        self.cluster.trace.note(self.name, "serves")
        self.cluster.on_serving(self)

    def on_exit(self, process: Process) -> None:
        """The process has ended by itself."""
        if process is not self.process:
            return
        what = "has stopped" if process.failure is None else f"gives up: {process.failure}"
        self.cluster.trace.note(self.name, what)
        self.last_end_clean = process.clean
        self._bury(process)
        self.cluster.fabric.vanish(self.name, machine=False)
        self.cluster.on_exit(self, process)


class Cluster:
    """All machines, and what they share."""

    def __init__(
        self,
        *,
        seed: int,
        scheduler: Scheduler,
        fabric: Fabric,
        trace: Trace,
        plans: list[MachinePlan],
        settings: Mapping[str, str],
        random: Random,
        features: Mapping[str, int] | None = None,
    ) -> None:
        """`features`: the levels that are not the newest."""
        self.seed = seed
        self._features = {} if features is None else features
        self.scheduler = scheduler
        self.fabric = fabric
        self.trace = trace
        self.random = random
        self.graveyard: list[tuple[Process, list[asyncio.Task[Any]]]] = []
        """The dead. Were they let go, their coroutines would be closed, and their `finally` blocks would run."""
        self.on_serving: Callable[[Machine], None] = lambda machine: None
        self.on_exit: Callable[[Machine, Process], None] = lambda machine, process: None
        self.on_death: OnDeath = lambda machine, process, *, power: None
        """Called when a process has ended, however that came, and before the disk loses anything."""
        self.on_error: Callable[[str, BaseException | None], None] = lambda what, error: None
        self.cluster_id = uuid_to_text(random_uuid(random))
        self._voter_directories: dict[int, Uuid] = {
            plan.node_id: random_uuid(random) for plan in plans if plan.controller and plan.voter
        }
        bootstrap = ",".join(f"{plan.host}:{CONTROLLER_PORT}" for plan in plans if plan.controller)
        self._initial_controllers = ",".join(
            f"{plan.node_id}@{plan.host}:{CONTROLLER_PORT}:{uuid_to_text(self._voter_directories[plan.node_id])}"
            for plan in plans
            if plan.node_id in self._voter_directories
        )
        self.machines: dict[int, Machine] = {}
        for plan in plans:
            config = NodeConfig({"log.dirs": DATA, **settings, **_properties(plan, bootstrap)})
            self.machines[plan.node_id] = Machine(self, plan, config, Random(f"{seed}/machine/{plan.node_id}"))
        for machine in self.machines.values():
            self.format(machine)

    def format(self, machine: Machine, *, new: bool = False) -> None:
        """As kafka-storage does. A disk that takes the place of a lost one joins the quorum as an observer."""
        controller = machine.plan.controller
        first = controller and machine.plan.voter and not new
        options = FormatOptions(
            cluster_id=self.cluster_id,
            initial_controllers=self._initial_controllers if first else None,
            no_initial_controllers=controller and not first,
            features={**({ELR_VERSION: 1} if ELR_VERSION in SUPPORTED_FEATURES else {}), **self._features},
        )
        format_node(
            SimDisk(machine.volume), machine.config, options, random=machine.random, now_ms=machine.clock.wall_ms()
        )
        # Whoever formats a disk waits until all of it is there before anything starts.
        machine.volume.settle()

    def start(self) -> None:
        for machine in self.machines.values():
            machine.start()

    @property
    def brokers(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.plan.broker]

    @property
    def controllers(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.plan.controller]

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        """Where clients begin."""
        return [(machine.name, CLIENT_PORT) for machine in self.brokers]

    def on_loop_error(self, loop: SimLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.on_error(f"{loop.name}: {context.get('message')}", error)

    def dispose(self) -> None:
        """The simulation is over: let go of everything, without a word from the dead."""
        for machine in self.machines.values():
            if machine.process is not None:
                machine._bury(machine.process)
        bury(self.scheduler.world.kill())
        for _, tasks in self.graveyard:
            bury(tasks)
        self.graveyard.clear()


def bury(tasks: list[asyncio.Task[Any]]) -> None:
    """End tasks of loops that are dead: their `finally` blocks run now, and find nothing that they could change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for task in tasks:
            try:
                task.get_coro().close()
            except BaseException:
                continue  # It has no loop, no disk and no network to do anything with.


def _properties(plan: MachinePlan, bootstrap: str) -> dict[str, str]:
    roles = [name for name, has in (("broker", plan.broker), ("controller", plan.controller)) if has]
    listeners = [
        *([f"PLAINTEXT://{plan.host}:{CLIENT_PORT}"] if plan.broker else []),
        *([f"CONTROLLER://{plan.host}:{CONTROLLER_PORT}"] if plan.controller else []),
    ]
    properties = {
        "process.roles": ",".join(roles),
        "node.id": str(plan.node_id),
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": bootstrap,
    }
    if plan.rack is not None:
        properties["broker.rack"] = plan.rack
    return properties
