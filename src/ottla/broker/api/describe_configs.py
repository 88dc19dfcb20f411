"""DescribeConfigs (key 32): every key of a resource with its value and where that comes from."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ottla.broker.access.admin_rights import check_configs
from ottla.broker.bounds.limits import DESCRIBED_CONFIGS_MAX
from ottla.broker.context import Context
from ottla.broker.monitoring.logger_levels import logger_levels
from ottla.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_loggers,
    describe_topic,
)
from ottla.controller.topic_names import check_topic_name
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.acls import Operation
from ottla.metadata.images import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    ConfigResource,
)
from ottla.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from ottla.broker.services import Services

_Likeness = tuple[tuple[tuple[str, str], ...], tuple[str, ...] | None]
"""What a topic's answer depends on: its own configs, and which are asked for."""


def handle(context: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    response = DescribeConfigsResponse()
    described = 0
    alike: dict[_Likeness, list[DescribeConfigsResourceResult]] = {}
    for resource in request.resources:
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        response.results.append(result)
        try:
            if described > DESCRIBED_CONFIGS_MAX:
                raise KafkaError(ErrorCode.POLICY_VIOLATION, "Too many configs for one answer: ask for fewer at once.")
            check_configs(context, Operation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
            likeness = _likeness(context.services, resource)
            configs = None if likeness is None else alike.get(likeness)
            if configs is None:
                configs = [
                    _to_wire(entry, request.include_synonyms, request.include_documentation)
                    for entry in _entries(
                        context.services, resource.resource_type, resource.resource_name, resource.configuration_keys
                    )
                ]
            if likeness is not None:
                alike[likeness] = configs
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            continue
        described += len(configs)
        result.configs = configs
    return response


def _likeness(services: Services, resource: DescribeConfigsResource) -> _Likeness | None:
    """Topics with the same likeness have the same answer, as most have in a request about very many."""
    name, keys = resource.resource_name, resource.configuration_keys
    if resource.resource_type != RESOURCE_TOPIC or services.image.topic(name) is None:
        return None
    return tuple(services.image.topic_config(name).items()), None if keys is None else tuple(keys)


def _entries(services: Services, kind: int, name: str, keys: list[str] | None) -> list[ConfigEntry]:
    image = services.image
    names: Collection[str] | None = None if keys is None else set(keys)
    if kind == RESOURCE_TOPIC:
        check_topic_name(name)
        if image.topic(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return describe_topic(services.config, image.topic_config(name), names)
    if kind == RESOURCE_BROKER:
        if not name:
            return describe_cluster_default(services.config, names)
        require_this_node(services, name)
        return describe_broker(services.config, names)
    if kind == RESOURCE_BROKER_LOGGER:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        require_this_node(services, name)
        return describe_loggers(logger_levels(), names)
    if not name:
        kinds = {RESOURCE_CLIENT_METRICS: "Client metrics subscription name", RESOURCE_GROUP: "Group name"}
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{kinds.get(kind, 'Resource name')} must not be empty")
    if kind == RESOURCE_CLIENT_METRICS:
        return describe_client_metrics(image.config(ConfigResource(kind, name)), names)
    if kind == RESOURCE_GROUP:
        return describe_group(services.config, image.config(ConfigResource(kind, name)), names)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")


def require_this_node(services: Services, name: str) -> None:
    """A broker speaks for itself alone."""
    if not name.isascii() or not name.lstrip("-").isdigit():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if int(name) != services.node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {services.node_id} or empty string, but received {name}",
        )


def _to_wire(entry: ConfigEntry, synonyms: bool, documentation: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in (entry.synonyms if synonyms else ())
        ],
        config_type=entry.type,
        documentation=entry.documentation if documentation else None,
    )
