"""Which batches a compaction may drop because of how their transactions ended (KIP-98, KIP-534).

Told of every transactional and control batch in order. A batch of an aborted transaction may go at once. A marker may
go only when no batch of its transaction was seen before it: the pass that removes the last of them still keeps it, and
the aborted transaction's entry in the index with it, for readers who are in the middle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ottla.log.txn_index import AbortedTxn
from ottla.records import BatchHeader, EndTxnMarker


class CleanedTransactions:
    __slots__ = ("_aborted", "_coming", "_committed", "_observed", "index_entries")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._coming = deque(sorted(aborted, key=lambda txn: txn.first_offset))
        self._aborted: dict[int, AbortedTxn] = {}
        """By producer id: the aborted transaction that it is in."""
        self._observed: set[int] = set()
        """Producers of which a batch of that transaction was seen."""
        self._committed: set[int] = set()
        """Producers of which a batch of a committed transaction was seen, and not yet its marker."""
        self.index_entries: list[AbortedTxn] = []
        """What the index must tell of the markers seen so far; whoever writes it out empties it."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """A batch of data is next: may it go because its transaction was aborted?"""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        txn = self._aborted.get(header.producer_id)
        # One that ended before this batch, and whose marker was not among what we were told of, is no concern of it.
        if txn is not None and header.base_offset < txn.last_offset:
            self._observed.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def is_marker_of_nothing(self, header: BatchHeader, marker: EndTxnMarker) -> bool:
        """A marker is next: is nothing left of its transaction?"""
        self._advance(header.last_offset)
        producer_id = header.producer_id
        if marker.commit:
            if producer_id not in self._committed:
                return True
            self._committed.discard(producer_id)
            return False
        txn = self._aborted.pop(producer_id, None)
        if txn is None or producer_id not in self._observed or header.base_offset != txn.last_offset:
            return True
        self._observed.discard(producer_id)
        self.index_entries.append(txn)
        return False

    def _advance(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            txn = self._coming.popleft()
            self._aborted[txn.producer_id] = txn
            self._observed.discard(txn.producer_id)
