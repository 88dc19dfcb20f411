"""One consumer group (KIP-848): what its records say, and what follows from them.

Three epochs. The *group epoch* rises with every change of members, subscriptions or topics. The *assignment epoch* says
for which group epoch the target was worked out. A *member's epoch* says how far that member has come. All else here is
derived from members and kept with them: who is subscribed to what, which instance id is whose, who owns a partition.

Everything lives in maps of the shard's timeline and changes in `replay` alone. Driven by
`consumer_groups.ConsumerGroups`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.coordinator.consumer import records
from ottla.coordinator.consumer.assignors import Assignment
from ottla.coordinator.consumer.hash_order import HashOrder, name_hash
from ottla.coordinator.consumer.member import Held, Member, MemberState
from ottla.coordinator.consumer.resolved import NEVER_RESOLVED, ResolvedRegex
from ottla.coordinator.groups import GroupKind, PartitionCheck
from ottla.coordinator.outcome import AnyEffect
from ottla.coordinator.stored import StoredRecord
from ottla.coordinator.timeline import Timeline, TimelineMap
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.images import MetadataImage
from ottla.model import Uuid
from ottla.wire.messages.list_groups_response import ListedGroup

CONSUMER_PROTOCOL = "consumer"
"""The protocol type of consumers, in either kind of group."""
STATE_NAMES = ("Empty", "Assigning", "Reconciling", "Stable")
"""All that `state_name` may say."""
_COMMIT_WITH_EPOCH_FROM = 9
"""The version of OffsetCommit that can say a stale epoch."""


class Epochs(NamedTuple):
    """What records say of the group as a whole."""

    group: int = 1
    metadata_hash: int = 0
    """Over the topics that the group is subscribed to: another value asks for another target."""
    assignment: int = 1
    assignment_timestamp_ms: int = 0
    """0: nobody knows when the target was worked out."""
    has_partition_metadata: bool = False
    """A record of a release before 4.1 is in the log, and has to be taken back."""


_NEW = Epochs()


class Subscribers(NamedTuple):
    """Of one topic: how many members name it, and how many regular expressions match it."""

    by_name: int
    by_regex: int


_NOBODY = Subscribers(0, 0)


class Refreshed(NamedTuple):
    """When the group last looked at the metadata: not in any record, because looking again does no harm."""

    image: MetadataImage | None
    group_epoch: int


class ConsumerGroup:
    __slots__ = (
        "_epochs",
        "group_id",
        "members",
        "owners",
        "refreshed",
        "regex_members",
        "regexes",
        "static_members",
        "subscribers",
        "targets",
    )

    def __init__(self, timeline: Timeline, group_id: str) -> None:
        self.group_id = group_id
        self._epochs: TimelineMap[None, Epochs] = TimelineMap(timeline)
        self.members: TimelineMap[str, Member] = TimelineMap(timeline)
        self.targets: TimelineMap[str, Assignment] = TimelineMap(timeline)
        self.regexes: TimelineMap[str, ResolvedRegex] = TimelineMap(timeline)
        # Derived.
        self.static_members: TimelineMap[str, str] = TimelineMap(timeline)
        """Instance id → member id."""
        self.subscribers: TimelineMap[str, Subscribers] = TimelineMap(timeline)
        """By topic."""
        self.regex_members: TimelineMap[str, int] = TimelineMap(timeline)
        """How many members are subscribed to each regular expression."""
        self.owners: TimelineMap[tuple[Uuid, int], str] = TimelineMap(timeline)
        """Who holds a partition, or has yet to give it up."""
        self.refreshed = Refreshed(None, 0)

    # Questions.

    @property
    def epochs(self) -> Epochs:
        return self._epochs.get(None) or _NEW

    @property
    def committed_epochs(self) -> Epochs:
        return self._epochs.committed(None) or _NEW

    def member(self, member_id: str) -> Member:
        member = self.members.get(member_id)
        if member is None:
            raise _unknown_member(member_id, self.group_id)
        return member

    def static_member(self, instance_id: str | None) -> Member | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target(self, member: Member) -> Assignment:
        """A static member has that of the member it takes the place of."""
        if member.instance_id is None:
            return self.targets.get(member.member_id) or {}
        previous = self.static_members.get(member.instance_id)
        return {} if previous is None else self.targets.get(previous) or {}

    def is_owned(self, topic: Uuid, partition: int) -> bool:
        return (topic, partition) in self.owners

    def classic_members(self) -> int:
        return sum(member.uses_classic for member in self.members.values())

    def supports_classic(self, protocols: Iterable[str]) -> bool:
        """Whether one of `protocols` is known to every member that speaks the classic protocol."""
        counts: dict[str, int] = {}
        for member in self.members.values():
            if member.classic is not None:
                for protocol in member.classic.supported_protocols:
                    counts[protocol.name] = counts.get(protocol.name, 0) + 1
        everybody = self.classic_members()
        return any(counts.get(name, 0) == everybody for name in protocols)

    def waits_for_others(self, member: Member) -> bool:
        """Whether somebody still holds a partition that the member shall have."""
        return member.state is MemberState.UNRELEASED_PARTITIONS and any(
            partition not in member.assigned.get(topic, {}) and self.is_owned(topic, partition)
            for topic, partitions in (self.targets.get(member.member_id) or {}).items()
            for partition in partitions
        )

    def subscribed_names(self, member: Member) -> frozenset[str]:
        resolved = self.regexes.get(member.topic_regex) if member.topic_regex else None
        return member.topic_names if resolved is None else member.topic_names | resolved.topics

    def state_name(self) -> str:
        epochs = self.committed_epochs
        members = [member for _, member in self.members.committed_items()]
        if not members:
            return "Empty"
        if epochs.group > epochs.assignment:
            return "Assigning"
        return "Stable" if all(member.is_reconciled(epochs.assignment) for member in members) else "Reconciling"

    def is_homogeneous(self) -> bool:
        return is_homogeneous(dict(self.subscribers.items()), dict(self.regex_members.items()), len(self.members))

    def any_regex(self) -> ResolvedRegex | None:
        """All are resolved together, so that any of them tells when."""
        return next(iter(self.regexes.values()), None)

    # As the other parts of the shard see it.

    @property
    def kind(self) -> GroupKind:
        return GroupKind.CONSUMER

    def is_empty(self) -> bool:
        return not len(self.members)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribers

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_member_epoch: int,
        is_transactional: bool,
        api_version: int,
    ) -> PartitionCheck | None:
        epoch = generation_or_member_epoch
        if epoch < 0 and self.is_empty():
            return None  # An administrator's tool, or a consumer that takes part in no group.
        if is_transactional and epoch == -1 and not member_id and group_instance_id is None:
            return None  # A producer from before KIP-447 does not say who its consumer is.
        member = self.member(member_id)
        if not is_transactional and not member.uses_classic and api_version < _COMMIT_WITH_EPOCH_FROM:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        if epoch == member.epoch:
            return None
        if epoch > member.epoch:
            raise _stale(member, f"{epoch} is newer than current member epoch {member.epoch}.")

        def check(topic: str, topic_id: Uuid, partition: int) -> None:
            """An older epoch will do for a partition that the member has had since then, or longer (KIP-1251)."""
            since = member.holds(topic_id, partition)
            if since is None:
                raise KafkaError(
                    _stale_code(member),
                    f"Partition {topic}-{partition} is not assigned or pending revocation for member.",
                )
            if epoch < since:
                raise _stale(
                    member, f"{epoch} is older than assignment epoch {since} for partition {topic}-{partition}."
                )

        return check

    def on_offset_commit(self, member_id: str) -> Sequence[AnyEffect]:
        return ()

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = None if member_id is None else self.members.committed(member_id)
        if member is None:
            raise _unknown_member(member_id, self.group_id)
        if member_epoch != member.epoch:
            name = "generation id" if member.uses_classic else "member epoch"
            raise KafkaError(
                _stale_code(member),
                f"The received {name} {member_epoch} does not match the expected member epoch {member.epoch}.",
            )

    def check_offset_delete(self) -> None:
        """Those of topics that it is subscribed to are refused one by one."""

    def check_delete(self) -> None:
        if not self.is_empty():
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def expiration_base(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def tombstones(self) -> list[StoredRecord]:
        return records.no_group(self.group_id, self.members, self.regexes)

    def listed(self) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=CONSUMER_PROTOCOL,
            group_state=self.state_name(),
            group_type=self.kind.value,
        )

    # What would be, if a member were another: for records that are still to be made.

    def subscribers_with(self, before: Member | None, after: Member | None) -> dict[str, Subscribers]:
        counts = dict(self.subscribers.items())
        _count(counts, before, -1)
        _count(counts, after, 1)
        if before is not None and before.topic_regex and (after is None or after.topic_regex != before.topic_regex):
            self._uncount_regexes(counts, [before.topic_regex] if self._is_last(before) else [])
        return counts

    def subscribers_without(self, members: Iterable[Member], regexes: Iterable[str]) -> dict[str, Subscribers]:
        counts = dict(self.subscribers.items())
        for member in members:
            _count(counts, member, -1)
        self._uncount_regexes(counts, regexes)
        return counts

    def _is_last(self, member: Member) -> bool:
        """Whether nobody else is subscribed to the member's regular expression."""
        return self.regex_members.get(member.topic_regex) == 1

    def _uncount_regexes(self, counts: dict[str, Subscribers], regexes: Iterable[str]) -> None:
        for regex in regexes:
            for topic in (self.regexes.get(regex) or NEVER_RESOLVED).topics:
                add(counts, topic, by_regex=-1)

    def regex_members_with(self, before: Member, after: Member) -> dict[str, int]:
        counts = dict(self.regex_members.items())
        if before.topic_regex != after.topic_regex:
            for regex, change in ((before.topic_regex, -1), (after.topic_regex, 1)):
                if regex:
                    counts[regex] = counts.get(regex, 0) + change
        return {regex: count for regex, count in counts.items() if count > 0}

    def preferred_assignor(self, before: Member | None, after: Member | None) -> str | None:
        """The one that most members ask for."""
        counts = _assignors(self.members.values())
        for member, change in ((before, -1), (after, 1)):
            if member is not None and member.server_assignor is not None:
                counts[member.server_assignor] = counts.get(member.server_assignor, 0) + change
        return _most({name: count for name, count in counts.items() if count > 0})

    def committed_assignor(self) -> str | None:
        return _most(_assignors(member for _, member in self.members.committed_items()))

    def on_refreshed(self, refreshed: Refreshed) -> None:
        self.refreshed = refreshed

    # Replay.

    def set_epochs(self, epochs: Epochs) -> None:
        self._epochs[None] = epochs

    def set_member(self, member: Member) -> None:
        before = self.members.get(member.member_id)
        self.members[member.member_id] = member
        self._derive(before, member)

    def remove_member(self, member_id: str) -> None:
        before = self.members.pop(member_id)
        if before is not None:
            self._derive(before, None)

    def set_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        before = self.regexes.get(regex) or NEVER_RESOLVED
        after = resolved or NEVER_RESOLVED
        for topic in before.topics - after.topics:
            add(self.subscribers, topic, by_regex=-1)
        for topic in after.topics - before.topics:
            add(self.subscribers, topic, by_regex=1)
        if resolved is None:
            self.regexes.pop(regex)
        else:
            self.regexes[regex] = resolved

    def _derive(self, before: Member | None, after: Member | None) -> None:
        member_id = (before or after).member_id  # type: ignore[union-attr]
        if before is None or after is None or before.topic_names != after.topic_names:
            _count(self.subscribers, before, -1)
            _count(self.subscribers, after, 1)
        old_regex = before.topic_regex if before is not None else ""
        new_regex = after.topic_regex if after is not None else ""
        if old_regex != new_regex:
            for regex, change in ((old_regex, -1), (new_regex, 1)):
                if regex:
                    count = (self.regex_members.get(regex) or 0) + change
                    if count:
                        self.regex_members[regex] = count
                    else:
                        self.regex_members.pop(regex)
        instance_id = after.instance_id if after is not None else before.instance_id if before is not None else None
        if instance_id is not None:
            owner = self.static_members.get(instance_id)
            if after is not None and owner != member_id:
                self.static_members[instance_id] = member_id
            elif after is None and owner == member_id:
                self.static_members.pop(instance_id)
        if before is None or after is None or (before.assigned, before.revoking) != (after.assigned, after.revoking):
            self._derive_owners(member_id, set(_partitions(before)), set(_partitions(after)))

    def _derive_owners(self, member_id: str, had: set[tuple[Uuid, int]], has: set[tuple[Uuid, int]]) -> None:
        for partition in had - has:
            if self.owners.get(partition) == member_id:
                self.owners.pop(partition)
        for partition in has - had:
            self.owners[partition] = member_id


def _unknown_member(member_id: str | None, group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def _stale_code(member: Member) -> ErrorCode:
    """Each protocol has its own word for it."""
    return ErrorCode.ILLEGAL_GENERATION if member.uses_classic else ErrorCode.STALE_MEMBER_EPOCH


def _stale(member: Member, rest: str) -> KafkaError:
    name = "generation id" if member.uses_classic else "member epoch"
    return KafkaError(_stale_code(member), f"Received {name} {rest}")


def add(counts: dict[str, Subscribers] | TimelineMap[str, Subscribers], topic: str, *, by_name: int = 0,
        by_regex: int = 0) -> None:  # fmt: skip
    names, regexes = counts.get(topic) or _NOBODY
    changed = Subscribers(max(names + by_name, 0), max(regexes + by_regex, 0))
    if changed != _NOBODY:
        counts[topic] = changed
    elif topic in counts:
        counts.pop(topic)


def is_homogeneous(subscribers: Mapping[str, Subscribers], regex_members: Mapping[str, int], members: int) -> bool:
    """Whether all members are subscribed to the same topics, so far as counts can tell."""
    if not regex_members:
        return all(count.by_name == members for count in subscribers.values())
    if next(iter(regex_members.values())) != members:
        return False
    return all(count == Subscribers(0, 1) for count in subscribers.values())


def _count(counts: dict[str, Subscribers] | TimelineMap[str, Subscribers], member: Member | None, by: int) -> None:
    if member is not None:
        for topic in sorted(member.topic_names):
            add(counts, topic, by_name=by)


def _partitions(member: Member | None) -> Iterator[tuple[Uuid, int]]:
    if member is not None:
        for held in (member.assigned, member.revoking):
            yield from _pairs(held)


def _pairs(held: Held) -> Iterator[tuple[Uuid, int]]:
    return ((topic, partition) for topic, partitions in held.items() for partition in partitions)


def _assignors(members: Iterable[Member]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for member in members:
        if member.server_assignor is not None:
            counts[member.server_assignor] = counts.get(member.server_assignor, 0) + 1
    return counts


def _most(counts: dict[str, int]) -> str | None:
    """The name with the highest count; of two, the one that Java's HashMap gives first."""
    return max(HashOrder(name_hash, counts), key=counts.__getitem__, default=None)
