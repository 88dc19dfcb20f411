"""Requests follow each other without waiting, and the coordinator dies or moves between any two of their steps.

Random walks over the real driver (see toy.py), with a second replica that lags behind. A write may be gathered,
appended or committed when the leadership ends, and the next leader may have any part of what was not committed. What
was acknowledged is there for ever; what was refused never was; and what a request saw of those before it is true in the
end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import pytest

from ottla.broker.promise import Promise
from ottla.coordinator.outcome import Outcome
from ottla.errors import ErrorCode, KafkaError
from ottla.records import BatchHeader, batches, read_header
from ottla.records.records import keys_and_values
from tests.coordinator.test_runtime import code, loaded, turn
from tests.coordinator.toy import Play, Toy, play, record
from tests.seams.test_maintenance import until

STEPS = 60
COUNTER = "counter"


class Write(NamedTuple):
    name: str
    promise: Promise[int]
    offset: int
    """Where its records lie, if they are written."""


class Walk:
    def __init__(self, it: Play, seed: int) -> None:
        self.it = it
        self.random = Random(seed)
        self.writes: list[Write] = []
        self.under_way_max = 0
        """Batches that were appended and not committed, at once."""
        self.moves = 0
        self.refused: set[str] = set()

    async def run(self) -> None:
        self.it.lead_two()
        await loaded(self.it)
        for _ in range(STEPS):
            await self.step()
            self.check()
        await self.move()

    async def step(self) -> None:
        it, random = self.it, self.random
        match random.choices(("write", "turn", "replicate", "refuse", "move"), (50, 25, 15, 4, 6))[0]:
            case "write":
                self.write()
            case "turn":
                await turn()
            case "replicate":
                it.replicate(random.choice(self.possible_ends()))
            case "refuse":
                await self.refuse()
            case "move":
                await self.move()

    def write(self) -> None:
        """Count, and leave a trace under a name of one's own."""
        name = f"w{len(self.writes)}"
        offset = self.it.runtime._served[0].next_offset

        def operation(toy: Toy, now_ms: int) -> Outcome[int]:
            outcome = toy.add(COUNTER, 1)
            return Outcome(outcome.response, [*outcome.records, record(name, outcome.response)])

        self.writes.append(Write(name, self.it.runtime.write(COUNTER, operation), offset))

    async def refuse(self) -> None:
        """What is gathered cannot be appended, since too few are in sync."""
        replicas = self.it.it.node.services.replicas
        with pytest.MonkeyPatch.context() as patches:

            def refuse(*args: object, **kwargs: object) -> None:
                raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

            patches.setattr(replicas, "append_by_coordinator", refuse)
            before = self.it.partition.log.log_end_offset
            gathered = [each for each in self.writes if each.offset >= before and not each.promise.done]
            await turn()
        assert all(each.promise.done and code(each.promise) is not None for each in gathered)
        self.refused.update(each.name for each in gathered)

    async def move(self) -> None:
        """The next leader has all that was committed, and perhaps more."""
        it, log = self.it, self.it.partition.log
        it.resign()
        assert all(write.promise.done for write in self.writes), "nobody waits for who does not lead any more"
        log.truncate_to(self.random.choice(self.possible_ends()))
        it.lead_two()
        await until(lambda: it.runtime._served[0].next_offset == log.log_end_offset)
        it.replicate()
        await loaded(it)
        assert it.toy.committed() == self.replayed()
        self.moves += 1
        self.check_outcomes()

    # What holds.

    def check(self) -> None:
        log = self.it.partition.log
        for write in self.writes:
            if write.promise.done and code(write.promise) is None:
                assert write.offset + 2 <= log.high_watermark, "it was acknowledged before it was committed"
        self.under_way_max = max(self.under_way_max, sum(end > log.high_watermark for end in self.batch_ends()))
        assert self.it.toy.committed() == self.replayed(log.high_watermark)

    def check_outcomes(self) -> None:
        """Nobody waits: what became of everything?"""
        found = self.replayed()
        counted = 0
        for write in self.writes:
            if code(write.promise) is None:
                assert found.get(write.name) == write.promise.result(), f"{write.name} was acknowledged, and is lost"
            elif write.name in self.refused:
                assert write.name not in found, f"{write.name} was refused, and is there"
            if write.name in found:
                counted += 1
                assert found[write.name] == counted, f"{write.name} saw what never was"
        assert found.get(COUNTER, 0) == counted

    def possible_ends(self) -> list[int]:
        """How far another replica may have come: batches are copied whole."""
        high_watermark = self.it.partition.log.high_watermark
        return [high_watermark, *(end for end in self.batch_ends() if end > high_watermark)]

    def batch_ends(self) -> list[int]:
        return [header.next_offset for header, _ in self.batches()]

    def batches(self) -> Iterator[tuple[BatchHeader, bytes]]:
        log = self.it.partition.log
        offset = log.log_start_offset
        while (span := log.read(offset, max_bytes=1 << 20, upper_bound=log.log_end_offset)) is not None:
            for header, batch in batches(memoryview(span.file.read(span.position, span.size))):
                yield header, bytes(batch)
                offset = header.next_offset

    def replayed(self, end: int | None = None) -> dict[str, int]:
        """What the log says, before `end`."""
        found: dict[str, int] = {}
        for header, batch in self.batches():
            if end is None or header.next_offset <= end:
                for _, key, value in keys_and_values(memoryview(batch), read_header(batch)):
                    assert key is not None
                    assert value is not None
                    found[key[2:].decode()] = int(value[2:])
        return found


async def walked(seed: int) -> Walk:
    async with play() as it:
        walk = Walk(it, seed)
        try:
            await walk.run()
        except AssertionError:
            print(f"walk {seed}: OTTLA_WALK={seed} pytest {__file__} -k few")
            raise
    return walk


async def test_a_few_walks() -> None:
    first = int(os.environ.get("OTTLA_WALK", "0"))
    walks = [await walked(seed) for seed in range(first, first + 10)]
    if first == 0:
        assert max(walk.under_way_max for walk in walks) >= 3, "nothing was pipelined"
        outcomes = {code(write.promise) for walk in walks for write in walk.writes}
        assert outcomes >= {None, ErrorCode.NOT_COORDINATOR}
        assert sum(walk.moves for walk in walks) > 20


@pytest.mark.long
async def test_many_walks() -> None:
    for seed in range(1_000, 3_000):
        await walked(seed)
