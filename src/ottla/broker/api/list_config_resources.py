"""ListConfigResources (key 74): the names of everything that has configs (KIP-1142)."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.errors import ErrorCode
from ottla.metadata.images import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from ottla.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from ottla.wire.messages.list_config_resources_response import ConfigResource, ListConfigResourcesResponse

_TYPES = (RESOURCE_TOPIC, RESOURCE_BROKER, RESOURCE_BROKER_LOGGER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP)


def handle(context: Context, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    # Version 0 was ListClientMetricsResources.
    types = set(request.resource_types) or set(_TYPES) if context.api_version >= 1 else {RESOURCE_CLIENT_METRICS}
    if not types <= set(_TYPES):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    image = context.services.image
    response = ListConfigResourcesResponse()

    def add(kind: int, names: list[str]) -> None:
        if kind in types:
            response.config_resources.extend(
                ConfigResource(resource_name=name, resource_type=kind) for name in sorted(names)
            )

    brokers = [str(broker_id) for broker_id in image.cluster.brokers]
    configured = list(image.configs)
    add(RESOURCE_TOPIC, list(image.topics.by_name))
    add(RESOURCE_BROKER, brokers)
    add(RESOURCE_BROKER_LOGGER, brokers)
    add(RESOURCE_CLIENT_METRICS, [name for kind, name in configured if kind == RESOURCE_CLIENT_METRICS])
    add(RESOURCE_GROUP, [name for kind, name in configured if kind == RESOURCE_GROUP])
    return response
