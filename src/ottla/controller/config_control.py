"""Configs that live in the metadata: of topics, brokers, the default of all brokers, client metrics and groups.

A resource's configs are checked as they would be after the change, all together. What the keys are is the affair of the
table behind `ConfigTable`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.config.alter import AlterOp, Change
from ottla.config.describe import ConfigEntry
from ottla.controller.config_table import ConfigTable, scope_of
from ottla.controller.generated import Generated, check_size
from ottla.controller.speculation import Speculation
from ottla.controller.topic_names import check_topic_name
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.images import (
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    ConfigResource,
)
from ottla.metadata.records import MetadataRecord

if TYPE_CHECKING:
    from ottla.wire.messages.alter_configs_request import AlterConfigsRequest
    from ottla.wire.messages.alter_configs_response import AlterConfigsResponse
    from ottla.wire.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
    from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse


class ConfigControl:
    def __init__(self, state: Speculation, table: ConfigTable) -> None:
        self._state = state
        self._table = table

    def records_for_new(self, resource: ConfigResource, values: Mapping[str, str]) -> list[MetadataRecord]:
        """The configs of a resource that the same batch creates."""
        if not values:
            return []
        self._table.validate(self._state.image, resource, values, {})
        return [_config_record(resource, name, value) for name, value in values.items()]

    def effective_topic_configs(self, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        return self._table.effective_topic_configs(self._state.image, overrides)

    def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest
    ) -> Generated[IncrementalAlterConfigsResponse]:
        from ottla.wire.messages.incremental_alter_configs_response import (
            AlterConfigsResourceResponse,
            IncrementalAlterConfigsResponse,
        )

        records: list[MetadataRecord] = []
        responses: list[AlterConfigsResourceResponse] = []
        resources = [ConfigResource(r.resource_type, r.resource_name) for r in request.resources]
        mentions = Counter(resources)
        answered: set[ConfigResource] = set()
        for resource, asked in zip(resources, request.resources, strict=True):
            if resource in answered:
                continue
            answered.add(resource)
            code, message = ErrorCode.NONE, None
            try:
                _check_once(mentions[resource], "resource")
                changes = [Change(config.name, config.config_operation, config.value) for config in asked.configs]
                records += self._altered(resource, changes)
            except KafkaError as error:
                code, message = error.code, error.message
            responses.append(
                AlterConfigsResourceResponse(
                    error_code=code, error_message=message, resource_type=resource.type, resource_name=resource.name
                )
            )
            check_size(records)
        return Generated([] if request.validate_only else records, IncrementalAlterConfigsResponse(responses=responses))

    def alter_configs(self, request: AlterConfigsRequest) -> Generated[AlterConfigsResponse]:
        """The older API: what the request does not name goes back to its default."""
        from ottla.wire.messages.alter_configs_response import AlterConfigsResourceResponse, AlterConfigsResponse

        records: list[MetadataRecord] = []
        responses: list[AlterConfigsResourceResponse] = []
        resources = [ConfigResource(r.resource_type, r.resource_name) for r in request.resources]
        mentions = Counter(resources)
        answered: set[ConfigResource] = set()
        for resource, asked in zip(resources, request.resources, strict=True):
            if resource in answered:
                continue
            answered.add(resource)
            code, message = ErrorCode.NONE, None
            try:
                _check_once(mentions[resource], "resource")
                changes = [Change(config.name, AlterOp.SET, config.value) for config in asked.configs]
                named = {change.name for change in changes}
                current = self._state.image.config(resource)
                changes += [Change(name, AlterOp.DELETE, None) for name in current if name not in named]
                records += self._altered(resource, changes)
            except KafkaError as error:
                code, message = error.code, error.message
            responses.append(
                AlterConfigsResourceResponse(
                    error_code=code, error_message=message, resource_type=resource.type, resource_name=resource.name
                )
            )
            check_size(records)
        return Generated([] if request.validate_only else records, AlterConfigsResponse(responses=responses))

    def _altered(self, resource: ConfigResource, changes: Sequence[Change]) -> list[MetadataRecord]:
        _check_resource(resource)
        image = self._state.image
        current = image.config(resource)
        after = self._table.changed(resource, current, changes)
        self._table.validate(image, resource, after, current)
        self._check_exists(resource)
        return [
            _config_record(resource, change.name, after.get(change.name))
            for change in changes
            # A broker reloads what a config names (a key store, say) even if its name stays the same.
            if current.get(change.name) != after.get(change.name) or resource.type == RESOURCE_BROKER
        ]

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


def _check_once(count: int, what: str) -> None:
    if count > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The request names the {what} more than once.")


def _config_record(resource: ConfigResource, name: str, value: str | None) -> MetadataRecord:
    from ottla.wire.messages.config_record import ConfigRecord

    return MetadataRecord(
        ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value), 0
    )
