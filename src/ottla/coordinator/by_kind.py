"""Requests of the classic protocol, taken to the part whose group it is: a consumer group may have classic members too.

A group id that nobody has is the classic part's: it makes the group, or refuses.
"""

from __future__ import annotations

from ottla.coordinator.classic import Joiner
from ottla.coordinator.consumer import Sender
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.outcome import Outcome
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_request import LeaveGroupRequest
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.wire.messages.sync_group_request import SyncGroupRequest
from ottla.wire.messages.sync_group_response import SyncGroupResponse


def join(shard: GroupShard, request: JoinGroupRequest, joiner: Joiner, now_ms: int) -> Outcome[JoinGroupResponse]:
    """An empty consumer group makes way for a classic one."""
    group = shard.consumer.group(request.group_id)
    if group is None:
        return shard.classic.join(request, joiner, now_ms)
    if group.is_empty():
        return shard.classic.join(request, joiner, now_ms, before=group.tombstones())
    sender = Sender(
        client_id=joiner.client_id,
        client_host=joiner.client_host,
        fresh_id=joiner.unique,
        may_describe=joiner.may_describe,
    )
    return shard.consumer.classic_join(request, sender, joiner.api_version, now_ms)


def sync(shard: GroupShard, request: SyncGroupRequest, token: int, now_ms: int) -> Outcome[SyncGroupResponse]:
    if shard.consumer.group(request.group_id) is None:
        return shard.classic.sync(request, token, now_ms)
    return shard.consumer.classic_sync(request, now_ms)


def heartbeat(shard: GroupShard, request: HeartbeatRequest, now_ms: int) -> Outcome[HeartbeatResponse]:
    if shard.consumer.group(request.group_id) is None:
        return shard.classic.heartbeat(request, now_ms)
    return shard.consumer.classic_heartbeat(request, now_ms)


def leave(shard: GroupShard, request: LeaveGroupRequest, now_ms: int) -> Outcome[LeaveGroupResponse]:
    """`request` is as of version 3."""
    if shard.consumer.group(request.group_id) is None:
        return shard.classic.leave(request, now_ms)
    return shard.consumer.classic_leave(request, now_ms)
