"""JoinGroup: who comes to a group, who comes again, and who takes the place of whom.

Functions of one group and the turn in which they are called, as in `rebalance.py`. Driven by `ClassicGroups.join`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.coordinator.classic.group import NO_MEMBER_ID, ClassicGroup, GroupState, Member, Protocols
from ottla.coordinator.classic.rebalance import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    ClassicConfig,
    expect_heartbeat,
    forget,
    joined,
    maybe_complete_join,
    prepare_rebalance,
    rebalance_or_complete_join,
    refused_join,
)
from ottla.coordinator.classic.records import generation_record
from ottla.coordinator.classic.turn import Turn
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.join_group_request import JoinGroupRequest
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.sync_group_response import SyncGroupResponse

_MEMBER_ID_REQUIRED_FROM = 4
"""The version of JoinGroup in which a new member first gets an id and then joins with it (KIP-394)."""


class Joiner(NamedTuple):
    """Who sends a JoinGroup, beyond what it says itself."""

    client_id: str
    client_host: str
    api_version: int
    unique: str
    """A text that nobody else has, for a new member's id; empty where the request names a member."""
    token: int
    may_describe: Callable[[str], bool] = lambda topic: True
    """Which topics it may know of."""


class Replaced(NamedTuple):
    """A static member took the place of its predecessor, and no rebalance is needed."""

    part: str
    group_id: str
    instance_id: str
    old_id: str
    new_id: str
    old_protocols: Protocols
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int
    old_leader_id: str | None
    api_version: int


def join(
    group: ClassicGroup, request: JoinGroupRequest, joiner: Joiner, config: ClassicConfig, turn: Turn
) -> JoinGroupResponse | None:
    """The answer, or None: then it comes when the join phase ends, or a record is written."""
    if not _has_room(group, request.member_id, config):
        forget(group, request.member_id, turn)
        return refused_join(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID)
    if not group.supports(request.protocol_type, [protocol.name for protocol in request.protocols]):
        return refused_join(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
    if request.member_id == NO_MEMBER_ID:
        return _join_new(group, request, joiner, config, turn)
    return _join_again(group, request, joiner, config, turn)


def _has_room(group: ClassicGroup, member_id: str, config: ClassicConfig) -> bool:
    member = group.members.get(member_id)
    match group.state:
        case GroupState.EMPTY:
            return True
        case GroupState.PREPARING_REBALANCE:
            # Those who wait are counted, not the members: the limit may have been lowered, and whoever comes last is
            # turned away.
            is_waiting = member is not None and member.awaiting_join is not None
            return is_waiting or group.awaiting_join < config.members_max
        case _:
            return member is not None or len(group.members) < config.members_max


def _join_new(
    group: ClassicGroup, request: JoinGroupRequest, joiner: Joiner, config: ClassicConfig, turn: Turn
) -> JoinGroupResponse | None:
    instance_id = request.group_instance_id
    member_id = f"{joiner.client_id if instance_id is None else instance_id}-{joiner.unique}"
    if instance_id is not None:
        old_id = group.static_members.get(instance_id)
        if old_id is None:
            _add(group, member_id, request, joiner, config, turn)
        else:
            _replace(group, old_id, member_id, request, joiner, config, turn)
        return None
    if joiner.api_version >= _MEMBER_ID_REQUIRED_FROM:
        group.pending_members.add(member_id)
        turn.set_timer(group.session_key(member_id), request.session_timeout_ms)
        return refused_join(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    _add(group, member_id, request, joiner, config, turn)
    return None


def _join_again(
    group: ClassicGroup, request: JoinGroupRequest, joiner: Joiner, config: ClassicConfig, turn: Turn
) -> JoinGroupResponse | None:
    if request.member_id in group.pending_members:
        if request.group_instance_id is not None:
            # An id is given out to dynamic members only; Kafka has no better name for who mixes the two.
            return refused_join(ErrorCode.UNKNOWN_SERVER_ERROR, NO_MEMBER_ID)
        _add(group, request.member_id, request, joiner, config, turn)
        return None
    try:
        group.check_member(request.member_id, request.group_instance_id)
    except KafkaError as error:
        return refused_join(error.code, request.member_id)
    member = group.members[request.member_id]
    protocols = _protocols(request)
    is_unchanged = member.protocols == protocols
    match group.state:
        case GroupState.COMPLETING_REBALANCE if is_unchanged:
            # It missed our answer, and may have it again.
            return joined(group, member)
        case GroupState.STABLE if is_unchanged and group.leader_id != member.member_id:
            return joined(group, member)
        case _:
            # A leader that joins again wants a rebalance: topics may have changed.
            group.update(member, protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
            _park(group, member, joiner.token, turn)
            rebalance_or_complete_join(group, config, turn)
            return None


def _add(
    group: ClassicGroup,
    member_id: str,
    request: JoinGroupRequest,
    joiner: Joiner,
    config: ClassicConfig,
    turn: Turn,
) -> None:
    if group.is_initial_rebalance:
        group.new_member_added = True
    member = Member(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=joiner.client_id,
        client_host=joiner.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=_protocols(request),
        is_new=True,
    )
    group.add(member, request.protocol_type)
    _park(group, member, joiner.token, turn)
    turn.set_timer(group.session_key(member_id), NEW_MEMBER_JOIN_TIMEOUT_MS)
    rebalance_or_complete_join(group, config, turn)


def _park(group: ClassicGroup, member: Member, token: int, turn: Turn) -> None:
    earlier = group.park_join(member, token)
    if earlier is not None:
        # The client has asked again, by another connection; whoever still listens to the first shall not hang.
        turn.answer(earlier, refused_join(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))


def _replace(
    group: ClassicGroup,
    old_id: str,
    new_id: str,
    request: JoinGroupRequest,
    joiner: Joiner,
    config: ClassicConfig,
    turn: Turn,
) -> None:
    """A static member is back, with no memory of its member id (KIP-345)."""
    old = group.members[old_id]
    instance_id = old.group_instance_id
    assert instance_id is not None
    old_leader_id = group.leader_id
    _fence(group, old, turn)
    member = group.replace_static(old_id, new_id)
    # The old id's timer finds nobody when it fires.
    expect_heartbeat(group, member, turn)
    group.update(member, _protocols(request), request.rebalance_timeout_ms, request.session_timeout_ms)
    group.park_join(member, joiner.token)
    match group.state:
        case GroupState.STABLE if group.protocol_name == group.select_protocol():
            turn.records.append(generation_record(group, {m.member_id: m.assignment for m in group.members.values()}))
            turn.tag = Replaced(
                part="classic",
                group_id=group.group_id,
                instance_id=instance_id,
                old_id=old_id,
                new_id=new_id,
                old_protocols=old.protocols,
                old_rebalance_timeout_ms=old.rebalance_timeout_ms,
                old_session_timeout_ms=old.session_timeout_ms,
                old_leader_id=old_leader_id,
                api_version=joiner.api_version,
            )
        case GroupState.STABLE | GroupState.COMPLETING_REBALANCE:
            # The leader may have been told of the old id already, and would assign to nobody.
            prepare_rebalance(group, config, turn)
        case _:
            maybe_complete_join(group, turn)


def _fence(group: ClassicGroup, member: Member, turn: Turn) -> None:
    token = group.take_join(member)
    if token is not None:
        turn.answer(token, refused_join(ErrorCode.FENCED_INSTANCE_ID, member.member_id))
    token, member.awaiting_sync = member.awaiting_sync, None
    if token is not None:
        turn.answer(token, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))


def _protocols(request: JoinGroupRequest) -> Protocols:
    """What the member offers; of two of one name the first counts."""
    first: dict[str, bytes] = {}
    for protocol in request.protocols:
        first.setdefault(protocol.name, protocol.metadata)
    return tuple(first.items())
