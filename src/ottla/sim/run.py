"""One seed from beginning to end: build, trouble, heal, look."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from ottla.coordinator.transaction.shard import FEATURE
from ottla.errors import KafkaError, StartupError
from ottla.model import TopicPartition
from ottla.runtime.seams import DiskError
from ottla.sim import view
from ottla.sim.checkers.group_work import unmet as unmet_groups
from ottla.sim.checkers.leftovers import leftovers
from ottla.sim.checkers.liveness import choose_core, lagging, unmet
from ottla.sim.checkers.storage import Damage
from ottla.sim.checkers.violation import Violation
from ottla.sim.client import SimClient, report_failure
from ottla.sim.clients import build_clients
from ottla.sim.cluster import Cluster, Machine, MachinePlan, Process
from ottla.sim.epochs import few_epochs
from ottla.sim.errands import COMPACTED_TOPIC, PATIENCE_S, TOPIC, create_topics, read_all, settle
from ottla.sim.faults import KINDS, Faults
from ottla.sim.faults.operations import elect_for_want_of_better, set_min_isr
from ottla.sim.faults.topics import create
from ottla.sim.fleeting import Fleeting
from ottla.sim.history import History
from ottla.sim.inspection import Inspection
from ottla.sim.loop import Scheduler, SimLoop
from ottla.sim.network import Fabric
from ottla.sim.options import SECONDS, Mode, Options, expand
from ottla.sim.restarts import restart_twice
from ottla.sim.trace import Trace
from ottla.sim.workload import Workload

START_PATIENCE_S = 60.0
RESTART_EVERY = 5
"""One seed in so many ends with two restarts of all nodes."""
UNDER_WAY_S = 10.0
"""Once all is healed, no request is under way for longer than this."""
MORE_TROUBLE_S = 60.0
"""So much longer may trouble last where fewer faults have struck than should."""
STABLE_S = 3.0
"""How long a core has to work, without another election, before that is believed."""


@dataclass(slots=True)
class Result:
    """What became of one seed."""

    seed: int
    mode: Mode
    failure: str | None
    digest: str
    simulated_s: float
    real_s: float
    cpu_s: float
    counts: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    story: list[tuple[float, str, str]] = field(default_factory=list)
    options: str = ""


class _Errors(logging.Handler):
    """Errors that nodes log with an exception, which no fault explains, are failures."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(logging.ERROR)
        self._simulation = simulation

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and isinstance(record.exc_info[1], BaseException):
            self._simulation.on_error(record.getMessage(), record.exc_info[1])


class Simulation:
    """One seed. `run` once."""

    def __init__(self, options: Options) -> None:
        self.options = options
        seed = options.seed
        self.scheduler = Scheduler()
        self.trace = Trace(self.scheduler)
        self.fabric = Fabric(Random(f"{seed}/network"), self.trace, latency_s=options.latency_s)
        self.cluster = Cluster(
            seed=seed,
            scheduler=self.scheduler,
            fabric=self.fabric,
            trace=self.trace,
            plans=_plans(options),
            settings=options.settings,
            random=Random(f"{seed}/cluster"),
            features={FEATURE: options.transaction_version},
        )
        self.places = [TopicPartition(TOPIC, index) for index in range(options.partitions)]
        self.compacted = [TopicPartition(COMPACTED_TOPIC, 0)] if options.compacted is not None else []
        self.history = History()
        self.kept = History()
        """Of the compacted partitions."""
        self.failure: Violation | None = None
        self.unmet: list[str] = []
        """What liveness still waits for."""
        self.abandoned: dict[int, None] = {}
        """Machines that nobody starts again."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self.clients = build_clients(options, self._new_client, self.places, self.history, self.compacted, self.kept)
        self.admin, self.final = self.clients.admin, self.clients.final
        self.client_hosts = [client.name for client in self.clients.busy]
        self.workload = Workload(
            self.clients,
            self.history,
            random=Random(f"{seed}/workload"),
            rate=options.rate,
            loop=self.scheduler.world,
        )
        self.fleeting: Fleeting | None = None
        self.faults = Faults(self, [KINDS[name] for name in options.fault_kinds], Random(f"{seed}/faults"))
        self.inspection = Inspection(
            self.cluster, self.history, self.kept, coordinated=options.coordinated, forgetful=options.forgetful
        )
        if options.fleeting is not None:
            writer, reader = self._new_client("d0"), self._new_client("d1")
            self.client_hosts += [writer.name, reader.name]
            self.fleeting = Fleeting(writer, reader, self.final, self.inspection.replicas.ledger_of)
            self.inspection.fleeting = self.fleeting
        self.scheduler.after_step = self._after_step
        self.scheduler.world.on_error = self._on_own_error
        self.cluster.on_error = self.on_error
        self.cluster.on_exit = self._on_exit
        self.cluster.on_serving = self._on_serving
        self.cluster.on_death = self._on_death

    def _new_client(self, name: str) -> SimClient:
        random = Random(f"{self.options.seed}/{name}")
        return SimClient(name, self.scheduler, self.fabric, self.cluster.bootstrap, random)

    # Running.

    def run(self) -> Result:
        began, cpu_began = time.perf_counter(), time.process_time()
        handler = _Errors(self)
        logger = logging.getLogger("ottla")
        level, propagate = logger.level, logger.propagate
        logger.addHandler(handler)
        logger.setLevel(logging.ERROR)
        logger.propagate = False
        try:
            with few_epochs(self.options.epochs):
                self._run()
        except Violation as violation:
            self.failure = violation
            self.trace.note("checker", str(violation))
        finally:
            self.scheduler.after_step = None
            self.cluster.on_error = lambda what, error: None
            self.scheduler.world.on_error = None
            self.cluster.dispose()
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate
        return Result(
            seed=self.options.seed,
            mode=self.options.mode,
            failure=None if self.failure is None else str(self.failure),
            digest=self.trace.digest,
            simulated_s=self.scheduler.now,
            real_s=time.perf_counter() - began,
            cpu_s=time.process_time() - cpu_began,
            counts=self.inspection.counts(),
            faults=dict(self.faults.counts),
            story=self.trace.story,
            options=self.options.describe(),
        )

    def _run(self) -> None:
        self.cluster.start()
        self.until(create_topics(self), START_PATIENCE_S, "topics could be created")
        ends = self.scheduler.now + self.options.seconds
        self.workload.start(ends)
        if self.fleeting is not None:
            self.fleeting.start()
        self.faults.start()
        self._pass(ends)
        self._strike_until_enough(ends + MORE_TROUBLE_S)
        core = list(self.cluster.machines.values())
        unsettled = self.faults.tampered or (self.fleeting is not None and self.fleeting.changing)
        if self.options.mode is Mode.LIVENESS and not unsettled:
            places = view.every_place(self.cluster)
            chosen = choose_core(self.cluster, places, self.options.min_isr, Random(f"{self.options.seed}/core"))
            core = core if chosen is None else chosen
        self.faults.stop()
        self.heal(core)
        self.until(self._come_to_life(core), PATIENCE_S, f"{_names(core)} work after they were healed")
        self.workload.stop()
        if self.fleeting is not None:
            self.fleeting.stopped = True
        self.until(settle(self), PATIENCE_S, f"{_names(core)} answer every client after they were healed")
        self.until(self._come_to_rest(core), PATIENCE_S, f"{_names(core)} forget clients that are gone")
        self.until(read_all(self), PATIENCE_S, f"everything can be read from {_names(core)}")
        self.inspection.at_end()
        if self.options.mode is Mode.SAFETY and self.options.seed % RESTART_EVERY == 0:
            restart_twice(self)

    def _strike_until_enough(self, ends: float) -> None:
        """Where too little could be done in the time that was given, it goes on for a while, more often."""
        while self.faults.struck < self.options.faults_min and self.scheduler.now < ends:
            self.faults.strike()
            self._pass(self.scheduler.now + 1.0)
        if self.faults.struck < self.options.faults_min:
            self.trace.note("simulation", f"could strike only {self.faults.struck} times")

    def _pass(self, until: float) -> None:
        self.scheduler.run(until)
        if self.failure is not None:
            raise self.failure

    def until(self, work: Coroutine[Any, Any, bool], patience_s: float, what: str) -> None:
        """Let time pass until `work` is done; true is success."""
        task = self.scheduler.world.create_task(work)
        task.add_done_callback(lambda _: self.scheduler.stop())
        self._pass(self.scheduler.now + patience_s)
        if not task.done():
            task.cancel()
            why = f" ({'; '.join(self.unmet)})" if self.unmet else ""
            raise Violation("L0", f"waited {patience_s:.0f} s in vain: {what}{why}")
        if not task.result():
            raise Violation("L0", f"it is not so that {what}")

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task: asyncio.Task[Any] = self.scheduler.world.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(report_failure)

    def heal(self, core: list[Machine]) -> None:
        """The core is whole again, and all of it is started; what is outside stays broken for good."""
        self.trace.note("simulation", f"heals {_names(core)}")
        self.fabric.heal_all()
        for machine in self.cluster.machines.values():
            if machine not in core:
                self._break_for_good(machine, core)
                # Cut off as it is, it may believe that it leads still, and show who asks it an end of long ago: the
                # last look is at the core alone.
                self.fabric.cut(self.final.name, machine.name)
                self.fabric.cut(machine.name, self.final.name)
        for machine in core:
            volume = machine.volume
            volume.faults.read_errors = volume.faults.write_errors = volume.faults.sync_errors = 0.0
            volume.faults.full = False
            volume.faults.failed = ""
            volume.faults.slow_sync_s = 0.0
            if machine.process is not None:
                machine.process.disk.crash_after = None
            machine.rearm()
            machine.clock.drift(1.0)
            machine.resume()
            if machine.process is None:
                machine.start()
        self.spawn(self._care_for_min_isr())
        self.spawn(self._care_for_leaders())
        if self.fleeting is not None:
            self.spawn(self._care_for_topic(self.fleeting))

    async def _care_for_min_isr(self) -> None:
        """The operator looks that `min.insync.replicas` is what it was, and stays so: a request of his that was given
        up may come late, after the one that put things right. Where everybody can be reached, nothing is under way for
        long, and then he is sure of it."""
        since = self.scheduler.now
        while True:
            wanted = self.options.min_isr
            configs = view.newest_image(self.cluster).topic_config(TOPIC)
            if configs.get("min.insync.replicas") != str(wanted):
                since = self.scheduler.now
                await set_min_isr(self.faults, wanted)
            elif self.scheduler.now - since >= UNDER_WAY_S:
                self.faults.min_isr_lowered = False
            await self.final.sleep(0.5)

    async def _care_for_leaders(self) -> None:
        """A partition that nobody may lead, because whoever led it last has lost records since, waits for the operator.
        Once everybody is back he has one elected (E16)."""
        while True:
            await elect_for_want_of_better(self.faults)
            await self.final.sleep(0.5)

    async def _care_for_topic(self, fleeting: Fleeting) -> None:
        """A request to delete it may come late, too."""
        while True:
            if not fleeting.changing:
                await create(self.faults)
            await self.final.sleep(0.5)

    def _break_for_good(self, machine: Machine, core: list[Machine]) -> None:
        random = machine.random
        others = [other.name for other in core]
        match random.randrange(5):
            case 0:
                machine.crash()
                self.abandoned[machine.id] = None
            case 1:
                machine.pause()
            case 2:  # It is heard, and hears nothing: the classic maker of elections.
                for other in others:
                    self.fabric.cut(other, machine.name)
            case 3:
                for other in others:
                    self.fabric.cut(machine.name, other)
            case 4:
                for other in others:
                    self.fabric.cut(machine.name, other)
                    self.fabric.cut(other, machine.name)
        self.trace.note(machine.name, "stays broken")

    async def _come_to_life(self, core: list[Machine]) -> bool:
        """Wait until all that a core must do is so, nobody repairs anything any more, and it stays so for a while."""
        since: float | None = None
        quorum = self.inspection.quorum
        elections = quorum.elections
        while True:
            self.unmet = unmet(self.cluster, core, view.every_place(self.cluster))
            self.unmet += unmet_groups(self.workload.groups(), self.places) + self.inspection.transactions.unmet()
            if self.faults.tampered:
                self.unmet.append(f"{list(self.faults.tampered)} are damaged")
            if self.fleeting is not None and self.fleeting.changing:
                self.unmet.append("a topic is being created again")
            self.unmet = self.unmet or lagging(self.clients.consumers, self.history, self.scheduler.now)
            if self.unmet or quorum.elections != elections:
                since = None
                elections = quorum.elections
            elif since is None:
                since = self.scheduler.now
            elif self.scheduler.now - since >= STABLE_S:
                return True
            await self.final.sleep(0.25)

    async def _come_to_rest(self, core: list[Machine]) -> bool:
        producers = {each.producer_id for each in (*self.history.identities, *self.kept.identities)}
        while True:
            self.unmet = leftovers(self.cluster, core, len(producers))
            if not self.unmet:
                return True
            await self.final.sleep(0.25)

    def forgive(self, machine: Machine, *, damaged: bool = False, damage: Damage | None = None) -> None:
        """What was on this disk was spoiled on purpose, and is `damaged` until somebody repairs it."""
        self.inspection.replicas.forgive(machine, damaged=damaged, damage=damage)

    def on_metadata_damaged(self, machine: Machine) -> None:
        self.forgive(machine, damaged=True)
        self.inspection.quorum.damaged[machine.id] = None

    def on_disk_lost(self, machine: Machine) -> None:
        self.forgive(machine)
        self.inspection.quorum.forget(machine)

    # What goes wrong.

    def _after_step(self, touched: dict[SimLoop, None]) -> None:
        if self.failure is not None:
            self.scheduler.stop()
            return
        try:
            self.inspection.after_step(touched)
        except Violation as violation:
            self._fail(violation)

    def _fail(self, violation: Violation) -> None:
        if self.failure is None:
            self.failure = violation
            self.scheduler.stop()

    def _on_own_error(self, loop: SimLoop, context: dict[str, Any]) -> None:
        """The simulation itself has failed: a fault, a client or an operator."""
        error = context.get("exception")
        self._fail(Violation("BUG", f"in the simulation: {context.get('message')}: {error!r}{_where(error)}"))

    def on_error(self, what: str, error: BaseException | None) -> None:
        """A node logged an error, or a callback of one failed."""
        if isinstance(error, DiskError):
            return
        self._fail(Violation("BUG", f"{what}: {error!r}{_where(error)}"))

    def _on_death(self, machine: Machine, process: Process, *, power: bool) -> None:
        try:
            self.inspection.replicas.on_death(machine, process, power=power)
        except Violation as violation:
            self._fail(violation)

    def _on_serving(self, machine: Machine) -> None:
        try:
            self.inspection.quorum.check_sound(machine)
        except Violation as violation:
            self._fail(violation)

    def _on_exit(self, machine: Machine, process: Process) -> None:
        """A process that ended by itself is started again, as a supervisor does."""
        if process.failure is not None and not isinstance(process.failure, StartupError | KafkaError | OSError):
            self._fail(Violation("BUG", f"{machine.name} stopped itself: {process.failure!r}{_where(process.failure)}"))
        if machine.id not in self.abandoned and (process.failure is not None or not self.faults.is_due(machine)):
            self.scheduler.world.call_later(1.0, machine.start)


def _names(machines: list[Machine]) -> str:
    return ", ".join(machine.name for machine in machines)


def _where(error: BaseException | None) -> str:
    """The last frame of a traceback: enough to know where to look."""
    traceback = error.__traceback__ if error is not None else None
    if traceback is None:
        return ""
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code
    return f" at {code.co_filename.rpartition('/ottla/')[2]}:{traceback.tb_lineno} in {code.co_name}"


def _plans(options: Options) -> list[MachinePlan]:
    apart = options.separate_controllers
    plans = [
        MachinePlan(node_id=number, controller=not apart, rack=f"r{number % 3}")
        for number in range(1, options.nodes + 1)
    ]
    plans += [MachinePlan(node_id=100 + number, broker=False) for number in range(1, apart + 1)]
    return plans


def run_seed(
    seed: int,
    mode: Mode = Mode.SAFETY,
    *,
    nodes: int | None = None,
    seconds: float = SECONDS,
    with_groups: bool = False,
    with_compaction: bool = False,
    with_fleeting: bool = False,
    with_forgetting: bool = False,
    kinds: tuple[str, ...] | None = None,
) -> Result:
    """`kinds`: these faults only, one a second, whatever the seed says."""
    options = expand(
        seed,
        mode,
        kinds=tuple(KINDS),
        nodes=nodes,
        seconds=seconds,
        with_groups=with_groups,
        with_compaction=with_compaction,
        with_fleeting=with_fleeting,
        with_forgetting=with_forgetting,
    )
    if kinds is not None:
        options = replace(options, fault_kinds=kinds, faults_per_s=1.0)
    return Simulation(options).run()
