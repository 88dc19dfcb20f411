"""CreatePartitions (key 37): decided by the active controller."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.errors import KafkaError
from ottla.wire.messages.create_partitions_request import CreatePartitionsRequest
from ottla.wire.messages.create_partitions_response import CreatePartitionsResponse, CreatePartitionsTopicResult


async def handle(context: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    try:
        return await context.services.controller.send(request, CreatePartitionsResponse)
    except KafkaError as error:
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
                for topic in request.topics
            ]
        )
