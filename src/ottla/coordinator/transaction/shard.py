"""The transactional ids of one partition of `__transaction_state`: what is asked of them, and what is answered.

Driven by `broker/coordinators`: see `coordinator/__init__.py` for the order in which records are replayed, written and
answered. Requests see the newest state, committed or not, and their answers leave when what they saw is committed.

Invariants.

- Every move is one of `states.MOVES`, and is made by replaying its record.
- A producer's epoch never falls, and a producer id is never taken up again. An epoch that no record was written for was
  never handed out: if the append fails, the move is undone, the epoch with it (KAFKA-9666, KAFKA-19367).
- Markers are sent when the decision is committed, and the transaction is completed when every partition has its marker.
  Whoever reports a marker shows the effect that asked for it, so that nothing that comes late or twice completes a
  later transaction.

Three things are soft, since records do not carry them: which partitions have their markers (`_marking`; a new leader
sends them again, and a marker that is written twice does no harm), `Transaction.last_producer_epoch`, and when this
node first saw a transaction that began by another clock (`_open`).

Time is the wall clock's, of whichever node led when a record was made. It may be far from ours, and ours may be set. So
a transaction has at most its timeout from when it was loaded, or the clock was seen to have gone back behind its
beginning; otherwise the readers behind it would wait for as long as two clocks are apart.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from ottla.coordinator.outcome import AnyEffect, Outcome, SetTimer
from ottla.coordinator.stored import AnyRecord, StoredRecord
from ottla.coordinator.timeline import Timeline, TimelineMap
from ottla.coordinator.transaction.effects import SendMarkers
from ottla.coordinator.transaction.list_filter import ListFilter
from ottla.coordinator.transaction.settings import TransactionSettings
from ottla.coordinator.transaction.states import COMPLETE, IDLE, PREPARED, TransactionState
from ottla.coordinator.transaction.transaction import (
    BUMPS_EPOCH,
    EPOCH_MAX,
    NO_TIMEOUT_MS,
    Transaction,
    is_exhausted,
    value_version,
)
from ottla.errors import ErrorCode
from ottla.metadata.images import MetadataImage
from ottla.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from ottla.wire.messages.transaction_log_key import TransactionLogKey
from ottla.wire.messages.transaction_log_value import TransactionLogValue

FEATURE = "transaction.version"

ABORT_TIMER = ("transaction", "abort")
EXPIRE_TIMER = ("transaction", "expire")
COMPLETE_TIMER = ("transaction", "complete")
"""And the transactional id."""
FINISH_TIMER = ("transaction", "finish")

COMPLETE_AGAIN_MS = 100
"""Pause before the completion of a transaction is written again after an append that failed."""

_FINISHING = "finishing"
"""The tag of outcomes about many transactions: if their records are refused, their effects are not carried out, though
some of them may be of decisions that are in the log."""

RECORDS_AT_ONCE_MAX = 1_000
"""How many transactional ids are aborted, or expire, in one batch."""

NEXT_BATCH_MS = 500

_ABORTED = frozenset({TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT})


class ProducerIdSource(Protocol):
    """Ids that nobody has had. Handed in, as chance would be."""

    def take(self) -> int | None:
        """None: for the moment there is none."""
        ...


class Identity(NamedTuple):
    """What InitProducerId and EndTxn answer: who the producer is from now on, or why not."""

    error: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class Expected(NamedTuple):
    """Who the producer thinks it is (KIP-360)."""

    producer_id: int
    producer_epoch: int


class TransactionShard:
    def __init__(
        self,
        *,
        timeline: Timeline,
        coordinator_epoch: int,
        producer_ids: ProducerIdSource,
        settings: TransactionSettings,
    ) -> None:
        self.timeline = timeline
        self.coordinator_epoch = coordinator_epoch
        """The leader epoch of the partition: markers of an older one are refused."""
        self.settings = settings
        self.transactions: TimelineMap[str, Transaction] = TimelineMap(timeline)
        self.transaction_version = 0
        """The finalized level of `transaction.version`."""
        self._producer_ids = producer_ids
        self._open: dict[str, int] = {}
        """Every id whose transaction is ongoing, and perhaps some more: where timeouts are looked for. With each, a
        moment of this node's clock by which its transaction had begun, should that say more than the record does."""
        self._by_age: OrderedDict[str, None] = OrderedDict()
        """Every id, and perhaps some more, the one that was written longest ago first: where expiry looks."""
        self._marking: dict[str, _Marking] = {}

    # InitProducerId.

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Expected | None,
        now_ms: int,
        *,
        two_phase_commit: bool = False,
        keep_prepared: bool = False,
    ) -> Outcome[Identity]:
        if not transactional_id:
            return _refused(ErrorCode.INVALID_REQUEST)
        if two_phase_commit and not self.settings.two_phase_commit:
            return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if keep_prepared:
            return _refused(ErrorCode.UNSUPPORTED_VERSION)
        if two_phase_commit:
            timeout_ms = NO_TIMEOUT_MS
        elif not 0 < timeout_ms <= self.settings.timeout_ms_max:
            return _refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)

        current = self.transactions.get(transactional_id)
        if current is None:
            producer_id = self._producer_ids.take()
            if producer_id is None:
                return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            # Whoever expected an id that is not known any more may have a new one: nobody else can have used the old.
            new = Transaction(producer_id=producer_id, timeout_ms=timeout_ms, updated_ms=now_ms)
            return self._identified(transactional_id, new.with_epoch(0, NO_PRODUCER_EPOCH, timeout_ms, now_ms))
        if expected is not None and not _may_be(current, expected):
            return _refused(ErrorCode.PRODUCER_FENCED)
        if current.state in PREPARED:
            return _refused(ErrorCode.CONCURRENT_TRANSACTIONS)
        if current.state == TransactionState.ONGOING:
            # The epoch of the abort is not handed out: the producer comes again, and gets the one after.
            return self._fence(transactional_id, current, now_ms)
        return self._next_epoch(transactional_id, current, timeout_ms, expected, now_ms)

    def _next_epoch(
        self, transactional_id: str, current: Transaction, timeout_ms: int, expected: Expected | None, now_ms: int
    ) -> Outcome[Identity]:
        epoch = current.producer_epoch
        if expected is not None and expected.producer_epoch != epoch:
            if expected.producer_epoch != current.last_producer_epoch:
                return _refused(ErrorCode.PRODUCER_FENCED)
            # A retry whose answer was lost: nobody else came between, since that would have cleared the last epoch.
            again = current.with_epoch(epoch, current.last_producer_epoch, timeout_ms, now_ms)
            return self._identified(transactional_id, again)
        last_epoch = NO_PRODUCER_EPOCH if expected is None else epoch
        if not current.is_exhausted:
            return self._identified(transactional_id, current.with_epoch(epoch + 1, last_epoch, timeout_ms, now_ms))
        producer_id = self._producer_ids.take()
        if producer_id is None:
            return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self._identified(transactional_id, current.with_producer_id(producer_id, last_epoch, timeout_ms, now_ms))

    def _identified(self, transactional_id: str, transaction: Transaction) -> Outcome[Identity]:
        return Outcome(
            response=Identity(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch),
            records=[self._record(transactional_id, transaction)],
        )

    def _fence(self, transactional_id: str, current: Transaction, now_ms: int) -> Outcome[Identity]:
        next_producer_id = self._producer_id_after(current, self.transaction_version)
        if next_producer_id is None:
            return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        fenced = current.fenced(self.transaction_version, next_producer_id, now_ms)
        records, effects = self._decided(transactional_id, fenced, now_ms)
        return Outcome(response=Identity(ErrorCode.CONCURRENT_TRANSACTIONS), records=records, effects=effects)

    # AddPartitionsToTxn and AddOffsetsToTxn.

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        client_version: int,
        now_ms: int,
    ) -> Outcome[ErrorCode]:
        error, current = self._find(transactional_id, producer_id, producer_epoch)
        if current is None:
            return Outcome(response=error)
        if current.state == TransactionState.ONGOING and current.partitions.issuperset(partitions):
            return Outcome(response=ErrorCode.NONE)
        added = current.with_partitions(partitions, client_version, now_ms)
        return Outcome(response=ErrorCode.NONE, records=[self._record(transactional_id, added)])

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> Outcome[dict[TopicPartition, ErrorCode]]:
        """A partition asks whether it belongs to the transaction before it takes records of it (KIP-890).

        The answer, like any other, waits for what was written before: a partition whose adding might yet be undone
        must not begin a transaction that nobody would end.
        """
        error, current = self._find(transactional_id, producer_id, producer_epoch)
        if current is None:
            return Outcome(response=dict.fromkeys(partitions, error))
        return Outcome(
            response={
                partition: ErrorCode.NONE if partition in current.partitions else ErrorCode.TRANSACTION_ABORTABLE
                for partition in partitions
            }
        )

    def _find(
        self, transactional_id: str, producer_id: int, producer_epoch: int
    ) -> tuple[ErrorCode, Transaction | None]:
        """The transaction that a producer may add to, or why there is none."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST, None
        current = self.transactions.get(transactional_id)
        if current is None or current.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, None
        if current.producer_epoch != producer_epoch:
            return ErrorCode.PRODUCER_FENCED, None
        if current.state in PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS, None
        return ErrorCode.NONE, current

    # EndTxn.

    def end_transaction(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        client_version: int,
        now_ms: int,
    ) -> Outcome[Identity]:
        if not transactional_id:
            return _refused(ErrorCode.INVALID_REQUEST)
        current = self.transactions.get(transactional_id)
        if current is None:
            return _refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if client_version < BUMPS_EPOCH:
            error = _check_end_v1(current, producer_id, producer_epoch, commit)
        else:
            error = _check_end_v2(current, producer_id, producer_epoch, commit)
        if error is not None:
            if error is ErrorCode.NONE and client_version >= BUMPS_EPOCH:
                # A retry: the producer hears what it would have heard the first time.
                return Outcome(response=_identity_of(current))
            return _refused(error)
        next_producer_id = self._producer_id_after(current, client_version)
        if next_producer_id is None:
            return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        decided = current.prepared(commit, client_version, next_producer_id, now_ms)
        records, effects = self._decided(transactional_id, decided, now_ms)
        identity = _identity_of(decided.completed(now_ms)) if client_version >= BUMPS_EPOCH else Identity()
        return Outcome(response=identity, records=records, effects=effects)

    def _producer_id_after(self, current: Transaction, version: int) -> int | None:
        """The id that a producer goes on with if ending its transaction uses up the epochs of the one it has."""
        if version < BUMPS_EPOCH or not current.is_exhausted:
            return NO_PRODUCER_ID
        return self._producer_ids.take()

    def _decided(
        self, transactional_id: str, decided: Transaction, now_ms: int
    ) -> tuple[list[StoredRecord], list[AnyEffect]]:
        """The records and effects of a decision. Where there is nobody to tell, the transaction is complete as well."""
        records = [self._record(transactional_id, decided)]
        if not decided.partitions:
            return [*records, self._record(transactional_id, decided.completed(now_ms))], []
        return records, [self._send_markers(transactional_id, decided)]

    def _send_markers(self, transactional_id: str, decided: Transaction) -> SendMarkers:
        effect = SendMarkers(
            transactional_id=transactional_id,
            producer_id=decided.producer_id,
            producer_epoch=decided.producer_epoch,
            commit=decided.commits,
            partitions=tuple(sorted(decided.partitions)),
            coordinator_epoch=self.coordinator_epoch,
            transaction_version=decided.client_version,
        )
        self._marking[transactional_id] = _Marking(effect, decided, set(decided.partitions))
        return effect

    # Completion.

    def on_markers_written(self, sent: SendMarkers, partitions: Iterable[TopicPartition], now_ms: int) -> Outcome[None]:
        """`partitions` have the marker that `sent` asked for."""
        marking = self._marking.get(sent.transactional_id)
        if marking is None or marking.effect is not sent:
            return Outcome()  # Of another transaction: under version 1 the next has the same producer id and epoch.
        marking.remaining.difference_update(partitions)
        return self._complete(marking, now_ms)

    def _complete(self, marking: _Marking, now_ms: int) -> Outcome[None]:
        transactional_id = marking.effect.transactional_id
        decided = self.transactions.get(transactional_id)
        if marking.remaining or decided is not marking.decided:
            return Outcome()
        return Outcome(records=[self._record(transactional_id, decided.completed(now_ms))], tag=marking)

    def on_written(self, tag: object, error: ErrorCode, now_ms: int) -> Outcome[None]:
        """How the completion of a transaction was written."""
        if tag == _FINISHING:
            again = SetTimer(key=FINISH_TIMER, delay_ms=COMPLETE_AGAIN_MS)
            return Outcome() if error is ErrorCode.NONE else Outcome(effects=[again])
        assert isinstance(tag, _Marking)
        transactional_id = tag.effect.transactional_id
        if error is not ErrorCode.NONE and self.transactions.get(transactional_id) is tag.decided:
            # It was undone, and with it what came after, the decision on a next transaction too.
            self._marking[transactional_id] = tag
            return Outcome(effects=[SetTimer(key=(*COMPLETE_TIMER, transactional_id), delay_ms=COMPLETE_AGAIN_MS)])
        # Otherwise it is in the log, even if it takes long to be committed.
        if self._marking.get(transactional_id) is tag:
            del self._marking[transactional_id]
        return Outcome()

    # What time brings.

    def on_timer(self, key: tuple[str, ...], now_ms: int) -> Outcome[None]:
        if key == ABORT_TIMER:
            return self._abort_timed_out(now_ms)
        if key == EXPIRE_TIMER:
            return self._expire(now_ms)
        if key == FINISH_TIMER:
            return self._finish(now_ms, [])
        marking = self._marking.get(key[-1])
        return Outcome() if marking is None else self._complete(marking, now_ms)

    def _abort_timed_out(self, now_ms: int) -> Outcome[None]:
        """A late producer is fenced by the higher epoch of the abort (KAFKA-6119)."""
        records: list[StoredRecord] = []
        effects: list[AnyEffect] = []
        for transactional_id in list(self._open):
            current = self.transactions.get(transactional_id)
            if current is None or current.state in IDLE:
                # Unless it is not committed that it has ended: that may be undone.
                if self.transactions.is_settled(transactional_id):
                    del self._open[transactional_id]
                continue
            began_ms = self._open[transactional_id] = min(self._open[transactional_id], current.start_ms, now_ms)
            if _has_timed_out(current, began_ms, now_ms) and len(records) < RECORDS_AT_ONCE_MAX:
                next_producer_id = self._producer_id_after(current, self.transaction_version)
                if next_producer_id is None:
                    continue
                fenced = current.fenced(self.transaction_version, next_producer_id, now_ms)
                decision, markers = self._decided(transactional_id, fenced, now_ms)
                records += decision
                effects += markers
        effects.append(self._look_again(ABORT_TIMER, self.settings.abort_interval_ms, len(records)))
        return Outcome(records=records, effects=effects, tag=_FINISHING if records else None, atomic=False)

    def _expire(self, now_ms: int) -> Outcome[None]:
        """Costs what has expired, not what there is: the first that is young enough ends the search. (Where a clock
        went back, those behind it wait until it is old, too; but not for one that is written in the future.)"""
        oldest_ms = now_ms - self.settings.id_expiration_ms
        records: list[StoredRecord] = []
        gone: list[str] = []
        for transactional_id in self._by_age:
            transaction = self.transactions.get(transactional_id)
            if transaction is None:
                # Unless it is not committed that it has gone: that may be undone.
                if self.transactions.is_settled(transactional_id):
                    gone.append(transactional_id)
            elif transaction.updated_ms > now_ms:
                continue
            elif transaction.updated_ms > oldest_ms or len(records) == RECORDS_AT_ONCE_MAX:
                break
            elif transaction.state in IDLE:
                records.append(StoredRecord(TransactionLogKey(transactional_id=transactional_id), None))
        for transactional_id in gone:
            del self._by_age[transactional_id]
        again = self._look_again(EXPIRE_TIMER, self.settings.expire_interval_ms, len(records))
        return Outcome(records=records, effects=[again], atomic=False)

    def _look_again(self, timer: tuple[str, ...], interval_ms: int, found: int) -> SetTimer:
        """Sooner than usual if there may be more than one batch takes."""
        delay_ms = interval_ms if found < RECORDS_AT_ONCE_MAX else min(interval_ms, NEXT_BATCH_MS)
        return SetTimer(key=timer, delay_ms=delay_ms)

    def take_up(self, image: MetadataImage) -> Iterator[list[AnyEffect]]:
        return iter(())

    def on_loaded(self, image: MetadataImage, now_ms: int) -> Outcome[None]:
        """What was decided is finished, by sending the markers again; what is ongoing has its timeout looked at."""
        self.on_metadata(image, now_ms)
        for transactional_id, began_ms in self._open.items():
            self._open[transactional_id] = min(began_ms, now_ms)
        timers: list[AnyEffect] = [
            SetTimer(key=ABORT_TIMER, delay_ms=self.settings.abort_interval_ms),
            SetTimer(key=EXPIRE_TIMER, delay_ms=self.settings.expire_interval_ms),
        ]
        return self._finish(now_ms, timers)

    def _finish(self, now_ms: int, effects: list[AnyEffect]) -> Outcome[None]:
        """Send the markers of all that is decided, be it again, and complete what needs none."""
        records: list[StoredRecord] = []
        for transactional_id, transaction in self.transactions.items():
            if transaction.state not in PREPARED:
                continue
            marking = self._marking.get(transactional_id)
            if marking is not None and marking.decided is transaction:
                effects.append(marking.effect)
            elif transaction.partitions:
                effects.append(self._send_markers(transactional_id, transaction))
            else:
                records.append(self._record(transactional_id, transaction.completed(now_ms)))
        return Outcome(records=records, effects=effects, tag=_FINISHING if records else None, atomic=False)

    def on_metadata(self, image: MetadataImage, now_ms: int) -> Outcome[None]:
        self.transaction_version = image.features.levels.get(FEATURE, 0)
        return Outcome()

    # Records.

    def _record(self, transactional_id: str, transaction: Transaction) -> StoredRecord:
        version = value_version(self.transaction_version)
        return StoredRecord(
            TransactionLogKey(transactional_id=transactional_id), transaction.to_value(version), version
        )

    def replay(self, record: AnyRecord, producer_id: int, producer_epoch: int) -> None:
        assert isinstance(record, StoredRecord)
        assert isinstance(record.key, TransactionLogKey)
        transactional_id = record.key.transactional_id
        if record.value is None:
            self.transactions.pop(transactional_id)
            return
        assert isinstance(record.value, TransactionLogValue)
        before, transaction = self.transactions.get(transactional_id), Transaction.from_value(record.value)
        self.transactions[transactional_id] = transaction
        self._by_age[transactional_id] = None
        self._by_age.move_to_end(transactional_id)
        if transaction.state == TransactionState.ONGOING:
            begins = before is None or before.state != TransactionState.ONGOING
            if begins or transactional_id not in self._open:
                self._open[transactional_id] = transaction.start_ms

    def replay_marker(self, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """The coordinator's own partitions hold no transactional records, so that a marker here ends nothing."""

    # What is told of transactions; from committed state.

    def describe(self, transactional_id: str) -> Transaction | None:
        """With the partitions that a decision has yet to reach, as Kafka tells them."""
        transaction = self.transactions.committed(transactional_id)
        marking = self._marking.get(transactional_id)
        if transaction is None or marking is None or marking.decided is not transaction:
            return transaction
        return replace(transaction, partitions=frozenset(marking.remaining))

    def count_states(self) -> dict[TransactionState, int]:
        """How many transactional ids are in each state."""
        counts = dict.fromkeys(TransactionState, 0)
        for transaction in self.transactions.values():
            counts[transaction.state] += 1
        return counts

    def list_transactions(self, wanted: ListFilter, now_ms: int) -> list[tuple[str, Transaction]]:
        return [
            (transactional_id, transaction)
            for transactional_id, transaction in self.transactions.committed_items()
            if wanted.includes(transactional_id, transaction, now_ms)
        ]


@dataclass(frozen=True, slots=True)
class _Marking:
    """A decision on its way to the partitions."""

    effect: SendMarkers
    decided: Transaction
    remaining: set[TopicPartition]
    """Those that are not known to have their marker."""


def _refused(error: ErrorCode) -> Outcome[Identity]:
    return Outcome(response=Identity(error))


def _identity_of(transaction: Transaction) -> Identity:
    return Identity(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)


def _may_be(current: Transaction, expected: Expected) -> bool:
    """Can the producer be who it thinks it is? If epochs ran out, it may not have heard of its new producer id."""
    return expected.producer_id == current.producer_id or (
        expected.producer_id == current.previous_producer_id and is_exhausted(expected.producer_epoch)
    )


def _has_timed_out(transaction: Transaction, began_ms: int, now_ms: int) -> bool:
    return (
        transaction.state == TransactionState.ONGOING
        and transaction.timeout_ms != NO_TIMEOUT_MS
        and began_ms + transaction.timeout_ms < now_ms
    )


def _check_end_v1(current: Transaction, producer_id: int, producer_epoch: int, commit: bool) -> ErrorCode | None:
    """What to answer to EndTxn without doing anything; None if the transaction is to end now."""
    if current.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if current.producer_epoch != producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if current.state == TransactionState.ONGOING:
        return None
    if _ends_alike(current, commit):
        # A retry, or what looks like one.
        return ErrorCode.NONE if current.state in COMPLETE else ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.INVALID_TXN_STATE


def _check_end_v2(current: Transaction, producer_id: int, producer_epoch: int, commit: bool) -> ErrorCode | None:
    """The same under version 2. There the epoch tells a retry (one behind) from the next EndTxn (the current one):

                        abort              commit
                     retry  current     retry  current
    Empty           fenced    ends     fenced  invalid
    CompleteAbort       ok    ends    invalid  invalid
    CompleteCommit invalid    ends         ok  invalid
    """
    # Where the last transaction ended by the rules of version 1, the epoch before the current one is somebody else's:
    # Kafka would hand a fenced producer the identity of the one that fenced it.
    bumped = current.client_version >= BUMPS_EPOCH
    rotated = (
        bumped
        and current.previous_producer_id == producer_id
        and (producer_epoch, current.producer_epoch) == (EPOCH_MAX - 1, 0)
    )
    """Is it a retry of the EndTxn that used up the epochs of the producer's last id?"""
    if current.producer_id != producer_id and not rotated:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    is_current = current.producer_epoch == producer_epoch
    is_retry = bumped and current.producer_epoch == producer_epoch + 1
    if current.state in PREPARED:
        if not is_retry:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.CONCURRENT_TRANSACTIONS if _ends_alike(current, commit) else ErrorCode.INVALID_TXN_STATE
    if current.state in COMPLETE and (is_retry or rotated):
        return ErrorCode.NONE if _ends_alike(current, commit) else ErrorCode.INVALID_TXN_STATE
    if not is_current:
        return ErrorCode.PRODUCER_FENCED
    if current.state == TransactionState.ONGOING or not commit:
        return None
    return ErrorCode.INVALID_TXN_STATE


def _ends_alike(current: Transaction, commit: bool) -> bool:
    return current.commits if commit else current.state in _ABORTED
