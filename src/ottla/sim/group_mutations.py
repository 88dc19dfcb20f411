"""Historic bugs of groups and their offsets, as `mutations` has those of the rest."""

from __future__ import annotations

from typing import Any

from ottla.sim.mutation import Mutation, Patches


def _double_ownership(patches: Patches) -> None:
    """KAFKA-16147: what a member has yet to give up counts as nobody's."""
    from ottla.coordinator.consumer import group

    def partitions(member: Any) -> Any:
        if member is not None:
            yield from ((topic, index) for topic, indexes in member.assigned.items() for index in indexes)

    patches.replace(group, "_partitions", partitions)


def _staged_offsets_expired(patches: Patches) -> None:
    """Expiry does not look at open transactions; and minutes are seconds, so that much expires."""
    from ottla.coordinator.offsets import expiry
    from ottla.coordinator.offsets.state import OffsetState

    patches.replace(OffsetState, "is_staged", lambda self, group_id, topic, partition: False)
    patches.replace(OffsetState, "has_staged", lambda self, group_id: False)
    patches.replace(expiry, "_MS_PER_MINUTE", 1000)


def _offset_acknowledged_early(patches: Patches) -> None:
    """What a coordinator has appended counts as committed."""
    from ottla.broker.coordinators.served import ServedShard

    def await_commit(self: Any, batch: Any) -> None:
        self._timeline.commit(batch.end_offset)
        self._settle_to(batch.end_offset)

    patches.replace(ServedShard, "_await_commit", await_commit)


def _staged_offsets_served(patches: Patches) -> None:
    """Who asks for stable offsets is not told that a transaction may yet change them."""
    from ottla.coordinator.offsets.state import OffsetState

    patches.replace(OffsetState, "is_staged", lambda self, group_id, topic, partition: False)


def _old_coordinator_speaks(patches: Patches) -> None:
    """A broker that has lost a coordinator's partition goes on with what it had."""
    from ottla.broker.coordinators.runtime import CoordinatorRuntime

    patches.replace(CoordinatorRuntime, "on_resigned", lambda self, partition: None)


def _two_of_one_instance(patches: Patches) -> None:
    """A static member that comes back gets its place, and its former self keeps it."""
    from ottla.coordinator.classic.group import ClassicGroup

    replace_before, remove_before = (ClassicGroup.__dict__[name] for name in ("replace_static", "remove"))

    def replace_static(self: Any, old_id: str, new_id: str) -> Any:
        old = self.members[old_id]
        member = replace_before(self, old_id, new_id)
        self.members[old_id] = old
        self._count_protocols(old.protocols, 1)
        return member

    def remove(self: Any, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is not None and member.group_instance_id is not None:
            self.static_members.setdefault(member.group_instance_id, member_id)
        remove_before(self, member_id)

    patches.replace(ClassicGroup, "replace_static", replace_static)
    patches.replace(ClassicGroup, "remove", remove)


def _partition_for_nobody(patches: Patches) -> None:
    """The assignor leaves out the last partition of the last member."""
    from ottla.coordinator.consumer import engine
    from ottla.coordinator.consumer.target import next_target as before

    def next_target(*arguments: Any, assignor: Any, **options: Any) -> Any:
        def forgetful(spec: Any) -> Any:
            result = {member: dict(assignment) for member, assignment in assignor(spec).items()}
            for assignment in result.values():
                for topic, partitions in assignment.items():
                    if len(partitions) > 1:
                        assignment[topic] = tuple(sorted(partitions))[:-1]
                        return result
            return result

        return before(*arguments, assignor=forgetful, **options)

    patches.replace(engine, "next_target", next_target)


def _old_generation_commits(patches: Patches) -> None:
    """Of a commit only the member is looked at, and not in which generation it thinks that it is."""
    from ottla.coordinator.classic.group import ClassicGroup

    before = ClassicGroup.__dict__["check_offset_commit"]

    def check(self: Any, member_id: str, group_instance_id: Any, generation: int, *arguments: Any) -> None:
        before(self, member_id, group_instance_id, self.generation if generation >= 0 else generation, *arguments)

    patches.replace(ClassicGroup, "check_offset_commit", check)


def _generation_without_all(patches: Patches) -> None:
    """A join phase ends with the first who joins; the others are members of a generation that they have not heard
    of."""
    from ottla.coordinator.classic.group import ClassicGroup, Member

    patches.replace(ClassicGroup, "all_joined", property(lambda self: self.awaiting_join > 0))
    patches.replace(Member, "is_static", property(lambda self: True))


def _assignments_of_two_plans(patches: Patches) -> None:
    """A member keeps what it had in the generation before, whatever the leader says, if it had anything."""
    from ottla.coordinator.classic import classic_groups, records

    before = records.generation_record

    def generation_record(group: Any, assignments: Any) -> Any:
        kept = {
            member_id: (group.members[member_id].assignment if member_id in group.members else b"") or assignment
            for member_id, assignment in assignments.items()
        }
        return before(group, kept)

    patches.replace(classic_groups, "generation_record", generation_record)


def _assignments_not_loaded(patches: Patches) -> None:
    """A coordinator that takes over does not know what the members of classic groups have."""
    from ottla.coordinator.classic import classic_groups, records

    before = records.group_from

    def group_from(group_id: str, value: Any) -> Any:
        group = before(group_id, value)
        for member in group.members.values():
            member.assignment = b""
        return group

    patches.replace(classic_groups, "group_from", group_from)


def _staged_offsets_not_loaded(patches: Patches) -> None:
    """A coordinator that takes over does not know what open transactions have staged."""
    from ottla.coordinator.offsets.state import OffsetState

    before = OffsetState.__dict__["replay"]

    def replay(self: Any, record: Any, producer_id: int) -> None:
        if producer_id < 0 or not self._timeline.loading:
            before(self, record, producer_id)

    patches.replace(OffsetState, "replay", replay)


GROUP_MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        name="double-ownership",
        what="a partition that is still being given up is given to the next member (KAFKA-16147)",
        breaks=("C1", "C14", "C4"),
        apply=_double_ownership,
        with_groups=True,
    ),
    Mutation(
        name="staged-offsets-expired",
        what="an offset expires though an open transaction has staged one for the same partition",
        breaks=("C12", "D22"),
        apply=_staged_offsets_expired,
        with_groups=True,
    ),
    Mutation(
        name="coordinator-answers-early",
        what="a coordinator acknowledges what it has appended, before it is committed",
        breaks=("C9", "C1", "C8", "D17", "D16", "C14"),
        apply=_offset_acknowledged_early,
        with_groups=True,
    ),
    Mutation(
        name="staged-offsets-served",
        what="an offset is called stable though an open transaction has staged another",
        breaks=("C10", "C12", "C14", "D22"),
        apply=_staged_offsets_served,
        seeds=40,
        with_groups=True,
    ),
    Mutation(
        name="old-coordinator-speaks",
        what="a broker that lost a coordinator's partition goes on to answer for it",
        breaks=("C15",),
        apply=_old_coordinator_speaks,
        with_groups=True,
    ),
    Mutation(
        name="two-of-one-instance",
        what="a static member that comes back does not take the place of its former self",
        breaks=("C13", "C6"),
        apply=_two_of_one_instance,
        with_groups=True,
    ),
    Mutation(
        name="partition-for-nobody",
        what="the target of a group leaves a partition out",
        breaks=("C2",),
        apply=_partition_for_nobody,
        with_groups=True,
    ),
    Mutation(
        name="old-generation-commits",
        what="a commit of a generation that is over is taken",
        breaks=("C7",),
        apply=_old_generation_commits,
        with_groups=True,
    ),
    Mutation(
        name="generation-without-all",
        what="a generation begins while members of the one before have not been asked to give up what they have",
        breaks=("C1",),
        apply=_generation_without_all,
        with_groups=True,
    ),
    Mutation(
        name="assignments-of-two-plans",
        what="some members of a generation have what its leader sent, and others what they had",
        breaks=("C6", "C1"),
        apply=_assignments_of_two_plans,
        with_groups=True,
    ),
    Mutation(
        name="assignments-not-loaded",
        what="a coordinator that takes over does not know what members of classic groups have",
        breaks=("C8", "C1", "C6"),
        apply=_assignments_not_loaded,
        with_groups=True,
    ),
    Mutation(
        name="staged-offsets-not-loaded",
        what="a coordinator that takes over does not know what open transactions have staged",
        breaks=("C8", "D22", "C10", "C14"),
        apply=_staged_offsets_not_loaded,
        with_groups=True,
    ),
)
