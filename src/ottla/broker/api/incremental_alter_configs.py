"""IncrementalAlterConfigs (key 44): checked by the broker that was asked, decided by the active controller.

Loggers are this process's own, so their levels are set here on either listener.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.access.admin_rights import check_configs
from ottla.broker.api import on_controller
from ottla.broker.api.config_changes import check_incremental
from ottla.broker.context import Context
from ottla.broker.forwarding import forward
from ottla.config.alter import Change
from ottla.errors import KafkaError
from ottla.metadata.acls import Operation
from ottla.metadata.images import RESOURCE_BROKER_LOGGER
from ottla.wire.message import Message
from ottla.wire.messages.incremental_alter_configs_request import AlterConfigsResource, IncrementalAlterConfigsRequest
from ottla.wire.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)


def handle(
    context: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse | Awaitable[IncrementalAlterConfigsResponse]:
    response = IncrementalAlterConfigsResponse()
    sound: list[AlterConfigsResource] = []
    for resource in request.resources:
        if context.on_controller and resource.resource_type != RESOURCE_BROKER_LOGGER:
            sound.append(resource)  # Only the broker itself knows whether a dynamic key fits its own file.
            continue
        changes = [Change(config.name, config.config_operation, config.value) for config in resource.configs]
        answer = AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        try:
            if resource.resource_type == RESOURCE_BROKER_LOGGER:
                right = Operation.CLUSTER_ACTION if context.on_controller else Operation.ALTER_CONFIGS
                check_configs(context, right, resource.resource_type, resource.resource_name)
            if check_incremental(
                context.services,
                resource.resource_type,
                resource.resource_name,
                changes,
                dry=request.validate_only,
            ):
                sound.append(resource)
                continue
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
        response.responses.append(answer)
    if not sound:
        return response
    rest = IncrementalAlterConfigsRequest(resources=sound, validate_only=request.validate_only)
    return _decide(context, rest, response)


async def _decide(
    context: Context, request: IncrementalAlterConfigsRequest, response: IncrementalAlterConfigsResponse
) -> IncrementalAlterConfigsResponse:
    """`response`, which tells of what was decided here, with the controller's answers to the rest."""
    decided: Message
    if context.on_controller:
        made = on_controller.handle(context, request)
        decided = made if isinstance(made, Message) else await made
    else:
        decided = await forward(context, request)
    assert isinstance(decided, IncrementalAlterConfigsResponse)
    response.responses += decided.responses
    return response
