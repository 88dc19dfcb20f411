"""Short ways to make records and images."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.metadata.images import EMPTY_IMAGE, MetadataImage
from ottla.metadata.records import MetadataRecord
from ottla.metadata.state import MetadataBatch, MetadataState, Publication
from ottla.model import Uuid
from ottla.wire.message import Message
from ottla.wire.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from ottla.wire.messages.config_record import ConfigRecord
from ottla.wire.messages.feature_level_record import FeatureLevelRecord
from ottla.wire.messages.partition_change_record import PartitionChangeRecord
from ottla.wire.messages.partition_record import PartitionRecord
from ottla.wire.messages.register_broker_record import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord
from ottla.wire.messages.remove_topic_record import RemoveTopicRecord
from ottla.wire.messages.topic_record import TopicRecord


def uid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def latest(message: Message) -> MetadataRecord:
    """`message` in the newest of its versions."""
    return MetadataRecord(message, message.VERSIONS[-1])


def level(number: int = 30) -> MetadataRecord:
    return latest(FeatureLevelRecord(name="metadata.version", feature_level=number))


def topic(name: str, number: int) -> MetadataRecord:
    return latest(TopicRecord(name=name, topic_id=uid(number)))


def partition(number: int, index: int, replicas: Sequence[int] = (1,), leader: int | None = None) -> MetadataRecord:
    return latest(
        PartitionRecord(
            topic_id=uid(number),
            partition_id=index,
            replicas=list(replicas),
            isr=list(replicas),
            leader=replicas[0] if leader is None else leader,
            leader_epoch=0,
            partition_epoch=0,
            directories=[uid(1000 + replica) for replica in replicas],
        )
    )


def change(number: int, index: int, *, leader: int = -2, isr: list[int] | None = None) -> MetadataRecord:
    return latest(PartitionChangeRecord(topic_id=uid(number), partition_id=index, leader=leader, isr=isr))


def removed(number: int) -> MetadataRecord:
    return latest(RemoveTopicRecord(topic_id=uid(number)))


def config(kind: int, name: str, key: str, value: str | None) -> MetadataRecord:
    return latest(ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value))


def broker(broker_id: int, epoch: int, *, fenced: bool = True, rack: str | None = None) -> MetadataRecord:
    return latest(
        RegisterBrokerRecord(
            broker_id=broker_id,
            broker_epoch=epoch,
            incarnation_id=uid(broker_id * 7919 + epoch),
            end_points=[BrokerEndpoint(name="PLAINTEXT", host=f"host{broker_id}", port=9092, security_protocol=0)],
            features=[BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
            rack=rack,
            fenced=fenced,
            log_dirs=[uid(1000 + broker_id)],
        )
    )


def broker_change(broker_id: int, epoch: int, *, fenced: int = 0, shutting_down: int = 0) -> MetadataRecord:
    return latest(
        BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=epoch, fenced=fenced, in_controlled_shutdown=shutting_down
        )
    )


def batch(base: int, *records: MetadataRecord, epoch: int = 1) -> MetadataBatch:
    return MetadataBatch(base, base + max(len(records), 1) - 1, epoch, base * 100, records)


def replayed(*records: MetadataRecord, onto: MetadataImage = EMPTY_IMAGE) -> Publication:
    """What publishing `records` in one batch gives."""
    state = MetadataState(image=onto, newest=onto)
    return state.replay(batch(onto.last_offset + 1, *records))[1]
