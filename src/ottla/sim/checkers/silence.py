"""C15: a broker that does not lead a coordinator's partition any more says nothing in its name.

That an append which was begun before is not acknowledged shows in what clients were told (C9).
"""

from __future__ import annotations

from ottla.sim import view
from ottla.sim.checkers.violation import Violation
from ottla.sim.cluster import Machine


def check_silence(machine: Machine) -> None:
    for served in view.served_shards(machine):
        partition = served.partition
        leader = partition.leader
        if leader is None or leader.leader_epoch != served.leader_epoch:
            raise Violation(
                "C15",
                f"{machine.name} coordinates {partition.topic_partition} as leader of epoch {served.leader_epoch}, and "
                f"{'does not lead it' if leader is None else f'leads it in {leader.leader_epoch}'}",
            )
