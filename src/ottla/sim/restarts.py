"""E18: a restart with no new input changes nothing in the logs of topics. The last thing that some seeds do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.sim.checkers.liveness import unmet
from ottla.sim.checkers.violation import Violation
from ottla.sim.errands import PATIENCE_S, TOPIC

if TYPE_CHECKING:
    from ottla.sim.run import Simulation


def restart_twice(simulation: Simulation) -> None:
    """Stop all nodes, start them, and stop them again: what is on the disks then is what was there before."""
    _stop_all(simulation)
    before = _logs(simulation)
    for machine in simulation.cluster.machines.values():
        machine.start()
    simulation.until(_serve_again(simulation), PATIENCE_S, "the cluster works after a restart of all")
    _stop_all(simulation)
    for path, data in _logs(simulation).items():
        if before.get(path) != data:
            raise Violation("E18", f"{path} is not what it was before a restart")


def _stop_all(simulation: Simulation) -> None:
    simulation.abandoned = dict.fromkeys(simulation.cluster.machines)
    for machine in simulation.cluster.machines.values():
        machine.stop()
    simulation.until(_be_down(simulation), PATIENCE_S, "all nodes stop when they are asked to")


async def _be_down(simulation: Simulation) -> bool:
    while any(machine.process is not None for machine in simulation.cluster.machines.values()):
        await simulation.final.sleep(0.25)
    return True


async def _serve_again(simulation: Simulation) -> bool:
    while unmet(simulation.cluster, list(simulation.cluster.machines.values()), simulation.places):
        await simulation.final.sleep(0.25)
    return True


def _logs(simulation: Simulation) -> dict[str, bytes]:
    """Every topic's segments on every machine."""
    return {
        f"{machine.name}:{path}": bytes(node.content)
        for machine in simulation.cluster.machines.values()
        for path, node in machine.volume.files()
        if path.endswith(".log") and f"/{TOPIC}-" in path and "-delete/" not in path
    }
