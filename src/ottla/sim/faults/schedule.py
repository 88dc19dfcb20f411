"""Everything that can go wrong around a node, each with a seeded schedule.

A fault begins, lasts and ends; `Faults` keeps the undoing of what lasts. Rules bound the damage so that what is
promised can be demanded (`may_lose_data`, `may_crash`). Faults that lose or spoil data (power, disks) strike a node
only while every other replica of what it holds is in sync and has all of it, unless every acknowledged record is
synced. And a node that went down is started again after a while.
"""

from __future__ import annotations

from asyncio import Lock
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from ottla.sim import view
from ottla.sim.cluster import Machine

if TYPE_CHECKING:
    from ottla.sim.run import Simulation


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of fault."""

    name: str
    section: int
    """Of the fault model."""
    strike: Callable[[Faults, Random], bool | None]
    """Do it; false if it could not be done just now, none if it is to come: then it is counted when it has."""
    nodes_min: int = 1


class Faults:
    def __init__(self, simulation: Simulation, kinds: list[Kind], random: Random) -> None:
        self.simulation = simulation
        self.cluster = simulation.cluster
        self.fabric = simulation.cluster.fabric
        self.scheduler = simulation.scheduler
        self._random = random
        self.kinds = kinds
        self.counts: dict[str, int] = {}
        self.stopped = False
        self._undo: dict[int, Callable[[], None]] = {}
        self._numbers = 0
        self._due: dict[int, int] = {}
        self.spoiled: dict[int, float] = {}
        """Nodes that lost data, or may until then, and have not been seen in sync since."""
        self._doomed: dict[int, float] = {}
        """Nodes whose disks fail until then, and that are killed by then."""
        self.tampered: dict[int, None] = {}
        """Nodes with damage on their disks that nobody has repaired yet."""
        self.configuring = Lock()
        """Held by whoever changes a config."""
        self.min_isr_lowered = False
        """Is `min.insync.replicas` lower than usual, or may it become so by a request that is still on its way?"""
        self.leaving_in_silence = False
        """Is a node on its way out, and back behind its leader's back?"""
        self.operator_busy = False
        """Is somebody changing the quorum or moving replicas? One such thing at a time."""

    # The schedule.

    def start(self) -> None:
        self._next()

    def _next(self) -> None:
        wait = self._random.expovariate(self.simulation.options.faults_per_s)
        self.scheduler.world.call_later(wait, self._tick)

    def _tick(self) -> None:
        if not self.stopped:
            self._next()
            self.strike()

    @property
    def struck(self) -> int:
        return sum(self.counts.values())

    def strike(self) -> None:
        """With something that can be done just now, if it is found soon."""
        usable = [kind for kind in self.kinds if kind.nodes_min <= len(self.cluster.machines)]
        if not usable:
            return
        for _ in range(4):
            kind = self._random.choice(usable)
            done = kind.strike(self, self._random)
            if done:
                self.count(kind.name)
            if done is not False:
                return

    def count(self, name: str) -> None:
        """A fault of this kind has happened."""
        self.counts[name] = self.counts.get(name, 0) + 1

    def stop(self) -> None:
        """No more of it, and undo all that still lasts."""
        self.stopped = True
        for number in sorted(self._undo):
            self._undo.pop(number)()

    def lasting(self, seconds: float, undo: Callable[[], None]) -> None:
        """Call `undo` after so long, or when all is healed."""
        self._numbers += 1
        number = self._numbers
        self._undo[number] = undo

        def end() -> None:
            found = self._undo.pop(number, None)
            if found is not None:
                found()

        self.scheduler.world.call_later(seconds, end)

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        self.simulation.spawn(work)

    # Whom to strike.

    def any_up(self, random: Random) -> Machine | None:
        up = [machine for machine in self.cluster.machines.values() if machine.process is not None]
        return random.choice(up) if up else None

    def any_running(self, random: Random) -> Machine | None:
        """Leaders and the active controller are struck more often than others."""
        up = [machine for machine in self.cluster.machines.values() if machine.serving and not machine.paused]
        if not up:
            return None
        if random.random() < 0.5:
            important = [machine for machine in up if view.is_active_controller(machine) or view.leads_any(machine)]
            if important:
                return random.choice(important)
        return random.choice(up)

    def spoil(self, machine: Machine, *, even_synced: bool = False, lasting_s: float = 0.0) -> None:
        """This node loses what it has not synced, or more than that, now or within `lasting_s`."""
        if even_synced or not self.simulation.options.flush_each:
            self.spoiled[machine.id] = self.scheduler.now + lasting_s
        self._doomed[machine.id] = self.scheduler.now + lasting_s

    def may_lose_data(self, machine: Machine, *, even_synced: bool = False) -> bool:
        """Would everything that was promised survive if this node lost what it has not synced, or more than that?"""
        if not self.may_crash(machine):
            return False
        if self.simulation.options.flush_each and not even_synced:
            return True
        newest = self.simulation.inspection.metadata.newest
        if newest is None or self.min_isr_lowered or self._is_any_doomed(machine):
            return False
        return view.others_have_everything(self.cluster, machine, newest, self.tampered)

    def may_lower_min_isr(self) -> bool:
        """Has everybody what it had? Of two that lower it, neither knows when the other is done."""
        self._forget_recovered()
        return not self.spoiled and not self.min_isr_lowered

    def may_crash(self, machine: Machine) -> bool:
        """Would everything that was promised survive if this node came back without a clean shutdown?

        Nobody can tell a node that was killed from one that lost power. So as long as another that did lose data has
        not caught up, a second one must not seem to have (KIP-966 promises no more).
        """
        self._forget_recovered()
        return not any(other != machine.id for other in self.spoiled)

    def _is_any_doomed(self, machine: Machine) -> bool:
        """Will another than `machine` be killed, though nobody else must be once this one has lost something?"""
        now = self.scheduler.now
        return any(now <= until for other, until in self._doomed.items() if other != machine.id)

    def _forget_recovered(self) -> None:
        for other in list(self.spoiled):
            if self.scheduler.now > self.spoiled[other] and view.is_in_sync(self.cluster, self.cluster.machines[other]):
                del self.spoiled[other]

    def keep_down(self, machine: Machine) -> Callable[[], None]:
        """No supervisor starts it when it stops; whoever called does, by what is returned."""
        self._due[machine.id] = self._due.get(machine.id, 0) + 1
        waiting = [machine]

        def start() -> None:
            if waiting:
                waiting.clear()
                self._due[machine.id] -= 1
                machine.start()

        return start

    def restart_later(self, machine: Machine, seconds: float) -> None:
        self.lasting(seconds, self.keep_down(machine))

    def is_due(self, machine: Machine) -> bool:
        """Will it be started anyway?"""
        return self._due.get(machine.id, 0) > 0


def downtime(random: Random) -> float:
    return random.choice((random.uniform(0.05, 1.0), random.uniform(1.0, 4.0), random.uniform(4.0, 12.0)))
