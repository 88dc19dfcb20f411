"""The consumer protocol inside JoinGroup and SyncGroup: subscriptions and assignments as classic members write them.

Two bytes of version, then the message. A version that is newer than ours is read as our newest, as Kafka does. One with
very many elements is malformed.
"""

from __future__ import annotations

import struct

from ottla.coordinator.consumer.assignors import Assignment
from ottla.coordinator.groups import EMBEDDED_ELEMENTS_MAX
from ottla.errors import Malformed
from ottla.metadata.images import MetadataImage
from ottla.model import Uuid
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

_VERSION = struct.Struct(">h")
_NEWEST = 3


def version_of(data: bytes) -> int:
    if len(data) < 2:
        raise Malformed("a consumer protocol's message has no version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise Malformed(f"a consumer protocol's message has version {version}")
    return min(version, _NEWEST)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    return ConsumerProtocolSubscription.read(data, 2, version_of(data), EMBEDDED_ELEMENTS_MAX)[0]


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    return ConsumerProtocolAssignment.read(data, 2, version_of(data), EMBEDDED_ELEMENTS_MAX)[0]


def write_assignment(assignment: Assignment, image: MetadataImage, version: int) -> bytes:
    """Topics that are no more are left out: this protocol knows them by name."""
    topics = [
        TopicPartition(topic=found.name, partitions=sorted(partitions))
        for topic, partitions in assignment.items()
        if (found := image.topic_by_id(topic)) is not None
    ]
    message = ConsumerProtocolAssignment(assigned_partitions=topics, user_data=None)
    return _VERSION.pack(version) + message.encode(version)


def owned_partitions(subscription: ConsumerProtocolSubscription, image: MetadataImage) -> dict[Uuid, list[int]]:
    return {
        found.topic_id: topic.partitions
        for topic in subscription.owned_partitions
        if (found := image.topic(topic.topic)) is not None
    }
