"""Historic bugs of transactions and idempotence, and with them those of groups."""

from __future__ import annotations

from typing import Any

from ottla.sim.group_mutations import GROUP_MUTATIONS
from ottla.sim.mutation import Mutation, Patches


def _producers_survive_truncation(patches: Patches) -> None:
    """A log that is cut keeps what it knew of the producers of what is gone."""
    from ottla.log import truncation

    patches.replace(truncation, "_rebuild_producers", lambda log: None)


def _open_transactions_expire(patches: Patches) -> None:
    """Who has been silent for long is forgotten, whatever it has begun."""
    from ottla.log.producers import ProducerStates

    def is_expired(self: Any, entry: Any, now_ms: int) -> bool:
        return bool(now_ms - entry.last_timestamp >= self.expiration_ms)

    patches.replace(ProducerStates, "is_expired", is_expired)


def _last_epoch_for_a_client(patches: Patches) -> None:
    """The last epoch, by which a coordinator could still fence, is given to a client like any other."""
    from ottla.coordinator.transaction import shard, transaction

    def is_exhausted(epoch: int) -> bool:
        return epoch >= transaction.EPOCH_MAX

    patches.replace(transaction, "is_exhausted", is_exhausted)
    patches.replace(shard, "is_exhausted", is_exhausted)


def _timeout_does_not_fence(patches: Patches) -> None:
    """KAFKA-6119: a transaction that took too long is aborted, and its producer's epoch stays good."""
    from dataclasses import replace

    from ottla.coordinator.transaction.transaction import Transaction

    before = Transaction.__dict__["fenced"]

    def fenced(self: Any, *arguments: Any) -> Any:
        return replace(before(self, *arguments), producer_epoch=self.producer_epoch)

    patches.replace(Transaction, "fenced", fenced)


def _completed_before_markers(patches: Patches) -> None:
    """A transaction is complete when the first of its partitions has the marker."""
    from ottla.coordinator.transaction.shard import TransactionShard

    before = TransactionShard.__dict__["on_markers_written"]

    def on_markers_written(self: Any, sent: Any, partitions: Any, now_ms: int) -> Any:
        return before(self, sent, sent.partitions if list(partitions) else partitions, now_ms)

    patches.replace(TransactionShard, "on_markers_written", on_markers_written)


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
    from ottla.log.producers import ProducerStates

    before = ProducerStates.__dict__["check_marker"]

    def check_marker(self: Any, header: Any, marker: Any, offset: int, transaction_version: int) -> None:
        entry = self.entries.get(header.producer_id)
        is_new = entry is None or header.producer_epoch > entry.epoch
        if transaction_version >= 2 and not is_new:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        before(self, header, marker, offset, transaction_version)

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
    *GROUP_MUTATIONS,
    Mutation(
        name="producers-survive-truncation",
        what="a log that is cut goes on to count with batches that are gone",
        breaks=("D2", "D1"),
        apply=_producers_survive_truncation,
    ),
    Mutation(
        name="open-transactions-expire",
        what="a producer that is silent for long is forgotten though its transaction is open",
        breaks=("D21",),
        apply=_open_transactions_expire,
        with_groups=True,
        with_forgetting=True,
    ),
    Mutation(
        name="last-epoch-for-a-client",
        what="a client is given the last epoch, by which its coordinator could have fenced it",
        breaks=("D18", "D17", "D19"),
        apply=_last_epoch_for_a_client,
        with_groups=True,
    ),
    Mutation(
        name="timeout-does-not-fence",
        what="a transaction that took too long is aborted, and its producer is not fenced (KAFKA-6119)",
        breaks=("D19",),
        apply=_timeout_does_not_fence,
        with_groups=True,
    ),
    Mutation(
        name="completed-before-markers",
        what="a transaction is called complete when one of its partitions has the marker",
        breaks=("D16", "D9"),
        apply=_completed_before_markers,
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
        breaks=("C8", "D17", "D15", "C1", "C9", "D16", "D8"),
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
