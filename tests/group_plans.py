"""What classic members are assigned, as the leader of their group writes it and SyncGroup tells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition


def plan_bytes(plan: Mapping[str, Sequence[int]], version: int = 3) -> bytes:
    topics = [TopicPartition(topic=name, partitions=list(partitions)) for name, partitions in plan.items()]
    message = ConsumerProtocolAssignment(assigned_partitions=topics, user_data=None)
    return version.to_bytes(2, "big") + message.encode(version)


def planned(assignment: bytes) -> dict[str, list[int]]:
    """What SyncGroup told a classic member."""
    if not assignment:
        return {}
    message, _ = ConsumerProtocolAssignment.read(assignment, 2, int.from_bytes(assignment[:2], "big"))
    return {topic.topic: sorted(topic.partitions) for topic in message.assigned_partitions}
