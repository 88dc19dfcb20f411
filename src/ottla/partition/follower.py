"""The follower's view of one partition, in one leader epoch: what to fetch next, and what to make of the answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from ottla.errors import ErrorCode
from ottla.model import NO_LEADER_EPOCH

PAUSE_MS = 20
"""After a first error; it doubles with each that follows, up to the backoff. Most errors are a matter of one replica
hearing new metadata a little before the other, and writes wait meanwhile."""

CORRUPTIONS_MAX = 5
"""So many answers in a row whose batches are corrupt, and we stop asking: it is the leader's disk, not chance."""


class LogView(Protocol):
    """What a follower must know of its own log. A `Log` is one; nothing here reads or writes records."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch; -1 if there is none."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above `epoch` and where it ends (exclusive); (-1, -1) if undefined."""
        ...


class FollowerState(Enum):
    """Fetching ⇄ delayed, by an error until its time is over; fetching → truncating, while our histories part or we are
    out of the leader's range, → fetching; any → failed, which only another leader epoch ends."""

    FETCHING = "fetching"
    TRUNCATING = "truncating"
    DELAYED = "delayed"
    FAILED = "failed"


class Position(NamedTuple):
    """From where to fetch. A leader that holds `last_fetched_epoch` only up to an earlier offset says so instead of
    sending records (KIP-595)."""

    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class Ignore(NamedTuple):
    """The answer is to a question that is no longer ours."""


class Append(NamedTuple):
    """Append the records that came, if any, at our log's end and as they are; then `on_appended`, or `on_corrupt`."""


class Progress(NamedTuple):
    """What our log's bounds are from now on."""

    high_watermark: int
    log_start_offset: int


class TruncateTo(NamedTuple):
    """Cut the log at `offset`, trimming the epochs in any case; then `on_truncated`."""

    offset: int


class StartOverAt(NamedTuple):
    """Drop everything and go on at `offset`; then `on_truncated`."""

    offset: int


class AskRange(NamedTuple):
    """Ask the leader for its log start and end; then `on_range`, or `on_error`."""


class Wait(NamedTuple):
    """Leave the partition out of fetches until the monotonic time `until_ms`."""

    until_ms: int


class Stop(NamedTuple):
    """Nothing more can be done in this leader epoch."""

    reason: str


FollowerEffect = Ignore | Append | TruncateTo | StartOverAt | AskRange | Wait | Stop

_IGNORE = Ignore()
_APPEND = Append()

_OF_METADATA = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""One of us two has not heard the newest metadata: it will come, and with it another leader epoch or an answer."""


@dataclass(slots=True, kw_only=True)
class PartitionFollower:
    """How one replica copies its leader.

    Pure: facts come in as arguments, consequences go out as effects, one at a time. Driven by `broker/replication`. One
    instance lives for one leader epoch; whatever an older one asked for is not for this one to hear. The records are
    appended only at our own log end, and where histories differ they are cut by leader epochs (KIP-101, KIP-279), never
    by the high watermark: a follower's high watermark lags, and records above it may be committed.
    """

    leader_id: int
    leader_epoch: int
    log: LogView
    backoff_ms: int
    """The longest pause after an error (`replica.fetch.backoff.ms`)."""
    state: FollowerState = FollowerState.FETCHING
    delayed_until_ms: int = 0
    failure: str | None = None
    """Why it stopped, once it has."""
    lag: int | None = None
    """How far our log end was behind the leader's high watermark at its last answer; None before the first."""
    errors: int = 0
    """Pauses in a row."""
    corruptions: int = 0
    """Answers in a row that could not be appended."""

    # Asking.

    @property
    def position(self) -> Position:
        log = self.log
        return Position(log.log_end_offset, log.last_epoch, log.log_start_offset)

    @property
    def is_in_sync(self) -> bool:
        """As far as we know: a follower that keeps up is never throttled, or it would leave the in-sync set."""
        return self.lag is not None and self.lag <= 0

    @property
    def is_truncating(self) -> bool:
        return self.state is FollowerState.TRUNCATING

    def is_ready(self, now_ms: int) -> bool:
        """May the partition be in the next fetch? A delay that is over ends here."""
        if self.state is FollowerState.DELAYED and now_ms >= self.delayed_until_ms:
            self.state = FollowerState.FETCHING
        return self.state is FollowerState.FETCHING

    # The answer to a fetch.

    def on_response(
        self, fetch_offset: int, code: ErrorCode, diverging: tuple[int, int] | None, now_ms: int
    ) -> FollowerEffect:
        """The leader answered a fetch from `fetch_offset`: with an error, with where our histories part, or with what
        follows. If our log does not end there any more, it answered somebody we were (A22)."""
        if self.state is not FollowerState.FETCHING or fetch_offset != self.log.log_end_offset:
            return _IGNORE
        if code:
            return self.on_error(code, now_ms)
        if diverging is not None:
            return self._on_diverging(*diverging, now_ms)
        return _APPEND

    def on_appended(self, leader_high_watermark: int, leader_log_start_offset: int) -> Progress:
        """What came is in our log, and with it came how far the leader's records are committed and where they start.

        The high watermark is the leader's, as far as we have records for it. It may fall: a new leader knows only its
        own until its followers have fetched (A10).
        """
        self.errors = self.corruptions = 0
        log = self.log
        end_offset = log.log_end_offset
        self.lag = max(0, leader_high_watermark - end_offset)
        start_offset = log.log_start_offset
        high_watermark = min(max(leader_high_watermark, start_offset), end_offset)
        return Progress(high_watermark, max(start_offset, min(leader_log_start_offset, high_watermark)))

    def _on_diverging(self, epoch: int, end_offset: int, now_ms: int) -> FollowerEffect:
        """Our history is not the leader's: in it the largest epoch not above ours is `epoch`, ending at `end_offset`.

        Cut to where both can agree: the end of that epoch, ours or the leader's, whichever comes first. If we never had
        that epoch, cut to the end of the one before it that we have, and ask again with that (KIP-279).
        """
        log = self.log
        own_epoch, own_end_offset = log.end_offset_for_epoch(epoch)
        if own_epoch == NO_LEADER_EPOCH:
            offset = end_offset
        elif own_epoch == epoch:
            offset = min(own_end_offset, end_offset)
        else:
            offset = own_end_offset
        if not 0 <= offset < log.log_end_offset:
            # No leader that follows the protocol says this; without a pause we would ask it the same again at once.
            return self._wait(now_ms)
        self.state = FollowerState.TRUNCATING
        return TruncateTo(offset)

    def on_range(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> FollowerEffect:
        """The leader's log reaches from `log_start_offset` to `log_end_offset` (exclusive).

        Ahead of it, after an unclean election: cut there, and let the epochs decide about the rest with the next fetch.
        Behind its start, after a long absence: nothing that we hold can be continued.
        """
        if self.state is not FollowerState.TRUNCATING:
            return self._wait(now_ms)
        own_end_offset = self.log.log_end_offset
        if log_end_offset < own_end_offset:
            return TruncateTo(log_end_offset)
        if own_end_offset < log_start_offset:
            return StartOverAt(log_start_offset)
        # In range after all: it moved, or has no epochs to compare ours with.
        return self._wait(now_ms)

    def on_truncated(self) -> None:
        """The cut is done, and durable."""
        self.state = FollowerState.FETCHING

    def on_error(self, code: ErrorCode, now_ms: int) -> FollowerEffect:
        """The leader refused, or we could not reach it."""
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and self.state is FollowerState.FETCHING:
            self.state = FollowerState.TRUNCATING
            return AskRange()
        return self._wait(now_ms)

    def on_corrupt(self, reason: str, now_ms: int) -> FollowerEffect:
        """What came could not be appended, and nothing of it was: try again, but not for ever."""
        self.corruptions += 1
        if self.corruptions >= CORRUPTIONS_MAX:
            return self.on_failed(reason)
        self.errors = 16  # It helps nobody to hurry.
        return self._wait(now_ms)

    def on_failed(self, reason: str) -> FollowerEffect:
        """Our own disk failed, or the leader's data cannot be appended."""
        self.state = FollowerState.FAILED
        self.failure = reason
        return Stop(reason)

    def _wait(self, now_ms: int) -> FollowerEffect:
        self.state = FollowerState.DELAYED
        pause_ms = min(PAUSE_MS << min(self.errors, 16), max(1, self.backoff_ms))
        self.errors += 1
        self.delayed_until_ms = now_ms + pause_ms
        return Wait(self.delayed_until_ms)


def is_expected(code: ErrorCode) -> bool:
    """Is it an error that metadata on its way will clear up, and not worth more than a line?"""
    return code in _OF_METADATA
