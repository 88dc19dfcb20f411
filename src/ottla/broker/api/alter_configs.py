"""AlterConfigs (key 33): the older call that replaces all configs of a resource at once."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.api.config_changes import check_whole
from ottla.broker.context import Context
from ottla.broker.forwarding import forward
from ottla.errors import KafkaError
from ottla.wire.messages.alter_configs_request import AlterConfigsRequest, AlterConfigsResource
from ottla.wire.messages.alter_configs_response import AlterConfigsResourceResponse, AlterConfigsResponse


def handle(context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse | Awaitable[AlterConfigsResponse]:
    response = AlterConfigsResponse()
    sound: list[AlterConfigsResource] = []
    for resource in request.resources:
        configs = [(config.name, config.value) for config in resource.configs]
        try:
            check_whole(context.services, resource.resource_type, resource.resource_name, configs)
        except KafkaError as error:
            response.responses.append(
                AlterConfigsResourceResponse(
                    error_code=error.code,
                    error_message=error.message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
        else:
            sound.append(resource)
    if not sound:
        return response
    return _decide(context, AlterConfigsRequest(resources=sound, validate_only=request.validate_only), response)


async def _decide(
    context: Context, request: AlterConfigsRequest, response: AlterConfigsResponse
) -> AlterConfigsResponse:
    """`response`, which tells of what was refused here, with the controller's answers to the rest."""
    decided = await forward(context, request)
    assert isinstance(decided, AlterConfigsResponse)
    response.responses += decided.responses
    return response
