"""The consumer groups of one partition of `__consumer_offsets`: the part of a `GroupShard` that has KIP-848's groups.

Routes what comes: requests to `heartbeat` and `classic_members`, records to `replaying`, timers to what they are about.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.coordinator.consumer import classic_members
from ottla.coordinator.consumer.checks import check_heartbeat
from ottla.coordinator.consumer.classic_side import ClassicSide
from ottla.coordinator.consumer.described import described
from ottla.coordinator.consumer.engine import Engine
from ottla.coordinator.consumer.group import STATE_NAMES, ConsumerGroup
from ottla.coordinator.consumer.heartbeat import Sender, heartbeat
from ottla.coordinator.consumer.replaying import ConsumerKey, replay_into
from ottla.coordinator.consumer.settings import assignor_names
from ottla.coordinator.consumer.turn import JOIN, REBALANCE, REGEX, SESSION, Turn
from ottla.coordinator.groups import Shared
from ottla.coordinator.outcome import AnyEffect, Outcome
from ottla.coordinator.stored import AnyRecord, StoredRecord
from ottla.errors import ErrorCode, Malformed
from ottla.metadata.images import MetadataImage
from ottla.wire.messages.consumer_group_describe_response import DescribedGroup
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_request import LeaveGroupRequest
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.wire.messages.sync_group_request import SyncGroupRequest
from ottla.wire.messages.sync_group_response import SyncGroupResponse

_STEP_TIMERS, _STEP_GROUPS = 200, 200
"""How many timers are set, and how many groups looked at, in one step of taking up what was read."""


class ConsumerGroups:
    def __init__(self, shared: Shared, classic: ClassicSide) -> None:
        self._engine = Engine(shared, classic)
        self._groups = self._engine.groups
        self._topics = shared.image.topics

    # Groups.

    def group(self, group_id: str) -> ConsumerGroup | None:
        return self._groups.get(group_id)

    def groups(self) -> Iterator[ConsumerGroup]:
        return self._groups.values()

    def count_states(self) -> dict[str, int]:
        """How many groups are in each state, as far as that is committed."""
        counts = dict.fromkeys(STATE_NAMES, 0)
        for group in self._groups.values():
            counts[group.state_name()] += 1
        return counts

    def group_ids(self) -> Iterator[str]:
        return self._groups.keys()

    def describe(self, group_id: str) -> DescribedGroup:
        group = self._groups.committed(group_id)
        if group is None:
            raise self._engine.not_found(group_id)
        return described(group, assignor_names(self._engine.settings.config)[0], self._engine.image)

    # Requests of the consumer protocol.

    def check_heartbeat(self, request: ConsumerGroupHeartbeatRequest, api_version: int) -> None:
        check_heartbeat(request, api_version, self._engine.settings.config)

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, sender: Sender, now_ms: int
    ) -> Outcome[ConsumerGroupHeartbeatResponse]:
        return heartbeat(self._engine, request, sender, now_ms)

    # Requests of classic members, to a group that is not empty.

    def classic_join(
        self, request: JoinGroupRequest, sender: Sender, api_version: int, now_ms: int
    ) -> Outcome[JoinGroupResponse]:
        group = self._engine.existing(request.group_id)
        return classic_members.join(self._engine, group, request, sender, api_version, now_ms)

    def classic_sync(self, request: SyncGroupRequest, now_ms: int) -> Outcome[SyncGroupResponse]:
        return classic_members.sync(self._engine, self._engine.existing(request.group_id), request, now_ms)

    def classic_heartbeat(self, request: HeartbeatRequest, now_ms: int) -> Outcome[HeartbeatResponse]:
        return classic_members.heartbeat(self._engine, self._engine.existing(request.group_id), request, now_ms)

    def classic_leave(self, request: LeaveGroupRequest, now_ms: int) -> Outcome[LeaveGroupResponse]:
        return classic_members.leave(self._engine, self._engine.existing(request.group_id), request, now_ms)

    # Records.

    def replay(self, record: AnyRecord, producer_id: int, producer_epoch: int) -> None:
        assert isinstance(record, StoredRecord)
        key = record.key
        assert isinstance(key, ConsumerKey)
        group = self._groups.get(key.group_id)
        if group is None:
            if record.value is None:
                return  # What it takes back was cleaned away.
            group = self._groups[key.group_id] = ConsumerGroup(self._engine.shared.timeline, key.group_id)
        if isinstance(key, ConsumerGroupMetadataKey) and record.value is None:
            if len(group.members):
                raise Malformed(f"consumer group {key.group_id!r} is deleted before its members")
            self._groups.pop(key.group_id)
        else:
            replay_into(group, record)

    # Facts.

    def take_up(self, image: MetadataImage) -> Iterator[list[AnyEffect]]:
        """Whoever was a member has a whole session from now on to be heard of."""
        turn = Turn(now_ms=0)
        for looked_at, (group_id, group) in enumerate(self._groups.items(), 1):
            session_timeout_ms = self._engine.settings.of(group_id).session_timeout_ms
            for member_id, member in group.members.items():
                turn.set_timer(SESSION, group_id, member_id, session_timeout_ms)
                if member.has_to_revoke:
                    turn.set_timer(REBALANCE, group_id, member_id, member.rebalance_timeout_ms)
            if len(turn.effects) >= _STEP_TIMERS or not looked_at % _STEP_GROUPS:
                yield turn.effects
                turn = Turn(now_ms=0)
        yield turn.effects

    def on_loaded(self, image: MetadataImage, now_ms: int) -> Outcome[None]:
        self._learn_topics(image)
        return Outcome()

    def on_metadata(self, image: MetadataImage, now_ms: int) -> Outcome[None]:
        """Groups look at the topics when next a member is heard of."""
        self._learn_topics(image)
        return Outcome()

    def _learn_topics(self, image: MetadataImage) -> None:
        engine = self._engine
        before, self._topics = self._topics, image.topics
        if engine.topics_created_version == -1 or image.topics.by_id.has_keys_beyond(before.by_id):
            engine.topics_created_version = image.provenance.offset

    def on_timer(self, key: tuple[str, ...], now_ms: int) -> Outcome[None]:
        _, kind, group_id, member_id = key
        turn = Turn(now_ms=now_ms)
        engine = self._engine
        if kind == REGEX:
            engine.resolve_regexes(group_id, turn)
            return turn.outcome()
        if kind == JOIN:
            engine.joins_awaited.discard((group_id, member_id))
        group = self._groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return turn.outcome()
        if kind == REBALANCE and not member.has_to_revoke:
            return turn.outcome()
        engine.fence(group, [member], turn)
        return turn.outcome()

    def on_written(self, tag: object, error: ErrorCode, now_ms: int) -> Outcome[None]:
        raise AssertionError("nothing here has a tag")
