"""Everything that can go wrong around a node: one function a kind, and the schedule that strikes with them."""

from __future__ import annotations

from ottla.sim.faults import clocks, crashes, damage, disks, links, operations, topics
from ottla.sim.faults.schedule import Faults, Kind
from ottla.sim.options import COORDINATOR_MOVE, RECORD_DELETION, TOPIC_ANEW

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(name="process crash", section=1, strike=crashes.process_crash),
        Kind(name="power loss", section=2, strike=crashes.power_loss),
        Kind(name="blackout", section=2, strike=crashes.blackout),
        Kind(name="torn write", section=3, strike=crashes.torn_write),
        Kind(name="bit flip", section=4, strike=damage.bit_flip, nodes_min=2),
        Kind(name="truncation at rest", section=4, strike=damage.truncation_at_rest, nodes_min=2),
        Kind(name="metadata damage", section=4, strike=damage.metadata_damage, nodes_min=3),
        Kind(name="disk loss", section=5, strike=disks.disk_loss, nodes_min=2),
        Kind(name="read error", section=6, strike=disks.disk_error("read_errors")),
        Kind(name="write error", section=6, strike=disks.disk_error("write_errors")),
        Kind(name="sync error", section=6, strike=disks.disk_error("sync_errors")),
        Kind(name="disk full", section=6, strike=disks.disk_full),
        Kind(name="directory failure", section=6, strike=disks.directory_failure, nodes_min=2),
        Kind(name="slow sync", section=6, strike=disks.slow_sync),
        Kind(name="isolation", section=7, strike=links.isolate, nodes_min=2),
        Kind(name="one-way partition", section=7, strike=links.one_way, nodes_min=2),
        Kind(name="bridge partition", section=7, strike=links.bridge, nodes_min=3),
        Kind(name="packet loss", section=7, strike=links.stalls),
        Kind(name="connection reset", section=7, strike=links.resets),
        Kind(name="reset after processing", section=7, strike=links.reset_after_processing),
        Kind(name="swizzle", section=8, strike=links.swizzle),
        Kind(name="pause", section=9, strike=crashes.pause),
        Kind(name="silent return", section=9, strike=crashes.silent_return, nodes_min=3),
        Kind(name="clock step", section=10, strike=clocks.clock_step),
        Kind(name="clock drift", section=10, strike=clocks.clock_drift),
        Kind(name="rapid crashes", section=11, strike=crashes.rapid_crashes, nodes_min=2),
        Kind(name="rapid elections", section=11, strike=operations.rapid_elections, nodes_min=2),
        Kind(name="remove and add again", section=12, strike=operations.remove_and_add_again, nodes_min=4),
        Kind(name="reassignment", section=13, strike=operations.reassignment, nodes_min=2),
        Kind(name="preferred election", section=13, strike=operations.election, nodes_min=2),
        Kind(name="min isr change", section=13, strike=operations.min_isr_change, nodes_min=2),
        Kind(name="voter change", section=13, strike=operations.voter_change, nodes_min=2),
        Kind(name="controlled shutdown", section=13, strike=crashes.controlled_shutdown),
        Kind(name=TOPIC_ANEW, section=13, strike=topics.topic_anew),
        Kind(name=RECORD_DELETION, section=13, strike=topics.record_deletion),
        Kind(name=COORDINATOR_MOVE, section=11, strike=operations.coordinator_move, nodes_min=2),
    )
}
"""By name, in the order of the fault model. Clients that misbehave (its section 14) are among the clients always."""

__all__ = ["KINDS", "Faults", "Kind"]
