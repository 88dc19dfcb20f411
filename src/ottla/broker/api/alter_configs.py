"""AlterConfigs (key 33): the older call that replaces all configs of a resource at once."""

from __future__ import annotations

from ottla.broker.config_changes import check_whole
from ottla.broker.context import Context
from ottla.broker.forwarding import forward
from ottla.errors import KafkaError
from ottla.wire.messages.alter_configs_request import AlterConfigsRequest, AlterConfigsResource
from ottla.wire.messages.alter_configs_response import AlterConfigsResourceResponse, AlterConfigsResponse


async def handle(context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
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
    if sound:
        decided = await forward(context, AlterConfigsRequest(resources=sound, validate_only=request.validate_only))
        assert isinstance(decided, AlterConfigsResponse)
        response.responses += decided.responses
    return response
