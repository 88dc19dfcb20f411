"""IncrementalAlterConfigs (key 44): checked here, decided by the active controller."""

from __future__ import annotations

from ottla.broker.config_changes import check_incremental
from ottla.broker.context import Context
from ottla.config.alter import Change
from ottla.errors import KafkaError
from ottla.wire.messages.incremental_alter_configs_request import AlterConfigsResource, IncrementalAlterConfigsRequest
from ottla.wire.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)


async def handle(context: Context, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    response = IncrementalAlterConfigsResponse()
    forwarded: list[AlterConfigsResource] = []
    for resource in request.resources:
        changes = [Change(config.name, config.config_operation, config.value) for config in resource.configs]
        answer = AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        try:
            if check_incremental(
                context.services,
                resource.resource_type,
                resource.resource_name,
                changes,
                dry=request.validate_only,
            ):
                forwarded.append(resource)
                continue
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
        response.responses.append(answer)
    if forwarded:
        rest = IncrementalAlterConfigsRequest(resources=forwarded, validate_only=request.validate_only)
        try:
            decided = await context.services.controller.send(rest, IncrementalAlterConfigsResponse)
            response.responses.extend(decided.responses)
        except KafkaError as error:
            response.responses.extend(
                AlterConfigsResourceResponse(
                    error_code=error.code,
                    error_message=error.message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
                for resource in forwarded
            )
    return response
