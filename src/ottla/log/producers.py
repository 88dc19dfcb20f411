"""What a partition knows of its idempotent and transactional producers (KIP-98, KIP-890).

For each producer id: its epoch, the last five batches (so that a retry is answered with the offsets of the original),
its open transaction and the epoch of the coordinator that last wrote a marker for it. Driven by `Log`: `check` before
an append and `record` or `complete` after it, so that a refused or failed append leaves no trace.

Invariant: the table equals a replay of the log since the snapshot it was loaded from. A snapshot keeps only the last
batch of each producer, as Kafka's does. Transactions count as unstable until the high watermark has passed their
marker.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from operator import itemgetter
from typing import NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.log.append import AppendOrigin
from ottla.model import NO_OFFSET, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP
from ottla.records import BatchHeader, EndTxnMarker

BATCHES_TO_RETAIN = 5
MAX_SEQUENCE = (1 << 31) - 1
MAX_EPOCH = (1 << 15) - 1

DEFAULT_PRODUCERS_MAX = 100_000
DEFAULT_EXPIRATION_MS = 24 * 3600 * 1000

_TRANSACTIONAL = 0x10
_CONTROL = 0x20


class BatchMetadata(NamedTuple):
    """One appended batch as a retry needs it."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class CompletedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    aborted: bool


class VerificationGuard:
    """Stands for one verification of a transaction with its coordinator. Compared by identity: a verification begun
    before a marker is of no use after it, even if everything else looks the same again."""

    __slots__ = ("epoch", "lowest_sequence", "new_epoch_each", "timestamp")

    def __init__(self, sequence: int, epoch: int, now_ms: int, new_epoch_each: bool) -> None:
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.timestamp = now_ms
        self.new_epoch_each = new_epoch_each
        """Does each transaction of the producer have an epoch of its own (transaction version 2)?"""


KNOWN_OPEN = VerificationGuard(0, NO_PRODUCER_EPOCH, 0, False)
"""In place of a verification where none was needed: the transaction was seen to be open. It is never the guard of one
that is under way."""


class ProducerEntry:
    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "next_sequence",
        "producer_id",
        "txn_first_offset",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp = NO_TIMESTAMP
        self.txn_first_offset = NO_OFFSET
        self.batches: deque[BatchMetadata] = deque(maxlen=BATCHES_TO_RETAIN)
        self.next_sequence = 0

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def begin_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.next_sequence = 0

    def add(self, batch: BatchMetadata) -> None:
        self.batches.append(batch)
        last = batch.last_sequence
        self.next_sequence = 0 if last == MAX_SEQUENCE else last + 1
        self.last_timestamp = batch.timestamp


class ProducerStates:
    """All producers of one partition, its open transactions, and those decided but not yet replicated."""

    __slots__ = (
        "_decided",
        "_guards",
        "_ongoing",
        "_unreplicated",
        "entries",
        "expiration_ms",
        "producers_max",
        "verify_transactions",
    )

    def __init__(
        self,
        *,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
        verify_transactions: bool = True,
        producers_max: int = DEFAULT_PRODUCERS_MAX,
    ) -> None:
        self.producers_max = producers_max
        """How many are remembered at a time. Ids are for the inventing, so one client could fill the memory; whoever
        comes when they are that many is refused until some expire."""
        self.expiration_ms = expiration_ms
        self.verify_transactions = verify_transactions
        """Is the first batch of a transaction refused without a verification?"""
        self.entries: dict[int, ProducerEntry] = {}
        self._ongoing: OrderedDict[int, int] = OrderedDict()
        """First offset of each open transaction → producer id. Insertion order is offset order. (To find the first of a
        plain dict costs what was taken from it before.)"""
        self._unreplicated: OrderedDict[int, int] = OrderedDict()
        """First offset of each completed transaction → offset of its marker, until the high watermark passes that. In
        the order of the markers."""
        self._decided: list[int] = []
        """A heap: the keys of `_unreplicated`, and some that were there."""
        self._guards: dict[int, VerificationGuard] = {}

    # Appending.

    def check(
        self,
        header: BatchHeader,
        offset: int,
        origin: AppendOrigin,
        guard: VerificationGuard | None = None,
    ) -> BatchMetadata | None:
        """May this data batch be appended? Returns the original if it is a duplicate; raises `KafkaError` if it may
        not. With a `guard` it came in a transactional request. Of what is replicated nobody asks: the leader decided.
        """
        entry = self.entries.get(header.producer_id)
        transactional = header.attributes & _TRANSACTIONAL
        if origin is AppendOrigin.CLIENT:
            if transactional and guard is None:
                # Nobody could say whether the client may write under a transactional id that it does not name.
                raise KafkaError(
                    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                    "Transactional records came without a transactional id.",
                )
            if header.base_sequence < 0:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD,
                    f"Invalid sequence number {header.base_sequence} in a batch with a producer id.",
                )
            if entry is None:
                self._check_room()
            elif (duplicate := _find_duplicate(entry, header)) is not None:
                return duplicate
        # The epoch comes before the transaction: a fenced producer must not be told INVALID_TXN_STATE, which is fatal.
        if entry is not None and header.producer_epoch < entry.epoch:
            raise _stale_epoch(header.producer_epoch, entry)
        current_guard = self._guards.get(header.producer_id)
        if (
            transactional
            and self.verify_transactions
            and not self.has_ongoing_transaction(header.producer_id, header.producer_epoch)
            and (guard is None or guard is not current_guard)
        ):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "The record is not part of an ongoing transaction.")
        if origin is AppendOrigin.CLIENT:
            self._check_sequence(entry, header, offset, current_guard)
        if not transactional and entry is not None and entry.txn_first_offset >= 0:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected a transactional write from producer {header.producer_id} at offset {offset}.",
            )
        return None

    def _check_room(self) -> None:
        if len(self.entries) >= self.producers_max:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{self.producers_max} producers have written to this partition of late: keep to one producer id, or "
                "wait.",
            )

    def _check_sequence(
        self, entry: ProducerEntry | None, header: BatchHeader, offset: int, guard: VerificationGuard | None
    ) -> None:
        sequence = header.base_sequence
        if guard is not None:
            if guard.new_epoch_each and sequence != 0 and (entry is None or not entry.batches):
                # Its epoch is new, so that nothing of it can have been forgotten: the first batch is still to come.
                raise _out_of_order(header, offset, "0 (first of a transaction with its own epoch)")
            if sequence > guard.lowest_sequence:
                # A batch overtook another that still waits for its verification (KAFKA-14920).
                raise _out_of_order(header, offset, f"{guard.lowest_sequence} (earliest seen sequence)")
        if entry is None or entry.epoch == NO_PRODUCER_EPOCH:
            return  # Unknown, or all of its records are gone: any first sequence will do.
        if header.producer_epoch != entry.epoch:
            if sequence != 0:
                raise _out_of_order(header, offset, f"0 (first of new epoch {header.producer_epoch})")
        elif sequence != entry.next_sequence:
            raise _out_of_order(header, offset, f"{entry.last_sequence} (current end sequence number)")

    def record(self, header: BatchHeader, first_offset: int, last_offset: int) -> None:
        """A data batch was appended."""
        producer_id = header.producer_id
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        if entry.epoch != header.producer_epoch:
            entry.begin_epoch(header.producer_epoch)
        base_sequence = header.base_sequence
        last_sequence = base_sequence + header.last_offset_delta if base_sequence >= 0 else NO_SEQUENCE
        if last_sequence > MAX_SEQUENCE:
            last_sequence -= MAX_SEQUENCE + 1
        # Inlined `entry.add`: this is the hot path of every idempotent producer.
        timestamp = header.max_timestamp
        entry.batches.append(BatchMetadata(base_sequence, last_sequence, first_offset, last_offset, timestamp))
        entry.next_sequence = 0 if last_sequence == MAX_SEQUENCE else last_sequence + 1
        entry.last_timestamp = timestamp
        if header.attributes & _TRANSACTIONAL:
            self._guards.pop(producer_id, None)
            if entry.txn_first_offset < 0:
                entry.txn_first_offset = first_offset
                self._ongoing[first_offset] = producer_id

    def check_marker(self, header: BatchHeader, marker: EndTxnMarker, offset: int, transaction_version: int) -> None:
        """May this marker be appended? Raises `KafkaError`.

        From version 2 on every transaction has its own epoch, and its marker carries the next one (KIP-890): a marker
        of the epoch that an open transaction has is a late one, for the transaction before. A repeated marker finds no
        open transaction and goes through, so that a coordinator's retry ends in success (KAFKA-19999). After the last
        epoch there is none to carry.
        """
        entry = self.entries.get(header.producer_id) or ProducerEntry(header.producer_id)
        late = (
            transaction_version >= 2
            and header.producer_epoch == entry.epoch != MAX_EPOCH
            and entry.txn_first_offset >= 0
        )
        if header.producer_epoch < entry.epoch or late:
            raise _stale_epoch(header.producer_epoch, entry)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producer {header.producer_id} at offset {offset}: "
                f"{marker.coordinator_epoch} (zombie), {entry.coordinator_epoch} (current).",
            )

    def complete(
        self, header: BatchHeader, marker: EndTxnMarker, offset: int, timestamp: int
    ) -> tuple[CompletedTxn, int] | None:
        """A marker was appended at `offset`. Returns the transaction that it ended and the last stable offset then.

        A marker without data moves epochs and nothing else.
        """
        producer_id = header.producer_id
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        first_offset = entry.txn_first_offset
        entry.begin_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = timestamp
        entry.txn_first_offset = NO_OFFSET
        guard = self._guards.get(producer_id)
        # Where each transaction has its own epoch, the marker has that of the next one: its verification stays good.
        if guard is not None and not (guard.new_epoch_each and guard.epoch == header.producer_epoch):
            del self._guards[producer_id]
        if first_offset < 0:
            return None
        del self._ongoing[first_offset]
        self._unreplicated[first_offset] = offset
        heappush(self._decided, first_offset)
        last_stable = next(iter(self._ongoing), offset + 1)
        return CompletedTxn(producer_id, first_offset, offset, not marker.commit), last_stable

    # Transactions.

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest transaction that is open, or decided above the high watermark."""
        ongoing, decided = self._ongoing, self._decided
        if not ongoing:
            return decided[0] if decided else None
        first = next(iter(ongoing))
        return min(first, decided[0]) if decided else first

    @property
    def has_unreplicated(self) -> bool:
        """Is any transaction decided whose marker is not yet known to be replicated?"""
        return bool(self._unreplicated)

    @property
    def unreplicated(self) -> Mapping[int, int]:
        """First offset of each transaction that is decided → offset of its marker, which is not yet known to be
        replicated."""
        return self._unreplicated

    def restore_unreplicated(self, markers: Mapping[int, int]) -> None:
        """What snapshots do not tell: see `unreplicated`."""
        self._unreplicated.update(markers)
        self._unreplicated = OrderedDict(sorted(self._unreplicated.items(), key=itemgetter(1)))
        self._decided = sorted(self._unreplicated)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Markers below `high_watermark` are replicated."""
        unreplicated, decided = self._unreplicated, self._decided
        while unreplicated:
            first = next(iter(unreplicated))
            if unreplicated[first] >= high_watermark:
                break
            del unreplicated[first]
        # The least of the heap is always one that counts.
        while decided and decided[0] not in unreplicated:
            heappop(decided)

    def has_ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        entry = self.entries.get(producer_id)
        return entry is not None and entry.txn_first_offset >= 0 and entry.epoch == epoch

    def take_over_verifications(self, other: ProducerStates) -> None:
        """This table takes the place of `other`: what is being verified there goes on here."""
        self._guards = other._guards

    def start_verification(
        self, producer_id: int, sequence: int, epoch: int, now_ms: int, *, new_epoch_each: bool = False
    ) -> VerificationGuard:
        """Begin, or join, a verification with the coordinator; `KNOWN_OPEN` if there is nothing to ask.

        Raises `KafkaError` for a producer that is fenced: the coordinator need not be asked.
        """
        entry = self.entries.get(producer_id)
        if entry is not None:
            if epoch < entry.epoch:
                raise _stale_epoch(epoch, entry)
            if entry.txn_first_offset >= 0 and entry.epoch == epoch:
                return KNOWN_OPEN
        guard = self._guards.get(producer_id)
        if guard is None:
            guard = self._guards[producer_id] = VerificationGuard(sequence, epoch, now_ms, new_epoch_each)
        elif epoch > guard.epoch:
            guard.epoch, guard.lowest_sequence = epoch, sequence
        elif epoch == guard.epoch:
            guard.lowest_sequence = min(guard.lowest_sequence, sequence)
        return guard

    # Keeping the table small and right.

    def remove_expired(self, now_ms: int) -> int:
        """Forget producers that have been silent too long; never one with an open transaction."""
        expired = [entry.producer_id for entry in self.entries.values() if self.is_expired(entry, now_ms)]
        for producer_id in expired:
            del self.entries[producer_id]
        for producer_id in [p for p, g in self._guards.items() if now_ms - g.timestamp >= self.expiration_ms]:
            del self._guards[producer_id]
        return len(expired)

    def is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        return entry.txn_first_offset < 0 and now_ms - entry.last_timestamp >= self.expiration_ms

    def load(self, entries: Iterable[ProducerEntry]) -> None:
        """Add the entries of a snapshot, which has them in any order. All together, for there may be very many."""
        for entry in entries:
            self.entries[entry.producer_id] = entry
            if entry.txn_first_offset >= 0:
                self._ongoing[entry.txn_first_offset] = entry.producer_id
        self._ongoing = OrderedDict(sorted(self._ongoing.items()))

    def clear(self) -> None:
        self.entries.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._decided.clear()


def _find_duplicate(entry: ProducerEntry, header: BatchHeader) -> BatchMetadata | None:
    if header.producer_epoch != entry.epoch:
        return None
    first, last = header.base_sequence, header.last_sequence
    for batch in entry.batches:
        if batch.first_sequence == first and batch.last_sequence == last:
            return batch
    return None


def _stale_epoch(epoch: int, entry: ProducerEntry) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Epoch {epoch} of producer {entry.producer_id} is older than the last one seen here, {entry.epoch}.",
    )


def _out_of_order(header: BatchHeader, offset: int, expected: str) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Out of order sequence number for producer {header.producer_id} at offset {offset}: {header.base_sequence} "
        f"(incoming seq. number), {expected}.",
    )
