"""Historic bugs of groups, transactions and idempotence, as `mutations` has those of the rest."""

from __future__ import annotations

from typing import Any

from ottla.sim.mutation import Mutation, Patches

# Groups.


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


# Transactions.


def _dedupe_across_transactions(patches: Patches) -> None:
    """The window of the last batches survives the end of a transaction, and the epoch is not looked at."""
    from ottla.log import producers

    def begin_epoch(self: Any, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.next_sequence = 0

    def find_duplicate(entry: Any, header: Any) -> Any:
        first, last = header.base_sequence, header.last_sequence
        return next((batch for batch in entry.batches if (batch[0], batch[1]) == (first, last)), None)

    patches.replace(producers.ProducerEntry, "begin_epoch", begin_epoch)
    patches.replace(producers, "_find_duplicate", find_duplicate)


def _stable_past_undecided_marker(patches: Patches) -> None:
    """A transaction counts as decided when its marker is appended, and not when it is replicated."""
    from ottla.log.producers import ProducerStates

    patches.replace(ProducerStates, "first_unstable_offset", property(lambda self: next(iter(self._ongoing), None)))


def _marker_retry_wedges(patches: Patches) -> None:
    """KAFKA-19999: a marker must be newer than what is there, so that a repeated one is refused for ever."""
    from ottla.broker.coordinators import marker_sender
    from ottla.errors import ErrorCode, KafkaError
    from ottla.log import AppendOrigin
    from ottla.log.producers import ProducerStates

    before = ProducerStates.__dict__["check_marker"]

    def check_marker(
        self: Any, header: Any, marker: Any, offset: int, origin: AppendOrigin, transaction_version: int
    ) -> None:
        entry = self.entries.get(header.producer_id)
        is_new = entry is None or header.producer_epoch > entry.epoch
        if origin is not AppendOrigin.REPLICATION and transaction_version >= 2 and not is_new:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        before(self, header, marker, offset, origin, transaction_version)

    patches.replace(ProducerStates, "check_marker", check_marker)
    patches.replace(marker_sender, "_DONE", frozenset({ErrorCode.NONE}))
    patches.replace(marker_sender, "_EXPECTED", marker_sender._EXPECTED | {ErrorCode.INVALID_PRODUCER_EPOCH})


def _epoch_leak(patches: Patches) -> None:
    """KAFKA-9666: what was decided stays in memory though it could not be written."""
    from ottla.broker.coordinators.served import ServedShard

    before = ServedShard.__dict__["_undo"]

    def undo(self: Any, batch: Any, error: Any) -> None:
        if not self.closed:
            self._timeline.commit(batch.end_offset)
        before(self, batch, error)

    patches.replace(ServedShard, "_undo", undo)


def _delayed_end(patches: Patches) -> None:
    """EndTxn does not look at the epoch, and ends whatever transaction is open."""
    from ottla.coordinator.transaction import shard
    from ottla.coordinator.transaction.states import TransactionState

    before = shard._check_end_v2

    def check(current: Any, producer_id: int, producer_epoch: int, commit: bool) -> Any:
        if current.state == TransactionState.ONGOING and current.producer_id == producer_id:
            return None
        return before(current, producer_id, producer_epoch, commit)

    patches.replace(shard, "_check_end_v2", check)


def _aborted_index_omitted(patches: Patches) -> None:
    """KAFKA-5376: a fetch that had to wait does not tell of aborted transactions."""
    from ottla.broker.api.fetch import _ConsumerFetch

    before = _ConsumerFetch.__dict__["_has_enough"]

    def has_enough(self: Any, moved: Any) -> Any:
        enough = before(self, moved)
        found = self._found[self._places[moved]]
        if found.aborted is not None:
            found.aborted = []
        return enough

    patches.replace(_ConsumerFetch, "_has_enough", has_enough)


COORDINATOR_MUTATIONS: tuple[Mutation, ...] = (
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
        breaks=("C13",),
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
        name="dedupe-across-transactions",
        what="a batch of a new transaction is taken for the retry of one in the transaction before",
        breaks=("D2", "D3", "D6", "H4", "H8", "H12", "A23", "D22", "D4"),
        apply=_dedupe_across_transactions,
        with_groups=True,
    ),
    Mutation(
        name="stable-past-undecided-marker",
        what="the last stable offset passes a transaction whose marker is not committed yet",
        breaks=("D10", "D5"),
        apply=_stable_past_undecided_marker,
        with_groups=True,
    ),
    Mutation(
        name="marker-retry-wedges",
        what="a repeated marker is refused, and its coordinator tries for ever (KAFKA-19999)",
        breaks=("L10", "L0", "L9"),
        apply=_marker_retry_wedges,
        with_groups=True,
    ),
    Mutation(
        name="epoch-leak",
        what="a coordinator keeps in memory what it could not write (KAFKA-9666)",
        breaks=("C8", "D17", "D15", "C1", "C9", "D16"),
        apply=_epoch_leak,
        with_groups=True,
    ),
    Mutation(
        name="delayed-end",
        what="an EndTxn that comes late ends the transaction after its own",
        breaks=("D7", "D5", "D6", "D4", "H0", "H4", "D22"),
        apply=_delayed_end,
        with_groups=True,
    ),
    Mutation(
        name="aborted-index-omitted",
        what="a fetch that had to wait does not tell of aborted transactions (KAFKA-5376)",
        breaks=("D12", "D5"),
        apply=_aborted_index_omitted,
        with_groups=True,
    ),
)
