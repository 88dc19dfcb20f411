"""The classic groups of one partition: what their members ask, and the records that say what became of it.

Part of a `GroupShard`, which asks it only about groups that are classic ones or none at all. `_stored` is what the
records say, and whether a group exists; `_live` has the groups as requests see them, made from the record when they are
first asked for. A group that is live and not stored could not be written yet. One without members whose record says
everything is not kept live: there may be very many, and whoever asks gets a new one. What a tombstone takes back is
kept aside (`_gone`) until that is committed, since the record of a group that comes back may be older than the group.

Four kinds of record matter beyond being written, so their outcomes have a tag: `Made`, `Assigned` and `Replaced` say
what to do when the append has ended, as Kafka does; after `Emptied` the group may rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.coordinator.classic import joining
from ottla.coordinator.classic.group import JOIN, NO_MEMBER_ID, SESSION, SYNC, ClassicGroup, GroupState
from ottla.coordinator.classic.joining import Joiner, Replaced
from ottla.coordinator.classic.rebalance import (
    ClassicConfig,
    assigned,
    expect_heartbeat,
    forget,
    hand_out_assignments,
    joined,
    maybe_complete_join,
    on_join_timer,
    on_session_timer,
    on_sync_timer,
    prepare_rebalance,
    refuse_syncs,
    refused_join,
    synced,
)
from ottla.coordinator.classic.records import generation_record, group_from, new_group_record
from ottla.coordinator.classic.turn import Turn
from ottla.coordinator.consumer.classic_side import ClassicGroupView, ClassicMemberView
from ottla.coordinator.groups import Shared
from ottla.coordinator.outcome import AnyEffect, Outcome
from ottla.coordinator.stored import AnyRecord, StoredRecord
from ottla.coordinator.timeline import TimelineMap
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.images import MetadataImage
from ottla.wire.messages.group_metadata_key import GroupMetadataKey
from ottla.wire.messages.group_metadata_value import GroupMetadataValue
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from ottla.wire.messages.sync_group_request import SyncGroupRequest
from ottla.wire.messages.sync_group_response import SyncGroupResponse

_SKIP_ASSIGNMENT_FROM = 9
"""The version of JoinGroup in which a leader that returns can be told to leave the assignments alone (KIP-814)."""

_STEP_MEMBERS, _STEP_GROUPS = 100, 1_000
"""How many are taken up in one step: members, whose groups are made for it, and groups, which are but looked at."""


class Made(NamedTuple):
    """A group came to be by a request to join it."""

    part: str
    group_id: str


class Emptied(NamedTuple):
    """The last member has left a group."""

    part: str
    group_id: str


class Assigned(NamedTuple):
    """The leader's plan for a generation."""

    part: str
    group_id: str
    generation: int
    assignments: dict[str, bytes]


class ClassicGroups:
    def __init__(self, shared: Shared) -> None:
        self._timeline = shared.timeline
        self._tally = shared.tally
        self._config = ClassicConfig.of(shared.config)
        self._stored: TimelineMap[str, GroupMetadataValue] = TimelineMap(shared.timeline)
        self._live: dict[str, ClassicGroup] = {}
        self._gone: dict[str, ClassicGroup] = {}
        """Those that were live when a tombstone took them back. If it cannot be written they are live again."""
        self._crowded: list[ClassicGroup] = []
        """Those that were read with more members than there may be."""

    # What the other parts and the describing requests see.

    def group(self, group_id: str) -> ClassicGroup | None:
        """The group as it is now, be it committed or not."""
        stored = self._stored.get(group_id)
        if stored is None:
            return None
        group = self._live.get(group_id)
        if group is None:
            back = self._gone.pop(group_id, None)
            group = back or group_from(group_id, stored)
            if back is not None or group.members:
                self._live[group_id] = group
        return group

    def groups(self) -> Iterator[ClassicGroup]:
        for group_id in list(self._stored.keys()):
            group = self.group(group_id)
            assert group is not None
            yield group

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._stored

    def count_states(self) -> dict[GroupState, int]:
        """How many groups are in each state. Makes none for it."""
        counts = dict.fromkeys(GroupState, 0)
        for group_id, stored in self._stored.items():
            live = self._live.get(group_id)
            if live is not None:
                counts[live.state] += 1
            else:
                counts[GroupState.STABLE if stored.members else GroupState.EMPTY] += 1
        return counts

    def group_ids(self) -> Iterator[str]:
        return self._stored.keys()

    def committed_group(self, group_id: str) -> ClassicGroup | None:
        """The group, if a committed record says that there is one. Its members are those of the moment, as Kafka's."""
        committed = self._stored.committed(group_id)
        if committed is None:
            return None
        return self.group(group_id) or group_from(group_id, committed)

    def committed_groups(self) -> Iterator[ClassicGroup]:
        for group_id, _ in list(self._stored.committed_items()):
            group = self.committed_group(group_id)
            assert group is not None
            yield group

    # Requests.

    def join(
        self,
        request: JoinGroupRequest,
        joiner: Joiner,
        now_ms: int,
        before: Sequence[StoredRecord] = (),
    ) -> Outcome[JoinGroupResponse]:
        """`before` takes back an empty group of another kind, whose name this one gets."""
        turn = Turn(now_ms=now_ms, records=list(before))
        group = self.group(request.group_id)
        is_new_group = group is None
        if group is None:
            if request.member_id != NO_MEMBER_ID:
                return Outcome(response=refused_join(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
            group = self._live[request.group_id] = ClassicGroup(group_id=request.group_id, state_timestamp_ms=now_ms)
        response = joining.join(group, request, joiner, self._config, turn)
        if not group.is_at_rest:
            self._live[group.group_id] = group
        if is_new_group:
            assert turn.tag is None, "a new group has nobody to replace"
            turn.records.append(new_group_record(group))
            turn.tag = Made("classic", group.group_id)
        return turn.outcome(response)

    def sync(self, request: SyncGroupRequest, token: int, now_ms: int) -> Outcome[SyncGroupResponse]:
        turn = Turn(now_ms=now_ms)
        group = self.group(request.group_id)
        error = self._refusal_of_sync(group, request)
        if error:
            return turn.outcome(SyncGroupResponse(error_code=error))
        assert group is not None
        member = group.members[request.member_id]
        synced(group, member, turn)
        if group.state is GroupState.STABLE:
            return turn.outcome(assigned(group, member))
        assert group.state is GroupState.COMPLETING_REBALANCE
        earlier, member.awaiting_sync = member.awaiting_sync, token
        if earlier is not None:
            turn.answer(earlier, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        if group.leader_id == member.member_id and group.planned_generation != group.generation:
            # The first plan counts: a second one must not reach the log behind members that were told of the first.
            group.planned_generation = group.generation
            given = {assignment.member_id: assignment.assignment for assignment in request.assignments}
            assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
            turn.records.append(generation_record(group, assignments))
            turn.tag = Assigned("classic", group.group_id, group.generation, assignments)
            # The whole group waits for it, and who comes after it need not.
            turn.urgent = True
        return turn.outcome()

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> Outcome[HeartbeatResponse]:
        turn = Turn(now_ms=now_ms)
        group = self.group(request.group_id)
        if group is None:
            return turn.outcome(HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        try:
            group.check_member(request.member_id, request.group_instance_id)
        except KafkaError as error:
            return turn.outcome(HeartbeatResponse(error_code=error.code))
        if request.generation_id != group.generation:
            return turn.outcome(HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION))
        expect_heartbeat(group, group.members[request.member_id], turn)
        if group.state is GroupState.PREPARING_REBALANCE:
            return turn.outcome(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        return turn.outcome(HeartbeatResponse())

    def leave(self, request: LeaveGroupRequest, now_ms: int) -> Outcome[LeaveGroupResponse]:
        """Members go, by their own wish or an administrator's; `request` is as of version 3."""
        turn = Turn(now_ms=now_ms)
        group = self.group(request.group_id)
        if group is None:
            refused = [_left(member, ErrorCode.UNKNOWN_MEMBER_ID) for member in request.members]
            return turn.outcome(LeaveGroupResponse(members=refused))
        responses = [_left(member, self._leave_one(group, member, turn)) for member in request.members]
        if any(response.error_code == ErrorCode.NONE for response in responses):
            if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                prepare_rebalance(group, self._config, turn)
            else:
                maybe_complete_join(group, turn)
            self._after_leaving(group, turn)
        return turn.outcome(LeaveGroupResponse(members=responses))

    # Syncing and leaving.

    def _refusal_of_sync(self, group: ClassicGroup | None, request: SyncGroupRequest) -> ErrorCode:
        if group is None or group.is_empty():
            return ErrorCode.UNKNOWN_MEMBER_ID
        try:
            group.check_member(request.member_id, request.group_instance_id)
        except KafkaError as error:
            return error.code
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if _disagree(request.protocol_type, group.protocol_type) or _disagree(
            request.protocol_name, group.protocol_name
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _leave_one(self, group: ClassicGroup, identity: MemberIdentity, turn: Turn) -> ErrorCode:
        member_id = identity.member_id
        if member_id == NO_MEMBER_ID:
            # An administrator removes a static member, whichever id it has at the moment.
            current = group.static_members.get(identity.group_instance_id or NO_MEMBER_ID)
            if identity.group_instance_id is None or current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = current
        elif member_id not in group.pending_members:
            try:
                group.check_member(member_id, identity.group_instance_id)
            except KafkaError as error:
                return error.code
        turn.cancel_timer(group.session_key(member_id))
        forget(group, member_id, turn)
        return ErrorCode.NONE

    # Groups of other kinds.

    def view(self, group_id: str) -> ClassicGroupView | None:
        """What a consumer group that takes this one's place has to know of it."""
        group = self.group(group_id)
        if group is None:
            return None
        return ClassicGroupView(
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            members=tuple(
                ClassicMemberView(
                    member_id=member.member_id,
                    instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    protocols=tuple(member.protocols),
                    assignment=member.assignment,
                )
                for member in group.members.values()
            ),
        )

    def dissolve(self, group_id: str) -> list[AnyEffect]:
        """The group becomes one of another kind, by a tombstone that follows: who waits in it joins that one.

        Its timers go on: they find no group, unless the tombstone cannot be written, and then they are needed. So are
        those of members whose sessions ended unnoticed while they waited for us.
        """
        turn = Turn(now_ms=0)
        group = self.group(group_id)
        assert group is not None
        self._refuse_all(group, ErrorCode.REBALANCE_IN_PROGRESS, turn)
        for member in group.members.values():
            expect_heartbeat(group, member, turn)
        return turn.effects

    def adopt(self, group_id: str, value: GroupMetadataValue, *, rebalance: bool, now_ms: int) -> list[AnyEffect]:
        """A group of another kind becomes this one, by a record that follows. At once: nobody may be told of an
        assignment that others have not given up yet."""
        turn = Turn(now_ms=now_ms)
        group = self._live[group_id] = group_from(group_id, value)
        for member in group.members.values():
            expect_heartbeat(group, member, turn)
        if rebalance:
            prepare_rebalance(group, self._config, turn)
        assert not turn.records, "nobody has joined"
        return turn.effects

    # Records, and what happens to them.

    def replay(self, record: AnyRecord, producer_id: int, producer_epoch: int) -> None:
        assert isinstance(record.key, GroupMetadataKey)
        group_id, value = record.key.group, record.value
        if value is None:
            self._stored.pop(group_id)
        else:
            assert isinstance(value, GroupMetadataValue)
            self._stored[group_id] = value
        if self._timeline.loading:
            self._live.pop(group_id, None)  # Nothing is undone, and the record says everything.
        elif value is None:
            self._set_aside(group_id)
        else:
            self._gone.pop(group_id, None)

    def take_up(self, image: MetadataImage) -> Iterator[list[AnyEffect]]:
        """Members have their whole session to find the new coordinator."""
        turn = Turn(now_ms=0)
        for looked_at, (group_id, value) in enumerate(self._stored.items(), 1):
            if value.members:
                group = self.group(group_id)
                assert group is not None
                for member in group.members.values():
                    expect_heartbeat(group, member, turn)
                if len(group.members) > self._config.members_max:
                    self._crowded.append(group)
            if len(turn.effects) >= _STEP_MEMBERS or not looked_at % _STEP_GROUPS:
                yield turn.effects
                turn = Turn(now_ms=0)
        yield turn.effects

    def on_loaded(self, image: MetadataImage, now_ms: int) -> Outcome[None]:
        turn = Turn(now_ms=now_ms)
        for group in self._crowded:
            prepare_rebalance(group, self._config, turn)
        self._crowded.clear()
        return turn.outcome()

    def on_metadata(self, image: MetadataImage, now_ms: int) -> Outcome[None]:
        """What topics there are is the members' own affair."""
        return Outcome()

    def on_timer(self, key: tuple[str, ...], now_ms: int) -> Outcome[None]:
        turn = Turn(now_ms=now_ms)
        group = self.group(key[2])
        if group is not None:
            match key[1]:
                case kind if kind == SESSION:
                    on_session_timer(group, key[3], self._config, turn)
                case kind if kind == JOIN:
                    on_join_timer(group, self._config, turn)
                case kind:
                    assert kind == SYNC, f"there is no timer {key}"
                    on_sync_timer(group, self._config, turn)
            self._after_leaving(group, turn)
        return turn.outcome()

    def on_written(self, tag: object, error: ErrorCode, now_ms: int) -> Outcome[None]:
        """What was written is committed. After an error it is undone, or took so long that nobody waits for it."""
        turn = Turn(now_ms=now_ms)
        match tag:
            case Made():
                if error and tag.group_id not in self._stored:
                    self._end(tag.group_id, error, turn)
                self._maybe_rest(tag.group_id)
            case Emptied():
                self._maybe_rest(tag.group_id)
            case Assigned():
                self._on_assigned(tag, error, turn)
            case Replaced():
                self._on_replaced(tag, error, turn)
            case _:
                raise AssertionError(f"{tag} is not of this part")
        return turn.outcome()

    def _on_assigned(self, tag: Assigned, error: ErrorCode, turn: Turn) -> None:
        group = self.group(tag.group_id) or self._gone.get(tag.group_id)
        if group is None or group.state is not GroupState.COMPLETING_REBALANCE or group.generation != tag.generation:
            return  # Somebody joined or left meanwhile, and this generation is over.
        if error:
            refuse_syncs(group, error, turn)
            prepare_rebalance(group, self._config, turn)
            return
        for member in group.members.values():
            member.assignment = tag.assignments.get(member.member_id, b"")
        group.transition(GroupState.STABLE, turn.now_ms)
        self._tally.classic_rebalances.value += 1
        hand_out_assignments(group, turn)

    def _on_replaced(self, tag: Replaced, error: ErrorCode, turn: Turn) -> None:
        group = self.group(tag.group_id)
        if group is None or group.state is not GroupState.STABLE:
            return  # A rebalance has begun since, and answers whoever waits.
        if error:
            self._take_back(group, tag, error, turn)
            return
        member = group.members.get(tag.new_id)
        token = None if member is None else group.take_join(member)
        if member is None or token is None:
            return  # It was replaced in its turn, and told so.
        # Its session may have ended unnoticed while it waited for us.
        expect_heartbeat(group, member, turn)
        response = joined(group, member)
        if tag.api_version >= _SKIP_ASSIGNMENT_FROM:
            response.skip_assignment = group.leader_id == member.member_id
        else:
            # A leader that cannot be told to skip the assignment is not told that it leads.
            response.leader, response.members = tag.old_leader_id or NO_MEMBER_ID, []
        turn.answer(token, response)

    def _take_back(self, group: ClassicGroup, tag: Replaced, error: ErrorCode, turn: Turn) -> None:
        """The member id in the record holds, of however many came after it and were not written."""
        current = group.members[group.static_members[tag.instance_id]]
        token = group.take_join(current)
        if token is not None:
            turn.answer(token, refused_join(error, NO_MEMBER_ID))
        if all(current.member_id != member.member_id for member in self._stored[tag.group_id].members):
            group.update(current, tag.old_protocols, tag.old_rebalance_timeout_ms, tag.old_session_timeout_ms)
            expect_heartbeat(group, group.replace_static(current.member_id, tag.old_id), turn)

    def _end(self, group_id: str, error: ErrorCode, turn: Turn) -> None:
        """The group never came to be written: nobody may go on waiting in it."""
        group = self._live.pop(group_id, None)
        if group is not None:
            self._refuse_all(group, error, turn)
            group.transition(GroupState.DEAD, turn.now_ms)

    def _refuse_all(self, group: ClassicGroup, error: ErrorCode, turn: Turn) -> None:
        for member in group.members.values():
            token = group.take_join(member)
            if token is not None:
                turn.answer(token, refused_join(error, member.member_id))
            token, member.awaiting_sync = member.awaiting_sync, None
            if token is not None:
                turn.answer(token, SyncGroupResponse(error_code=error))

    def _after_leaving(self, group: ClassicGroup, turn: Turn) -> None:
        """Members, or ids that were given out, may have gone."""
        if group.is_at_rest:
            if turn.records:
                turn.tag = Emptied("classic", group.group_id)
            else:
                self._maybe_rest(group.group_id)

    def _maybe_rest(self, group_id: str) -> None:
        """Keep the group no longer, if its record says everything of it. Not before that is committed, nor if it could
        not be written: a group that came back from an older record would have members that nobody watches, or give out
        a generation again."""
        group = self._live.get(group_id)
        stored = self._stored.get(group_id)
        if group is None or stored is None or not group.is_at_rest:
            return
        if stored.members or stored.generation != group.generation:
            return
        if self._stored.committed(group_id) is stored:
            del self._live[group_id]

    def _set_aside(self, group_id: str) -> None:
        """A tombstone has taken the group back. Those are forgotten of which that has been committed since."""
        for gone in [gone for gone in self._gone if gone not in self._stored and self._stored.is_settled(gone)]:
            del self._gone[gone]
        group = self._live.pop(group_id, None)
        if group is not None:
            self._gone[group_id] = group


def _left(identity: MemberIdentity, error: ErrorCode) -> MemberResponse:
    return MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error)


def _disagree(told: str | None, known: str | None) -> bool:
    return told is not None and known is not None and told != known
