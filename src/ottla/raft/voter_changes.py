"""Voters are added, removed and updated one at a time (KIP-853).

The leader appends the new set as a control record; it is in force as soon as it is in the log, and the request is
answered when it is committed, by a majority of the new set. Invariant (B13): no set is appended before the leader has
committed a record of its own epoch, nor while an earlier set is not committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ottla.errors import ErrorCode, KafkaError
from ottla.raft import control_records, requests, responses
from ottla.raft.connections import Destination
from ottla.raft.effects import AppendControlRecords, Respond, Token
from ottla.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet

if TYPE_CHECKING:
    from ottla.raft.leader import Leader
    from ottla.raft.quorum import Quorum
    from ottla.wire.message import Message
    from ottla.wire.messages.add_raft_voter_request import AddRaftVoterRequest
    from ottla.wire.messages.api_versions_response import ApiVersionsResponse
    from ottla.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
    from ottla.wire.messages.update_raft_voter_request import UpdateRaftVoterRequest

KRAFT_VERSION_FEATURE = "kraft.version"


@dataclass(slots=True, kw_only=True)
class PendingChange:
    """The one change that is under way."""

    token: Token
    is_add: bool
    key: ReplicaKey
    endpoints: tuple[VoterEndpoint, ...] = ()
    ack_when_committed: bool = True
    answered: bool = False
    deadline_ms: int
    offset: int | None = None
    """Where in the log the new set is; None until it is there."""


def _answer(quorum: Quorum, token: Token, *, is_add: bool, error: ErrorCode, message: str | None) -> None:
    from ottla.wire.messages.add_raft_voter_response import AddRaftVoterResponse
    from ottla.wire.messages.remove_raft_voter_response import RemoveRaftVoterResponse

    response = AddRaftVoterResponse if is_add else RemoveRaftVoterResponse
    quorum.emit(Respond(token=token, response=response(error_code=error, error_message=message)))


def _finish(quorum: Quorum, role: Leader, error: ErrorCode, message: str | None = None) -> None:
    change, role.change = role.change, None
    assert change is not None
    if not change.answered:
        _answer(quorum, change.token, is_add=change.is_add, error=error, message=message)


def _obstacle(quorum: Quorum, role: Leader, now_ms: int) -> tuple[ErrorCode, str] | None:
    """Why no voter can be changed now."""
    expire(quorum, role, now_ms)
    if role.change is not None:
        return ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is under way"
    if role.high_watermark is None:
        return ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed anything in its epoch yet"
    if quorum.kraft_version == 0:
        return ErrorCode.UNSUPPORTED_VERSION, f"voters cannot be changed while {KRAFT_VERSION_FEATURE} is 0"
    if not voters_are_committed(quorum, role):
        return ErrorCode.REQUEST_TIMED_OUT, "the last change of the voters is not committed yet"
    return None


def voters_are_committed(quorum: Quorum, role: Leader) -> bool:
    return (
        not role.appending_voters
        and role.high_watermark is not None
        and quorum.voters.in_log
        and quorum.voters.latest_offset < role.high_watermark
    )


def append_voters(quorum: Quorum, role: Leader, voters: VoterSet) -> None:
    assert voters_are_committed(quorum, role), "one change of the voters at a time (B13)"
    role.appending_voters = True
    quorum.emit(AppendControlRecords(epoch=role.epoch, records=(control_records.kraft_voters(voters),)))


def _named_voter(
    quorum: Quorum,
    request: AddRaftVoterRequest | RemoveRaftVoterRequest,
    error: ErrorCode,
    refuse: Callable[[ErrorCode, str | None], None],
) -> ReplicaKey | None:
    """Who is to be added or removed; None if the request was refused, as not for us or as naming nobody."""
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    if request.cluster_id is not None and request.cluster_id != quorum.cluster_id:
        refuse(ErrorCode.INCONSISTENT_CLUSTER_ID, f"{request.cluster_id} is not the id of this cluster")
    elif error != ErrorCode.NONE:
        refuse(error, None)
    elif key.id < 0 or key.has_no_directory:
        refuse(ErrorCode.INVALID_REQUEST, "the request names no voter")
    else:
        return key
    return None


# Adding.


def on_add_voter(quorum: Quorum, token: Token, message: Message, error: ErrorCode, now_ms: int) -> None:
    request = cast("AddRaftVoterRequest", message)

    def refuse(error: ErrorCode, text: str | None = None) -> None:
        _answer(quorum, token, is_add=True, error=error, message=text)

    key = _named_voter(quorum, request, error, refuse)
    if key is None:
        return
    endpoints = tuple(VoterEndpoint(e.name, e.host, e.port) for e in request.listeners)
    endpoint = next(filter(quorum.is_own_listener, endpoints), None)
    if endpoint is None:
        refuse(ErrorCode.INVALID_REQUEST, f"the request has no endpoint for the listener {quorum.listener}")
        return
    role = _leader(quorum)
    if (obstacle := _obstacle(quorum, role, now_ms)) is not None:
        refuse(*obstacle)
        return
    if key.id in role.voters.ids:
        refuse(ErrorCode.DUPLICATE_VOTER, f"{key.id} is among the voters already: {role.voters}")
        return
    if not quorum.connections.is_ready(key.id, now_ms):
        refuse(ErrorCode.REQUEST_TIMED_OUT, f"{key} is not ready to be asked for its versions")
        return
    role.change = PendingChange(
        token=token,
        is_add=True,
        key=key,
        endpoints=endpoints,
        ack_when_committed=request.ack_when_committed,
        deadline_ms=now_ms + quorum.config.request_timeout_ms,
    )
    to = Destination(node_id=key.id, host=endpoint.host, port=endpoint.port)
    quorum.send(to, requests.api_versions(), now_ms)


def on_api_versions(quorum: Quorum, node_id: int, response: ApiVersionsResponse | None, now_ms: int) -> bool:
    """The voter-to-be answered, or None: it did not. False if it should be left alone for a while."""
    role = _leader(quorum)
    change = role.change
    if change is None or not change.is_add or change.key.id != node_id or change.offset is not None:
        return response is not None
    if response is None or response.error_code != ErrorCode.NONE:
        _finish(quorum, role, ErrorCode.REQUEST_TIMED_OUT, f"{change.key} did not tell its versions")
        return False
    feature = next((f for f in response.supported_features if f.name == KRAFT_VERSION_FEATURE), None)
    if feature is None or not feature.min_version <= quorum.kraft_version <= feature.max_version:
        shown = "0-0" if feature is None else f"{feature.min_version}-{feature.max_version}"
        text = f"{change.key} supports {KRAFT_VERSION_FEATURE} {shown}, and the cluster has {quorum.kraft_version}"
        _finish(quorum, role, ErrorCode.INVALID_REQUEST, text)
        return True
    if not role.is_caught_up(change.key, now_ms):
        _finish(quorum, role, ErrorCode.REQUEST_TIMED_OUT, f"{change.key} has not caught up with the log")
        return True
    voters = role.voters.with_voter(Voter(change.key, change.endpoints, feature.min_version, feature.max_version))
    if voters is None or not voters_are_committed(quorum, role):
        _finish(quorum, role, ErrorCode.REQUEST_TIMED_OUT, "the voters changed meanwhile")
        return True
    append_voters(quorum, role, voters)
    return True


# Removing.


def on_remove_voter(quorum: Quorum, token: Token, message: Message, error: ErrorCode, now_ms: int) -> None:
    request = cast("RemoveRaftVoterRequest", message)

    def refuse(error: ErrorCode, text: str | None = None) -> None:
        _answer(quorum, token, is_add=False, error=error, message=text)

    key = _named_voter(quorum, request, error, refuse)
    if key is None:
        return
    role = _leader(quorum)
    if (obstacle := _obstacle(quorum, role, now_ms)) is not None:
        refuse(*obstacle)
        return
    voters = role.voters.without(key)
    if voters is None:
        refuse(ErrorCode.VOTER_NOT_FOUND, f"{key} cannot be removed from the voters {role.voters}")
        return
    role.change = PendingChange(
        token=token, is_add=False, key=key, deadline_ms=now_ms + quorum.config.request_timeout_ms
    )
    append_voters(quorum, role, voters)


# Updating.


def on_update_voter(quorum: Quorum, token: Token, message: Message, error: ErrorCode, now_ms: int) -> None:
    request = cast("UpdateRaftVoterRequest", message)
    answer = _update(quorum, request, error, now_ms)
    quorum.emit(Respond(token=token, response=responses.update_voter(quorum, answer)))


def _update(quorum: Quorum, request: UpdateRaftVoterRequest, error: ErrorCode, now_ms: int) -> ErrorCode:
    if request.cluster_id is not None and request.cluster_id != quorum.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if error != ErrorCode.NONE:
        return error
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    endpoints = tuple(VoterEndpoint(e.name, e.host, e.port) for e in request.listeners)
    feature = request.kraft_version_feature
    lowest, highest = feature.min_supported_version, feature.max_supported_version
    if key.id < 0 or key.has_no_directory or not any(map(quorum.is_own_listener, endpoints)):
        return ErrorCode.INVALID_REQUEST
    if not 0 <= lowest <= highest:
        return ErrorCode.INVALID_REQUEST
    role = _leader(quorum)
    expire(quorum, role, now_ms)
    if role.change is not None or role.high_watermark is None:
        return ErrorCode.REQUEST_TIMED_OUT
    voter = Voter(key, endpoints, lowest, highest)
    if quorum.kraft_version == 0:
        # The voters are in every node's configuration; there is no record to change.
        if not role.voters.is_voter(key):
            return ErrorCode.VOTER_NOT_FOUND
        role.updated_voters[key.id] = voter
        return ErrorCode.NONE
    if not voters_are_committed(quorum, role):
        return ErrorCode.REQUEST_TIMED_OUT
    if not lowest <= quorum.kraft_version <= highest:
        return ErrorCode.INVALID_REQUEST
    voters = role.voters.with_updated(voter)
    if voters is None:
        return ErrorCode.VOTER_NOT_FOUND
    if voters != role.voters:
        append_voters(quorum, role, voters)
    return ErrorCode.NONE


def update_own_endpoints(quorum: Quorum, role: Leader) -> None:
    """The leader itself is elsewhere than the voters know: they are told when nothing else is under way."""
    if quorum.kraft_version == 0 or not quorum.endpoints or role.change is not None:
        return
    if not voters_are_committed(quorum, role):
        return
    voters = role.voters.with_updated(quorum.local_voter)
    if voters is not None and voters != role.voters:
        append_voters(quorum, role, voters)


def upgrade(quorum: Quorum, role: Leader, level: int, *, validate_only: bool) -> None:
    """To kraft.version 1 the voters go with their directories, as they told of themselves. Raises `KafkaError`."""
    if level == quorum.kraft_version:
        return
    if level != 1:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{KRAFT_VERSION_FEATURE} cannot go from {quorum.kraft_version} to {level}",
        )
    if role.high_watermark is None:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed anything in its epoch yet")
    if role.appending_voters:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is under way")
    known = {**role.updated_voters, quorum.local.id: quorum.local_voter}
    voters = VoterSet(known[voter] for voter in role.voters.ids if voter in known)
    missing = [voter for voter in role.voters.ids if voter not in known]
    if missing or not quorum.endpoints:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION, f"voters {missing or [quorum.local.id]} have not told of themselves yet"
        )
    refusing = [v.key.id for v in voters.voters if not v.kraft_version_min <= level <= v.kraft_version_max]
    if refusing:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION, f"voters {refusing} do not support {KRAFT_VERSION_FEATURE} {level}"
        )
    if not validate_only:
        role.appending_voters = True
        records = (control_records.kraft_version(level), control_records.kraft_voters(voters))
        quorum.emit(AppendControlRecords(epoch=role.epoch, records=records))


# What becomes of a change.


def on_voters_appended(quorum: Quorum, role: Leader, offset: int) -> None:
    """The set that was on its way is in the log."""
    change = role.change
    if change is not None and change.offset is None:
        change.offset = offset
        if not change.ack_when_committed:
            change.answered = True
            _answer(quorum, change.token, is_add=change.is_add, error=ErrorCode.NONE, message=None)


def on_high_watermark(quorum: Quorum, role: Leader) -> None:
    change, committed = role.change, role.high_watermark
    if change is not None and change.offset is not None and committed is not None and committed > change.offset:
        _finish(quorum, role, ErrorCode.NONE)
    if voters_are_committed(quorum, role) and not role.voters.is_voter(quorum.local):
        # It led until the others could do without it (B15).
        role.resign_requested = True


def expire(quorum: Quorum, role: Leader, now_ms: int) -> None:
    if role.change is not None and role.change.deadline_ms <= now_ms:
        _finish(quorum, role, ErrorCode.REQUEST_TIMED_OUT)


def cancel(role: Leader, token: Token) -> None:
    """Nobody waits for the answer any more; the change goes on."""
    if role.change is not None and role.change.token == token:
        role.change.answered = True


def abandon(quorum: Quorum, role: Leader) -> None:
    """This replica leads no more: whether the change survives is for the next leader."""
    if role.change is not None:
        _finish(quorum, role, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _leader(quorum: Quorum) -> Leader:
    from ottla.raft.leader import Leader

    assert isinstance(quorum.role, Leader), "only a leader changes voters"
    return quorum.role
