"""DeleteTopics (key 20): decided by the active controller."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.errors import KafkaError
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse


async def handle(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    try:
        return await context.services.controller.send(request, DeleteTopicsResponse)
    except KafkaError as error:
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(
                    name=topic.name, topic_id=topic.topic_id, error_code=error.code, error_message=error.message
                )
                for topic in (*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names))
            ]
        )
