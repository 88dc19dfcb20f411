"""The metadata log turned into images, one batch after another.

A `MetadataState` is a value. Whoever reads the log holds the newest; the active controller holds one for every batch
that it has appended and not yet seen committed, so that a failed append is undone by going back to an older value.

KIP-868: records inside a metadata transaction take no effect outside the controller until the transaction ends; a
transaction may span batches, and the image is then published once, whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.images import EMPTY_IMAGE, MetadataImage, Provenance
from ottla.metadata.records import ABORT_TRANSACTION, BEGIN_TRANSACTION, END_TRANSACTION, MetadataRecord

if TYPE_CHECKING:
    from ottla.wire.messages.begin_transaction_record import BeginTransactionRecord


class MetadataBatch(NamedTuple):
    """One batch of the log. Control records, which are the raft layer's own, leave `records` empty."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    records: Sequence[MetadataRecord]


class Publication(NamedTuple):
    """An image, and how it came from the one before."""

    image: MetadataImage
    delta: MetadataDelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    start_offset: int
    name: str | None
    records: tuple[MetadataRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataState:
    image: MetadataImage = EMPTY_IMAGE
    """What may be published: without the records of an open transaction."""

    newest: MetadataImage = EMPTY_IMAGE
    """What the controller generates from: with them."""

    transaction: Transaction | None = None

    def replay(self, batch: MetadataBatch) -> tuple[MetadataState, Publication]:
        """The state after `batch`, and what it publishes; the delta is empty where nothing took effect."""
        delta = MetadataDelta(self.image)
        transaction = self.transaction
        for index, record in enumerate(batch.records):
            kind = record.message.API_KEY
            if kind == BEGIN_TRANSACTION:
                assert transaction is None, "a metadata transaction began inside another"
                name = cast("BeginTransactionRecord", record.message).name
                transaction = Transaction(start_offset=batch.base_offset + index, name=name, records=())
            elif kind == END_TRANSACTION:
                assert transaction is not None, "a metadata transaction ended that had not begun"
                for held in transaction.records:
                    delta.replay(held)
                transaction = None
            elif kind == ABORT_TRANSACTION:
                assert transaction is not None, "a metadata transaction was aborted that had not begun"
                transaction = None
            elif transaction is not None:
                transaction = Transaction(
                    start_offset=transaction.start_offset,
                    name=transaction.name,
                    records=(*transaction.records, record),
                )
            else:
                delta.replay(record)
        if transaction is None:
            image = newest = delta.apply(Provenance(batch.last_offset, batch.epoch, batch.timestamp_ms))
        else:
            offset = transaction.start_offset - 1
            image = delta.apply(Provenance(offset, batch.epoch, batch.timestamp_ms)) if not delta.empty else self.image
            ahead = MetadataDelta(image)
            for held in transaction.records:
                ahead.replay(held)
            newest = ahead.apply(Provenance(batch.last_offset, batch.epoch, batch.timestamp_ms))
        state = MetadataState(image=image, newest=newest, transaction=transaction)
        return state, Publication(image, delta)

    def load_snapshot(
        self, records: Sequence[MetadataRecord], provenance: Provenance
    ) -> tuple[MetadataState, Publication]:
        """Everything is now as the snapshot says, whatever it was before."""
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        delta.finish_snapshot()
        image = delta.apply(provenance)
        return MetadataState(image=image, newest=image), Publication(image, delta)
