"""What transactions may read while they are open, and how far a reader may trail."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from ottla.model import TopicPartition
from ottla.sim.checkers.histories import HistoryChecker
from ottla.sim.checkers.liveness import LAG_MAX_S, lagging
from ottla.sim.checkers.transaction_histories import check_transactions
from ottla.sim.checkers.violation import Violation
from ottla.sim.consumers import Consumer
from ottla.sim.history import History, Outcome, Poll, Read, Send, Txn

PLACE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def wrote(*values: bytes, offset: int = 0, place: TopicPartition = PLACE, at: float = 1.0) -> Send:
    return Send(
        client="x0/0",
        place=place,
        values=values,
        acks=-1,
        idempotent=True,
        invoked=at,
        completed=at + 0.1,
        outcome=Outcome.OK,
        offset=offset,
    )


def read(start: int, end: int, *values: bytes, place: TopicPartition = PLACE, committed: bool = True) -> Poll:
    """An answer from `start` to `end`, with a value for each offset."""
    return Poll(
        client="x0",
        place=place,
        position=start,
        invoked=2.0,
        completed=2.1,
        node=1,
        high_watermark=end,
        reads=[Read(start + at, value, 0) for at, value in enumerate(values)],
        log_start=0,
        read_committed=committed,
        next=end,
    )


def transaction(name: str, sends: list[Send], polls: list[Poll]) -> Txn:
    return Txn(client="x0", transactional_id=name, producer_id=1, producer_epoch=0, began=1.0, sends=sends, polls=polls)


def broken_by(*transactions: Txn) -> str | None:
    try:
        check_transactions(History(transactions=list(transactions)))
    except Violation as violation:
        return violation.invariant
    return None


def test_transactions_that_read_what_others_committed() -> None:
    first = transaction("a", [wrote(b"1")], [])
    second = transaction("b", [wrote(b"2", offset=1)], [read(0, 1, b"1"), read(1, 1), read(1, 2, b"other")])
    third = transaction("c", [], [read(0, 2, b"1", b"2"), read(5, 6, b"far", place=OTHER)])
    assert broken_by(first, second, third) is None


def test_a_poll_within_a_transaction_steps_back_or_skips() -> None:
    assert broken_by(transaction("a", [], [read(0, 2, b"1", b"2"), read(1, 3, b"2", b"3")])) == "H6"
    assert broken_by(transaction("a", [], [read(0, 2, b"1", b"2"), read(3, 4, b"4")])) == "H6"


def test_a_transaction_reads_its_own_write() -> None:
    assert broken_by(transaction("a", [wrote(b"1")], [read(0, 1, b"1")])) == "H9"


def test_two_transactions_have_seen_each_other() -> None:
    first = transaction("a", [wrote(b"1")], [read(0, 1, b"3", place=OTHER)])
    second = transaction("b", [wrote(b"2", offset=1)], [read(0, 1, b"1")])
    third = transaction("c", [wrote(b"3", place=OTHER)], [read(1, 2, b"2")])
    assert broken_by(first, second, third) == "H10"
    third.polls.clear()
    assert broken_by(first, second, third) is None


@pytest.mark.parametrize("committed", [False, True])
def test_an_answer_leaves_out_what_is_there(committed: bool) -> None:
    history = History(sends=[wrote(b"1", b"2")], polls=[read(0, 2, b"1", b"2", committed=committed)])
    everything = [Read(0, b"1", 0), Read(1, b"2", 0)]
    history.final[PLACE] = history.final_committed[PLACE] = everything
    HistoryChecker(history, lambda place: None).at_end(may_lose=False)
    history.polls.append(read(2, 2, committed=committed))
    history.inner.append(read(0, 2, b"1", committed=committed))
    with pytest.raises(Violation, match=r"H7.*without 1"):
        HistoryChecker(history, lambda place: None).at_end(may_lose=False)


def test_what_was_aborted_may_be_left_out() -> None:
    history = History(sends=[wrote(b"1", b"2")], polls=[read(0, 2, b"1")])
    history.final[PLACE] = [Read(0, b"1", 0), Read(1, b"2", 0)]
    history.final_committed[PLACE] = history.final[PLACE][:1]
    HistoryChecker(history, lambda place: None).at_end(may_lose=False)


def test_a_consumer_trails_what_was_acknowledged() -> None:
    consumer = cast(Consumer, SimpleNamespace(name="c0", positions={PLACE: 3}))
    history = History(sends=[wrote(b"1", offset=2, at=1.0), wrote(b"2", offset=3, at=50.0)])
    assert lagging([consumer], history, 50.0 + LAG_MAX_S) == []
    assert lagging([consumer], history, 51.0 + LAG_MAX_S) != []
    consumer.positions[PLACE] = 4
    assert lagging([consumer], history, 51.0 + LAG_MAX_S) == []
