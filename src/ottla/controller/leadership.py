"""What becomes of partitions when brokers come and go: leaders elected, ISRs shrunk.

Looks at every partition of the image. Brokers come and go rarely, and an index from brokers to their partitions would
have to be kept right at every change instead. `Rules` of a partition are made here, for whoever else changes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ottla.controller.config_table import ConfigTable
from ottla.controller.partition_change import Election, Rules, Wanted, change_partition
from ottla.controller.speculation import Speculation
from ottla.metadata.images import NO_LEADER, UNASSIGNED_DIRECTORY, PartitionImage, TopicImage
from ottla.metadata.records import MetadataRecord
from ottla.model import Uuid


class Entry(NamedTuple):
    topic: TopicImage
    partition_id: int
    partition: PartitionImage


class TopicRules(NamedTuple):
    min_insync_replicas: int
    unclean: bool
    """Does the topic prefer to lose records rather than to wait (`unclean.leader.election.enable`)?"""


class Leadership:
    def __init__(self, state: Speculation, table: ConfigTable) -> None:
        self._state = state
        self._table = table

    # What the cluster says.

    def topic_rules(self, topic: str) -> TopicRules:
        image = self._state.image
        return TopicRules(
            self._table.min_insync_replicas(image, topic), self._table.unclean_leader_election(image, topic)
        )

    def is_active(self, broker_id: int) -> bool:
        broker = self._state.image.cluster.brokers.get(broker_id)
        return broker is not None and broker.active

    def rules(
        self, partition: PartitionImage, topic: TopicRules, is_active: Callable[[int], bool] | None = None
    ) -> Rules:
        """The rules for `partition`; `is_active` says which brokers may lead where the image does not yet."""
        image = self._state.image
        brokers = image.cluster.brokers
        active = self.is_active if is_active is None else is_active

        def may_lead(replica: int) -> bool:
            broker = brokers.get(replica)
            if broker is None or not active(replica):
                return False
            return replica not in partition.replicas or broker.has_online(partition.directory_of(replica))

        def new_directory(replica: int) -> Uuid:
            broker = brokers.get(replica)
            return UNASSIGNED_DIRECTORY if broker is None else broker.new_directory()

        return Rules(
            may_lead=may_lead,
            is_active=active,
            is_lost=partition.is_lost,
            min_insync_replicas=topic.min_insync_replicas,
            elr=image.features.elr,
            metadata_version=image.features.metadata_version,
            new_directory=new_directory,
        )

    def partitions(self) -> Iterator[Entry]:
        for topic in self._state.image.topics.by_id.values():
            for partition_id, partition in topic.partitions.items():
                yield Entry(topic, partition_id, partition)

    # What happens to brokers.

    def leads_any(self, broker_id: int) -> bool:
        return any(entry.partition.leader == broker_id for entry in self.partitions())

    def broker_fenced(self, broker_id: int) -> list[MetadataRecord]:
        """`broker_id` leads nothing and is in no ISR from now on; without ELR, save where it is the last (A14)."""
        return self.update((e for e in self.partitions() if broker_id in e.partition.isr), removed=broker_id)

    def broker_unregistered(self, broker_id: int) -> list[MetadataRecord]:
        """As fenced, and no candidate either: nobody says what it will have when it comes back."""
        return self.update(self._holding(broker_id), removed=broker_id, unclean_shutdown=broker_id)

    def broker_restarted(self, broker_id: int, *, clean: bool) -> list[MetadataRecord]:
        """Another incarnation of `broker_id` registers.

        KIP-966: if it cannot show that the one before it shut down cleanly, its logs may have lost what only the page
        cache held, so that it is no candidate until it has caught up again (A17). Without ELR Kafka has no such rule.
        """
        if clean or not self._state.image.features.elr:
            return self.broker_fenced(broker_id)
        return self.update(self._holding(broker_id), removed=broker_id, unclean_shutdown=broker_id)

    def broker_unfenced(self, broker_id: int) -> list[MetadataRecord]:
        """`broker_id` may lead again: partitions without a leader may have one now."""
        return self.update((e for e in self.partitions() if e.partition.leader == NO_LEADER), added=broker_id)

    def directories_failed(self, broker_id: int, directories: set[Uuid]) -> list[MetadataRecord]:
        """The replicas that `broker_id` had in `directories` are gone with a disk (KIP-858)."""
        return self.update(
            (
                e
                for e in self.partitions()
                if broker_id in e.partition.isr and e.partition.directory_of(broker_id) in directories
            ),
            removed=broker_id,
        )

    def _holding(self, broker_id: int) -> Iterator[Entry]:
        return (e for e in self.partitions() if broker_id in e.partition.isr or broker_id in e.partition.elr)

    def update(
        self,
        entries: Iterable[Entry],
        *,
        removed: int | None = None,
        added: int | None = None,
        unclean_shutdown: int | None = None,
    ) -> list[MetadataRecord]:
        """Have `removed` leave ISR and leadership, and count `added` as active, which the image does not yet do."""

        def is_active(replica: int) -> bool:
            return replica != removed and (replica == added or self.is_active(replica))

        records: list[MetadataRecord] = []
        known: dict[str, TopicRules] = {}
        for topic, partition_id, partition in entries:
            topic_rules = known.get(topic.name)
            if topic_rules is None:
                topic_rules = known[topic.name] = self.topic_rules(topic.name)
            record = change_partition(
                topic.topic_id,
                partition_id,
                partition,
                self.rules(partition, topic_rules, is_active),
                Wanted(
                    election=Election.UNCLEAN if topic_rules.unclean else Election.ONLINE,
                    isr=tuple(replica for replica in partition.isr if replica != removed),
                    unclean_shutdown=unclean_shutdown,
                ),
            )
            if record is not None:
                records.append(record)
        return records
