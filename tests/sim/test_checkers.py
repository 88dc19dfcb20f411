"""The checkers themselves: each notices what it is there for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.model import TopicPartition
from ottla.sim.checkers.compaction import CompactionChecker
from ottla.sim.checkers.histories import HistoryChecker
from ottla.sim.checkers.ledger import Ledger
from ottla.sim.checkers.mirror import Batch
from ottla.sim.checkers.replicas import ReplicaChecker
from ottla.sim.checkers.violation import Violation
from ottla.sim.faults import KINDS
from ottla.sim.history import EndOffset, History, Outcome, Poll, Read, Send
from ottla.sim.options import Mode, expand
from ottla.sim.run import Simulation
from ottla.sim.volume import FileNode

PLACE = TopicPartition("t", 0)


def batch(base: int, size: int = 1, *, epoch: int = 0, crc: int = 1) -> Batch:
    return Batch(base, base + size, epoch, crc, 70, FileNode(), 0, "", -1)


def sent(
    value: bytes,
    offset: int,
    *,
    at: float = 1.0,
    client: str = "p0",
    outcome: Outcome = Outcome.OK,
    idempotent: bool = True,
    uncertain: int = 0,
) -> Send:
    return Send(
        client=client,
        place=PLACE,
        values=(value,),
        acks=-1,
        idempotent=idempotent,
        invoked=at,
        completed=at + 0.1,
        outcome=outcome,
        offset=offset,
        uncertain_attempts=uncertain,
    )


def polled(*reads: tuple[int, bytes], at: float = 5.0, client: str = "c0") -> Poll:
    return Poll(
        client=client,
        place=PLACE,
        position=reads[0][0],
        invoked=at,
        completed=at + 0.1,
        node=1,
        high_watermark=0,
        reads=[Read(offset, value, 0) for offset, value in reads],
        log_start=0,
    )


def judge(history: History, *final: tuple[int, bytes]) -> str | None:
    """The invariant that is broken, if one is."""
    history.final[PLACE] = [Read(offset, value, 0) for offset, value in final]
    try:
        HistoryChecker(history, lambda place: None).at_end(may_lose=False)
    except Violation as violation:
        return violation.invariant
    return None


def test_a_history_in_which_nothing_is_wrong() -> None:
    history = History(
        sends=[
            sent(b"a", 0, at=1),
            sent(b"b", 1, at=2),
            sent(b"maybe", -1, at=2, client="p1", outcome=Outcome.INFO),
            sent(b"never", -1, at=2, client="p2", outcome=Outcome.FAILED),
        ],
        polls=[polled((0, b"a"), (1, b"b"))],
    )
    assert judge(history, (0, b"a"), (1, b"b"), (2, b"maybe")) is None


@pytest.mark.parametrize(
    ("invariant", "history", "final"),
    [
        ("H1", History(sends=[sent(b"a", -1, outcome=Outcome.FAILED)]), [(0, b"a")]),
        ("H2", History(sends=[sent(b"a", 0), sent(b"b", 1, at=2)]), [(1, b"b")]),
        ("H3", History(sends=[sent(b"a", 0), sent(b"b", 1, at=2)]), [(0, b"a")]),
        ("H4", History(sends=[sent(b"a", 0)], polls=[polled((0, b"z"))]), [(0, b"a")]),
        ("H5", History(sends=[sent(b"a", 0)]), [(0, b"a"), (1, b"a")]),
        ("H7", History(sends=[sent(b"a", 0)], polls=[polled((0, b"a")), polled((0, b"a"), at=6)]), [(0, b"a")]),
        ("H8", History(sends=[sent(b"a", 1, at=1), sent(b"b", 0, at=2)]), [(0, b"b"), (1, b"a")]),
        ("H12", History(sends=[sent(b"a", 1, at=1), sent(b"b", 0, at=2, client="p1")]), [(0, b"b"), (1, b"a")]),
        ("H12", History(sends=[sent(b"a", 0, at=9)], polls=[polled((0, b"a"), at=5)]), [(0, b"a")]),
        ("H12", History(sends=[sent(b"a", 0)]), [(0, b"a"), (1, b"nobody's")]),
        ("A6", History(sends=[sent(b"a", -1, outcome=Outcome.INFO)], polls=[polled((0, b"a"))]), []),
        ("H0", History(unexpected=["what was that"]), []),
    ],
)
def test_what_is_wrong_is_named(invariant: str, history: History, final: list[tuple[int, bytes]]) -> None:
    assert judge(history, *final) == invariant


def test_a_duplicate_of_one_who_sent_twice_is_his_own() -> None:
    history = History(sends=[sent(b"a", 0, idempotent=False, uncertain=1)])
    assert judge(history, (0, b"a"), (1, b"a")) is None


def test_the_end_of_a_partition_does_not_come_back() -> None:
    def told(offset: int, invoked: float, completed: float) -> EndOffset:
        return EndOffset(
            client="w", place=PLACE, invoked=invoked, completed=completed, offset=offset, leader_epoch=0, node=1
        )

    assert judge(History(end_offsets=[told(5, 1, 2), told(4, 3, 4)])) == "A10"
    assert judge(History(end_offsets=[told(5, 1, 4), told(4, 3, 5)])) is None, "at the same time, either may be first"


def test_an_answer_before_its_batch_is_committed() -> None:
    ledger = Ledger("t-0")
    ledger.commit(batch(0), "t-0 on n1")
    history = History(sends=[sent(b"a", 0)])
    checker = HistoryChecker(history, lambda place: ledger)
    checker.after_step()
    history.sends.append(sent(b"b", 1))
    with pytest.raises(Violation, match="A23"):
        checker.after_step()


def test_a_read_beyond_what_is_committed() -> None:
    ledger = Ledger("t-0")
    ledger.commit(batch(0), "t-0 on n1")
    history = History(polls=[polled((0, b"a"))])
    checker = HistoryChecker(history, lambda place: ledger)
    checker.after_step()
    history.polls.append(polled((1, b"b")))
    with pytest.raises(Violation, match="A6"):
        checker.after_step()


def test_two_histories_below_the_high_watermark() -> None:
    ledger = Ledger("t-0")
    ledger.commit(batch(0), "n1")
    ledger.commit(batch(1, 2), "n1")
    ledger.commit(batch(1, 2), "n2")
    assert ledger.end == 3
    with pytest.raises(Violation, match="A4"):
        ledger.commit(batch(1, 2, epoch=1, crc=2), "n3")
    with pytest.raises(Violation, match="A4"):
        ledger.commit(batch(2, 1), "n3")


def test_logs_that_agree_on_a_batch_agree_on_the_one_before() -> None:
    ledger = Ledger("t-0")
    ledger.note(batch(0), None, "n1")
    ledger.note(batch(1, epoch=1), batch(0), "n1")
    ledger.note(batch(1, epoch=1), batch(0), "n2")
    with pytest.raises(Violation, match="A5"):
        ledger.note(batch(1, epoch=1, crc=9), batch(0), "n2")
    with pytest.raises(Violation, match="A5"):
        ledger.note(batch(1, epoch=1), batch(0, epoch=1), "n2")


def test_two_leaders_of_an_epoch() -> None:
    ledger = Ledger("t-0")
    ledger.lead(3, 1)
    ledger.lead(4, 2)
    ledger.lead(3, 1)
    with pytest.raises(Violation, match="A12"):
        ledger.lead(3, 2)


def test_every_section_of_the_fault_model_has_its_kinds() -> None:
    """As the page has them; of the last one, the misbehaviour of clients, there is some in every seed."""
    page = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
    table = page.partition("## What goes wrong")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) [^|]*\| (.*) \|$", table, re.MULTILINE)
    told = {int(section): set(kinds.split(", ")) for section, kinds in rows if not kinds.startswith("always: ")}
    assert sorted(told) == list(range(1, 14))
    assert told == {section: {each.name for each in KINDS.values() if each.section == section} for section in told}
    assert {each.section for each in KINDS.values()} == set(told)


def test_damage_that_spreads() -> None:
    """A node whose disk was damaged may send it to clients, even when it has been repaired meanwhile; no other may."""
    cluster = Simulation(expand(0, Mode.SAFETY, kinds=tuple(KINDS), nodes=3)).cluster
    checker = ReplicaChecker(cluster, CompactionChecker(cluster))
    damaged, sound = list(cluster.machines.values())[:2]
    checker.forgive(damaged, damaged=True)
    checker.check_corrupt(PLACE, damaged.id)
    checker.forgive(damaged, damaged=False)
    checker.check_corrupt(PLACE, damaged.id)
    with pytest.raises(Violation, match=r"E1: .*its disk is sound"):
        checker.check_corrupt(PLACE, sound.id)
