"""One classic group: its members, the state it is in, and what it allows.

A `Group` to the other parts of its shard. Starts no rebalance and answers nobody: `rebalance.py`,
`joining.py` and `classic_groups.py` do. Invariants: `awaiting_join` counts the members whose JoinGroup is parked;
`_supported` counts, for each protocol, the members that offer it; `static_members` has exactly the members with an
instance id; while there are members, one of them is the leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ottla.coordinator.groups import EMBEDDED_ELEMENTS_MAX, GroupKind
from ottla.coordinator.java_hash import java_hash
from ottla.coordinator.outcome import AnyEffect, SetTimer
from ottla.coordinator.stored import StoredRecord
from ottla.errors import ErrorCode, KafkaError, Malformed
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.describe_groups_response import DescribedGroup, DescribedGroupMember
from ottla.wire.messages.group_metadata_key import GroupMetadataKey
from ottla.wire.messages.join_group_response import JoinGroupResponseMember
from ottla.wire.messages.list_groups_response import ListedGroup

CONSUMER_PROTOCOL_TYPE = "consumer"
NO_MEMBER_ID = ""
NO_TIMESTAMP = -1

SESSION, JOIN, SYNC = "session", "join", "sync"
"""The kinds of timers: they are named `("classic", kind, group id[, member id])`."""

Protocols = tuple[tuple[str, bytes], ...]
"""What a member offers, best first: the name of a protocol and what the member has to say to whoever leads it."""


class GroupState(StrEnum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.DEAD}),
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.PREPARING_REBALANCE, GroupState.STABLE, GroupState.DEAD},
    ),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset({GroupState.DEAD}),
}


@dataclass(slots=True, kw_only=True)
class Member:
    member_id: str
    group_instance_id: str | None
    """Set: a *static* member (KIP-345), whose place is kept for the next one of that name."""
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """It has joined and has not been told of a generation yet, so it cannot send heartbeats."""
    awaiting_join: int | None = None
    """The token of its parked JoinGroup."""
    awaiting_sync: int | None = None

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_heard_of(self) -> bool:
        """Does it count as alive without heartbeats? A member that waits for us cannot send any."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise AssertionError(f"member {self.member_id} never offered {protocol}")


@dataclass(slots=True, kw_only=True)
class ClassicGroup:
    """Transitions, as `TRANSITIONS` has them:

    Empty → PreparingRebalance: a member joins; the initial rebalance waits a little for more.
    PreparingRebalance → CompletingRebalance: the next generation begins with those who joined.
    PreparingRebalance → Empty: the next generation begins, and nobody joined.
    CompletingRebalance → Stable: the leader's assignments are committed.
    CompletingRebalance, Stable → PreparingRebalance: a member joins, leaves, is lost, or offers other protocols.
    any → Dead: the group never came to be written. (One that was deleted is let go as it is.)
    """

    group_id: str
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState = GroupState.DEAD
    state_timestamp_ms: int = NO_TIMESTAMP
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """Instance id → member id."""
    pending_members: set[str] = field(default_factory=set)
    """Ids that were given out (KIP-394) and have not come back yet."""
    pending_syncs: dict[str, None] = field(default_factory=dict)
    """Members of this generation whose SyncGroup has not come, in order."""
    awaiting_join: int = 0
    subscribed_topics: frozenset[str] | None = None
    """What the members of this generation subscribe to; None: unknown, the protocol is not the consumers'."""
    planned_generation: int = -1
    """The generation whose plan has come from its leader, be it written yet or not."""
    new_member_added: bool = False
    """Somebody came since the initial rebalance's timer was set, so it is worth waiting once more."""
    initial_delay_ms: int = 0
    initial_remaining_ms: int = 0
    _supported: dict[str, int] = field(default_factory=dict)

    # States.

    def transition(self, state: GroupState, now_ms: int) -> None:
        assert state in TRANSITIONS[self.state], f"group {self.group_id!r} cannot go from {self.state} to {state}"
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        return GroupState.PREPARING_REBALANCE in TRANSITIONS[self.state]

    @property
    def is_initial_rebalance(self) -> bool:
        return self.state is GroupState.PREPARING_REBALANCE and self.previous_state is GroupState.EMPTY

    @property
    def is_at_rest(self) -> bool:
        """Is nobody here, and nobody on the way?"""
        return self.state is GroupState.EMPTY and not self.pending_members

    @property
    def all_joined(self) -> bool:
        return len(self.members) == self.awaiting_join and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((0, *(member.rebalance_timeout_ms for member in self.members.values())))

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def begin_generation(self, now_ms: int) -> None:
        """The join phase is over."""
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self._read_subscriptions()
        self.transition(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_ms)
        self.pending_syncs.clear()

    # Members.

    def add(self, member: Member, protocol_type: str) -> None:
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members, "a static member is replaced, not added"
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type, "who offers another type of protocol was turned away"
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member.protocols, 1)
        if member.awaiting_join is not None:
            self.awaiting_join += 1
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Forget a member, or an id that was given out; harmless if there is no such member."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member.protocols, -1)
            if member.awaiting_join is not None:
                self.awaiting_join -= 1
            if member.group_instance_id is not None:
                del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_members.discard(member_id)
        self.pending_syncs.pop(member_id, None)

    def replace_static(self, old_id: str, new_id: str) -> Member:
        """Give the place of a static member to a new member id. Who waited under the old id was answered before."""
        old = self.members.pop(old_id)
        assert old.group_instance_id is not None
        assert old.awaiting_join is None
        assert old.awaiting_sync is None
        member = Member(
            member_id=new_id,
            group_instance_id=old.group_instance_id,
            client_id=old.client_id,
            client_host=old.client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        self.members[new_id] = member
        if self.leader_id == old_id:
            self.leader_id = new_id
        self.static_members[old.group_instance_id] = new_id
        return member

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        self._count_protocols(member.protocols, -1)
        member.protocols = protocols
        self._count_protocols(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def park_join(self, member: Member, token: int) -> int | None:
        """The member's JoinGroup waits from now on. The token of an earlier one that waited, if there was any."""
        earlier, member.awaiting_join = member.awaiting_join, token
        if earlier is None:
            self.awaiting_join += 1
        return earlier

    def take_join(self, member: Member) -> int | None:
        """The token of the member's parked JoinGroup, which is about to be answered."""
        token, member.awaiting_join = member.awaiting_join, None
        if token is not None:
            self.awaiting_join -= 1
        return token

    def elect_joined_leader(self) -> bool:
        """Is the leader here for the next generation? If it did not come, another that did takes its place."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaiting_join is not None:
            return True
        joined = next((member for member in self.members.values() if member.awaiting_join is not None), None)
        if joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    def described_to_leader(self) -> list[JoinGroupResponseMember]:
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(self.protocol_name),
            )
            for member in self.members.values()
        ]

    # Protocols.

    def supports(self, protocol_type: str, names: Sequence[str]) -> bool:
        """May a member that offers these join without leaving the group nothing in common?"""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        if self.protocol_type == protocol_type:
            everybody = len(self.members)
            for name in names:
                if self._supported.get(name, 0) == everybody:
                    return True
        return False

    def select_protocol(self) -> str:
        """Of the protocols that every member offers, the one that most of them like best."""
        common = {name for name, count in self._supported.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            favourite = next(name for name, _ in member.protocols if name in common)
            votes[favourite] = votes.get(favourite, 0) + 1
        most = max(votes.values())
        return min((name for name, count in votes.items() if count == most), key=_java_bucket)

    def _count_protocols(self, protocols: Protocols, change: int) -> None:
        for name, _ in protocols:
            self._supported[name] = self._supported.get(name, 0) + change

    def _read_subscriptions(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        topics: set[str] = set()
        # Most say the same, and what was said once is read once.
        for metadata in {member.metadata(self.protocol_name) for member in self.members.values()}:
            subscribed = _subscribed_topics(metadata)
            if subscribed is None:
                return None
            topics.update(subscribed)
        return frozenset(topics)

    def learn_subscriptions(self) -> None:
        """The group was made from a record."""
        self.subscribed_topics = self._read_subscriptions()

    # What is allowed.

    def check_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Refuse who is no member, and who was a static member until another took its place."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    @property
    def kind(self) -> GroupKind:
        return GroupKind.CLASSIC

    def state_name(self) -> str:
        return self.state.value

    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    def is_subscribed_to(self, topic: str) -> bool:
        """Consumers whose subscription cannot be read may well be subscribed: their offsets are not deleted."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_member_epoch: int,
        is_transactional: bool,
        api_version: int,
    ) -> None:
        """Refuse a commit by who is not of this generation; what partitions it is for is the members' own affair."""
        generation = generation_or_member_epoch
        if generation < 0 and self.state is GroupState.EMPTY:
            # An administrator, or a consumer that assigns itself: welcome as long as nobody else is there.
            return
        if generation >= 0 or member_id or group_instance_id is not None:
            self.check_member(member_id, group_instance_id)
            if generation != self.generation:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif not is_transactional and self.state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not is_transactional and self.state is GroupState.COMPLETING_REBALANCE:
            # It has been told of this generation and not yet of what it owns in it.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def on_offset_commit(self, member_id: str) -> list[AnyEffect]:
        member = self.members.get(member_id)
        if member is None or self.state not in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            return []
        return [SetTimer(key=self.session_key(member_id), delay_ms=member.session_timeout_ms)]

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Whoever asks may know."""

    def check_offset_delete(self) -> None:
        if self.state is not GroupState.EMPTY and not self.uses_consumer_protocol:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_delete(self) -> None:
        if self.state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def expiration_base(self, commit_timestamp_ms: int) -> int | None:
        """The time of offsets runs from when the group became empty; while consumers are there, from the commit."""
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.state is GroupState.EMPTY:
            return commit_timestamp_ms if self.state_timestamp_ms == NO_TIMESTAMP else self.state_timestamp_ms
        is_known = self.uses_consumer_protocol and self.subscribed_topics is not None
        return commit_timestamp_ms if is_known and self.state is GroupState.STABLE else None

    def tombstones(self) -> list[StoredRecord]:
        return [StoredRecord(GroupMetadataKey(group=self.group_id), None)]

    def listed(self) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.protocol_type or "",
            group_state=self.state_name(),
            group_type=self.kind.value,
        )

    def described(self) -> DescribedGroup:
        """Of a group that is rebalancing nobody knows yet by which protocol, and so not what its members say."""
        protocol = self.protocol_name if self.state is GroupState.STABLE else None
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state_name(),
            protocol_type=self.protocol_type or "",
            protocol_data=protocol or "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=b"" if protocol is None else member.metadata(protocol),
                    member_assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )

    # Timers.

    def session_key(self, member_id: str) -> tuple[str, ...]:
        return ("classic", SESSION, self.group_id, member_id)

    @property
    def join_key(self) -> tuple[str, ...]:
        return ("classic", JOIN, self.group_id)

    @property
    def sync_key(self) -> tuple[str, ...]:
        return ("classic", SYNC, self.group_id)


def _java_bucket(name: str) -> int:
    """Between protocols with equally many votes Kafka takes the first of a small hash map; so do we."""
    spread = java_hash(name) & 0xFFFFFFFF
    return (spread ^ spread >> 16) & 15


def _subscribed_topics(metadata: bytes) -> list[str] | None:
    """The topics of a consumer's subscription, read as version 0, with which all versions begin; None: not one."""
    if len(metadata) < 2 or metadata[0] & 0x80:
        return None
    try:
        return ConsumerProtocolSubscription.read(metadata, 2, 0, EMBEDDED_ELEMENTS_MAX)[0].topics
    except Malformed:
        return None
