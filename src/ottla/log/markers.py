"""Finding the transaction markers in control batches (KIP-98). What they look like is the business of `records`."""

from __future__ import annotations

from ottla.records import EndTxnMarker, iterate, read_end_txn_marker


def read_marker(batch: memoryview) -> tuple[EndTxnMarker, int] | None:
    """The marker in a control batch and its timestamp.

    None for other control records, and for a batch that compaction has emptied: its whole transaction is gone.
    """
    record = next(iterate(batch), None)
    if record is None or not record.key:
        return None
    marker = read_end_txn_marker(record)
    return None if marker is None else (marker, record.timestamp)
