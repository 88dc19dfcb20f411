"""The one reader of committed metadata on a node: voter, observer or active controller.

Driven by the raft driver, which tells of every committed batch once and in order, and of a snapshot in the place of
what it holds. What is committed takes effect here at once; publishers hear of it, many batches as one if they come
together, once they have been admitted: a broker admits its own after it has read its own registration (`lifecycle.py`),
so that nothing here acts on what was decided about its former incarnation.

Publishers are called on the event loop, in the order in which they were added: `on_metadata(image, delta, offset)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.images import MetadataImage, Provenance
from ottla.metadata.records import MetadataRecord
from ottla.metadata.snapshot import image_records
from ottla.metadata.state import MetadataBatch, MetadataState, Publication
from ottla.raft.checkpoint import SnapshotId

Publisher = Callable[[MetadataImage, MetadataDelta, int], None]


def as_one(batches: Sequence[MetadataBatch]) -> MetadataBatch:
    """Batches that follow each other, as if they had been appended together."""
    if len(batches) == 1:
        return batches[0]
    last = batches[-1]
    records = [record for batch in batches for record in batch.records]
    return MetadataBatch(batches[0].base_offset, last.last_offset, last.epoch, last.timestamp_ms, records)


class MetadataLoader:
    def __init__(self) -> None:
        self.state = MetadataState()
        """After everything that is committed here."""
        self._publishers: list[Publisher] = []
        self._admitted = False

    @property
    def image(self) -> MetadataImage:
        return self.state.image

    def add_publisher(self, publisher: Publisher) -> None:
        self._publishers.append(publisher)

    def on_commit(self, batches: Sequence[MetadataBatch]) -> None:
        self.state, publication = self.state.replay(as_one(batches))
        self._publish(publication)

    def on_snapshot(self, snapshot: SnapshotId, timestamp_ms: int, records: Sequence[MetadataRecord]) -> None:
        """Everything before the end of `snapshot` is as `records` say."""
        provenance = Provenance(snapshot.end_offset - 1, snapshot.epoch, timestamp_ms)
        self.state, publication = self.state.load_snapshot(records, provenance)
        self._publish(publication)

    def admit_publishers(self) -> None:
        """Tell them of all that is there, as a change from nothing, and from now on of every change."""
        if self._admitted:
            return
        self._admitted = True
        image = self.image
        _, whole = MetadataState().load_snapshot(list(image_records(image)), image.provenance)
        self._publish(Publication(image, whole.delta))

    def _publish(self, publication: Publication) -> None:
        image, delta = publication
        if self._admitted and not delta.empty:
            for publisher in self._publishers:
                publisher(image, delta, image.last_offset)
