"""State that runs ahead of the log, and can step back.

Records take effect when they are appended, so that the next request is answered from the newest state while the last
one waits for its commit. Each appended batch leaves a version behind: a commit drops the versions before it, a failed
append drops those after the last commit. Versions are values that share what they have in common
(`metadata.persistent`), so neither copies nor undoes anything.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ottla.metadata.images import MetadataImage
from ottla.metadata.state import MetadataBatch, MetadataState, Publication


class Version(NamedTuple):
    batch: MetadataBatch
    state: MetadataState
    publication: Publication


class Speculation:
    """Invariant: `newest` is `committed` with the batches of `_ahead` replayed, in order."""

    __slots__ = ("_ahead", "committed", "newest", "next_offset")

    def __init__(self, committed: MetadataState, next_offset: int) -> None:
        self.committed = committed
        self.newest = committed
        self.next_offset = next_offset
        """Where the next record will be."""

        self._ahead: deque[Version] = deque()

    @property
    def image(self) -> MetadataImage:
        """What requests are answered from."""
        return self.newest.newest

    @property
    def uncommitted(self) -> int:
        return len(self._ahead)

    def replay(self, batch: MetadataBatch) -> None:
        """`batch` was appended."""
        assert batch.base_offset == self.next_offset, "batches come in the order of the log"
        state, publication = self.newest.replay(batch)
        self._ahead.append(Version(batch, state, publication))
        self.newest = state
        self.next_offset = batch.last_offset + 1

    def commit(self, high_watermark: int) -> list[tuple[Publication, MetadataState]]:
        """Everything before `high_watermark` is committed: what that publishes, each with the state after it."""
        committed: list[tuple[Publication, MetadataState]] = []
        while self._ahead and self._ahead[0].batch.last_offset < high_watermark:
            version = self._ahead.popleft()
            self.committed = version.state
            committed.append((version.publication, version.state))
        return committed

    def revert(self) -> None:
        """What was not committed never happened."""
        if self._ahead:
            self.next_offset = self._ahead[0].batch.base_offset
            self._ahead.clear()
            self.newest = self.committed
