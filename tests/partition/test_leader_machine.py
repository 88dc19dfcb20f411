"""The leader's machine among followers that restart, a controller that loses answers, and metadata that comes late.

The model is a true cluster of one partition: what every replica really holds, what the controller really decided. The
machine hears of it by fetches, answers and metadata, each when Hypothesis thinks fit, and whatever it believes, no
member of the controller's in-sync set may ever lack what the machine calls committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.errors import ErrorCode, KafkaError
from ottla.partition import Effect, HighWatermarkAdvanced, LiveBroker, PartitionLeader, ProposeIsr

LEADER = 1
FOLLOWERS = (2, 3, 4)
REPLICAS = (LEADER, *FOLLOWERS)
LAG_MS_MAX = 30_000


@dataclass
class Broker:
    epoch: int
    log_end: int = 0
    fenced: bool = False
    shutting_down: bool = False


class Decided(NamedTuple):
    """The metadata after one change."""

    isr: tuple[int, ...]
    elr: tuple[int, ...]
    partition_epoch: int
    min_isr: int
    brokers: dict[int, LiveBroker]


class Fetch(NamedTuple):
    replica: int
    broker_epoch: int
    offset: int


@dataclass
class Controller:
    brokers: dict[int, Broker]
    isr: tuple[int, ...]
    min_isr: int
    elr: tuple[int, ...] = ()
    partition_epoch: int = 0
    history: list[Decided] = field(default_factory=list)

    def decide(self, isr: Sequence[int], lost: int | None = None) -> None:
        """Below the minimum, those that leave the in-sync set may still be elected (KIP-966), but for one that has
        `lost` what it had."""
        if len(isr) >= min(self.min_isr, len(REPLICAS)):
            elr: list[int] = []
        else:
            elr = sorted({*self.isr, *self.elr} - {*isr, lost})
        if (tuple(isr), tuple(elr)) != (self.isr, self.elr):
            self.isr, self.elr = tuple(isr), tuple(elr)
            self.partition_epoch += 1
        live = {
            number: LiveBroker(broker.epoch, broker.shutting_down)
            for number, broker in self.brokers.items()
            if not broker.fenced
        }
        self.history.append(Decided(self.isr, self.elr, self.partition_epoch, self.min_isr, live))

    def leave(self, replica: int, *, lost: bool = False) -> None:
        """A broker that is fenced, or that starts anew, is out of every in-sync set."""
        self.decide([member for member in self.isr if member != replica], replica if lost else None)

    def alter_partition(self, proposal: ProposeIsr) -> ErrorCode:
        if proposal.partition_epoch < self.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        for replica, epoch in proposal.isr:
            broker = self.brokers[replica]
            if broker.fenced or broker.shutting_down or epoch not in (-1, broker.epoch):
                self.partition_epoch += 1  # So that no copy of the proposal can be accepted later.
                self.decide(self.isr)
                return ErrorCode.INELIGIBLE_REPLICA
        self.decide([replica for replica, _ in proposal.isr])
        return ErrorCode.NONE


class LeaderMachine(RuleBasedStateMachine):
    @initialize(
        isr=st.sets(st.sampled_from(FOLLOWERS)),
        min_isr=st.integers(1, 3),
        start=st.integers(0, 5),
        ends=st.lists(st.integers(0, 5), min_size=3, max_size=3),
    )
    def take_the_epoch(self, isr: set[int], min_isr: int, start: int, ends: list[int]) -> None:
        """Earlier leaders may have committed anything up to the least end of the in-sync set, ours included."""
        self.now_ms = 5
        self.next_epoch = 200
        self.brokers = {
            LEADER: Broker(101, start),
            **{replica: Broker(100 + replica, end) for replica, end in zip(FOLLOWERS, ends, strict=True)},
        }
        for replica in FOLLOWERS:
            # No follower has more than we; what would have been cut when it first fetched is cut.
            self.brokers[replica].log_end = min(self.brokers[replica].log_end, start)
        members = tuple(replica for replica in REPLICAS if replica == LEADER or replica in isr)
        self.committed = min(self.brokers[replica].log_end for replica in members)
        self.controller = Controller(self.brokers, members, min_isr)
        self.controller.decide(members)
        first = self.controller.history[0]
        self.read = 1
        self.leader = PartitionLeader(
            replica_id=LEADER,
            leader_epoch=3,
            partition_epoch=0,
            start_offset=start,
            replicas=REPLICAS,
            isr=frozenset(members),
            min_isr=min_isr,
            high_watermark=max(0, self.committed - 1),
            now_ms=self.now_ms,
            lag_ms_max=LAG_MS_MAX,
            brokers=first.brokers,
        )
        self.proposed: ProposeIsr | None = None
        self.unanswered: list[ProposeIsr] = []
        """What is on its way to the controller, copies that were given up included."""
        self.answers: list[tuple[ProposeIsr, ErrorCode]] = []
        self.late: list[Fetch] = []
        self.fetched: dict[int, set[tuple[int, int]]] = {replica: set() for replica in FOLLOWERS}

    def carry_out(self, effects: Sequence[Effect], before: int) -> None:
        leader = self.leader
        for effect in effects:
            match effect:
                case HighWatermarkAdvanced(offset=offset):
                    assert offset == leader.high_watermark > before
                    assert len(leader.isr) >= leader.effective_min_isr, "A8: not below the minimum"
                    for replica in leader.maximal_isr - {LEADER}:
                        assert offset <= leader.followers[replica].log_end, "A9: not past the maximal ISR"
                case ProposeIsr(isr=isr, joining=joining):
                    assert leader.pending is effect
                    again = effect is self.proposed
                    self.proposed = effect
                    for replica in () if again else joining:
                        epoch = dict(isr)[replica]
                        offset = leader.followers[replica].log_end
                        assert (epoch, offset) in self.fetched[replica], "A18, A19: by one and the same fetch"
                        assert offset >= leader.start_offset, "A19: not before the start of the epoch"
                        assert offset >= before, "A19: not before the high watermark"
                    self.unanswered.append(effect)

    # The leader's own doing.

    @rule(count=st.integers(1, 4))
    def append(self, count: int) -> None:
        before = self.leader.high_watermark
        self.brokers[LEADER].log_end += count
        self.carry_out(self.leader.on_log_end(self.brokers[LEADER].log_end, self.now_ms), before)

    @rule(elapsed_ms=st.sampled_from([1, 2_000, 10_000, 20_000, 31_000]))
    def tick(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        before = self.leader.high_watermark
        self.carry_out(self.leader.on_tick(self.now_ms), before)

    @rule(min_isr=st.integers(1, 5))
    def configure(self, min_isr: int) -> None:
        """An administrator's doing, of which the leader hears with the metadata. Nobody who may be elected is dropped
        by it before the in-sync set is large enough."""
        self.controller.min_isr = min_isr
        self.controller.decide(self.controller.isr)

    # Followers.

    def receive(self, fetch: Fetch) -> bool:
        before = self.leader.high_watermark
        try:
            self.leader.check_follower(fetch.replica, fetch.broker_epoch, knows_epoch=True)
        except KafkaError as error:
            stale = fetch.broker_epoch < self.brokers[fetch.replica].epoch
            if error.code is not ErrorCode.STALE_BROKER_EPOCH or not stale:
                raise
            return False
        self.fetched[fetch.replica].add((fetch.broker_epoch, fetch.offset))
        effects = self.leader.on_fetch(
            fetch.replica, fetch.broker_epoch, fetch.offset, self.brokers[LEADER].log_end, self.now_ms
        )
        self.carry_out(effects, before)
        return True

    @rule(replica=st.sampled_from(FOLLOWERS), got=st.integers(0, 10))
    def fetch(self, replica: int, got: int) -> None:
        broker = self.brokers[replica]
        if self.receive(Fetch(replica, broker.epoch, broker.log_end)):
            broker.log_end = min(self.brokers[LEADER].log_end, broker.log_end + got)

    @rule(replica=st.sampled_from(FOLLOWERS))
    def fetch_that_gets_stuck(self, replica: int) -> None:
        broker = self.brokers[replica]
        self.late.append(Fetch(replica, broker.epoch, broker.log_end))

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def late_fetch(self, data: st.DataObject) -> None:
        self.receive(self.late.pop(data.draw(st.integers(0, len(self.late) - 1))))

    # The controller and its brokers.

    @rule(replica=st.sampled_from(FOLLOWERS))
    def fence(self, replica: int) -> None:
        self.brokers[replica].fenced = True
        self.controller.leave(replica)

    @rule(replica=st.sampled_from(FOLLOWERS))
    def unfence(self, replica: int) -> None:
        self.brokers[replica].fenced = False
        self.controller.decide(self.controller.isr)

    @rule(replica=st.sampled_from(FOLLOWERS))
    def begin_shutdown(self, replica: int) -> None:
        self.brokers[replica].shutting_down = True
        self.controller.leave(replica)

    @rule(replica=st.sampled_from(FOLLOWERS), lost=st.integers(0, 5))
    def restart(self, replica: int, lost: int) -> None:
        """With the loss of what was not synced: it has no business in the in-sync set before it caught up anew."""
        self.next_epoch += 1
        before = self.brokers[replica]
        self.brokers[replica] = Broker(self.next_epoch, max(0, before.log_end - lost))
        self.controller.leave(replica, lost=True)

    @precondition(lambda self: self.unanswered)
    @rule(data=st.data(), lost=st.booleans())
    def decide(self, data: st.DataObject, lost: bool) -> None:
        """The controller gets to one of the requests that are on their way, which may be a copy of one that was given
        up; its answer may be lost."""
        proposal = self.unanswered.pop(data.draw(st.integers(0, len(self.unanswered) - 1)))
        code = self.controller.alter_partition(proposal)
        if not lost:
            self.answers.append((proposal, code))

    def answer(self, proposal: ProposeIsr, code: ErrorCode) -> None:
        before = self.leader.high_watermark
        self.carry_out(self.leader.on_alter_partition_result(proposal, code, self.now_ms), before)

    @precondition(lambda self: self.answers)
    @rule()
    def hear_the_answer(self) -> None:
        self.answer(*self.answers.pop(0))

    @precondition(lambda self: self.leader.pending is not None)
    @rule(code=st.sampled_from([ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER]))
    def hear_nothing(self, code: ErrorCode) -> None:
        """The request may yet be carried out; it is made again."""
        pending = self.leader.pending
        assert pending is not None
        self.answer(pending, code)

    @precondition(lambda self: self.read < len(self.controller.history))
    @rule(data=st.data())
    def hear_the_metadata(self, data: st.DataObject) -> None:
        """Up to some offset, all at once: of several changes only the last is seen."""
        self.read = data.draw(st.integers(self.read + 1, len(self.controller.history)))
        decided = self.controller.history[self.read - 1]
        first = before = self.leader.high_watermark
        isr, min_isr = frozenset(decided.isr), decided.min_isr
        if decided.partition_epoch > self.leader.partition_epoch:
            effects = self.leader.on_partition(decided.partition_epoch, REPLICAS, isr, min_isr, self.now_ms)
        else:
            effects = self.leader.on_min_isr(min_isr, self.now_ms)
        self.carry_out(effects, before)
        before = self.leader.high_watermark
        self.carry_out(self.leader.on_brokers(decided.brokers, self.now_ms), before)
        if self.leader.high_watermark > first:
            assert len(isr) >= min(min_isr, len(REPLICAS)), "A8: not by half of the news"

    # After every step.

    @invariant()
    def whoever_may_be_elected_holds_what_is_committed(self) -> None:
        self.committed = max(self.committed, self.leader.high_watermark)
        for replica in (*self.controller.isr, *self.controller.elr):
            assert self.brokers[replica].log_end >= self.committed, f"A2: {replica} lacks a committed record"

    @invariant()
    def what_may_elect_is_counted(self) -> None:
        assert self.leader.maximal_isr >= set(self.controller.isr), "A3"
        assert self.leader.pending is not None or self.leader.maximal_isr == self.leader.isr

    @invariant()
    def offsets_are_in_order(self) -> None:
        leader = self.leader
        assert 0 <= leader.high_watermark <= leader.log_end == self.brokers[LEADER].log_end, "A11"

    @invariant()
    def derived_facts_agree(self) -> None:
        leader = self.leader
        assert leader.has_min_isr == (len(leader.isr) >= leader.effective_min_isr)
        assert leader.isr <= leader.maximal_isr <= set(REPLICAS)


LeaderMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestLeaderMachine = LeaderMachine.TestCase


@pytest.mark.long
def test_many_more_histories() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        LeaderMachine, settings=settings(max_examples=4_000, stateful_step_count=60, derandomize=False)
    )
