"""Logs that are made by the hundred are made beside everything else, and keep nobody from an answer."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker import publisher
from ottla.broker.publisher import BUSY_S, REST_S, TURN_S_MAX, MetadataPublisher
from ottla.broker.services import Services
from ottla.model import TopicPartition

COUNT = 100
MAKING_S = TURN_S_MAX / 4


class Loop:
    """Time that passes only by what is done in it."""

    def __init__(self, others_s: float) -> None:
        self.now_s = 0.0
        self.others_s = others_s
        """What the others take in each of their turns."""
        self.rests: list[float] = []
        self.made_at: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def make(self, image: object, change: object) -> None:
        self.now_s += MAKING_S
        self.made_at.append(self.now_s)

    async def sleep(self, delay_s: float) -> None:
        self.rests.append(delay_s)
        self.now_s += max(delay_s, self.others_s)


async def made(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    replicas = SimpleNamespace(partition=lambda topic, index: index)
    it = MetadataPublisher(cast("Services", SimpleNamespace(clock=loop, image=None, replicas=replicas)))
    it._postponed = OrderedDict.fromkeys((TopicPartition("t", index) for index in range(COUNT)), cast("Any", None))
    told: list[object] = []
    it.on_made = told.append
    monkeypatch.setattr(it, "_give_role", loop.make)
    monkeypatch.setattr(publisher, "asyncio", SimpleNamespace(sleep=loop.sleep))
    await it._make_postponed()
    assert len(loop.made_at) == COUNT
    assert told == list(range(COUNT))


async def test_an_idle_loop_makes_them_one_slice_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(others_s=0.0)
    await made(loop, monkeypatch)
    assert set(loop.rests) == {0}
    assert len(loop.rests) == pytest.approx(COUNT * MAKING_S / TURN_S_MAX, rel=0.3)


async def test_a_busy_loop_is_left_to_the_others_most_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(others_s=2 * BUSY_S)
    await made(loop, monkeypatch)
    assert loop.rests[:4] == [0, REST_S, 0, REST_S]
    assert COUNT * MAKING_S / loop.now_s < 0.25
