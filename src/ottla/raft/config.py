"""The quorum's timings and sizes: `controller.quorum.*`, with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    election_timeout_ms: int = 1_000
    """An election is given this long, and up to twice as long by chance."""

    fetch_timeout_ms: int = 2_000
    """A voter that has not fetched from its leader for so long asks whether it may run."""

    election_backoff_max_ms: int = 1_000
    """How long the last of the preferred successors waits."""

    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    """How long a leader may keep a fetch that has nothing to get."""

    fetch_max_bytes: int = 8 << 20
    snapshot_max_bytes: int = 8 << 20
    auto_join: bool = False
    """Does a controller that is no voter ask to become one?"""

    @property
    def check_quorum_timeout_ms(self) -> int:
        """A leader that a majority has not fetched from for so long resigns."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_quorum_epoch_interval_ms(self) -> int:
        return self.fetch_timeout_ms // 2
