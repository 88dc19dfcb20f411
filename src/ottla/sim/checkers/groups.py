"""Section C: groups and their offsets, by what is committed in `__consumer_offsets` and by what clients were told.

Each partition has a shadow, which is fed with its committed batches (`group_shadow`), and keeps both a replay by the
coordinator's own code and an account of offsets by rules of its own: what is in force, what open transactions have
staged, and which commits have ever taken effect. Whoever serves the partition must know the same, at every step, since
that is what the next coordinator would know (`served_groups`).
"""

from __future__ import annotations

from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.member import Member
from ottla.coordinator.offsets.codec import decode_key, decode_value
from ottla.coordinator.stored import GROUP_KINDS, EncodedRecord, StoredRecord
from ottla.model import GROUP_TOPIC, TopicPartition, Uuid
from ottla.records import iterate, read_end_txn_marker, read_header
from ottla.sim import view
from ottla.sim.checkers.beliefs import BeliefChecker
from ottla.sim.checkers.generations import GenerationChecker
from ottla.sim.checkers.group_shadow import GroupShadow, InForce, Place
from ottla.sim.checkers.group_work import check_processed
from ottla.sim.checkers.looks import LookChecker
from ottla.sim.checkers.mirror import Batch
from ottla.sim.checkers.served_groups import check_served
from ottla.sim.checkers.violation import Violation
from ottla.sim.cluster import Cluster, Machine
from ottla.sim.group_clients import committer_of
from ottla.sim.history import Commit, History, Outcome
from ottla.wire.messages.consumer_group_current_member_assignment_key import ConsumerGroupCurrentMemberAssignmentKey
from ottla.wire.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from ottla.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from ottla.wire.messages.group_metadata_key import GroupMetadataKey
from ottla.wire.messages.group_metadata_value import GroupMetadataValue


class GroupChecker:
    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster = cluster
        self._history = history
        self.shadows: dict[int, GroupShadow] = {}
        self.took_effect: set[str] = set()
        """The names of the commits that were in force at some time."""
        self.expired: set[str] = set()
        """Groups of which offsets were taken back."""
        self._expired_at: dict[tuple[str, int], float] = {}
        """(group, partition) → when."""
        self._told: dict[tuple[str, str, int], set[frozenset[int]]] = {}
        """(group, member, epoch) → what it has had in that epoch."""
        self._epochs: dict[tuple[str, str], int] = {}
        self._moved: dict[int, set[str]] = {}
        """The partitions in which something was committed in this step, and the groups that it concerns."""
        self._commits = 0
        self._pending: list[Commit] = []
        self._owned = 0
        self.offsets_committed = 0
        self.assignments = 0
        self._static: dict[tuple[str, str], str] = {}
        """(group, instance id) → the member that has it."""
        self.replaced = 0
        """Static members whose place a later life of theirs took."""
        self.looks = LookChecker(cluster, history, self.shadows)
        self.beliefs = BeliefChecker(history, self.shadows)
        self.generations = GenerationChecker(history)

    # What became committed.

    def on_committed(self, place: TopicPartition, batch: Batch) -> None:
        if place.topic != GROUP_TOPIC:
            return
        shadow = self.shadows.get(place.partition)
        if shadow is None:
            shadow = self.shadows[place.partition] = GroupShadow(self._cluster.brokers[0].config)
        touched = self._moved.setdefault(place.partition, set())
        content = batch.file.content
        header = read_header(content, batch.position)
        shadow.end = header.next_offset
        producer_id = header.producer_id if header.is_transactional else -1
        written_by = (place.partition, batch.epoch)
        with memoryview(content) as everything, everything[batch.position : batch.position + batch.size] as data:
            for record in iterate(data):
                shadow.shard.timeline.offset = record.offset
                if header.is_control:
                    marker = read_end_txn_marker(record)
                    if marker is not None:
                        shadow.shard.replay_marker(header.producer_id, header.producer_epoch, marker.commit)
                        self._on_marker(shadow, header.producer_id, marker.commit)
                    continue
                key, value = bytes(record.key or b""), None if record.value is None else bytes(record.value)
                decoded = GROUP_KINDS.decode(key, value)
                if isinstance(decoded, EncodedRecord):
                    self._on_offset(shadow, record.offset, decoded, producer_id, written_by)
                elif isinstance(decoded, StoredRecord):
                    touched.add(self._on_group(decoded))
                if decoded is not None:
                    shadow.shard.replay(decoded, producer_id, header.producer_epoch)

    def _on_offset(
        self,
        shadow: GroupShadow,
        record_offset: int,
        record: EncodedRecord,
        producer_id: int,
        written_by: tuple[int, int],
    ) -> None:
        """`written_by`: which partition, and in which leader epoch."""
        place = decode_key(record.key)
        if record.value is None:
            self._on_tombstone(shadow, place)
            self.generations.check_expired(*written_by, place[0], record_offset)
            return
        committed = decode_value(record.value)
        entry = InForce(record_offset, committed.offset, committed.metadata)
        _check_committer(shadow, place, entry)
        if producer_id < 0:
            self._put(shadow, place, entry)
        else:
            shadow.staged.setdefault(producer_id, {})[place] = entry

    def _on_tombstone(self, shadow: GroupShadow, place: Place) -> None:
        """C12: nothing expires that an open transaction has staged, or that a member is subscribed to."""
        group = shadow.shard.group(place[0])
        staged = [producer_id for producer_id, places in shadow.staged.items() if place in places]
        if staged:
            raise Violation("C12", f"the offset of {place} expired, and producers {staged} have staged it")
        if group is not None and group.is_subscribed_to(place[1]):
            raise Violation("C12", f"the offset of {place} expired, and the group is subscribed to the topic")
        self.expired.add(place[0])
        self._expired_at[place[0], place[2]] = self._cluster.scheduler.now
        shadow.offsets.pop(place, None)

    def _on_marker(self, shadow: GroupShadow, producer_id: int, commit: bool) -> None:
        """C11: of two commits of one partition, the one whose record lies behind is in force."""
        for place, entry in shadow.staged.pop(producer_id, {}).items():
            before = shadow.offsets.get(place)
            if commit:
                self.took_effect.add(entry.name)
                if before is None or before.record_offset < entry.record_offset:
                    self._put(shadow, place, entry)

    def _put(self, shadow: GroupShadow, place: Place, entry: InForce) -> None:
        """C14: whoever commits for one of our groups goes on from what was committed before."""
        before = shadow.offsets.get(place)
        if before is not None and entry.offset < before.offset:
            raise Violation(
                "C14",
                f"{place}: {entry.name} committed {entry.offset} after {before.name} had committed {before.offset}",
            )
        shadow.offsets[place] = entry
        self.took_effect.add(entry.name)
        self.offsets_committed += 1

    def _on_group(self, record: StoredRecord) -> str:
        """C6 of a classic group, and what members are given by it, or by KIP-848. Returns the group's id."""
        key, value = record.key, record.value
        if isinstance(value, ConsumerGroupCurrentMemberAssignmentValue):
            assert isinstance(key, ConsumerGroupCurrentMemberAssignmentKey)
            partitions = frozenset(partition for topic in value.assigned_partitions for partition in topic.partitions)
            self._note(key.group_id, key.member_id, value.member_epoch, partitions)
        if isinstance(key, ConsumerGroupMetadataKey) and value is None:
            # Nobody was left; a group of that name counts from the beginning again.
            self._epochs = {who: epoch for who, epoch in self._epochs.items() if who[0] != key.group_id}
        if not isinstance(key, GroupMetadataKey):
            group_id = getattr(key, "group_id", "")
            assert isinstance(group_id, str)
            return group_id
        assert value is None or isinstance(value, GroupMetadataValue)
        shares = self.generations.on_record(key.group, value)
        if value is None:
            return key.group
        owners: dict[int, str] = {}
        self._check_static(key.group, [(member.group_instance_id, member.member_id) for member in value.members])
        for member_id, partitions in shares.items():
            self._note(key.group, member_id, value.generation, partitions)
            for partition in partitions:
                owner = owners.setdefault(partition, member_id)
                if owner != member_id:
                    raise Violation("C1", f"{key.group}: {owner} and {member_id} both have {partition}")
        return key.group

    def _check_static(self, group_id: str, members: list[tuple[str | None, str]]) -> None:
        """C13: an instance id is one member's."""
        holders: dict[str, str] = {}
        for instance_id, member_id in members:
            if instance_id is not None:
                holder = holders.setdefault(instance_id, member_id)
                if holder != member_id:
                    raise Violation("C13", f"{group_id}: {holder} and {member_id} are both {instance_id}")
        for instance_id, member_id in holders.items():
            before = self._static.get((group_id, instance_id), member_id)
            self.replaced += before != member_id
            self._static[group_id, instance_id] = member_id

    def _note(self, group_id: str, member_id: str, epoch: int, partitions: frozenset[int]) -> None:
        self._told.setdefault((group_id, member_id, epoch), set()).add(partitions)

    # After a step.

    def watch(self, machine: Machine) -> None:
        """The machine has done something. What it serves from now on is as its log has it, before it changes."""
        for partition in self.generations.watch(machine):
            shadow = self.shadows.get(partition)
            if shadow is not None:
                check_served(machine, partition, shadow)

    def after_step(self) -> None:
        moved, self._moved = self._moved, {}
        for partition, touched in moved.items():
            shadow = self.shadows[partition]
            for group_id in touched:
                group = shadow.shard.consumer.group(group_id)
                if group is not None:
                    self._check_group(group)
            for machine in self._cluster.brokers:
                check_served(machine, partition, shadow)
        self.beliefs.after_step(moved=bool(moved))

    def _check_group(self, group: ConsumerGroup) -> None:
        """C1 to C5 and C13, of a group of KIP-848."""
        epochs = group.epochs
        self._check_static(group.group_id, [(each.instance_id, each.member_id) for each in group.members.values()])
        owners: dict[tuple[Uuid, int], str] = {}
        for member in group.members.values():
            self._check_member(group, member)
            for held in (member.assigned, member.revoking):
                for topic, partitions in held.items():
                    for partition in partitions:
                        owner = owners.setdefault((topic, partition), member.member_id)
                        if owner != member.member_id:
                            raise Violation(
                                "C1", f"{group.group_id}: {owner} and {member.member_id} both have {partition}"
                            )
        targets: dict[tuple[Uuid, int], str] = {}
        for member_id, target in group.targets.items():
            for topic, wanted in target.items():
                for partition in wanted:
                    other = targets.setdefault((topic, partition), member_id)
                    if other != member_id:
                        raise Violation("C2", f"{group.group_id}: {other} and {member_id} are both to have {partition}")
        members = list(group.members.values())
        if epochs.assignment == epochs.group:
            self._check_complete(group, members, targets)
        if members and epochs.assignment == epochs.group and all(each.is_reconciled(epochs.group) for each in members):
            held_by = {place: owner for place, owner in owners.items() if owner in group.members}
            if held_by != {place: owner for place, owner in targets.items() if owner in group.members}:
                raise Violation("C4", f"{group.group_id} is stable, its target is {targets}, and it has {held_by}")

    def _check_complete(
        self, group: ConsumerGroup, members: list[Member], targets: dict[tuple[Uuid, int], str]
    ) -> None:
        """C2, the other half: what anybody is subscribed to is to be somebody's."""
        image = view.newest_image(self._cluster)
        for name in sorted({name for member in members for name in member.topic_names}):
            topic = image.topic(name)
            for partition in () if topic is None else topic.partitions:
                assert topic is not None
                if (topic.topic_id, partition) not in targets:
                    raise Violation("C2", f"{group.group_id}: nobody is to have {partition} of {name}: {targets}")

    def _check_member(self, group: ConsumerGroup, member: Member) -> None:
        if member.epoch > 0:
            key = (group.group_id, member.member_id)
            if member.epoch < self._epochs.get(key, 0):
                raise Violation("C5", f"{key} is in epoch {member.epoch}, after {self._epochs[key]}")
            self._epochs[key] = member.epoch
        if member.epoch == group.epochs.assignment and member.member_id in group.targets:
            target = group.targets[member.member_id]
            for topic, held in member.assigned.items():
                if not set(held) <= set(target.get(topic, ())) or member.revoking:
                    raise Violation("C3", f"{group.group_id}: {member} is in the epoch of its target {target}")

    # What clients were told.

    def on_answers(self) -> None:
        """C9: what was acknowledged is committed, and what a member has been told was written before."""
        history = self._history
        if len(history.commits) > self._commits:
            self._pending += history.commits[self._commits :]
            self._commits = len(history.commits)
        if self._pending:
            for commit in self._pending:
                if commit.outcome is Outcome.OK and commit.transaction is None and commit.name not in self.took_effect:
                    raise Violation("C9", f"{commit.name} of {commit.group_id} was acknowledged, and is not committed")
            self._pending = [commit for commit in self._pending if commit.outcome is Outcome.PENDING]
        for owned in history.owned[self._owned :]:
            self.assignments += 1
            known = self._told.get((owned.group_id, owned.member_id, owned.epoch), set())
            if owned.partitions not in known:
                raise Violation(
                    "C1",
                    f"{owned.member_id} of {owned.group_id} was told to have {sorted(owned.partitions)} in epoch "
                    f"{owned.epoch}, where its log says {[sorted(each) for each in known]}",
                )
        self._owned = len(history.owned)
        self.looks.on_answers(self.took_effect)

    # At the end.

    def at_end(self) -> None:
        """C8 and C14 of what a fresh client was told; D22 of what transactions committed."""
        asked = {look.group_id: look.invoked for look in self._history.looks}
        for group_id, answered in self._history.final_offsets.items():
            for partition, (offset, name) in answered.items():
                if self._expired_at.get((group_id, partition), -1.0) >= asked[group_id]:
                    continue  # It was still there when it was asked for.
                entries = [
                    entry
                    for shadow in self.shadows.values()
                    for place, entry in shadow.offsets.items()
                    if (place[0], place[2]) == (group_id, partition)
                ]
                expected = (entries[0].offset, entries[0].name) if entries else (-1, "")
                if (offset, name) != expected:
                    raise Violation(
                        "C8", f"{group_id} was told {offset} ({name}) for {partition}, where its log says {expected}"
                    )
        for commit in self._history.commits:
            transaction = commit.transaction
            if commit.outcome is Outcome.FAILED and commit.name in self.took_effect:
                raise Violation("C7", f"{commit.name} of {commit.group_id} was refused, and took effect")
            if transaction is None:
                continue
            if transaction.outcome is Outcome.FAILED and commit.name in self.took_effect:
                raise Violation("D22", f"{commit.name} of {commit.group_id} was aborted, and took effect")
            if (
                transaction.outcome is Outcome.OK
                and commit.outcome is Outcome.OK
                and commit.name not in self.took_effect
            ):
                raise Violation("D22", f"{commit.name} of {commit.group_id} was committed, and took no effect")
        check_processed(self._history, self.expired)


def _check_committer(shadow: GroupShadow, place: Place, entry: InForce) -> None:
    """C7 and C13: who commits, be it in a transaction, is a member, in its epoch or generation, by what is in the log
    before; where nobody is a member it is nobody's commit. By KIP-848 an older epoch will do for what the member has
    had since then (KIP-1251)."""
    member_id, epoch = committer_of(entry.name)
    group = shadow.shard.group(place[0])
    if not isinstance(group, ClassicGroup | ConsumerGroup) or group.is_empty():
        right = epoch < 0
    elif isinstance(group, ClassicGroup):
        right = member_id in group.members and epoch == group.generation
    else:
        member = group.members.get(member_id)
        right = member is not None and _may_commit(member, epoch, place[2])
    if not right:
        raise Violation(
            "C7", f"{place}: {entry.name} committed {entry.offset}, and by the log before the group is {_told(group)}"
        )


def _may_commit(member: Member, epoch: int, partition: int) -> bool:
    held = (*member.assigned.values(), *member.revoking.values())
    since = next((epochs[partition] for epochs in held if partition in epochs), None)
    return epoch == member.epoch or (since is not None and since <= epoch < member.epoch)


def _told(group: object) -> str:
    if isinstance(group, ClassicGroup):
        return f"in generation {group.generation} with {list(group.members)}"
    if isinstance(group, ConsumerGroup):
        return str({member.member_id: (member.epoch, member.assigned) for member in group.members.values()})
    return "nobody's"
