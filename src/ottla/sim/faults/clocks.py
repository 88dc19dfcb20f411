"""Clocks that are set, and clocks that run fast or slow."""

from __future__ import annotations

from random import Random

from ottla.sim.faults.schedule import Faults


def clock_step(faults: Faults, random: Random) -> bool:
    machine = random.choice(list(faults.cluster.machines.values()))
    step_ms = random.choice((-1, 1)) * random.choice((50, 2_000, 60_000, 3_600_000))
    machine.clock.step(step_ms)
    faults.cluster.trace.note(machine.name, f"wall clock is stepped by {step_ms} ms")
    return True


def clock_drift(faults: Faults, random: Random) -> bool:
    machine = random.choice(list(faults.cluster.machines.values()))
    rate = random.choice((0.8, 0.95, 1.05, 1.25))
    machine.clock.drift(rate)
    faults.cluster.trace.note(machine.name, f"clocks run at {rate}")
    faults.lasting(random.uniform(2.0, 15.0), lambda: machine.clock.drift(1.0))
    return True
