"""C8, of groups: what a coordinator knows is what a replay of its log gives, so that it might move after any step.

Offsets that are in force, and those that open transactions have staged, are held against the checker's own account of
the committed records; groups of either protocol against a replay by the coordinator's code into a shard of its own.
"""

from __future__ import annotations

from ottla.coordinator.classic.group import ClassicGroup, GroupState
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.offsets.codec import decode_value
from ottla.coordinator.offsets.table import OffsetTable, value_of
from ottla.model import GROUP_TOPIC, TopicPartition
from ottla.sim import view
from ottla.sim.checkers.group_shadow import GroupShadow, InForce, Place
from ottla.sim.checkers.violation import Violation
from ottla.sim.cluster import Machine
from ottla.wire.messages.group_metadata_value import GroupMetadataValue


def check_served(machine: Machine, partition: int, shadow: GroupShadow) -> None:
    """If the machine serves the partition, and knows all of it to be committed that is."""
    hosted = view.hosted(machine, TopicPartition(GROUP_TOPIC, partition))
    shard = view.group_shard(machine, partition)
    if shard is None or hosted is None or hosted.leader is None or hosted.log.high_watermark != shadow.end:
        return
    check_shard(machine.name, shard, shadow)


def check_shard(who: str, shard: GroupShard, shadow: GroupShadow) -> None:
    """The committed part of what the shard knows."""
    state = shard.offsets.state
    _check_table(who, state.table, shadow.offsets, "")
    staged = dict(state._staged.committed_items())
    for producer_id in {**staged, **shadow.staged}:
        table, expected = staged.get(producer_id), shadow.staged.get(producer_id, {})
        if table is None:
            raise Violation("C8", f"{who} has nothing of producer {producer_id}, whose log has staged {expected}")
        _check_table(who, table, expected, f", staged by producer {producer_id}")
    _check_classic(who, shard, shadow)
    _check_consumer(who, shard, shadow)


def _check_table(who: str, table: OffsetTable, expected: dict[Place, InForce], what: str) -> None:
    for place, entry in expected.items():
        kept = table.committed(*place)
        served = None if kept is None else decode_value(value_of(kept))
        if served is None or (served.offset, served.metadata) != (entry.offset, entry.name):
            raise Violation("C8", f"{who} has {place} as {served}{what}, and its log as {entry}")
    groups = {place[0] for place in expected} | set(table.group_ids())
    for group_id in groups:
        for topic, partitions in table.committed_topics(group_id).items():
            for index in partitions:
                if (group_id, topic, index) not in expected:
                    raise Violation("C8", f"{who} has an offset for {(group_id, topic, index)}{what}")


def _check_classic(who: str, shard: GroupShard, shadow: GroupShadow) -> None:
    served = dict(shard.classic._stored.committed_items())
    expected = dict(shadow.shard.classic._stored.items())
    if served != expected:
        raise Violation("C8", f"{who} has the classic groups {served}, and its log {expected}")
    for group_id, live in shard.classic._live.items():
        stored = expected.get(group_id)
        is_newest = shard.classic._stored.get(group_id) is shard.classic._stored.committed(group_id)
        if stored is not None and is_newest and live.state is GroupState.STABLE and _of(live) != _stored(stored):
            raise Violation("C8", f"{who} has {group_id} as {_of(live)}, and its log as {_stored(stored)}")


def _of(group: ClassicGroup) -> tuple[object, ...]:
    members = {
        member.member_id: (member.group_instance_id, member.assignment, member.session_timeout_ms)
        for member in group.members.values()
    }
    return group.generation, group.leader_id, group.protocol_type, group.protocol_name, members


def _stored(value: GroupMetadataValue) -> tuple[object, ...]:
    members = {
        member.member_id: (member.group_instance_id, member.assignment, member.session_timeout)
        for member in value.members
    }
    return value.generation, value.leader, value.protocol_type, value.protocol, members


def _check_consumer(who: str, shard: GroupShard, shadow: GroupShadow) -> None:
    served = dict(shard.consumer._groups.committed_items())
    for group in shadow.shard.consumer.groups():
        known = served.pop(group.group_id, None)
        if known is None:
            raise Violation("C8", f"{who} does not know {group.group_id}")
        for what, told, written in (
            ("epochs", known.committed_epochs[:3], group.epochs[:3]),
            ("members", dict(known.members.committed_items()), dict(group.members.items())),
            ("targets", dict(known.targets.committed_items()), dict(group.targets.items())),
        ):
            if told != written:
                raise Violation("C8", f"{who} has {group.group_id} with the {what} {told}, and its log with {written}")
    if served:
        raise Violation("C8", f"{who} knows {list(served)}, of which there is nothing in its log")
