"""ConsumerGroupHeartbeat: members of the consumer protocol join, stay, give up and get partitions, and leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.coordinator.consumer import records
from ottla.coordinator.consumer.checks import check_epoch, check_not_fenced, known_static
from ottla.coordinator.consumer.engine import Basis, Engine, RegexChange
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    NOTHING,
    Held,
    Member,
)
from ottla.coordinator.consumer.reconciliation import Owned
from ottla.coordinator.consumer.turn import SESSION, Turn, everything
from ottla.coordinator.outcome import Outcome
from ottla.model import Uuid
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_heartbeat_response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)


class Sender(NamedTuple):
    """Who sends a request, beyond what it says itself."""

    client_id: str
    client_host: str
    fresh_id: str
    """For a member that has no id and is to get one."""
    may_describe: Callable[[str], bool] = everything
    """Which topics it may know of."""


def heartbeat(
    engine: Engine, request: ConsumerGroupHeartbeatRequest, sender: Sender, now_ms: int
) -> Outcome[ConsumerGroupHeartbeatResponse]:
    turn = Turn(now_ms=now_ms, may_describe=sender.may_describe)
    if request.member_epoch in (LEAVING_EPOCH, LEAVING_STATIC_EPOCH):
        return turn.outcome(_leave(engine, request, turn))
    return turn.outcome(_stay(engine, request, sender, turn))


def _stay(
    engine: Engine, request: ConsumerGroupHeartbeatRequest, sender: Sender, turn: Turn
) -> ConsumerGroupHeartbeatResponse:
    group_id = request.group_id
    joining = request.member_epoch == JOINING_EPOCH
    group = engine.joined(group_id, turn) if joining else engine.groups.get(group_id)
    if group is None:
        raise engine.not_found(group_id, "Consumer group")
    engine.check_room(group, request.member_id)
    owned = _owned(request)
    before = _member(engine, group, request, owned, joining, sender, turn)
    after = _updated(before, request, sender)
    if after != before:
        turn.records.append(records.member_metadata(group_id, after))
    names_changed = after.topic_names != before.topic_names
    regex = engine.change_regex(group, before, after, turn)
    epoch_rises = names_changed or regex is RegexChange.RESOLVED
    if epoch_rises or engine.needs_refresh(group):
        basis = engine.refresh(group, before, after, epoch_rises, turn)
    else:
        basis = Basis(group.epochs.group, None)
    aim = engine.aim(group, before, after, basis, turn)
    after = engine.reconcile(
        group,
        after,
        aim,
        subscription_changed=names_changed or regex is not RegexChange.NONE,
        owned=owned,
        turn=turn,
    )
    settings = engine.settings.of(group_id)
    turn.set_timer(SESSION, group_id, after.member_id, settings.session_timeout_ms)
    is_full = (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )
    tell = joining or is_full or after.assigned != before.assigned
    return ConsumerGroupHeartbeatResponse(
        member_id=after.member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        assignment=_told(after.assigned) if tell else None,
    )


def _member(
    engine: Engine,
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    owned: Owned | None,
    joining: bool,
    sender: Sender,
    turn: Turn,
) -> Member:
    member_id = request.member_id or sender.fresh_id
    if request.instance_id is not None:
        member = engine.static_member(group, member_id, request.instance_id, joining=joining, classic=False, turn=turn)
    elif joining:
        member = group.members.get(member_id) or Member(member_id=member_id)
    else:
        member = group.member(member_id)
    check_epoch(member, request.member_epoch, owned)
    return member


def _updated(member: Member, request: ConsumerGroupHeartbeatRequest, sender: Sender) -> Member:
    """The member with what the request says of it; what it does not say stays."""
    names = request.subscribed_topic_names
    regex = request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        topic_names=member.topic_names if names is None else frozenset(names),
        topic_regex=member.topic_regex if regex is None else regex,
        client_id=sender.client_id,
        client_host=sender.client_host,
        classic=None,
    )


def _owned(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    if request.topic_partitions is None:
        return None
    owned: dict[Uuid, list[int]] = {}
    for topic in request.topic_partitions:
        owned.setdefault(topic.topic_id, []).extend(topic.partitions)
    return owned


def _told(assigned: Held) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic, partitions=list(partitions)) for topic, partitions in assigned.items()
        ]
    )


# Leaving.


def _leave(engine: Engine, request: ConsumerGroupHeartbeatRequest, turn: Turn) -> ConsumerGroupHeartbeatResponse:
    group = engine.existing(request.group_id)
    response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    if request.instance_id is None:
        engine.fence(group, [group.member(request.member_id)], turn)
        return response
    member = known_static(group.static_member(request.instance_id), request.instance_id)
    check_not_fenced(member, request.member_id, request.instance_id)
    if request.member_epoch == LEAVING_STATIC_EPOCH:
        turn.records.append(records.current(group.group_id, _away(member)))
    else:
        engine.fence(group, [member], turn)
    return response


def _away(member: Member) -> Member:
    """A static member that will come back, with what it had, as if it had always had it."""
    assigned = {topic: dict.fromkeys(partitions, 0) for topic, partitions in member.assigned.items()}
    return member._replace(epoch=LEAVING_STATIC_EPOCH, assigned=assigned, revoking=NOTHING)
