"""One partition as its committed batches have it: who wrote to it, and whose transactions are open or were aborted.

Fed by `transactions`; nodes have no part in it.
"""

from __future__ import annotations

from ottla.model import TopicPartition
from ottla.records import BatchHeader, iterate, read_end_txn_marker
from ottla.sim.checkers.violation import Violation

_SEQUENCE_MAX = (1 << 31) - 1


class _Producer:
    __slots__ = ("coordinator_epoch", "epoch", "first_offset", "next_sequence")

    def __init__(self) -> None:
        self.epoch = -1
        self.next_sequence: int | None = None
        """None: any will do."""
        self.first_offset: int | None = None
        """Of its open transaction."""
        self.coordinator_epoch = -1


class _Aborted:
    __slots__ = ("first_offset", "marker", "producer_id")

    def __init__(self, producer_id: int, first_offset: int, marker: int) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset
        self.marker = marker


class PartitionShadow:
    """The producers of one partition, as its committed batches have them."""

    def __init__(self, place: TopicPartition, *, forgetful: bool = False) -> None:
        """`forgetful`: nodes may have forgotten any producer without an open transaction, so that a marker which comes
        late ends nothing, as ever, and is not known to be late."""
        self.place = place
        self._forgetful = forgetful
        self.producers: dict[int, _Producer] = {}
        self.aborted: list[_Aborted] = []
        self.end = 0

    @property
    def open(self) -> dict[int, int]:
        """Producer id → where its open transaction began."""
        return {
            producer_id: producer.first_offset
            for producer_id, producer in self.producers.items()
            if producer.first_offset is not None
        }

    @property
    def last_stable_offset(self) -> int:
        return min([self.end, *self.open.values()])

    def take(self, header: BatchHeader, content: memoryview) -> bool | None:
        """The next batch. For a marker: does it commit?"""
        self.end = header.next_offset
        if header.producer_id < 0:
            return None
        producer = self.producers.setdefault(header.producer_id, _Producer())
        may_be_new = self._forgetful and producer.first_offset is None
        if header.producer_epoch < producer.epoch and not (may_be_new and header.is_control):
            raise Violation(
                "D8",
                f"{self.place} at {header.base_offset}: producer {header.producer_id} has epoch "
                f"{header.producer_epoch}, after {producer.epoch}",
            )
        if header.is_control:
            return self._end_transaction(producer, header, content)
        if header.producer_epoch > producer.epoch:
            if producer.epoch >= 0:
                producer.next_sequence = 0
            producer.epoch = header.producer_epoch
        if header.base_sequence >= 0:
            if producer.next_sequence not in (None, header.base_sequence):
                raise Violation(
                    "D1",
                    f"{self.place} at {header.base_offset}: producer {header.producer_id} wrote the sequence "
                    f"{header.base_sequence} where {producer.next_sequence} was next",
                )
            last = header.last_sequence
            producer.next_sequence = 0 if last == _SEQUENCE_MAX else last + 1
        if header.is_transactional:
            if producer.first_offset is None:
                producer.first_offset = header.base_offset
        elif producer.first_offset is not None:
            raise Violation(
                "D8",
                f"{self.place} at {header.base_offset}: producer {header.producer_id} wrote outside of the transaction "
                f"that it began at {producer.first_offset}",
            )
        return None

    def _end_transaction(self, producer: _Producer, header: BatchHeader, content: memoryview) -> bool | None:
        marker = next((found for found in map(read_end_txn_marker, iterate(content)) if found is not None), None)
        if marker is None:
            return None
        may_be_new = self._forgetful and producer.first_offset is None
        if marker.coordinator_epoch < producer.coordinator_epoch and not may_be_new:
            raise Violation(
                "D14",
                f"{self.place} at {header.base_offset}: a marker of coordinator epoch {marker.coordinator_epoch} after "
                f"one of {producer.coordinator_epoch}",
            )
        producer.coordinator_epoch = marker.coordinator_epoch
        if header.producer_epoch > producer.epoch:
            producer.epoch, producer.next_sequence = header.producer_epoch, 0
        if producer.first_offset is not None and not marker.commit:
            self.aborted.append(_Aborted(header.producer_id, producer.first_offset, header.base_offset))
        producer.first_offset = None
        return marker.commit
