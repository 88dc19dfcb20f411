"""What the sink reads from its log of decisions: batches in, what is decided out."""

from __future__ import annotations

from ottla.records import Record
from ottla.records.batch import BatchHeader
from ottla.records.control import ControlType, control_key
from ottla.spark.decision_log import DecisionsView, decision_from_json, decision_to_json
from ottla.spark.two_phase import Claim, Decision, Staged

FIRST = Claim(1, 0)


def header(producer_id: int, *, transactional: bool = True, control: bool = False) -> BatchHeader:
    attributes = (0x10 if transactional else 0) | (0x20 if control else 0)
    return BatchHeader(0, 0, 0, 2, 0, attributes, 0, 0, 0, producer_id, 0, 0, 1)


def marker(kind: ControlType) -> list[Record]:
    return [Record(0, 0, control_key(kind), b"\0\0\0\0\0\0")]


def decision(batch_id: int, claim: Claim = FIRST, *, forsaken: bool = False) -> Decision:
    staged = (Staged("ottla/s/a", 5, 6, 1), Staged("ottla/s/b", 7, 8, 2))
    return Decision(sink="s", query_id="q", batch_id=batch_id, claim=claim, staged=staged, forsaken=forsaken)


def record(key: str, value: bytes | None, timestamp: int = 0) -> Record:
    return Record(0, timestamp, key.encode(), value)


def test_a_decision_reads_back() -> None:
    assert decision_from_json("s", decision_to_json(decision(3))) == decision(3)


def test_a_decision_counts_when_its_transaction_is_committed() -> None:
    view = DecisionsView()
    view.on_batch(header(1), [record("s", decision_to_json(decision(1)))])
    assert view.of("s", 0).own is None
    view.on_batch(header(2), [record("s", decision_to_json(decision(9)))])
    view.on_batch(header(1, control=True), marker(ControlType.COMMIT))
    own = view.of("s", 0).own
    assert own is not None
    assert (own.decision.batch_id, own.completed) == (1, False)
    view.on_batch(header(2, control=True), marker(ControlType.ABORT))
    assert view.of("s", 0).own == own
    view.on_batch(header(-1, transactional=False), [record("s/completed", b"[1, 0]")])
    assert view.of("s", 0).own == own._replace(completed=True)
    view.on_batch(header(3), [record("s", decision_to_json(decision(2, Claim(1, 1))))])
    view.on_batch(header(3, control=True), marker(ControlType.COMMIT))
    newest = view.of("s", 0).own
    assert newest is not None
    assert (newest.decision.batch_id, newest.completed) == (2, False), "completed was the one before"


def test_a_forsaken_decision_is_anybodys_after_a_while() -> None:
    view = DecisionsView()
    view.on_batch(header(-1, transactional=False), [record("s", decision_to_json(decision(0, forsaken=True)), 1000)])
    assert view.of("another", 2000).forsaken == ()
    assert view.of("another", 60_000).forsaken == (decision(0, forsaken=True),)
    view.on_batch(header(-1, transactional=False), [record("s", None), record("s/completed", None)])
    assert view.of("another", 60_000).forsaken == ()
