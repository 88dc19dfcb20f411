"""Three replicas on paper, under any history of elections, appends, fetches and crashes: what is committed stays, and
two replicas that agree on one record agree on all before it.

The leader here is the least that a leader does: it answers fetches as Kafka does, counts who has what, and grows the
in-sync set only by followers that have fetched up to its start (KIP-497's rules are the leader's own tests). The
follower is the real machine. To show that the checks can fail, the same histories run on followers with old mistakes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest

from ottla.errors import ErrorCode
from ottla.partition.follower import (
    Append,
    AskRange,
    FollowerEffect,
    FollowerState,
    Ignore,
    PartitionFollower,
    StartOverAt,
    TruncateTo,
    Wait,
)
from tests.partition.paper_log import PaperLog

pytestmark = pytest.mark.slow

BACKOFF_MS = 10


class Violation(AssertionError):
    """One of the invariants does not hold."""


@dataclass
class Answer:
    """What a leader said to a fetch, on its way back."""

    to: int
    machine: PartitionFollower
    fetch_offset: int
    code: ErrorCode = ErrorCode.NONE
    diverging: tuple[int, int] | None = None
    records: list[tuple[int, object]] = field(default_factory=list)
    high_watermark: int = 0
    log_start_offset: int = 0


@dataclass
class Replica:
    log: PaperLog = field(default_factory=PaperLog)
    flushed: int = 0
    follower: PartitionFollower | None = None
    """None: it leads, or is down."""
    up: bool = True


class History:
    def __init__(self, seed: int, make: Callable[..., PartitionFollower], *, unclean: bool) -> None:
        self.random = Random(seed)
        self.make = make
        self.unclean = unclean
        self.replicas = [Replica() for _ in range(3)]
        self.isr = {0, 1, 2}
        self.leader: int | None = None
        self.epoch = 0
        self.leader_start = 0
        self.ends: dict[int, int] = {}
        self.committed: list[tuple[int, object]] = []
        """The true high watermark is its length. Reset by an unclean election."""
        self.values = 0
        self.now_ms = 0
        self.flying: list[Answer] = []
        self.truncations = self.start_overs = self.elections = 0
        self.elect()

    # What happens.

    def step(self) -> None:
        self.now_ms += 1
        actions = [self.append, self.append, self.fetch, self.fetch, self.fetch, self.deliver, self.deliver, self.flush]
        actions += [self.elect, self.crash, self.restart, self.shrink, self.delete_records]
        weights = [6] * len(actions[:8]) + [2, 1, 3, 1, 1]
        self.random.choices(actions, weights)[0]()
        self.check()

    def append(self) -> None:
        if self.leader is not None:
            log = self.replicas[self.leader].log
            for _ in range(self.random.randrange(1, 4)):
                self.values += 1
                log.append(self.epoch, self.values)
            self.advance()

    def flush(self) -> None:
        replica = self.random.choice(self.replicas)
        replica.flushed = replica.log.log_end_offset

    def shrink(self) -> None:
        """A follower fell behind; the leader's proposal is accepted at once here."""
        others = [replica for replica in sorted(self.isr) if replica != self.leader]
        if self.leader is not None and others:
            self.isr.discard(self.random.choice(others))
            self.advance()

    def elect(self) -> None:
        """A new leader epoch; everyone who is up hears of it now or, being cut off, does not."""
        candidates = [replica for replica in sorted(self.isr) if self.replicas[replica].up]
        if self.unclean and self.random.random() < 0.3:
            candidates = [number for number, replica in enumerate(self.replicas) if replica.up]
        self.epoch += 1
        if not candidates:
            self.leader = None
            for replica in self.replicas:
                replica.follower = None
            return
        self.elections += 1
        self.leader = self.random.choice(candidates)
        log = self.replicas[self.leader].log
        if self.leader not in self.isr:
            self.isr = {self.leader}
            self.committed = self.committed[: log.log_end_offset]
            self.committed = log.records[: len(self.committed)] if not log.base else self.committed
        log.begin_epoch(self.epoch)
        self.leader_start = log.log_end_offset
        self.ends = {self.leader: log.log_end_offset}
        for number, replica in enumerate(self.replicas):
            replica.follower = None
            if number != self.leader and replica.up:
                self.follow(number)
        self.advance()

    def follow(self, number: int) -> None:
        replica = self.replicas[number]
        replica.follower = self.make(
            leader_id=self.leader, leader_epoch=self.epoch, log=replica.log, backoff_ms=BACKOFF_MS
        )

    def crash(self) -> None:
        """Power loss: what was not flushed may be gone. Never the last in sync, or nothing could be promised."""
        up = [number for number, replica in enumerate(self.replicas) if replica.up]
        number = self.random.choice(up) if up else None
        if number is None or self.isr == {number}:
            return
        replica = self.replicas[number]
        replica.up, replica.follower = False, None
        kept = self.random.randint(min(replica.flushed, replica.log.log_end_offset), replica.log.log_end_offset)
        checkpointed = self.random.randint(0, replica.log.high_watermark)
        replica.log.truncate_to(max(kept, replica.log.log_start_offset))
        replica.log.high_watermark = max(min(checkpointed, replica.log.log_end_offset), replica.log.log_start_offset)
        self.isr.discard(number)  # It cannot prove a clean shutdown (KIP-966).
        if number == self.leader:
            self.elect()
        else:
            self.advance()

    def restart(self) -> None:
        down = [number for number, replica in enumerate(self.replicas) if not replica.up]
        if down:
            number = self.random.choice(down)
            self.replicas[number].up = True
            if self.leader is None:
                self.elect()
            else:
                self.follow(number)

    def delete_records(self) -> None:
        if self.leader is not None:
            log = self.replicas[self.leader].log
            log.log_start_offset = self.random.randint(log.log_start_offset, log.high_watermark)
            log.epochs.truncate_from_start(log.log_start_offset)

    # The least of a leader.

    def advance(self) -> None:
        leader = self.replicas[self.leader].log if self.leader is not None else None
        if leader is None or len(self.isr) < 2:  # min.insync.replicas=2
            return
        assert self.leader is not None
        self.ends[self.leader] = leader.log_end_offset
        offset = min(self.ends.get(replica, 0) for replica in self.isr)
        if offset > leader.high_watermark:
            leader.high_watermark = offset
            self.committed += [leader.records[at - leader.base] for at in range(len(self.committed), offset)]

    def fetch(self) -> None:
        number = self.random.randrange(3)
        follower = self.replicas[number].follower
        if follower is None or self.leader is None or not follower.is_ready(self.now_ms):
            return
        assert follower.leader_id == self.leader != number  # A21
        offset, last_epoch, _ = follower.position
        log = self.replicas[self.leader].log
        answer = Answer(number, follower, offset)
        self.flying.append(answer)
        answer.high_watermark, answer.log_start_offset = log.high_watermark, log.log_start_offset
        if last_epoch >= 0:
            epoch, end = log.end_offset_for_epoch(last_epoch)
            if epoch < 0 or offset < log.log_start_offset:
                answer.code = ErrorCode.OFFSET_OUT_OF_RANGE
                return
            if epoch < last_epoch or end < offset:
                answer.diverging = (epoch, end)
                return
        if not log.log_start_offset <= offset <= log.log_end_offset:
            answer.code = ErrorCode.OFFSET_OUT_OF_RANGE
            return
        self.ends[number] = offset
        self.advance()
        if offset >= max(log.high_watermark, self.leader_start):
            self.isr.add(number)
        answer.high_watermark = log.high_watermark
        answer.records = log.records[offset - log.base :][: self.random.randrange(9)]

    # The driver of a follower.

    def deliver(self) -> None:
        if not self.flying:
            return
        answer = self.flying.pop(self.random.randrange(len(self.flying)))
        replica = self.replicas[answer.to]
        follower = replica.follower
        if follower is None or follower is not answer.machine:
            return  # Another epoch, another machine.
        effect = follower.on_response(answer.fetch_offset, answer.code, answer.diverging, self.now_ms)
        if isinstance(effect, Append):
            if replica.log.log_end_offset != answer.fetch_offset:
                raise Violation("A22: not at the log's end")
            for epoch, value in answer.records:
                replica.log.append(epoch, value)
            bounds = follower.on_appended(answer.high_watermark, answer.log_start_offset)
            replica.log.high_watermark = bounds.high_watermark
            if bounds.log_start_offset > replica.log.log_start_offset:
                replica.log.log_start_offset = bounds.log_start_offset
                replica.log.epochs.truncate_from_start(bounds.log_start_offset)
        else:
            self.carry_out(replica, follower, effect)

    def carry_out(self, replica: Replica, follower: PartitionFollower, effect: FollowerEffect) -> None:
        if isinstance(effect, AskRange):
            assert self.leader is not None
            leader = self.replicas[self.leader].log
            effect = follower.on_range(leader.log_start_offset, leader.log_end_offset, self.now_ms)
        if isinstance(effect, TruncateTo):
            self.truncations += 1
            if not effect.offset < replica.log.log_end_offset:
                raise Violation("a truncation makes no progress")
            replica.log.truncate_to(effect.offset)
            replica.flushed = min(replica.flushed, replica.log.log_end_offset)
            follower.on_truncated()
        elif isinstance(effect, StartOverAt):
            self.start_overs += 1
            replica.log.start_over_at(effect.offset)
            replica.flushed = effect.offset
            follower.on_truncated()
        else:
            assert isinstance(effect, Wait | Ignore)

    # What must hold.

    def check(self) -> None:
        for replica in self.replicas:
            log = replica.log
            if not log.log_start_offset <= log.high_watermark <= log.log_end_offset:
                raise Violation("A11: bounds")
        for one, other in ((0, 1), (0, 2), (1, 2)):
            self.check_pair(self.replicas[one].log, self.replicas[other].log)
        if self.leader is not None:
            log = self.replicas[self.leader].log
            if log.log_end_offset < len(self.committed):
                raise Violation("A1: the leader lacks committed records")
            for offset in range(max(log.base, log.log_start_offset), len(self.committed)):
                if log.records[offset - log.base] != self.committed[offset]:
                    raise Violation(f"A6: {offset} was committed as something else")

    def check_pair(self, one: PaperLog, other: PaperLog) -> None:
        # What lies before the log start may still be on a disk, but is no part of the log.
        low = max(one.log_start_offset, other.log_start_offset)
        high = min(one.log_end_offset, other.log_end_offset)
        agreed = True
        for offset in range(low, high):
            a, b = one.records[offset - one.base], other.records[offset - other.base]
            if a[0] == b[0] and (a != b or not agreed):
                raise Violation(f"A5: same epoch at {offset}, different histories")
            agreed = agreed and a == b
            if a != b and offset < min(one.high_watermark, other.high_watermark) and not self.unclean:
                raise Violation(f"A4: {offset} differs below both high watermarks")

    def settle(self) -> None:
        """The faults end: everyone comes back, and in the end all logs are the leader's (L5)."""
        while any(not replica.up for replica in self.replicas):
            self.restart()
        if self.leader is None:
            self.isr = self.isr or {0}
            self.elect()
        for turn in range(1500):
            self.now_ms += 1
            self.fetch()
            self.deliver()
            if turn % 50 == 0:
                self.check()
        assert self.leader is not None
        leader = self.replicas[self.leader].log
        for replica in self.replicas:
            held = min(replica.log.log_end_offset - replica.log.log_start_offset, 1)
            same = not held or replica.log.records[-1] == leader.records[-1]
            if replica.log.log_end_offset != leader.log_end_offset or not same:
                raise Violation(f"L5: {replica.log.log_end_offset} of {leader.log_end_offset}, {replica.follower}")
            assert replica.follower is None or replica.follower.state is FollowerState.FETCHING


def live(seed: int, make: Callable[..., PartitionFollower] = PartitionFollower, *, unclean: bool = False) -> History:
    history = History(seed, make, unclean=unclean)
    for _ in range(250):
        history.step()
    history.settle()
    return history


@pytest.mark.parametrize("unclean", [False, True])
def test_any_history_keeps_the_promises(unclean: bool) -> None:
    told = []
    for seed in range(150):
        try:
            told.append(live(seed, unclean=unclean))
        except Violation as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    # The histories are worth telling.
    assert sum(history.elections for history in told) > 500
    assert sum(history.truncations for history in told) > 100
    if unclean:
        assert any(history.start_overs for history in told)
    assert all(history.committed for history in told if not unclean)


class ToHighWatermark(PartitionFollower):
    """KIP-101: on a new leader, cut to the high watermark and trust what is left."""

    def __init__(self, **fields: object) -> None:
        super().__init__(**fields)  # type: ignore[arg-type]
        log = self.log
        assert isinstance(log, PaperLog)
        log.truncate_to(log.high_watermark)


class LeadersEndOnly(PartitionFollower):
    """Before KIP-279: cut to the leader's end of the epoch, whether we know that epoch or not."""

    def _on_diverging(self, epoch: int, end_offset: int, now_ms: int) -> FollowerEffect:
        if end_offset >= self.log.log_end_offset:
            return self._wait(now_ms)
        self.state = FollowerState.TRUNCATING
        return TruncateTo(end_offset)


class Undiscerning(PartitionFollower):
    """Takes an answer for its own though its log has moved on."""

    def on_response(
        self, fetch_offset: int, code: ErrorCode, diverging: tuple[int, int] | None, now_ms: int
    ) -> FollowerEffect:
        return super().on_response(self.log.log_end_offset, code, diverging, now_ms)


@pytest.mark.parametrize("mistake", [ToHighWatermark, LeadersEndOnly, Undiscerning])
def test_old_mistakes_are_found(mistake: type[PartitionFollower]) -> None:
    found = 0
    for seed in range(150):
        try:
            live(seed, mistake)
        except Violation:
            found += 1
    assert found > 0
