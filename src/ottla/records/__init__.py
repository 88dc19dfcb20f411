"""Record batches in Kafka's message format v2: their headers, their CRC, their records and codecs, and what a leader
checks before it appends one.

Batches stay bytes. A header is read from a view (`read_header`) and patched in place; the records behind it are decoded
only for those who ask (`iterate`). `validate_produced` is the one look that the data plane takes at every record.
"""

from ottla.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    CompressionType,
    TimestampType,
    batches,
    crc_is_valid,
    read_header,
    set_offset_and_epoch,
)
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Compression
from ottla.records.control import (
    ControlType,
    EndTxnMarker,
    control_batch,
    control_type,
    end_txn_batch,
    read_end_txn_marker,
)
from ottla.records.records import Record, iterate
from ottla.records.validate import InvalidRecords, Validated, ValidationRules, validate_produced

__all__ = [
    "HEADER_SIZE",
    "BatchBuilder",
    "BatchHeader",
    "Compression",
    "CompressionType",
    "ControlType",
    "EndTxnMarker",
    "InvalidRecords",
    "Record",
    "TimestampType",
    "Validated",
    "ValidationRules",
    "batches",
    "control_batch",
    "control_type",
    "crc_is_valid",
    "end_txn_batch",
    "iterate",
    "read_end_txn_marker",
    "read_header",
    "set_offset_and_epoch",
    "validate_produced",
]
