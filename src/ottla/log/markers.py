"""Reading the transaction markers in control batches (KIP-98). Building them is the business of `records`."""

from __future__ import annotations

import struct

from ottla.errors import Malformed
from ottla.log.producers import EndTxnMarker
from ottla.records import iterate

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_ABORT = 0
_COMMIT = 1


def read_marker(batch: memoryview) -> tuple[EndTxnMarker, int] | None:
    """The marker in a control batch and its timestamp.

    None for other control records, and for a batch that compaction has emptied: its whole transaction is gone.
    """
    record = next(iterate(batch), None)
    if record is None or record.key is None or len(record.key) < _KEY.size:
        return None
    _, kind = _KEY.unpack_from(record.key)
    if kind not in (_ABORT, _COMMIT):
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise Malformed("a transaction marker without a coordinator epoch")
    _, coordinator_epoch = _VALUE.unpack_from(record.value)
    return EndTxnMarker(kind == _COMMIT, coordinator_epoch), record.timestamp
