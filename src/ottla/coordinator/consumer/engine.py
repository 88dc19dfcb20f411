"""What every request and timer of consumer groups is made of: the steps of KIP-848, as records.

    1. the member is made or changed           ─► ConsumerGroupMemberMetadata, and the group epoch rises
    2. a new target, if the group epoch is ahead ─► ConsumerGroupTargetAssignment…, and the assignment epoch rises
    3. the member takes a step towards it       ─► ConsumerGroupCurrentMemberAssignment

Nothing here changes a group: records do, when they are replayed. So a step may raise, and nothing has happened. What is
soft (timers that run, regexes being resolved) is kept here, and changes with the outcome (`Turn.when_decided`); losing
it with the leadership does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum, auto
from functools import partial
from typing import NamedTuple

from ottla.coordinator.consumer import records
from ottla.coordinator.consumer.assignors import ASSIGNORS, Assignment
from ottla.coordinator.consumer.checks import check_not_fenced, check_released, known_static
from ottla.coordinator.consumer.classic_side import ClassicSide
from ottla.coordinator.consumer.conversion import classic_group, downgraded, no_classic_group, upgraded
from ottla.coordinator.consumer.group import ConsumerGroup, Refreshed, Subscribers, add, is_homogeneous
from ottla.coordinator.consumer.member import Member
from ottla.coordinator.consumer.metadata_hash import TopicHashes
from ottla.coordinator.consumer.reconciliation import Owned, Step, reconcile
from ottla.coordinator.consumer.regex import compile_regex, resolve
from ottla.coordinator.consumer.replaying import replay_into
from ottla.coordinator.consumer.resolved import NEVER_RESOLVED, ResolvedRegex
from ottla.coordinator.consumer.settings import Settings, assignor_names
from ottla.coordinator.consumer.target import next_target
from ottla.coordinator.consumer.turn import JOIN, REBALANCE, REGEX, SESSION, SYNC, Turn
from ottla.coordinator.groups import Shared
from ottla.coordinator.timeline import Timeline, TimelineMap
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.images import MetadataImage
from ottla.model import Uuid

_REGEX_REFRESH_INTERVAL_MS_MIN = 10_000


class RegexChange(Enum):
    NONE = auto()
    UNRESOLVED = auto()
    """The group epoch rises later, when the topics are known."""
    RESOLVED = auto()


class Basis(NamedTuple):
    """What a target is to be worked out for."""

    group_epoch: int
    homogeneous: bool | None
    """None: as the group has it."""


class Aim(NamedTuple):
    """What a member is to be reconciled with."""

    epoch: int
    assignment: Assignment


class Engine:
    def __init__(self, shared: Shared, classic: ClassicSide) -> None:
        self.shared = shared
        self.classic = classic
        self.settings = Settings(shared)
        self.groups: TimelineMap[str, ConsumerGroup] = TimelineMap(shared.timeline)
        self.topics_created_version = -1
        """Of the last metadata that had new topics: expressions that were resolved before may match them."""
        self.resolving: dict[str, Callable[[str], bool]] = {}
        """The groups whose regular expressions are about to be resolved."""
        self.joins_awaited: set[tuple[str, str]] = set()
        """The classic members that have been told to join again, and whose timer runs."""
        self._hashes = TopicHashes()

    @property
    def image(self) -> MetadataImage:
        return self.shared.image

    # Groups and members.

    def existing(self, group_id: str) -> ConsumerGroup:
        group = self.groups.get(group_id)
        if group is None:
            raise self.not_found(group_id)
        return group

    def not_found(self, group_id: str, name: str = "Group") -> KafkaError:
        if self.classic.view(group_id) is None:
            return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{name} {group_id} not found.")
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")

    def joined(self, group_id: str, turn: Turn) -> ConsumerGroup:
        """The group that a member joins: made, or made of a classic one, where there is none."""
        group = self.groups.get(group_id)
        if group is not None:
            return group
        view = self.classic.view(group_id)
        if view is None:
            return ConsumerGroup(self.shared.timeline, group_id)
        if not view.members:
            turn.records.append(no_classic_group(group_id))
            turn.when_decided(partial(self.classic.dissolve, group_id))
            return ConsumerGroup(self.shared.timeline, group_id)
        found = upgraded(group_id, view, self.settings, self.image, self._hashes)
        # The group as it will be: its members are asked about before the records are replayed.
        scratch = Timeline()
        scratch.loading = True
        group = ConsumerGroup(scratch, group_id)
        for record in found:
            replay_into(group, record)
        turn.records += [no_classic_group(group_id), *found]
        turn.when_decided(partial(self.classic.dissolve, group_id))
        for member in view.members:
            turn.set_timer(SESSION, group_id, member.member_id, member.session_timeout_ms)
        return group

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        most = self.settings.members_max
        if len(group.members) >= most and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {most} members.",
            )

    def static_member(
        self,
        group: ConsumerGroup,
        member_id: str,
        instance_id: str,
        *,
        joining: bool,
        classic: bool,
        turn: Turn,
    ) -> Member:
        """The member that comes with an instance id. One that joins takes the place of whoever had it before, if that
        one has left or either of them speaks the classic protocol, which knows no leaving for a while."""
        existing = group.static_member(instance_id)
        if not joining:
            existing = known_static(existing, instance_id)
            check_not_fenced(existing, member_id, instance_id)
            return existing
        if existing is None:
            return group.members.get(member_id) or Member(member_id=member_id)
        if not classic and not existing.uses_classic:
            check_released(existing, member_id, instance_id)
        member = existing._replace(member_id=member_id, epoch=0, previous_epoch=0)
        turn.records += records.no_member(group.group_id, existing.member_id)
        turn.records.append(records.member_metadata(group.group_id, member))
        target = group.targets.get(existing.member_id) or {}
        turn.records.append(records.target(group.group_id, member_id, target))
        turn.records.append(records.current(group.group_id, member))
        return member

    # 1. The member, and the group's epoch.

    def change_regex(self, group: ConsumerGroup, before: Member, after: Member, turn: Turn) -> RegexChange:
        old, new = before.topic_regex, after.topic_regex
        change = RegexChange.NONE
        is_new = False
        if old != new:
            change = RegexChange.UNRESOLVED
            if old and group.regex_members.get(old, 0) == 1:
                turn.records.append(records.no_regex(group.group_id, old))
            if new and not group.regex_members.get(new, 0):
                compile_regex(new)
                is_new = True
            elif not new or new in group.regexes:
                change = RegexChange.RESOLVED
        if is_new or len(group.regex_members):
            self._maybe_resolve(group, before, after, is_new, turn)
        return change

    def _maybe_resolve(self, group: ConsumerGroup, before: Member, after: Member, is_new: bool, turn: Turn) -> None:
        """Resolve again if there is something unresolved or topics are new, but not more often than every ten
        seconds; and in any case after `group.consumer.regex.refresh.interval.ms`. The last time may be of a coordinator
        whose clock was ahead: it does not bind us."""
        last = group.any_regex()
        if group.group_id in self.resolving:
            return
        age_ms = -1 if last is None else turn.now_ms - last.timestamp_ms
        if 0 <= age_ms <= _REGEX_REFRESH_INTERVAL_MS_MIN:
            return
        wanted = group.regex_members_with(before, after)
        if wanted and (
            is_new
            or last is None
            or len(wanted) != len(group.regexes)
            or last.version < self.topics_created_version
            or not 0 <= age_ms <= self.settings.regex_refresh_interval_ms
        ):
            turn.when_decided(partial(self.resolving.update, {group.group_id: turn.may_describe}))
            turn.set_timer(REGEX, group.group_id, "", 0)

    def resolve_regexes(self, group_id: str, turn: Turn) -> None:
        may_describe = self.resolving.pop(group_id, None)
        group = self.groups.get(group_id)
        # A second try, after the records of the first could not be written, knows nothing of whose right it was to
        # see which topics: the next heartbeat asks anew.
        if may_describe is None or group is None or not len(group.regex_members):
            return
        counts = dict(group.subscribers.items())
        changed = False
        found = resolve(group.regex_members, filter(may_describe, self.image.topics.by_name))
        for pattern, topics in found.items():
            before = (group.regexes.get(pattern) or NEVER_RESOLVED).topics
            if before != topics:
                changed = True
                for topic in before:
                    add(counts, topic, by_regex=-1)
                for topic in topics:
                    add(counts, topic, by_regex=1)
            resolved = ResolvedRegex(topics, self.image.provenance.offset, turn.now_ms)
            turn.records.append(records.regex(group_id, pattern, resolved))
        metadata_hash = self._hashes.of_group(counts, self.image)
        if changed or metadata_hash != group.epochs.metadata_hash:
            epoch = group.epochs.group + 1
            self._raise_epoch(group_id, epoch, metadata_hash, turn)
            turn.when_decided(partial(group.on_refreshed, Refreshed(self.image, epoch)))

    def needs_refresh(self, group: ConsumerGroup) -> bool:
        """Whether the topics may be others than when the group last looked. (Or its epoch, then new, was undone.)"""
        return group.refreshed.image is not self.image or group.epochs.group < group.refreshed.group_epoch

    def refresh(self, group: ConsumerGroup, before: Member, after: Member, changed: bool, turn: Turn) -> Basis:
        """Look at the topics again; the group epoch rises if they are others or the subscriptions have `changed`."""
        counts = group.subscribers_with(before, after)
        metadata_hash = self._hashes.of_group(counts, self.image)
        members = len(group.members)
        if after.member_id not in group.members and group.static_member(after.instance_id) is None:
            members += 1
        homogeneous = is_homogeneous(counts, group.regex_members_with(before, after), members)
        epoch = group.epochs.group
        if changed or metadata_hash != group.epochs.metadata_hash:
            epoch += 1
            self._raise_epoch(group.group_id, epoch, metadata_hash, turn)
        turn.when_decided(partial(group.on_refreshed, Refreshed(self.image, epoch)))
        if group.epochs.has_partition_metadata:
            turn.records.append(records.no_partition_metadata(group.group_id))
        return Basis(epoch, homogeneous)

    def _raise_epoch(self, group_id: str, epoch: int, metadata_hash: int, turn: Turn) -> None:
        turn.records.append(records.group_epoch(group_id, epoch, metadata_hash))
        turn.when_decided(self._count_rebalance)

    def _count_rebalance(self) -> None:
        self.shared.tally.consumer_rebalances.value += 1

    # 2. The target.

    def aim(self, group: ConsumerGroup, before: Member, after: Member, basis: Basis, turn: Turn) -> Aim:
        epochs = group.epochs
        settings = self.settings.of(group.group_id)
        may_assign = (
            epochs.assignment_timestamp_ms == 0
            or settings.assignment_interval_ms == 0
            or turn.now_ms >= epochs.assignment_timestamp_ms + settings.assignment_interval_ms
            # Written by a coordinator whose clock was ahead: the group must not wait until ours gets there.
            or turn.now_ms < epochs.assignment_timestamp_ms
        )
        if epochs.assignment >= basis.group_epoch or not may_assign:
            return Aim(epochs.assignment, group.target(after))
        name = group.preferred_assignor(before, after) or assignor_names(self.settings.config)[0]
        target = next_target(
            group,
            after,
            epoch=basis.group_epoch,
            assignor=ASSIGNORS[name],
            homogeneous=group.is_homogeneous() if basis.homogeneous is None else basis.homogeneous,
            image=self.image,
            now_ms=turn.now_ms,
        )
        turn.records += target.records
        return Aim(basis.group_epoch, target.assignment)

    # 3. The step.

    def reconcile(
        self,
        group: ConsumerGroup,
        member: Member,
        aim: Aim,
        *,
        subscription_changed: bool,
        owned: Owned | None,
        turn: Turn,
    ) -> Member:
        if not subscription_changed and member.is_reconciled(aim.epoch):
            return member
        names = group.subscribed_names(member)

        def subscribed(topic: Uuid) -> bool:
            found = self.image.topic_by_id(topic)
            return found is not None and found.name in names

        moved = reconcile(
            member,
            Step(
                target_epoch=aim.epoch,
                target=aim.assignment,
                subscribed=subscribed,
                subscription_changed=subscription_changed,
                owned=owned,
                is_owned=group.is_owned,
            ),
        )
        if moved != member:
            turn.records.append(records.current(group.group_id, moved))
            if moved.has_to_revoke and not moved.uses_classic:
                # It runs also when nothing is to be given up any more: should that not be written, it is still needed.
                turn.set_timer(REBALANCE, group.group_id, moved.member_id, moved.rebalance_timeout_ms)
        return moved

    def await_join(self, group_id: str, member: Member, turn: Turn) -> None:
        if (group_id, member.member_id) not in self.joins_awaited:
            turn.when_decided(partial(self.joins_awaited.add, (group_id, member.member_id)))
            turn.set_timer(JOIN, group_id, member.member_id, member.rebalance_timeout_ms)

    def on_joined(self, group_id: str, member_id: str, turn: Turn) -> None:
        turn.when_decided(partial(self.joins_awaited.discard, (group_id, member_id)))
        turn.cancel_timer(JOIN, group_id, member_id)

    # Members that go.

    def fence(self, group: ConsumerGroup, members: Collection[Member], turn: Turn) -> None:
        """The members are out. If all that stay speak the classic protocol, the group becomes a classic one."""
        if not members:
            return
        gone = {member.member_id for member in members}
        stay = [member for member in group.members.values() if member.member_id not in gone]
        if stay and self._may_be_classic(stay):
            self.downgrade(group, stay, turn)
            return
        for member in members:
            turn.records += records.no_member(group.group_id, member.member_id)
        patterns = self._unused_patterns(group, members)
        turn.records += [records.no_regex(group.group_id, pattern) for pattern in patterns]
        counts: Mapping[str, Subscribers] = group.subscribers_without(members, patterns)
        metadata_hash = self._hashes.of_group(counts, self.image)
        turn.records.append(records.group_epoch(group.group_id, group.epochs.group + 1, metadata_hash))
        for member in members:
            self._cancel_timers(group.group_id, member.member_id, turn)

    def _may_be_classic(self, members: Collection[Member]) -> bool:
        return (
            all(member.uses_classic for member in members)
            and self.settings.may_downgrade
            and len(members) <= self.settings.classic_members_max
        )

    def may_downgrade_with(self, group: ConsumerGroup, replaced: Member) -> bool:
        """Whether the group becomes a classic one when a classic member takes the place of `replaced`."""
        others = [member for member in group.members.values() if member.member_id != replaced.member_id]
        return (
            not replaced.uses_classic
            and all(member.uses_classic for member in others)
            and self.settings.may_downgrade
            and len(group.members) <= self.settings.classic_members_max
        )

    def downgrade(
        self,
        group: ConsumerGroup,
        members: Iterable[Member],
        turn: Turn,
        *,
        joining: Member | None = None,
        rebalance: bool = True,
    ) -> None:
        """Tombstones of the whole group, and the record of the classic group of `members`. `joining` is a static
        member for which the records that put it in the place of another have been made already."""
        replaced = None if joining is None else group.static_member(joining.instance_id)
        named = {} if replaced is None or joining is None else {replaced.member_id: joining.member_id}
        ids = [named.get(member_id, member_id) for member_id in group.members]
        turn.records += records.no_group(group.group_id, ids, group.regexes)
        value = downgraded(group, members, joining, self.image, turn.now_ms)
        turn.records.append(classic_group(group.group_id, value))
        turn.when_decided(partial(self.classic.adopt, group.group_id, value, rebalance=rebalance, now_ms=turn.now_ms))

    def _unused_patterns(self, group: ConsumerGroup, leaving: Collection[Member]) -> list[str]:
        counts: dict[str, int] = {}
        for member in leaving:
            if member.topic_regex:
                counts[member.topic_regex] = counts.get(member.topic_regex, 0) + 1
        return [pattern for pattern, count in counts.items() if group.regex_members.get(pattern) == count]

    def _cancel_timers(self, group_id: str, member_id: str, turn: Turn) -> None:
        """Those of the classic protocol, which a member of the same id might not speak. The others go on: should the
        records not be written, the member is still there, and has to end its session and to give up partitions."""
        self.on_joined(group_id, member_id, turn)
        turn.cancel_timer(SYNC, group_id, member_id)
