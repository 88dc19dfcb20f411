"""Topics and their partitions: created, grown and deleted.

Each topic of a request succeeds or fails by itself; the records of those that succeed are one batch. A topic's records
go TopicRecord, its configs, its partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING

from ottla.controller.config_control import ConfigControl
from ottla.controller.generated import Generated, check_size
from ottla.controller.placement import UsableBroker, check_assignment, place_replicas
from ottla.controller.requester import Requester
from ottla.controller.settings import ControllerSettings
from ottla.controller.speculation import Speculation
from ottla.controller.topic_names import check_collision, check_topic_name
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.ids import random_uuid
from ottla.metadata.images import (
    RESOURCE_TOPIC,
    ConfigResource,
    PartitionImage,
)
from ottla.metadata.records import MetadataRecord
from ottla.metadata.snapshot import partition_record
from ottla.model import METADATA_TOPIC, ZERO_UUID, Uuid

if TYPE_CHECKING:
    from ottla.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
    from ottla.wire.messages.create_partitions_response import CreatePartitionsResponse
    from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
    from ottla.wire.messages.create_topics_response import (
        CreatableTopicConfigs,
        CreatableTopicResult,
        CreateTopicsResponse,
    )
    from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest
    from ottla.wire.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse


Described = dict[tuple[tuple[str, str], ...], "list[CreatableTopicConfigs]"]
"""The configs that new topics of one request have, by those that they set themselves."""


class TopicControl:
    def __init__(
        self, state: Speculation, settings: ControllerSettings, configs: ConfigControl, random: Random
    ) -> None:
        self._state = state
        self._settings = settings
        self._configs = configs
        self._random = random

    # Creation.

    def create_topics(self, request: CreateTopicsRequest, requester: Requester) -> Generated[CreateTopicsResponse]:
        from ottla.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse

        records: list[MetadataRecord] = []
        results: list[CreatableTopicResult] = []
        mentions = Counter(topic.name for topic in request.topics)
        created: dict[str, str] = {}
        described: Described = {}
        answered: set[str] = set()
        for topic in request.topics:
            if topic.name in answered:
                continue
            answered.add(topic.name)
            try:
                if mentions[topic.name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "The request names the topic more than once.")
                made, result = self._create_topic(topic, created, described, requester)
                records += made
                created[topic.name.replace(".", "_")] = topic.name
            except KafkaError as error:
                result = CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            results.append(result)
            check_size(records)
        return Generated([] if request.validate_only else records, CreateTopicsResponse(topics=results))

    def _create_topic(
        self,
        topic: CreatableTopic,
        created: Mapping[str, str],
        described: Described,
        requester: Requester,
    ) -> tuple[list[MetadataRecord], CreatableTopicResult]:
        from ottla.wire.messages.create_topics_response import CreatableTopicResult
        from ottla.wire.messages.topic_record import TopicRecord

        image = self._state.image
        name = topic.name
        if name == METADATA_TOPIC:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{METADATA_TOPIC} is the cluster's own.")
        check_topic_name(name)
        if image.topic(name) is not None:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        check_collision(name, image.topics)
        other = created.get(name.replace(".", "_"))
        if other is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with topic '{other}' of this request."
            )
        resource = ConfigResource(RESOURCE_TOPIC, name)
        overrides: dict[str, str] = {}
        for config in topic.configs:
            if config.value is None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Config {config.name} has no value.")
            overrides[config.name] = config.value
        config_records = self._configs.records_for_new(resource, overrides)
        if topic.assignments:
            partitions = self._assigned_by_hand(topic)
        else:
            partitions = self._placed(topic)
        self._check_room(len(partitions))
        requester.charge(len(partitions))
        topic_id = self._new_topic_id()
        records = [MetadataRecord(TopicRecord(name=name, topic_id=topic_id), 0), *config_records]
        level = image.features.metadata_version
        records += [partition_record(topic_id, index, partition, level) for index, partition in enumerate(partitions)]
        result = CreatableTopicResult(name=name, topic_id=topic_id, error_code=ErrorCode.NONE, error_message=None)
        if requester.may_describe_configs(name):
            result.num_partitions = len(partitions)
            result.replication_factor = len(partitions[0].replicas)
            result.configs = self._described(overrides, described)
        else:
            result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return records, result

    def _check_room(self, additional: int) -> None:
        """Each partition is remembered by every node, so that no client may make any number of them."""
        most = self._settings.partitions_max
        if self._state.image.topics.partition_count + additional > most:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"A cluster may have {most} partitions (ottla.partitions.max): delete topics that nobody needs first.",
            )

    def _described(self, overrides: Mapping[str, str], described: Described) -> list[CreatableTopicConfigs]:
        """The configs of a new topic; those of a request are mostly alike, so that they are worked out once."""
        from ottla.wire.messages.create_topics_response import CreatableTopicConfigs

        key = tuple(overrides.items())
        found = described.get(key)
        if found is None:
            found = described[key] = [
                CreatableTopicConfigs(
                    name=config.name,
                    value=config.value,
                    read_only=config.read_only,
                    config_source=config.source,
                    is_sensitive=config.is_sensitive,
                )
                for config in self._configs.effective_topic_configs(overrides)
            ]
        return found

    def _new_topic_id(self) -> Uuid:
        while (topic_id := random_uuid(self._random)) in self._state.image.topics.by_id:
            pass
        return topic_id

    def _assigned_by_hand(self, topic: CreatableTopic) -> list[PartitionImage]:
        if topic.replication_factor != -1 or topic.num_partitions != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Where the replicas are assigned by hand, replication factor and number of partitions must be -1.",
            )
        assignments: dict[int, list[int]] = {}
        for assignment in topic.assignments:
            if assignment.partition_index in assignments:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Partition {assignment.partition_index} is assigned more than once.",
                )
            assignments[assignment.partition_index] = assignment.broker_ids
        if sorted(assignments) != list(range(len(assignments))):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions must be numbered from 0 without gaps.")
        factor = len(assignments[0])
        return [self._assigned(index, assignments[index], factor) for index in range(len(assignments))]

    def _assigned(self, partition: int, brokers: list[int], replication_factor: int) -> PartitionImage:
        check_assignment(partition, brokers, self._state.image.cluster.brokers, replication_factor)
        partition_image = self._new_partition(tuple(brokers))
        if partition_image is None:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The replicas of partition {partition} are all on brokers that are fenced or shutting down.",
            )
        return partition_image

    def _placed(self, topic: CreatableTopic) -> list[PartitionImage]:
        factor = topic.replication_factor
        if factor < -1 or factor == 0:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR, "The replication factor must be above 0, or -1 for the default."
            )
        count = topic.num_partitions
        if count < -1 or count == 0:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, "The number of partitions must be above 0, or -1 for the default."
            )
        return self._place(
            self._settings.default_partitions if count == -1 else count,
            self._settings.default_replication_factor if factor == -1 else factor,
        )

    def _place(self, count: int, factor: int) -> list[PartitionImage]:
        # Refused before it is built: a count may be as large as an int32.
        check_size_of(count)
        brokers = [
            UsableBroker(broker.broker_id, broker.rack, broker.fenced)
            for broker in self._state.image.cluster.brokers.values()
            if not broker.in_controlled_shutdown and broker.takes_replicas
        ]
        placements = place_replicas(brokers, partitions=count, replication_factor=factor, random=self._random)
        partitions: list[PartitionImage] = []
        for replicas in placements:
            partition = self._new_partition(replicas)
            assert partition is not None, "the placer puts an unfenced broker first"
            partitions.append(partition)
        return partitions

    def _new_partition(self, replicas: tuple[int, ...]) -> PartitionImage | None:
        brokers = self._state.image.cluster.brokers
        isr = tuple(replica for replica in replicas if brokers[replica].active)
        if not isr:
            return None
        return PartitionImage(
            replicas=replicas,
            isr=isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=tuple(brokers[replica].new_directory() for replica in replicas),
        )

    # Growth.

    def create_partitions(
        self, request: CreatePartitionsRequest, requester: Requester
    ) -> Generated[CreatePartitionsResponse]:
        from ottla.wire.messages.create_partitions_response import (
            CreatePartitionsResponse,
            CreatePartitionsTopicResult,
        )

        records: list[MetadataRecord] = []
        results: list[CreatePartitionsTopicResult] = []
        mentions = Counter(topic.name for topic in request.topics)
        answered: set[str] = set()
        for topic in request.topics:
            if topic.name in answered:
                continue
            answered.add(topic.name)
            code, message = ErrorCode.NONE, None
            try:
                if mentions[topic.name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "The request names the topic more than once.")
                records += self._create_partitions(topic, requester)
            except KafkaError as error:
                code, message = error.code, error.message
            results.append(CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message))
            check_size(records)
        return Generated([] if request.validate_only else records, CreatePartitionsResponse(results=results))

    def _create_partitions(self, request: CreatePartitionsTopic, requester: Requester) -> list[MetadataRecord]:
        image = self._state.image
        topic = image.topic(request.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{request.name}' does not exist.")
        existing = len(topic.partitions)
        additional = request.count - existing
        if additional == 0:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {existing} partition(s).")
        if additional < 0:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic '{request.name}' has {existing} partition(s), and partitions cannot be removed.",
            )
        factor = len(topic.partitions[0].replicas)
        if request.assignments is None:
            partitions = self._place(additional, factor)
        elif len(request.assignments) != additional:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{additional} partition(s) are to be added, but {len(request.assignments)} are assigned.",
            )
        else:
            partitions = [
                self._assigned(existing + index, assignment.broker_ids, factor)
                for index, assignment in enumerate(request.assignments)
            ]
        self._check_room(additional)
        requester.charge(additional)
        level = image.features.metadata_version
        return [
            partition_record(topic.topic_id, existing + index, partition, level)
            for index, partition in enumerate(partitions)
        ]

    # Deletion.

    def delete_topics(self, request: DeleteTopicsRequest, requester: Requester) -> Generated[DeleteTopicsResponse]:
        from ottla.wire.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
        from ottla.wire.messages.remove_topic_record import RemoveTopicRecord

        wanted: list[tuple[str | None, Uuid]] = [(name, ZERO_UUID) for name in request.topic_names]
        wanted += [(topic.name, topic.topic_id) for topic in request.topics]
        records: list[MetadataRecord] = []
        results: list[DeletableTopicResult] = []
        resolved = [self._find(name, topic_id) for name, topic_id in wanted]
        mentions = Counter(found for found in resolved if not isinstance(found, KafkaError))
        answered: set[tuple[str | None, Uuid]] = set()
        for (name, topic_id), found in zip(wanted, resolved, strict=True):
            if (name, topic_id) in answered:
                continue
            answered.add((name, topic_id))
            result = DeletableTopicResult(name=name, topic_id=topic_id)
            try:
                if not self._settings.delete_topic_enable:
                    raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false.")
                if isinstance(found, KafkaError):
                    raise found
                if mentions[found] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "The request names the topic more than once.")
                deleted = self._state.image.topic_by_id(found[1])
                assert deleted is not None
                requester.charge(len(deleted.partitions))
                result.name, result.topic_id = found
                records.append(MetadataRecord(RemoveTopicRecord(topic_id=result.topic_id), 0))
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
            results.append(result)
        check_size(records)
        return Generated(records, DeleteTopicsResponse(responses=results))

    def _find(self, name: str | None, topic_id: Uuid) -> tuple[str, Uuid] | KafkaError:
        if name is not None and topic_id != ZERO_UUID:
            return KafkaError(ErrorCode.INVALID_REQUEST, "A topic is named by its name or by its id, not by both.")
        if name is not None:
            topic = self._state.image.topic(name)
            if topic is None:
                return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
        elif topic_id == ZERO_UUID:
            return KafkaError(ErrorCode.INVALID_REQUEST, "A topic is named by its name or by its id.")
        else:
            topic = self._state.image.topic_by_id(topic_id)
            if topic is None:
                return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "No topic has that id.")
        return topic.name, topic.topic_id


def check_size_of(partitions: int) -> None:
    from ottla.controller.generated import RECORDS_PER_REQUEST_MAX

    if partitions > RECORDS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{partitions} partitions cannot be made at once; at most {RECORDS_PER_REQUEST_MAX} can.",
        )
