"""An image written out as the records that make it, in the order in which Kafka writes them.

Replaying the records of an image onto the empty image gives the image back; that is a test.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.metadata.features import (
    METADATA_VERSION,
    has_controller_registration,
    has_directory_assignment,
    has_scram,
    partition_record_version,
    register_broker_record_version,
)
from ottla.metadata.images import BrokerRegistration, ControllerRegistration, MetadataImage, PartitionImage, TopicImage
from ottla.metadata.records import MetadataRecord
from ottla.model import Uuid


def image_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """The records of `image`, in the forms that its metadata.version asks for."""
    yield from _features(image)
    level = image.features.metadata_version
    for broker in image.cluster.brokers.values():
        yield register_broker_record(broker, level)
    if has_controller_registration(level):
        for controller in image.cluster.controllers.values():
            yield register_controller_record(controller)
    for topic in image.topics.by_name.values():
        yield from _topic(topic, level)
    yield from _configs(image)
    yield from _client_quotas(image)
    if image.next_producer_id >= 0:
        from ottla.wire.messages.producer_ids_record import ProducerIdsRecord

        yield MetadataRecord(
            ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id), 0
        )
    for acl in image.acls.values():
        yield MetadataRecord(acl, 0)
    if has_scram(level):
        for credential in image.scram_credentials.values():
            yield MetadataRecord(credential, 0)
    for token in image.delegation_tokens.values():
        yield MetadataRecord(token, 0)


def _features(image: MetadataImage) -> Iterator[MetadataRecord]:
    from ottla.wire.messages.feature_level_record import FeatureLevelRecord

    # First, for it says how to read what follows.
    level = image.features.metadata_version
    yield MetadataRecord(FeatureLevelRecord(name=METADATA_VERSION, feature_level=level), 0)
    for name, feature_level in image.features.levels.items():
        yield MetadataRecord(FeatureLevelRecord(name=name, feature_level=feature_level), 0)


def register_broker_record(broker: BrokerRegistration, metadata_version: int) -> MetadataRecord:
    from ottla.wire.messages.register_broker_record import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord

    version = register_broker_record_version(metadata_version)
    return MetadataRecord(
        RegisterBrokerRecord(
            broker_id=broker.broker_id,
            is_migrating_zk_broker=broker.is_migrating_zk_broker,
            incarnation_id=broker.incarnation_id,
            broker_epoch=broker.epoch,
            end_points=[
                BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in broker.endpoints
            ],
            features=[
                BrokerFeature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
                for name, levels in sorted(broker.features.items())
            ],
            rack=broker.rack,
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            log_dirs=list(broker.log_dirs) if has_directory_assignment(metadata_version) else [],
            cordoned_log_dirs=None
            if broker.cordoned_log_dirs is None or version < 4
            else list(broker.cordoned_log_dirs),
        ),
        version,
    )


def register_controller_record(controller: ControllerRegistration) -> MetadataRecord:
    from ottla.wire.messages.register_controller_record import (
        ControllerEndpoint,
        ControllerFeature,
        RegisterControllerRecord,
    )

    return MetadataRecord(
        RegisterControllerRecord(
            controller_id=controller.controller_id,
            incarnation_id=controller.incarnation_id,
            zk_migration_ready=controller.zk_migration_ready,
            end_points=[
                ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in controller.endpoints
            ],
            features=[
                ControllerFeature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
                for name, levels in sorted(controller.features.items())
            ],
        ),
        0,
    )


def partition_record(topic_id: Uuid, partition_id: int, partition: PartitionImage, level: int) -> MetadataRecord:
    from ottla.wire.messages.partition_record import PartitionRecord

    version = partition_record_version(level)
    return MetadataRecord(
        PartitionRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            replicas=list(partition.replicas),
            isr=list(partition.isr),
            removing_replicas=list(partition.removing_replicas),
            adding_replicas=list(partition.adding_replicas),
            leader=partition.leader,
            leader_recovery_state=partition.leader_recovery_state,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            directories=list(partition.directories) if version >= 1 else [],
            eligible_leader_replicas=list(partition.elr) if partition.elr else None,
            last_known_elr=list(partition.last_known_elr) if partition.last_known_elr else None,
        ),
        version,
    )


def _topic(topic: TopicImage, level: int) -> Iterator[MetadataRecord]:
    from ottla.wire.messages.topic_record import TopicRecord

    yield MetadataRecord(TopicRecord(name=topic.name, topic_id=topic.topic_id), 0)
    for partition_id, partition in topic.partitions.items():
        yield partition_record(topic.topic_id, partition_id, partition, level)


def _configs(image: MetadataImage) -> Iterator[MetadataRecord]:
    from ottla.wire.messages.config_record import ConfigRecord

    for resource, values in image.configs.items():
        for name, value in values.items():
            yield MetadataRecord(
                ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value), 0
            )


def _client_quotas(image: MetadataImage) -> Iterator[MetadataRecord]:
    if not image.client_quotas:
        return
    from ottla.wire.messages.client_quota_record import ClientQuotaRecord, EntityData

    for entity, quotas in image.client_quotas.items():
        for name, value in quotas.items():
            parts = [EntityData(entity_type=p.type, entity_name=p.name if p.named else None) for p in entity]
            yield MetadataRecord(ClientQuotaRecord(entity=parts, key=name, value=value, remove=False), 0)
