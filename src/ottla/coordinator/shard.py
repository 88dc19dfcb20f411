"""What the driver asks of a shard, whichever kind it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from ottla.coordinator.outcome import AnyEffect, Outcome
from ottla.coordinator.stored import AnyRecord
from ottla.coordinator.timeline import Timeline
from ottla.errors import ErrorCode
from ottla.metadata.images import MetadataImage


class Shard(Protocol):
    """The state of one partition of a coordinator's topic. Its requests are methods of its own kind:
    `shard.some_request(…, now_ms=…) -> Outcome`."""

    @property
    def timeline(self) -> Timeline: ...

    def replay(self, record: AnyRecord, producer_id: int, producer_epoch: int) -> None:
        """A record was made, or read. With a producer id it belongs to an open transaction of that producer."""
        ...

    def replay_marker(self, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """A transaction that wrote to this partition has ended."""
        ...

    def take_up(self, image: MetadataImage) -> Iterator[list[AnyEffect]]:
        """The partition has been replayed whole, and all of it is committed. What is to be done for everything that
        was read, such as to set a timer for every member, is done in steps, each of which takes little time and gives
        timers. Nothing else is asked before `on_loaded`, which follows the last step."""
        ...

    def on_loaded(self, image: MetadataImage, now_ms: int) -> Outcome[None]:
        """The shard is served from now on."""
        ...

    def on_metadata(self, image: MetadataImage, now_ms: int) -> Outcome[None]:
        """Topics, brokers or configs changed. `image` is the newest."""
        ...

    def on_timer(self, key: tuple[str, ...], now_ms: int) -> Outcome[None]: ...

    def on_written(self, tag: object, error: ErrorCode, now_ms: int) -> Outcome[None]:
        """How the append of an outcome that had a tag ended: committed, or not. After an error its records have been
        undone already, unless it is COORDINATOR_NOT_AVAILABLE because time ran out: then they may yet be committed."""
        ...
