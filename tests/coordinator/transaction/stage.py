"""A transaction coordinator on a log of paper: what was written, what is committed, and who leads.

It does what `broker/coordinators` does, one step at a time and in the caller's hands: records are replayed as soon as
they are made, answered when they are committed, undone when the append fails, and read again by the next leader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.coordinator.outcome import Answer, AnyEffect, CancelTimer, Outcome, SetTimer
from ottla.coordinator.stored import TRANSACTION_KINDS, StoredRecord
from ottla.coordinator.timeline import Timeline
from ottla.coordinator.transaction.effects import SendMarkers
from ottla.coordinator.transaction.settings import TransactionSettings
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.coordinator.transaction.transaction import Transaction
from ottla.errors import ErrorCode
from ottla.metadata.images import FeaturesImage, MetadataImage
from ottla.model import TopicPartition

Operation = Callable[[TransactionShard], Outcome[Any]]


class Ids:
    """Producer ids in their order; `left` says how many before a block must be asked for."""

    def __init__(self, first: int = 1000) -> None:
        self._next = first
        self.left = 1 << 60

    def take(self) -> int | None:
        if not self.left:
            return None
        self.left -= 1
        self._next += 1
        return self._next - 1


@dataclass(slots=True)
class Ticket:
    """A request under way."""

    outcome: Outcome[Any]
    end_offset: int
    """The answer leaves when everything before it is committed."""
    answer: object = None
    error: ErrorCode = ErrorCode.NONE
    is_done: bool = False


class Entry(NamedTuple):
    key: bytes
    value: bytes | None

    def decode(self) -> StoredRecord:
        record = TRANSACTION_KINDS.decode(self.key, self.value)
        assert isinstance(record, StoredRecord)
        return record


@dataclass(slots=True)
class Stage:
    transaction_version: int = 2
    settings: TransactionSettings = field(default_factory=TransactionSettings)
    now_ms: int = 1_000_000
    ids: Ids = field(default_factory=Ids)
    log: list[Entry] = field(default_factory=list)
    appended: int = 0
    """What lies before is in the leader's log; what comes after is gathered, and will be appended as one batch."""
    high_watermark: int = 0
    leader_epoch: int = 0
    shard: TransactionShard = field(init=False)
    timers: dict[tuple[str, ...], int] = field(default_factory=dict)
    sending: list[SendMarkers] = field(default_factory=list)
    """Markers that were asked for by this leader, oldest first."""
    waiting: list[Ticket] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lead()

    @property
    def image(self) -> MetadataImage:
        return MetadataImage(features=FeaturesImage(levels={"transaction.version": self.transaction_version}))

    # Requests.

    def ask(self, operation: Operation) -> Ticket:
        """Begin a request: its records are appended; the answer has to wait for `commit`."""
        outcome = operation(self.shard)
        offset = len(self.log)
        for record in outcome.records:
            self.log.append(Entry(*TRANSACTION_KINDS.encode(record)))
            self.shard.timeline.begin(offset)
            self.shard.replay(record, -1, -1)
            offset += 1
        for effect in outcome.effects:
            match effect:
                case SetTimer():
                    self.timers[effect.key] = self.now_ms + effect.delay_ms
                case CancelTimer():
                    self.timers.pop(effect.key, None)
        ticket = Ticket(outcome, offset)
        self.waiting.append(ticket)
        if offset <= self.high_watermark:
            self.commit(self.high_watermark)
        return ticket

    def do(self, operation: Operation) -> Any:
        """The whole of a request, on a log that commits at once."""
        ticket = self.ask(operation)
        self.commit()
        assert ticket.error is ErrorCode.NONE
        return ticket.answer

    # What becomes of appends.

    def append(self) -> None:
        self.appended = len(self.log)

    def commit(self, end_offset: int | None = None) -> None:
        self.append()
        self.high_watermark = max(self.high_watermark, len(self.log) if end_offset is None else end_offset)
        self.shard.timeline.commit(self.high_watermark)
        ready = [ticket for ticket in self.waiting if ticket.end_offset <= self.high_watermark]
        self.waiting = [ticket for ticket in self.waiting if ticket.end_offset > self.high_watermark]
        for ticket in ready:
            ticket.is_done = True
            ticket.answer = ticket.outcome.response
            for effect in ticket.outcome.effects:
                if isinstance(effect, SendMarkers):
                    self.sending.append(effect)
                assert not isinstance(effect, Answer)
            if ticket.outcome.tag is not None:
                self._told(ticket.outcome.tag, ErrorCode.NONE)

    def fail(self, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        """What was gathered could not be appended."""
        del self.log[self.appended :]
        self.shard.timeline.revert(self.appended)
        failed = [ticket for ticket in self.waiting if ticket.end_offset > self.appended]
        self.waiting = [ticket for ticket in self.waiting if ticket.end_offset <= self.appended]
        # Those who wrote nothing themselves wait for the batch all the same.
        for ticket in failed:
            ticket.is_done = True
            ticket.error = error
            if ticket.outcome.tag is not None:
                self._told(ticket.outcome.tag, error)

    def give_up(self) -> None:
        """It takes too long: whoever waits is told so. What was appended is in the log, and may yet be committed."""
        self.append()
        late, self.waiting = self.waiting, []
        for ticket in late:
            ticket.is_done = True
            ticket.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            markers: list[AnyEffect] = [each for each in ticket.outcome.effects if isinstance(each, SendMarkers)]
            if markers:
                self.waiting.append(Ticket(Outcome(effects=markers), ticket.end_offset))
            if ticket.outcome.tag is not None:
                self._told(ticket.outcome.tag, ticket.error)

    def move(self, kept: int | None = None) -> None:
        """Another leader takes over, whose log has the committed records and the first `kept` of those after."""
        if kept is not None:
            del self.log[self.high_watermark + kept :]
        for ticket in self.waiting:
            ticket.is_done = True
            ticket.error = ErrorCode.NOT_COORDINATOR
        self.append()
        self.leader_epoch += 1
        self._lead()

    def _lead(self) -> None:
        self.waiting = []
        self.timers = {}
        self.sending = []
        self.shard = self.loaded()
        self.ask(lambda shard: shard.on_loaded(self.image, self.now_ms))

    def loaded(self) -> TransactionShard:
        """What a new leader makes of the log."""
        shard = TransactionShard(
            timeline=Timeline(),
            coordinator_epoch=self.leader_epoch,
            producer_ids=self.ids,
            settings=self.settings,
        )
        for offset, entry in enumerate(self.log):
            shard.timeline.loading = offset < self.high_watermark
            shard.timeline.begin(offset)
            shard.replay(entry.decode(), -1, -1)
        shard.timeline.loading = False
        return shard

    # Time and markers.

    def tick(self, by_ms: int) -> None:
        """Time goes by, and every timer that is due goes off."""
        until_ms = self.now_ms + by_ms
        while due := [(at_ms, key) for key, at_ms in self.timers.items() if at_ms <= until_ms]:
            at_ms, key = min(due)
            self.now_ms = max(self.now_ms, at_ms)
            del self.timers[key]
            self.ask(lambda shard, key=key: shard.on_timer(key, self.now_ms))  # type: ignore[misc]
        self.now_ms = until_ms

    def set_clock(self, by_ms: int) -> None:
        """The wall clock is set, or is another node's after a `move`. Timers go by a clock that nobody sets."""
        self.now_ms += by_ms
        self.timers = {key: at_ms + by_ms for key, at_ms in self.timers.items()}

    def marked(self, sent: SendMarkers, *partitions: TopicPartition) -> Ticket:
        """`partitions`, or all of them, have their marker."""
        done = partitions or sent.partitions
        return self.ask(lambda shard: shard.on_markers_written(sent, done, self.now_ms))

    def finish(self) -> None:
        """Every marker that was asked for is written, and everything is committed."""
        self.commit()
        while self.sending:
            self.marked(self.sending.pop(0))
            self.commit()

    def set_feature(self, level: int) -> None:
        self.transaction_version = level
        self.ask(lambda shard: shard.on_metadata(self.image, self.now_ms))

    def _told(self, tag: object, error: ErrorCode) -> None:
        self.ask(lambda shard: shard.on_written(tag, error, self.now_ms))

    # What there is to see.

    def transaction(self, transactional_id: str) -> Transaction:
        return self.shard.transactions[transactional_id]
