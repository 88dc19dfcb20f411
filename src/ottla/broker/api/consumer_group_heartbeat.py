"""ConsumerGroupHeartbeat (key 68): join, stay in, or leave a consumer group; be told of partitions (KIP-848)."""

from __future__ import annotations

import uuid
from functools import partial

from ottla.broker.bounds.limits import GROUP_MATCHES_MAX, GROUP_PATTERNS_MIN
from ottla.broker.context import Context
from ottla.broker.promise import Promise
from ottla.coordinator.consumer import Sender
from ottla.coordinator.consumer.checks import check_heartbeat
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.outcome import Outcome
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.acls import Operation
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

GROUP_VERSION = "group.version"


def handle(
    context: Context, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Promise[ConsumerGroupHeartbeatResponse]:
    services = context.services
    if not services.image.features.levels.get(GROUP_VERSION, 0):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not context.may_group(Operation.READ, request.group_id):
        return _refused(KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    if not all(context.may_topic(Operation.DESCRIBE, topic) for topic in request.subscribed_topic_names or ()):
        return _refused(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    try:
        check_heartbeat(request, context.api_version, services.config)
        services.group_cap.check(request.group_id)
    except KafkaError as error:
        return _refused(error)
    sender = Sender(
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        fresh_id="" if request.member_id else str(uuid.UUID(int=services.random.getrandbits(128), version=4)),
        # What an expression does not find because it must not be seen is no denial.
        may_describe=context.may_describe,
    )
    topics = len(services.image.topics.by_name)
    return services.groups.write(request.group_id, partial(_heartbeat, request, sender, topics)).otherwise(_refused)


def _heartbeat(
    request: ConsumerGroupHeartbeatRequest,
    sender: Sender,
    topics: int,
    shard: GroupShard,
    now_ms: int,
) -> Outcome[ConsumerGroupHeartbeatResponse]:
    pattern, group = request.subscribed_topic_regex, shard.consumer.group(request.group_id)
    known = () if group is None else group.regex_members
    if pattern and pattern not in known and len(known) >= max(GROUP_PATTERNS_MIN, GROUP_MATCHES_MAX // (topics or 1)):
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"The group has {len(known)} different regular expressions already: subscribe by one of them.",
        )
    return shard.consumer.heartbeat(request, sender, now_ms)


def _refused(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
