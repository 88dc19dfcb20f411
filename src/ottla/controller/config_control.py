"""Configs that live in the metadata: of topics, brokers, the default of all brokers, client metrics and groups.

A resource's configs are checked as they would be after the change, all together. What the keys are is the affair of the
table behind `ConfigTable`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypedDict, TypeVar

from ottla.config.alter import AlterOp, Change
from ottla.config.describe import ConfigEntry
from ottla.controller.config_table import MIN_INSYNC_REPLICAS, ConfigTable, scope_of
from ottla.controller.generated import Generated, check_size
from ottla.controller.speculation import Speculation
from ottla.controller.topic_names import check_topic_name
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import has_cordoned_directories, partition_record_version
from ottla.metadata.images import (
    DEFAULT_BROKER,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    ConfigResource,
)
from ottla.metadata.records import MetadataRecord

if TYPE_CHECKING:
    from ottla.wire.messages.alter_configs_request import AlterConfigsRequest
    from ottla.wire.messages.alter_configs_request import AlterConfigsResource as OlderAlterConfigsResource
    from ottla.wire.messages.alter_configs_response import AlterConfigsResponse
    from ottla.wire.messages.incremental_alter_configs_request import (
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )
    from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse


class AskedResource(Protocol):
    """What a request says of one resource, in either API."""

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...


R = TypeVar("R", bound=AskedResource)


class Answer(TypedDict):
    """The fields of what either API answers of one resource."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


VALUE_CHARS_MAX = 32_767
"""A record of the metadata log holds no longer text, as in Kafka."""


class ConfigControl:
    def __init__(self, state: Speculation, table: ConfigTable) -> None:
        self._state = state
        self._table = table

    def records_for_new(self, resource: ConfigResource, values: Mapping[str, str]) -> list[MetadataRecord]:
        """The configs of a resource that the same batch creates."""
        if not values:
            return []
        self._table.validate(self._state.image, resource, values, {})
        return [config_record(resource, name, value) for name, value in values.items()]

    @property
    def static_min_insync_replicas(self) -> int:
        return self._table.static_min_insync_replicas

    def effective_topic_configs(self, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        return self._table.effective_topic_configs(self._state.image, overrides)

    def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest
    ) -> Generated[IncrementalAlterConfigsResponse]:
        from ottla.wire.messages.incremental_alter_configs_response import (
            AlterConfigsResourceResponse,
            IncrementalAlterConfigsResponse,
        )

        def changes_of(resource: ConfigResource, asked: AlterConfigsResource) -> list[Change]:
            return [Change(config.name, config.config_operation, config.value) for config in asked.configs]

        records, answers = self._alter_each(request.resources, changes_of)
        responses = [AlterConfigsResourceResponse(**answer) for answer in answers]
        return Generated([] if request.validate_only else records, IncrementalAlterConfigsResponse(responses=responses))

    def alter_configs(self, request: AlterConfigsRequest) -> Generated[AlterConfigsResponse]:
        """The older API: what the request does not name goes back to its default."""
        from ottla.wire.messages.alter_configs_response import AlterConfigsResourceResponse, AlterConfigsResponse

        def changes_of(resource: ConfigResource, asked: OlderAlterConfigsResource) -> list[Change]:
            changes = [Change(config.name, AlterOp.SET, config.value) for config in asked.configs]
            named = {change.name for change in changes}
            current = self._state.image.config(resource)
            return changes + [Change(name, AlterOp.DELETE, None) for name in current if name not in named]

        records, answers = self._alter_each(request.resources, changes_of)
        responses = [AlterConfigsResourceResponse(**answer) for answer in answers]
        return Generated([] if request.validate_only else records, AlterConfigsResponse(responses=responses))

    def _alter_each(
        self, resources: Sequence[R], changes_of: Callable[[ConfigResource, R], list[Change]]
    ) -> tuple[list[MetadataRecord], list[Answer]]:
        """Each resource by itself: what is wrong with one is no affair of the others. One that is named twice is
        refused, once."""
        records: list[MetadataRecord] = []
        answers: list[Answer] = []
        named = [ConfigResource(asked.resource_type, asked.resource_name) for asked in resources]
        mentions = Counter(named)
        answered: set[ConfigResource] = set()
        for resource, asked in zip(named, resources, strict=True):
            if resource in answered:
                continue
            answered.add(resource)
            code, message = ErrorCode.NONE, None
            try:
                _check_once(mentions[resource], "resource")
                records += self._altered(resource, changes_of(resource, asked))
            except KafkaError as error:
                code, message = error.code, error.message
            answers.append(
                {
                    "error_code": code,
                    "error_message": message,
                    "resource_type": resource.type,
                    "resource_name": resource.name,
                }
            )
            check_size(records)
        return records, answers

    def _altered(self, resource: ConfigResource, changes: Sequence[Change]) -> list[MetadataRecord]:
        _check_resource(resource)
        image = self._state.image
        if image.features.elr:
            _check_min_insync_replicas(resource, changes)
        current = image.config(resource)
        after = self._table.changed(resource, current, changes)
        for change in changes:
            if len(after.get(change.name, "")) > VALUE_CHARS_MAX:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG, f"The value of {change.name} is longer than {VALUE_CHARS_MAX} characters."
                )
            if change.name == "cordoned.log.dirs" and not has_cordoned_directories(image.features.metadata_version):
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG, f"The cluster's metadata.version is older than {change.name}."
                )
        self._table.validate(image, resource, after, current)
        self._check_exists(resource)
        changed = [
            change.name
            for change in changes
            # A broker reloads what a config names (a key store, say) even if its name stays the same.
            if current.get(change.name) != after.get(change.name) or resource.type == RESOURCE_BROKER
        ]
        records = [config_record(resource, name, after.get(name)) for name in changed]
        if image.features.elr and MIN_INSYNC_REPLICAS in changed:
            records += self._clear_elr(resource)
        return records

    def _clear_elr(self, resource: ConfigResource) -> list[MetadataRecord]:
        """Who was eligible under the old minimum need not be under the new one.

        But where nobody is in sync nothing can have been committed since, so that whoever was eligible there still is,
        whatever the minimum. Kafka forgets them too, and such a partition has then no way back but an unclean election.
        """
        from ottla.wire.messages.clear_elr_record import ClearElrRecord
        from ottla.wire.messages.partition_change_record import PartitionChangeRecord

        image = self._state.image
        name = resource.name if resource.type == RESOURCE_TOPIC else ""
        topic = image.topic(name) if name else None
        topics = [topic] if topic is not None else image.topics.by_id.values()
        version = partition_record_version(image.features.metadata_version)
        return [
            MetadataRecord(ClearElrRecord(topic_name=name), 0),
            *(
                MetadataRecord(
                    PartitionChangeRecord(
                        topic_id=topic.topic_id,
                        partition_id=partition_id,
                        eligible_leader_replicas=list(partition.elr),
                        last_known_elr=list(partition.last_known_elr),
                    ),
                    version,
                )
                for topic in topics
                for partition_id, partition in topic.partitions.items()
                if not partition.isr and (partition.elr or partition.last_known_elr)
            ),
        ]

    def elr_safety_records(self) -> list[MetadataRecord]:
        """KIP-966: eligible leader replicas need one minimum for the cluster, which no broker sees otherwise."""
        image = self._state.image
        records: list[MetadataRecord] = []
        if MIN_INSYNC_REPLICAS not in image.config(DEFAULT_BROKER):
            records.append(config_record(DEFAULT_BROKER, MIN_INSYNC_REPLICAS, str(self.static_min_insync_replicas)))
        records += [
            config_record(resource, MIN_INSYNC_REPLICAS, None)
            for resource, values in image.configs.items()
            if resource.type == RESOURCE_BROKER and resource.name and MIN_INSYNC_REPLICAS in values
        ]
        return records

    def _check_exists(self, resource: ConfigResource) -> None:
        image = self._state.image
        if resource.type == RESOURCE_TOPIC and image.topic(resource.name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist.")
        if resource.type == RESOURCE_BROKER and resource.name and image.broker(int(resource.name)) is None:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {resource.name} is not registered.")


def _check_resource(resource: ConfigResource) -> None:
    scope_of(resource)
    if resource.type == RESOURCE_TOPIC:
        if not resource.name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Topics have no default resource.")
        check_topic_name(resource.name)
    elif resource.type == RESOURCE_BROKER and resource.name and not _is_broker_id(resource.name):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{resource.name!r} is not the id of a broker.")


def _is_broker_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10


def _check_min_insync_replicas(resource: ConfigResource, changes: Sequence[Change]) -> None:
    if resource.type != RESOURCE_BROKER:
        return
    for change in changes:
        if change.name != MIN_INSYNC_REPLICAS:
            continue
        if resource.name and change.op != AlterOp.DELETE:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Broker-level {MIN_INSYNC_REPLICAS} cannot be set while eligible leader replicas are kept.",
            )
        if not resource.name and change.op == AlterOp.DELETE:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while eligible leader replicas are kept.",
            )


def _check_once(count: int, what: str) -> None:
    if count > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The request names the {what} more than once.")


def config_record(resource: ConfigResource, name: str, value: str | None) -> MetadataRecord:
    from ottla.wire.messages.config_record import ConfigRecord

    return MetadataRecord(
        ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value), 0
    )
