"""CreateTopics (key 19): decided by the active controller."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.errors import KafkaError
from ottla.wire.messages.create_topics_request import CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse


async def handle(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    try:
        return await context.services.controller.send(request, CreateTopicsResponse)
    except KafkaError as error:
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
                for topic in request.topics
            ]
        )
