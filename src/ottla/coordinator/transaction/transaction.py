"""One transactional id: what its newest record says of it, and what each move makes of that.

A `Transaction` never changes; a move makes the next one, and `to_value` the record of it. The fields and when they
change are Kafka 4.3.1's, since its tools and its coordinators read our records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ottla.coordinator.transaction.states import MOVES, TransactionState
from ottla.errors import Malformed
from ottla.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition
from ottla.wire.messages.transaction_log_value import PartitionsSchema, TransactionLogValue

EPOCH_MAX = 32_767
"""Never a client's: it is left for the coordinator, so that a producer can always be fenced."""

BUMPS_EPOCH = 2
"""The `transaction.version` from which every transaction ends with a new epoch (KIP-890)."""

NO_TIMEOUT_MS = 2**31 - 1
"""Of a transaction that somebody outside decides on (KIP-939)."""

_STATES = frozenset(TransactionState) - {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}
"""Those that records hold."""
_NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


def is_exhausted(epoch: int) -> bool:
    """Is there no epoch after this one that a client may have?"""
    return epoch >= EPOCH_MAX - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before, if the same producer had it: a retry of what raised the epoch is known by it (KIP-360). Records
    do not carry it, so that a new leader does not know it."""
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last move, which is another only if epochs had run out."""
    next_producer_id: int = NO_PRODUCER_ID
    """While a transaction ends with the last epoch: the id that the producer goes on with."""
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = _NO_PARTITIONS
    start_ms: int = NO_TIMESTAMP
    """When the first partition was added."""
    updated_ms: int
    client_version: int = 0
    """The rules that the last request followed (`transaction.version`)."""

    @property
    def is_exhausted(self) -> bool:
        return is_exhausted(self.producer_epoch)

    @property
    def commits(self) -> bool:
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    # The moves.

    def with_epoch(self, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        """InitProducerId hands out `epoch`."""
        assert epoch in (self.producer_epoch, self.producer_epoch + 1)
        assert not is_exhausted(epoch - 1)
        return replace(
            self._moved(TransactionState.EMPTY, now_ms),
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=_NO_PARTITIONS,
            start_ms=NO_TIMESTAMP,
        )

    def with_producer_id(self, producer_id: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        """InitProducerId hands out a new producer id, because the epochs of the old one have run out."""
        return replace(
            self._moved(TransactionState.EMPTY, now_ms),
            producer_id=producer_id,
            producer_epoch=0,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=_NO_PARTITIONS,
            start_ms=NO_TIMESTAMP,
        )

    def with_partitions(self, added: Iterable[TopicPartition], client_version: int, now_ms: int) -> Transaction:
        begun = self.state == TransactionState.ONGOING
        return replace(
            self._moved(TransactionState.ONGOING, now_ms),
            partitions=self.partitions.union(added),
            start_ms=self.start_ms if begun else now_ms,
            client_version=client_version,
        )

    def prepared(self, commit: bool, client_version: int, next_producer_id: int, now_ms: int) -> Transaction:
        """The decision. Under version 2 it takes the next epoch, which no client has heard of yet."""
        bumps = client_version >= BUMPS_EPOCH
        assert bumps or next_producer_id == NO_PRODUCER_ID
        assert not bumps or (next_producer_id != NO_PRODUCER_ID) == self.is_exhausted
        begun = self.state == TransactionState.ONGOING
        return replace(
            self._moved(TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT, now_ms),
            producer_epoch=self._next_epoch() if bumps else self.producer_epoch,
            last_producer_epoch=self.producer_epoch if bumps else self.last_producer_epoch,
            next_producer_id=next_producer_id,
            start_ms=self.start_ms if begun else now_ms,
            client_version=client_version,
        )

    def fenced(self, transaction_version: int, next_producer_id: int, now_ms: int) -> Transaction:
        """The coordinator itself decides to abort, with a higher epoch: whoever has the old one is fenced."""
        if transaction_version >= BUMPS_EPOCH:
            return self.prepared(False, transaction_version, next_producer_id, now_ms)
        return replace(
            self.prepared(False, 0, NO_PRODUCER_ID, now_ms),
            producer_epoch=self._next_epoch(),
            last_producer_epoch=NO_PRODUCER_EPOCH,
        )

    def completed(self, now_ms: int) -> Transaction:
        """Every partition has its marker."""
        state = TransactionState.COMPLETE_COMMIT if self.commits else TransactionState.COMPLETE_ABORT
        complete = replace(self._moved(state, now_ms), next_producer_id=NO_PRODUCER_ID, partitions=_NO_PARTITIONS)
        if self.next_producer_id == NO_PRODUCER_ID:
            return complete
        return replace(complete, producer_id=self.next_producer_id, producer_epoch=0)

    def _next_epoch(self) -> int:
        """No client is ever given the highest epoch. One that claims it all the same keeps it."""
        return min(self.producer_epoch + 1, EPOCH_MAX)

    def _moved(self, state: TransactionState, now_ms: int) -> Transaction:
        assert state in MOVES[self.state], f"a transaction cannot go from {self.state.title} to {state.title}"
        return replace(self, state=state, updated_ms=now_ms, previous_producer_id=self.producer_id)

    # Records.

    def to_value(self, version: int) -> TransactionLogValue:
        value = _MadeValue(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=None if self.state == TransactionState.EMPTY else _by_topic(self.partitions),
            transaction_last_update_timestamp_ms=self.updated_ms,
            transaction_start_timestamp_ms=self.start_ms,
        )
        value.made_of = self
        if version >= 1:
            value.previous_producer_id = self.previous_producer_id
            value.next_producer_id = self.next_producer_id
            value.client_transaction_version = self.client_version
        return value

    @classmethod
    def from_value(cls, value: TransactionLogValue) -> Transaction:
        """What a value was made of: of one that was read, all that its bytes say."""
        if isinstance(value, _MadeValue):
            return value.made_of
        if value.transaction_status not in _STATES:
            raise Malformed(f"a transaction's record has the state {value.transaction_status}")
        return cls(
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            timeout_ms=value.transaction_timeout_ms,
            state=TransactionState(value.transaction_status),
            partitions=frozenset(
                TopicPartition(topic.topic, partition)
                for topic in value.transaction_partitions or ()
                for partition in topic.partition_ids
            ),
            start_ms=value.transaction_start_timestamp_ms,
            updated_ms=value.transaction_last_update_timestamp_ms,
            client_version=value.client_transaction_version,
        )


class _MadeValue(TransactionLogValue):
    """A value that was made here, and what its bytes do not say. (The codec looks for `PartitionsSchema` in this
    module, since it is the module of the class.)"""

    __slots__ = ("made_of",)
    made_of: Transaction


def value_version(transaction_version: int) -> int:
    """The version of the values that are written at a level of the feature `transaction.version`."""
    return min(transaction_version, 1)


def _by_topic(partitions: Iterable[TopicPartition]) -> list[PartitionsSchema]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()]
