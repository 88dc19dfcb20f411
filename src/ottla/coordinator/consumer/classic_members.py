"""Members of a consumer group that speak the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

To such a member its epoch is a generation. It is told to join again when there is something for it, says in JoinGroup
what it owns, and is told in SyncGroup what it has. Nobody waits for the others, and no member leads.
"""

from __future__ import annotations

from ottla.coordinator.consumer import records
from ottla.coordinator.consumer.checks import check_not_fenced, known_static
from ottla.coordinator.consumer.embedded import (
    owned_partitions,
    read_subscription,
    version_of,
    write_assignment,
)
from ottla.coordinator.consumer.engine import Aim, Basis, Engine, RegexChange
from ottla.coordinator.consumer.group import CONSUMER_PROTOCOL, ConsumerGroup
from ottla.coordinator.consumer.heartbeat import Sender
from ottla.coordinator.consumer.member import Member, MemberState
from ottla.coordinator.consumer.turn import SESSION, SYNC, Turn
from ottla.coordinator.outcome import Outcome
from ottla.errors import ErrorCode, KafkaError, Malformed
from ottla.wire.messages.consumer_group_member_metadata_value import ClassicMemberMetadata, ClassicProtocol
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from ottla.wire.messages.sync_group_request import SyncGroupRequest
from ottla.wire.messages.sync_group_response import SyncGroupResponse

_MEMBER_ID_REQUIRED_FROM = 4
"""The version of JoinGroup in which a new member first gets an id and then joins with it (KIP-394)."""


def join(
    engine: Engine,
    group: ConsumerGroup,
    request: JoinGroupRequest,
    sender: Sender,
    api_version: int,
    now_ms: int,
) -> Outcome[JoinGroupResponse]:
    turn = Turn(now_ms=now_ms, may_describe=sender.may_describe)
    group_id = group.group_id
    is_new = not request.member_id
    member_id = request.member_id or sender.fresh_id
    _check_join(engine, group, request, member_id)
    if is_new and request.group_instance_id is None and api_version >= _MEMBER_ID_REQUIRED_FROM:
        return turn.outcome(
            JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id, protocol_name=None)
        )
    if request.group_instance_id is None:
        before = group.members.get(member_id) or _newcomer(member_id, _subscription(request))
    else:
        before = engine.static_member(
            group, member_id, request.group_instance_id, joining=is_new, classic=True, turn=turn
        )
    replaced = group.static_member(request.group_instance_id)
    downgrade = replaced is not None and engine.may_downgrade_with(group, replaced)
    subscription = _subscription(request)
    after = _updated(before, request, subscription, sender)
    if after != before:
        turn.records.append(records.member_metadata(group_id, after))
    regex = engine.change_regex(group, before, after, turn)
    changed = after.topic_names != before.topic_names or regex is not RegexChange.NONE
    if changed or engine.needs_refresh(group):
        basis = engine.refresh(group, before, after, changed, turn)
    else:
        basis = Basis(group.epochs.group, None)
    owned = owned_partitions(subscription, engine.image)
    if downgrade and replaced is not None:
        rebalance = group.epochs.assignment < basis.group_epoch
        if not rebalance:
            aim = Aim(group.epochs.assignment, group.target(after))
            after = engine.reconcile(group, after, aim, subscription_changed=changed, owned=owned, turn=turn)
        others = [member for member in group.members.values() if member.member_id != replaced.member_id]
        engine.downgrade(group, others, turn, joining=after, rebalance=rebalance)
    else:
        aim = engine.aim(group, before, after, basis, turn)
        after = engine.reconcile(group, after, aim, subscription_changed=changed, owned=owned, turn=turn)
    engine.on_joined(group_id, after.member_id, turn)
    if not downgrade:
        turn.set_timer(SESSION, group_id, after.member_id, request.session_timeout_ms)
        turn.set_timer(SYNC, group_id, after.member_id, after.rebalance_timeout_ms)
    return turn.outcome(
        JoinGroupResponse(
            member_id=after.member_id,
            generation_id=after.epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=request.protocols[0].name,
        )
    )


def _check_join(engine: Engine, group: ConsumerGroup, request: JoinGroupRequest, member_id: str) -> None:
    settings = engine.settings
    if not settings.may_upgrade and not settings.may_downgrade:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Cannot join the consumer group {group.group_id} with the classic protocol because the group migration is "
            "disabled.",
        )
    engine.check_room(group, member_id)
    names = [protocol.name for protocol in request.protocols]
    if request.protocol_type != CONSUMER_PROTOCOL or not group.supports_classic(names):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported.")


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    try:
        return read_subscription(request.protocols[0].metadata)
    except Malformed:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "Malformed embedded consumer protocol in subscription deserialization."
        ) from None


def _newcomer(member_id: str, subscription: ConsumerProtocolSubscription) -> Member:
    """Who was given an id a moment ago owns nothing. Who does has been dropped from the group without hearing of it,
    and others may own that by now: it is to drop it and to begin anew, as in a classic group. (Kafka lets it in, and
    two members believe to own a partition until it hears of its new share.)"""
    if any(topic.partitions for topic in subscription.owned_partitions):
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of the group any more.")
    return Member(member_id=member_id)


def _updated(
    member: Member, request: JoinGroupRequest, subscription: ConsumerProtocolSubscription, sender: Sender
) -> Member:
    timeout_ms = request.rebalance_timeout_ms
    if timeout_ms == -1:  # Version 0 has one timeout for both.
        timeout_ms = request.session_timeout_ms
    return member._replace(
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=timeout_ms,
        topic_names=frozenset(subscription.topics),
        topic_regex="",
        client_id=sender.client_id,
        client_host=sender.client_host,
        classic=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=protocol.name, metadata=protocol.metadata) for protocol in request.protocols
            ],
        ),
    )


def sync(engine: Engine, group: ConsumerGroup, request: SyncGroupRequest, now_ms: int) -> Outcome[SyncGroupResponse]:
    turn = Turn(now_ms=now_ms)
    member, classic = _classic_member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    chosen = classic.supported_protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"The protocol type {request.protocol_type} from member {member.member_id} request is not equal to the "
            f"group protocol type {CONSUMER_PROTOCOL}.",
        )
    if request.protocol_name not in (None, chosen.name):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"The protocol name {request.protocol_name} from member {member.member_id} request is not equal to the "
            f"protocol name {chosen.name} returned in the join response.",
        )
    if group.epochs.assignment > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        # Whoever has yet to give something up goes on with that, and joins again afterwards.
        engine.await_join(group.group_id, member, turn)
        return turn.outcome(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    turn.cancel_timer(SYNC, group.group_id, member.member_id)
    turn.set_timer(SESSION, group.group_id, member.member_id, classic.session_timeout_ms)
    held = {topic: tuple(partitions) for topic, partitions in member.assigned.items()}
    return turn.outcome(
        SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=write_assignment(held, engine.image, version_of(chosen.metadata)),
        )
    )


def heartbeat(
    engine: Engine, group: ConsumerGroup, request: HeartbeatRequest, now_ms: int
) -> Outcome[HeartbeatResponse]:
    turn = Turn(now_ms=now_ms)
    member, classic = _classic_member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    turn.set_timer(SESSION, group.group_id, member.member_id, classic.session_timeout_ms)
    has_to_join = (
        member.epoch < group.epochs.assignment
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
    )
    if has_to_join:
        engine.await_join(group.group_id, member, turn)
    error = ErrorCode.REBALANCE_IN_PROGRESS if has_to_join else ErrorCode.NONE
    return turn.outcome(HeartbeatResponse(error_code=error))


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[Member, ClassicMemberMetadata]:
    if instance_id is None:
        member = group.member(member_id)
    else:
        found = group.static_member(instance_id)
        if found is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member with instance id {instance_id} is not a member of group {group.group_id}.",
            )
        check_not_fenced(found, member_id, instance_id)
        member = found
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol.")
    return member, member.classic


def _check_generation(member: Member, generation_id: int) -> None:
    if member.epoch != generation_id:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {generation_id} is not equal to the member epoch {member.epoch} of member "
            f"{member.member_id}.",
        )


def leave(engine: Engine, group: ConsumerGroup, request: LeaveGroupRequest, now_ms: int) -> Outcome[LeaveGroupResponse]:
    """Members of either protocol may be made to leave so: an administrator's tools do."""
    turn = Turn(now_ms=now_ms)
    leaving: dict[str, Member] = {}
    answers = []
    for identity in request.members:
        answer = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
        answers.append(answer)
        try:
            member = _leaving(group, identity)
        except KafkaError as error:
            answer.error_code = error.code
        else:
            leaving[member.member_id] = member
    engine.fence(group, leaving.values(), turn)
    return turn.outcome(LeaveGroupResponse(members=answers))


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> Member:
    if identity.group_instance_id is None:
        return group.member(identity.member_id)
    member = known_static(group.static_member(identity.group_instance_id), identity.group_instance_id)
    if identity.member_id:
        check_not_fenced(member, identity.member_id, identity.group_instance_id)
    return member
