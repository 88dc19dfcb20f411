"""The two phases of a rebalance, and the timers that bound them.

The join phase ends when every known member has sent JoinGroup, or after the longest of their rebalance timeouts; those
who did not come are then removed, but for static members, whom only their session timeout removes. A group that was
empty waits `group.initial.rebalance.delay.ms` for more members, and as long again for as long as more come. The sync
phase ends when the leader's assignments are committed; who has not sent SyncGroup within the rebalance timeout is
removed, and the next rebalance begins.

A timer that fires late, for a state that has passed, is of no consequence: each looks at the group again.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config.node import NodeConfig
from ottla.coordinator.classic.group import NO_MEMBER_ID, ClassicGroup, GroupState, Member
from ottla.coordinator.classic.records import generation_record
from ottla.coordinator.classic.turn import Turn
from ottla.errors import ErrorCode
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.sync_group_response import SyncGroupResponse

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""A new member's JoinGroup waits no longer: it may be one of many retries of a client that has gone."""

_RETRY_MS_MIN = 1_000
"""Members without patience shall not keep us busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicConfig:
    initial_rebalance_delay_ms: int
    members_max: int

    @classmethod
    def of(cls, config: NodeConfig) -> ClassicConfig:
        return cls(
            initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
            members_max=config.get_int("group.max.size"),
        )


def expect_heartbeat(group: ClassicGroup, member: Member, turn: Turn) -> None:
    turn.set_timer(group.session_key(member.member_id), member.session_timeout_ms)


# The join phase.


def rebalance_or_complete_join(group: ClassicGroup, config: ClassicConfig, turn: Turn) -> None:
    """Something about the members changed: begin to rebalance, or, if that is under way, see whether it may go on."""
    if group.can_rebalance:
        prepare_rebalance(group, config, turn)
    else:
        maybe_complete_join(group, turn)


def prepare_rebalance(group: ClassicGroup, config: ClassicConfig, turn: Turn) -> None:
    if group.state is GroupState.COMPLETING_REBALANCE:
        refuse_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, turn)
    group.pending_syncs.clear()
    turn.cancel_timer(group.sync_key)
    is_initial = group.state is GroupState.EMPTY
    group.transition(GroupState.PREPARING_REBALANCE, turn.now_ms)
    if is_initial:
        group.initial_delay_ms = config.initial_rebalance_delay_ms
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - config.initial_rebalance_delay_ms, 0)
        turn.set_timer(group.join_key, group.initial_delay_ms)
    elif group.all_joined or not group.rebalance_timeout_ms:
        # Without members nobody gives those time who have an id and have not joined yet.
        complete_join(group, turn)
    else:
        turn.set_timer(group.join_key, group.rebalance_timeout_ms)


def maybe_complete_join(group: ClassicGroup, turn: Turn) -> None:
    """End the join phase if nobody is missing. An initial rebalance ends by its timer alone."""
    if group.state is GroupState.PREPARING_REBALANCE and not group.is_initial_rebalance and group.all_joined:
        complete_join(group, turn)


def on_join_timer(group: ClassicGroup, config: ClassicConfig, turn: Turn) -> None:
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    if group.is_initial_rebalance and group.new_member_added and group.initial_remaining_ms:
        group.new_member_added = False
        waited_ms = group.initial_delay_ms
        group.initial_delay_ms = min(config.initial_rebalance_delay_ms, group.initial_remaining_ms)
        group.initial_remaining_ms = max(group.initial_remaining_ms - waited_ms, 0)
        turn.set_timer(group.join_key, group.initial_delay_ms)
        return
    complete_join(group, turn)


def complete_join(group: ClassicGroup, turn: Turn) -> None:
    """Begin the next generation with those who joined, and tell them."""
    turn.cancel_timer(group.join_key)
    for member in [member for member in group.members.values() if member.awaiting_join is None]:
        if not member.is_static:
            group.remove(member.member_id)
            turn.cancel_timer(group.session_key(member.member_id))
    if group.members and not group.elect_joined_leader():
        # Only static members are left, and none of them came: until their sessions end there is nobody to go on with.
        turn.set_timer(group.join_key, max(group.rebalance_timeout_ms, _RETRY_MS_MIN))
        return
    group.begin_generation(turn.now_ms)
    if group.state is GroupState.EMPTY:
        # If this is not written the members of the last generation come back with the next coordinator, and time out.
        turn.records.append(generation_record(group, {}))
        return
    for member in group.members.values():
        token = group.take_join(member)
        if token is not None:
            turn.answer(token, joined(group, member))
        expect_heartbeat(group, member, turn)
        member.is_new = False
        group.pending_syncs[member.member_id] = None
    turn.set_timer(group.sync_key, group.rebalance_timeout_ms)


def joined(group: ClassicGroup, member: Member) -> JoinGroupResponse:
    """You are a member of the current generation; if you lead it, these are the others."""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or NO_MEMBER_ID,
        member_id=member.member_id,
        members=group.described_to_leader() if group.leader_id == member.member_id else [],
    )


def refused_join(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, protocol_name=None, member_id=member_id)


# The sync phase.


def on_sync_timer(group: ClassicGroup, config: ClassicConfig, turn: Turn) -> None:
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.pending_syncs:
        return
    for member_id in list(group.pending_syncs):
        group.remove(member_id)
        turn.cancel_timer(group.session_key(member_id))
    prepare_rebalance(group, config, turn)


def synced(group: ClassicGroup, member: Member, turn: Turn) -> None:
    """The member's SyncGroup came."""
    group.pending_syncs.pop(member.member_id, None)
    if not group.pending_syncs:
        turn.cancel_timer(group.sync_key)


def hand_out_assignments(group: ClassicGroup, turn: Turn) -> None:
    """The generation is committed: who waited for its assignment gets it."""
    for member in group.members.values():
        token, member.awaiting_sync = member.awaiting_sync, None
        if token is not None:
            turn.answer(token, assigned(group, member))
            # Its session may have ended unnoticed while it waited for us.
            expect_heartbeat(group, member, turn)


def assigned(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def refuse_syncs(group: ClassicGroup, error: ErrorCode, turn: Turn) -> None:
    """Nothing comes of this generation."""
    for member in group.members.values():
        member.assignment = b""
        token, member.awaiting_sync = member.awaiting_sync, None
        if token is not None:
            turn.answer(token, SyncGroupResponse(error_code=error))
            expect_heartbeat(group, member, turn)


# Members that go.


def answer_gone(group: ClassicGroup, member: Member, turn: Turn) -> None:
    """A member is removed while its JoinGroup waits. If its client still lives, it joins anew."""
    token = group.take_join(member)
    if token is not None:
        turn.answer(token, refused_join(ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER_ID))
    token, member.awaiting_sync = member.awaiting_sync, None
    if token is not None:
        turn.answer(token, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))


def forget(group: ClassicGroup, member_id: str, turn: Turn) -> None:
    """Somebody goes: a member, or who was given an id and has not joined yet."""
    member = group.members.get(member_id)
    if member is not None:
        answer_gone(group, member, turn)
    group.remove(member_id)


def on_session_timer(group: ClassicGroup, member_id: str, config: ClassicConfig, turn: Turn) -> None:
    if member_id in group.pending_members:
        group.remove(member_id)
        if group.state is GroupState.PREPARING_REBALANCE and group.all_joined:
            complete_join(group, turn)
        return
    member = group.members.get(member_id)
    if member is None or member.is_heard_of:
        return
    answer_gone(group, member, turn)
    group.remove(member_id)
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(group, config, turn)
    elif group.state is GroupState.PREPARING_REBALANCE and group.all_joined:
        complete_join(group, turn)
