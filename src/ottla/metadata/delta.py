"""The difference between two images, gathered by replaying records.

`replay` is the one place where a record takes effect, for brokers and for the controller alike: what the controller
believed when it generated a record is what every node will hold once the record is committed. `apply` makes the next
image; the delta itself then tells publishers what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.metadata.features import METADATA_VERSION, VersionRange
from ottla.metadata.images import (
    NO_LEADER,
    RESOURCE_TOPIC,
    BrokerRegistration,
    ClusterImage,
    ConfigResource,
    ControllerRegistration,
    Endpoint,
    EntityPart,
    FeaturesImage,
    MetadataImage,
    PartitionImage,
    Provenance,
    QuotaEntity,
    TopicImage,
    TopicsImage,
    collision_key,
)
from ottla.metadata.persistent import PersistentMap
from ottla.metadata.records import MetadataRecord
from ottla.model import Uuid

if TYPE_CHECKING:
    from ottla.wire.messages.access_control_entry_record import AccessControlEntryRecord
    from ottla.wire.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
    from ottla.wire.messages.clear_elr_record import ClearElrRecord
    from ottla.wire.messages.client_quota_record import ClientQuotaRecord
    from ottla.wire.messages.config_record import ConfigRecord
    from ottla.wire.messages.delegation_token_record import DelegationTokenRecord
    from ottla.wire.messages.feature_level_record import FeatureLevelRecord
    from ottla.wire.messages.fence_broker_record import FenceBrokerRecord
    from ottla.wire.messages.partition_change_record import PartitionChangeRecord
    from ottla.wire.messages.partition_record import PartitionRecord
    from ottla.wire.messages.producer_ids_record import ProducerIdsRecord
    from ottla.wire.messages.register_broker_record import RegisterBrokerRecord
    from ottla.wire.messages.register_controller_record import RegisterControllerRecord
    from ottla.wire.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
    from ottla.wire.messages.remove_delegation_token_record import RemoveDelegationTokenRecord
    from ottla.wire.messages.remove_topic_record import RemoveTopicRecord
    from ottla.wire.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
    from ottla.wire.messages.topic_record import TopicRecord
    from ottla.wire.messages.unfence_broker_record import UnfenceBrokerRecord
    from ottla.wire.messages.unregister_broker_record import UnregisterBrokerRecord
    from ottla.wire.messages.user_scram_credential_record import UserScramCredentialRecord

NO_LEADER_CHANGE = -2
NO_RECOVERY_STATE_CHANGE = -1

FENCE = 1
UNFENCE = -1
"""In BrokerRegistrationChangeRecord; zero leaves the state as it is."""

K = TypeVar("K")
R = TypeVar("R", BrokerRegistration, ControllerRegistration)


class TopicDelta:
    """What happened to one topic: `base` is None if it was created in this delta."""

    __slots__ = ("base", "changes", "name", "topic_id")

    def __init__(self, name: str, topic_id: Uuid, base: TopicImage | None) -> None:
        self.name = name
        self.topic_id = topic_id
        self.base = base
        self.changes: dict[int, PartitionImage] = {}

    def partition(self, partition: int) -> PartitionImage | None:
        found = self.changes.get(partition)
        if found is None and self.base is not None:
            found = self.base.partitions.get(partition)
        return found

    def partition_before(self, partition: int) -> PartitionImage | None:
        return None if self.base is None else self.base.partitions.get(partition)

    def apply(self) -> TopicImage:
        if self.base is None:
            return TopicImage(self.name, self.topic_id, PersistentMap(self.changes.items()))
        return self.base._replace(partitions=self.base.partitions.updated(self.changes))


class PartitionChange(NamedTuple):
    topic: str
    topic_id: Uuid
    partition: int
    before: PartitionImage | None
    after: PartitionImage


class LocalChanges(NamedTuple):
    """What one broker has to do about its own replicas, deletions first."""

    deleted: list[tuple[str, Uuid, int]]
    """Replicas that are no longer here: the topic is gone, or the replica was moved away."""

    leaders: list[PartitionChange]
    """Partitions to lead from now on in a new leader epoch, or whose ISR or replicas changed under the leader."""

    followers: list[PartitionChange]


class MetadataDelta:
    __slots__ = (
        "_config_changes",
        "_topic_ids",
        "acls_changed",
        "brokers_changed",
        "client_quotas_changed",
        "controllers_changed",
        "delegation_tokens_changed",
        "features_changed",
        "image",
        "metadata_version_changed",
        "producer_ids_changed",
        "scram_credentials_changed",
        "topics_changed",
        "topics_deleted",
    )

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        """The image that the changes are to."""

        self.topics_changed: dict[Uuid, TopicDelta] = {}
        self.topics_deleted: dict[Uuid, TopicImage] = {}
        self._topic_ids: dict[str, Uuid | None] = {}
        self.brokers_changed: dict[int, BrokerRegistration | None] = {}
        self.controllers_changed: dict[int, ControllerRegistration | None] = {}
        self.metadata_version_changed: int | None = None
        self.features_changed: dict[str, int] = {}
        self._config_changes: dict[ConfigResource, dict[str, str | None] | None] = {}
        self.producer_ids_changed: int | None = None
        self.client_quotas_changed: dict[QuotaEntity, dict[str, float | None]] = {}
        self.acls_changed: dict[Uuid, AccessControlEntryRecord | None] = {}
        self.scram_credentials_changed: dict[tuple[str, int], UserScramCredentialRecord | None] = {}
        self.delegation_tokens_changed: dict[str, DelegationTokenRecord | None] = {}

    @property
    def empty(self) -> bool:
        return not (
            self.topics_changed
            or self.topics_deleted
            or self.brokers_changed
            or self.controllers_changed
            or self.metadata_version_changed is not None
            or self.features_changed
            or self._config_changes
            or self.producer_ids_changed is not None
            or self.client_quotas_changed
            or self.acls_changed
            or self.scram_credentials_changed
            or self.delegation_tokens_changed
        )

    # What publishers ask.

    @property
    def configs_changed(self) -> list[ConfigResource]:
        return list(self._config_changes)

    def partition_changes(self) -> Iterator[PartitionChange]:
        for topic in self.topics_changed.values():
            for partition, after in topic.changes.items():
                before = topic.partition_before(partition)
                yield PartitionChange(topic.name, topic.topic_id, partition, before, after)

    def local_changes(self, broker_id: int) -> LocalChanges:
        deleted: list[tuple[str, Uuid, int]] = []
        leaders: list[PartitionChange] = []
        followers: list[PartitionChange] = []
        for topic in self.topics_deleted.values():
            deleted.extend(
                (topic.name, topic.topic_id, partition)
                for partition, image in topic.partitions.items()
                if broker_id in image.replicas
            )
        for change in self.partition_changes():
            if broker_id not in change.after.replicas:
                if change.before is not None and broker_id in change.before.replicas:
                    deleted.append((change.topic, change.topic_id, change.partition))
            elif change.after.leader == broker_id:
                leaders.append(change)
            else:
                followers.append(change)
        return LocalChanges(deleted, leaders, followers)

    # Replay.

    def replay(self, record: MetadataRecord) -> None:
        _REPLAY[record.message.API_KEY](self, record.message)

    def _topic(self, topic_id: Uuid) -> TopicDelta:
        topic = self.topics_changed.get(topic_id)
        if topic is None:
            base = self.image.topics.by_id.get(topic_id)
            assert base is not None, f"no topic has the id {topic_id.hex()}"
            assert topic_id not in self.topics_deleted, f"topic {base.name} was deleted"
            topic = self.topics_changed[topic_id] = TopicDelta(base.name, topic_id, base)
        return topic

    def _broker(self, broker_id: int, epoch: int) -> BrokerRegistration:
        if broker_id in self.brokers_changed:
            broker = self.brokers_changed[broker_id]
        else:
            broker = self.image.cluster.brokers.get(broker_id)
        assert broker is not None, f"broker {broker_id} is not registered"
        assert broker.epoch == epoch, f"broker {broker_id} has epoch {broker.epoch}, not {epoch}"
        return broker

    def _on_topic(self, record: TopicRecord) -> None:
        base = self.image.topics.by_id.get(record.topic_id)
        self.topics_changed[record.topic_id] = TopicDelta(record.name, record.topic_id, base)
        self._topic_ids[record.name] = record.topic_id

    def _on_partition(self, record: PartitionRecord) -> None:
        self._topic(record.topic_id).changes[record.partition_id] = PartitionImage(
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            directories=tuple(record.directories) or (Uuid(bytes(16)),) * len(record.replicas),
            leader_recovery_state=record.leader_recovery_state,
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            elr=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
        )

    def _on_partition_change(self, record: PartitionChangeRecord) -> None:
        topic = self._topic(record.topic_id)
        partition = topic.partition(record.partition_id)
        assert partition is not None, f"{topic.name} has no partition {record.partition_id}"
        topic.changes[record.partition_id] = merge_partition_change(partition, record)

    def _on_remove_topic(self, record: RemoveTopicRecord) -> None:
        changed = self.topics_changed.pop(record.topic_id, None)
        base = self.image.topics.by_id.get(record.topic_id)
        assert changed is not None or base is not None, f"no topic has the id {record.topic_id.hex()}"
        name = changed.name if changed is not None else base.name if base is not None else ""
        if base is not None:
            self.topics_deleted[record.topic_id] = base
        self._topic_ids[name] = None
        resource = ConfigResource(RESOURCE_TOPIC, name)
        if resource in self._config_changes or resource in self.image.configs:
            self._config_changes[resource] = None

    def _on_clear_elr(self, record: ClearElrRecord) -> None:
        """Of one topic, or of all where none is named."""
        names = [record.topic_name] if record.topic_name else list(self.image.topics.by_name)
        for name in names:
            topic_id = self._topic_ids.get(name)
            base = self.image.topics.by_name.get(name)
            if topic_id is None and (base is None or name in self._topic_ids):
                continue  # Unknown, or deleted in this delta.
            changed = self.topics_changed.get(topic_id) if topic_id is not None else None
            if changed is None and base is not None:
                changed = self.topics_changed.get(base.topic_id) or TopicDelta(name, base.topic_id, base)
            assert changed is not None
            known = set(changed.changes) | set(() if changed.base is None else changed.base.partitions)
            for partition_id in sorted(known):
                partition = changed.partition(partition_id)
                if partition is not None and (partition.elr or partition.last_known_elr):
                    # A change like any other: leaders that do not see it must not have theirs accepted (A13).
                    changed.changes[partition_id] = partition._replace(
                        elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1
                    )
                    self.topics_changed[changed.topic_id] = changed

    def _on_register_broker(self, record: RegisterBrokerRecord) -> None:
        self.brokers_changed[record.broker_id] = BrokerRegistration(
            broker_id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
            features={f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in record.features},
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=tuple(record.log_dirs),
            cordoned_log_dirs=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
            is_migrating_zk_broker=record.is_migrating_zk_broker,
        )

    def _on_unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        self.brokers_changed[record.broker_id] = None

    def _on_fence_broker(self, record: FenceBrokerRecord) -> None:
        self.brokers_changed[record.id] = self._broker(record.id, record.epoch)._replace(fenced=True)

    def _on_unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        self.brokers_changed[record.id] = self._broker(record.id, record.epoch)._replace(fenced=False)

    def _on_broker_registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced:
            broker = broker._replace(fenced=record.fenced == FENCE)
        if record.in_controlled_shutdown:
            broker = broker._replace(in_controlled_shutdown=True)
        if record.log_dirs:
            broker = broker._replace(log_dirs=tuple(record.log_dirs))
        if record.cordoned_log_dirs is not None:
            broker = broker._replace(cordoned_log_dirs=tuple(record.cordoned_log_dirs))
        self.brokers_changed[record.broker_id] = broker

    def _on_register_controller(self, record: RegisterControllerRecord) -> None:
        self.controllers_changed[record.controller_id] = ControllerRegistration(
            controller_id=record.controller_id,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
            features={f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in record.features},
            zk_migration_ready=record.zk_migration_ready,
        )

    def _on_feature_level(self, record: FeatureLevelRecord) -> None:
        if record.name == METADATA_VERSION:
            self.metadata_version_changed = record.feature_level
        else:
            self.features_changed[record.name] = record.feature_level

    def _on_config(self, record: ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        changes = self._config_changes.get(resource)
        if changes is None:
            changes = {}
            if resource in self._config_changes:
                # All that this resource had went with its topic; a topic of the same name begins anew.
                changes = dict.fromkeys(self.image.config(resource))
            self._config_changes[resource] = changes
        changes[record.name] = record.value

    def _on_producer_ids(self, record: ProducerIdsRecord) -> None:
        self.producer_ids_changed = record.next_producer_id

    def _on_client_quota(self, record: ClientQuotaRecord) -> None:
        entity = tuple(
            sorted(EntityPart(p.entity_type, p.entity_name is not None, p.entity_name or "") for p in record.entity)
        )
        value = None if record.remove else record.value
        self.client_quotas_changed.setdefault(entity, {})[record.key] = value

    def _on_acl(self, record: AccessControlEntryRecord) -> None:
        self.acls_changed[record.id] = record

    def _on_remove_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        self.acls_changed[record.id] = None

    def _on_scram(self, record: UserScramCredentialRecord) -> None:
        self.scram_credentials_changed[record.name, record.mechanism] = record

    def _on_remove_scram(self, record: RemoveUserScramCredentialRecord) -> None:
        self.scram_credentials_changed[record.name, record.mechanism] = None

    def _on_delegation_token(self, record: DelegationTokenRecord) -> None:
        self.delegation_tokens_changed[record.token_id] = record

    def _on_remove_delegation_token(self, record: RemoveDelegationTokenRecord) -> None:
        self.delegation_tokens_changed[record.token_id] = None

    def _on_nothing(self, record: object) -> None:
        """No-op records only move the offset; transactions are the affair of `state.py`; ZooKeeper is history."""

    def finish_snapshot(self) -> None:
        """The records replayed were a whole snapshot: what they did not mention is gone."""
        image = self.image
        for topic_id, topic in image.topics.by_id.items():
            if topic_id not in self.topics_changed:
                self.topics_deleted[topic_id] = topic
                self._topic_ids.setdefault(topic.name, None)
        for broker_id in image.cluster.brokers:
            self.brokers_changed.setdefault(broker_id, None)
        for controller_id in image.cluster.controllers:
            self.controllers_changed.setdefault(controller_id, None)
        for name in image.features.levels:
            self.features_changed.setdefault(name, 0)
        for resource, values in image.configs.items():
            changes = self._config_changes.get(resource)
            if changes is None:
                self._config_changes[resource] = None
            else:
                for name in values:
                    changes.setdefault(name, None)
        for entity, quotas in image.client_quotas.items():
            quota_changes = self.client_quotas_changed.setdefault(entity, {})
            for name in quotas:
                quota_changes.setdefault(name, None)
        for acl_id in image.acls:
            self.acls_changed.setdefault(acl_id, None)
        for credential in image.scram_credentials:
            self.scram_credentials_changed.setdefault(credential, None)
        for token in image.delegation_tokens:
            self.delegation_tokens_changed.setdefault(token, None)

    # Apply.

    def apply(self, provenance: Provenance) -> MetadataImage:
        image = self.image
        next_producer_id = self.producer_ids_changed
        return MetadataImage(
            provenance=provenance,
            features=self._apply_features(),
            cluster=self._apply_cluster(),
            topics=self._apply_topics(),
            configs=self._apply_configs(),
            next_producer_id=image.next_producer_id if next_producer_id is None else next_producer_id,
            client_quotas=self._apply_client_quotas(),
            acls=image.acls.updated(self.acls_changed),
            scram_credentials=image.scram_credentials.updated(self.scram_credentials_changed),
            delegation_tokens=image.delegation_tokens.updated(self.delegation_tokens_changed),
        )

    def _apply_features(self) -> FeaturesImage:
        before = self.image.features
        version = self.metadata_version_changed
        if version is None and not self.features_changed:
            return before
        levels = {**before.levels, **self.features_changed}
        return FeaturesImage(
            metadata_version=before.metadata_version if version is None else version,
            levels={name: levels[name] for name in sorted(levels) if levels[name]},
        )

    def _apply_cluster(self) -> ClusterImage:
        before = self.image.cluster
        if not self.brokers_changed and not self.controllers_changed:
            return before
        return ClusterImage(
            brokers=_merged(before.brokers, self.brokers_changed),
            controllers=_merged(before.controllers, self.controllers_changed),
        )

    def _apply_topics(self) -> TopicsImage:
        before = self.image.topics
        if not self.topics_changed and not self.topics_deleted:
            return before
        by_name: dict[str, TopicImage | None] = {}
        by_id: dict[Uuid, TopicImage | None] = {}
        collisions: dict[str, tuple[str, ...] | None] = {}
        count = before.partition_count

        def collide(name: str, present: bool) -> None:
            key = collision_key(name)
            if key is not None:
                names = collisions[key] if key in collisions else before.collisions.get(key)
                others = tuple(other for other in names or () if other != name)
                collisions[key] = ((*others, name) if present else others) or None

        for topic_id, topic in self.topics_deleted.items():
            by_id[topic_id] = None
            by_name[topic.name] = None
            collide(topic.name, present=False)
            count -= len(topic.partitions)
        for topic_id, change in self.topics_changed.items():
            image = change.apply()
            by_id[topic_id] = by_name[image.name] = image
            count += len(image.partitions) - (0 if change.base is None else len(change.base.partitions))
            if change.base is None:
                collide(image.name, present=True)
        return TopicsImage(
            by_name=before.by_name.updated(by_name),
            by_id=before.by_id.updated(by_id),
            collisions=before.collisions.updated(collisions),
            partition_count=count,
        )

    def _apply_configs(self) -> PersistentMap[ConfigResource, dict[str, str]]:
        before = self.image.configs
        result: dict[ConfigResource, dict[str, str] | None] = {}
        for resource, changes in self._config_changes.items():
            result[resource] = None if changes is None else _merged_values(before.get(resource), changes)
        return before.updated(result)

    def _apply_client_quotas(self) -> PersistentMap[QuotaEntity, dict[str, float]]:
        before = self.image.client_quotas
        return before.updated(
            {
                entity: _merged_values(before.get(entity), changes)
                for entity, changes in self.client_quotas_changed.items()
            }
        )


def merge_partition_change(partition: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """A leader that is named, even the same one, begins a new leader epoch; every change a new partition epoch."""
    leader, leader_epoch = partition.leader, partition.leader_epoch
    if record.leader != NO_LEADER_CHANGE:
        leader, leader_epoch = record.leader, leader_epoch + 1
    replicas = partition.replicas if record.replicas is None else tuple(record.replicas)
    if record.directories is not None:
        directories = tuple(record.directories)
    elif record.replicas is None:
        directories = partition.directories
    else:
        known = dict(zip(partition.replicas, partition.directories, strict=True))
        directories = tuple(known.get(replica, Uuid(bytes(16))) for replica in replicas)
    recovery = record.leader_recovery_state
    return PartitionImage(
        replicas=replicas,
        isr=partition.isr if record.isr is None else tuple(record.isr),
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition.partition_epoch + 1,
        directories=directories,
        leader_recovery_state=partition.leader_recovery_state if recovery == NO_RECOVERY_STATE_CHANGE else recovery,
        removing_replicas=_changed(partition.removing_replicas, record.removing_replicas),
        adding_replicas=_changed(partition.adding_replicas, record.adding_replicas),
        elr=_changed(partition.elr, record.eligible_leader_replicas),
        last_known_elr=_changed(partition.last_known_elr, record.last_known_elr),
    )


def _changed(before: tuple[int, ...], after: list[int] | None) -> tuple[int, ...]:
    return before if after is None else tuple(after)


V = TypeVar("V", str, float)


def _merged_values(before: dict[str, V] | None, changes: dict[str, V | None]) -> dict[str, V] | None:
    values = dict(before or {})
    for name, value in changes.items():
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value
    return values or None


def _merged(before: dict[int, R], changes: dict[int, R | None]) -> dict[int, R]:
    merged: dict[int, R | None] = {**before, **changes}
    return {key: value for key in sorted(merged) if (value := merged[key]) is not None}


_REPLAY: dict[int | None, Callable[..., None]] = {
    0: MetadataDelta._on_register_broker,
    1: MetadataDelta._on_unregister_broker,
    2: MetadataDelta._on_topic,
    3: MetadataDelta._on_partition,
    4: MetadataDelta._on_config,
    5: MetadataDelta._on_partition_change,
    7: MetadataDelta._on_fence_broker,
    8: MetadataDelta._on_unfence_broker,
    9: MetadataDelta._on_remove_topic,
    10: MetadataDelta._on_delegation_token,
    11: MetadataDelta._on_scram,
    12: MetadataDelta._on_feature_level,
    14: MetadataDelta._on_client_quota,
    15: MetadataDelta._on_producer_ids,
    17: MetadataDelta._on_broker_registration_change,
    18: MetadataDelta._on_acl,
    19: MetadataDelta._on_remove_acl,
    20: MetadataDelta._on_nothing,
    21: MetadataDelta._on_nothing,
    22: MetadataDelta._on_remove_scram,
    23: MetadataDelta._on_nothing,
    24: MetadataDelta._on_nothing,
    25: MetadataDelta._on_nothing,
    26: MetadataDelta._on_remove_delegation_token,
    27: MetadataDelta._on_register_controller,
    28: MetadataDelta._on_clear_elr,
}

__all__ = [
    "FENCE",
    "NO_LEADER",
    "NO_LEADER_CHANGE",
    "NO_RECOVERY_STATE_CHANGE",
    "UNFENCE",
    "LocalChanges",
    "MetadataDelta",
    "PartitionChange",
    "TopicDelta",
    "merge_partition_change",
]
