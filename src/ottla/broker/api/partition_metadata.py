"""What clients are told of a partition: who leads it as they can reach him, and which replicas are out of reach."""

from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.metadata.images import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerRegistration,
    MetadataImage,
    PartitionImage,
)

NOBODY = -1


def reachable_leader(image: MetadataImage, partition: PartitionImage, listener: str) -> tuple[int, ErrorCode]:
    """The leader by the listener that the client came by, or why there is none."""
    broker = image.broker(partition.leader)
    if broker is None or broker.fenced:
        return NOBODY, ErrorCode.LEADER_NOT_AVAILABLE
    if broker.endpoint(listener) is None:
        return NOBODY, ErrorCode.LISTENER_NOT_FOUND
    return partition.leader, ErrorCode.NONE


def reachable(image: MetadataImage, replicas: tuple[int, ...], listener: str) -> list[int]:
    return [
        replica
        for replica in replicas
        if (broker := image.broker(replica)) is not None and not broker.fenced and broker.endpoint(listener) is not None
    ]


def offline_replicas(image: MetadataImage, partition: PartitionImage, listener: str) -> list[int]:
    """Replicas on brokers that are down or cannot be reached by `listener`, and those whose directory failed."""
    return [
        replica
        for replica in partition.replicas
        if (broker := image.broker(replica)) is None
        or broker.fenced
        or broker.endpoint(listener) is None
        or not _in_online_directory(partition, broker)
    ]


def _in_online_directory(partition: PartitionImage, broker: BrokerRegistration) -> bool:
    if not partition.directories:
        return True
    directory = partition.directory_of(broker.broker_id)
    if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
        return True
    # A broker of before KIP-858 has not said which directories it has.
    return directory != LOST_DIRECTORY and (not broker.log_dirs or directory in broker.log_dirs)
