"""The server-side assignors of KIP-848: who of a group shall have which partitions.

Pure functions from a `GroupSpec` to a target for each member. `uniform` keeps the load even and moves as little as it
can; `range` gives each member the same span of every topic, and does not look at what it had. Their results are those
of Apache Kafka's, partition by partition. Racks play no part, as in Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.coordinator.consumer.assignors.evenly import assign_evenly
from ottla.coordinator.consumer.assignors.mixed import assign_mixed
from ottla.coordinator.consumer.assignors.ranges import assign_ranges
from ottla.coordinator.consumer.assignors.spec import Assignment, GroupSpec, MemberSpec

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "GroupSpec", "MemberSpec"]

Assignor = Callable[[GroupSpec], dict[str, Assignment]]
"""A member that is missing from the result gets nothing."""


def _assign_uniformly(spec: GroupSpec) -> dict[str, Assignment]:
    return assign_evenly(spec) if spec.homogeneous else assign_mixed(spec)


ASSIGNORS: dict[str, Assignor] = {"uniform": _assign_uniformly, "range": assign_ranges}
