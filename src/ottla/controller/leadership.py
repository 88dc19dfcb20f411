"""What becomes of partitions when brokers come and go: leaders elected, ISRs shrunk.

Looks at every partition of the image. Brokers come and go rarely, and an index from brokers to their partitions would
have to be kept right at every change instead.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.controller.config_table import ConfigTable
from ottla.controller.partition_change import Election, change_partition
from ottla.controller.speculation import Speculation
from ottla.metadata.images import (
    LOST_DIRECTORY,
    NO_LEADER,
    PartitionImage,
    TopicImage,
    is_reserved_directory,
)
from ottla.metadata.records import MetadataRecord
from ottla.model import Uuid


class Leadership:
    def __init__(self, state: Speculation, table: ConfigTable) -> None:
        self._state = state
        self._table = table

    def leads_any(self, broker_id: int) -> bool:
        return any(partition.leader == broker_id for _, _, partition in self._partitions())

    def remove_broker(self, broker_id: int) -> list[MetadataRecord]:
        """`broker_id` leads nothing and is in no ISR from now on, save where it is the last."""
        return self._update((entry for entry in self._partitions() if broker_id in entry[2].isr), removed=broker_id)

    def remove_directories(self, broker_id: int, directories: set[Uuid]) -> list[MetadataRecord]:
        """The replicas that `broker_id` had in `directories` are gone with a disk (KIP-858)."""
        return self._update(
            (
                entry
                for entry in self._partitions()
                if broker_id in entry[2].isr and entry[2].directory_of(broker_id) in directories
            ),
            removed=broker_id,
        )

    def add_broker(self, broker_id: int) -> list[MetadataRecord]:
        """`broker_id` may lead again: partitions without a leader may have one now."""
        return self._update((entry for entry in self._partitions() if entry[2].leader == NO_LEADER), added=broker_id)

    def _partitions(self) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        for topic in self._state.image.topics.by_id.values():
            for partition_id, partition in topic.partitions.items():
                yield topic, partition_id, partition

    def _update(
        self,
        entries: Iterator[tuple[TopicImage, int, PartitionImage]],
        *,
        removed: int | None = None,
        added: int | None = None,
    ) -> list[MetadataRecord]:
        image = self._state.image
        brokers = image.cluster.brokers
        records: list[MetadataRecord] = []
        unclean: dict[str, bool] = {}
        for topic, partition_id, partition in entries:

            def may_lead(replica: int, partition: PartitionImage = partition) -> bool:
                broker = brokers.get(replica)
                if broker is None or replica == removed or not (replica == added or broker.active):
                    return False
                directory = partition.directory_of(replica)
                return directory in broker.log_dirs or (
                    is_reserved_directory(directory) and directory != LOST_DIRECTORY
                )

            if topic.name not in unclean:
                unclean[topic.name] = self._table.unclean_leader_election(image, topic.name)
            record = change_partition(
                topic.topic_id,
                partition_id,
                partition,
                isr=tuple(replica for replica in partition.isr if replica != removed),
                may_lead=may_lead,
                election=Election.UNCLEAN if unclean[topic.name] else Election.ONLINE,
                metadata_version=image.features.metadata_version,
            )
            if record is not None:
                records.append(record)
        return records
