"""Nodes die and stand still under clients at work: what was promised is kept, and no client can tell the difference.

The long form is `python -m tests.cluster.chaos --kills 20 --pauses 20 --java`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import chaos
from tests.cluster.harness import running_cluster
from tests.cluster.history import History


@pytest.mark.slow
def test_kills_and_pauses_go_unnoticed(tmp_path: Path) -> None:
    """acks=all, three replicas, two required, idempotent and not: every acknowledged record is read, in order, once
    where idempotent, in an order that agrees with real time, and the copies are the same to the byte."""
    with running_cluster(tmp_path) as cluster:
        outcome = chaos.run(cluster, kills=2, pauses=2, seed=3)
    assert outcome.complaints == []
    assert outcome.refused == 0
    assert outcome.acknowledged > 500
    assert outcome.bytes_compared > 10_000


# The judge itself.


def told(*, once: bool = True) -> History:
    """Three writes one after the other, all acknowledged, two of them read."""
    history = History(once)
    for number in range(3):
        history.on_acknowledged(number, number, history.on_write())
    history.on_read("r", 0, 0)
    history.on_read("r", 1, 1)
    return history


FINAL = [(0, 0), (1, 1), (2, 2)]


def test_an_honest_log_is_not_complained_about() -> None:
    assert told().complaints(FINAL) == []
    assert told(once=False).complaints([*FINAL, (3, 1)]) == []


@pytest.mark.parametrize(
    ("final", "word"),
    [
        (FINAL[:2], "lost"),
        ([(0, 0), (1, 1), (2, 3)], "holds something else"),
        ([*FINAL, (3, 1)], "more than once"),
        ([(0, 0), (1, 2), (2, 1)], "out of order"),
        ([(1, 1), (0, 0), (2, 2)], "stepped back"),
        ([(0, 5), (1, 1), (2, 2), (3, 0)], "saw what is not there"),
        ([*FINAL, (4, 4)], "the final reader was led past some"),
        ([(1, 0), (2, 1), (3, 2)], "the final reader was led past some"),
    ],
)
def test_a_dishonest_one_is(final: list[tuple[int, int]], word: str) -> None:
    assert word in "\n".join(told().complaints(final))


def test_time_is_respected() -> None:
    """Who has read offset 2 and then writes must not be given offset 1."""
    history = told()
    history.on_read("r", 2, 2)
    began = history.on_write()
    history.on_acknowledged(3, 1, began)
    assert "below what was known" in "\n".join(history.complaints(FINAL))


def test_a_reader_does_not_step_back() -> None:
    history = told()
    history.on_read("r", 1, 1)
    assert "stepped back" in "\n".join(history.complaints(FINAL))


def test_a_reader_is_not_led_past_a_record() -> None:
    """Nor if whoever comes later finds it where it belongs."""
    history = told()
    for number in (3, 4):
        history.on_acknowledged(number, number, history.on_write())
    history.on_read("r", 3, 3)
    assert "r was led past some: ((1, 1), (3, 3))" in "\n".join(history.complaints([*FINAL, (3, 3), (4, 4)]))
