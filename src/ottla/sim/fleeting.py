"""A topic that is deleted and created again under its clients, and of which nobody keeps more than so much.

Each topic of that name is a life of its own, with a history of its own. Its clients write a value to one topic id,
once, and read from one: so that what comes from another life is noticed (A27).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from ottla.model import TopicPartition, Uuid, uuid_to_text
from ottla.records import BatchBuilder
from ottla.sim.checkers.histories import HistoryChecker
from ottla.sim.checkers.ledger import Ledger
from ottla.sim.checkers.violation import Violation
from ottla.sim.client import SimClient, report_failure
from ottla.sim.consumers import Consumer, read_everything
from ottla.sim.history import History, Outcome, Poll, Send
from ottla.sim.producing import NOTHING_SENT, fill, is_final, produce

FLEETING_TOPIC = "drafts"
PLACE = TopicPartition(FLEETING_TOPIC, 0)
WRITES_PER_S = 4.0

LedgerOf = Callable[[TopicPartition, Uuid], Ledger | None]


class _Life:
    """One topic of the name, and what its clients know of it."""

    def __init__(self, topic_id: Uuid, reader: SimClient, ledger_of: LedgerOf) -> None:
        self.topic_id = topic_id
        self.history = History()
        self.consumer = Consumer(reader, [PLACE], self.history, read_committed=False)
        self.checker = HistoryChecker(self.history, lambda place: ledger_of(place, topic_id))
        self.judged = 0
        """How many answers to its consumer were looked at."""


class Fleeting:
    """The topic's clients, and what they found. Driven by `run`."""

    def __init__(self, writer: SimClient, reader: SimClient, final: SimClient, ledger_of: LedgerOf) -> None:
        self.writer = writer
        self.reader = reader
        self._final = final
        self._ledger_of = ledger_of
        self._lives: dict[Uuid, _Life] = {}
        self._written: dict[bytes, Uuid] = {}
        """Every value, and the topic that it was written to."""
        self._news: dict[Uuid, _Life] = {}
        """Those of which clients have heard something since the last look."""
        self.stopped = False
        self.changing = False
        """Is somebody deleting it, or creating it again?"""
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def lives(self) -> int:
        return len(self._lives)

    # Its clients.

    def start(self) -> None:
        for work in (self._write(), self._read()):
            self._spawn(work)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = self.writer.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        task.add_done_callback(report_failure)

    def _life(self, topic_id: Uuid) -> _Life:
        life = self._lives.get(topic_id)
        if life is None:
            life = self._lives[topic_id] = _Life(topic_id, self.reader, self._ledger_of)
        return life

    async def _write(self) -> None:
        """One value after the other, each to the topic that is known just then, and never again."""
        client, count = self.writer, 0
        while not self.stopped:
            await client.sleep(client.random.expovariate(WRITES_PER_S))
            leader = client.leaders.get(PLACE)
            if leader is None:
                await client.refresh([FLEETING_TOPIC])
                continue
            life = self._life(leader.topic_id)
            values = (b"%s:%d" % (client.name.encode(), count),)
            count += 1
            self._written[values[0]] = leader.topic_id
            send = Send(client=client.name, place=PLACE, values=values, acks=-1, idempotent=False, invoked=client.now)
            life.history.sends.append(send)
            batch = fill(BatchBuilder(), client, values, keys=False)
            code, send.offset = await produce(client, PLACE, batch, purpose="write", acks=-1, timeout_s=2.0)
            send.completed = client.now
            self._news[life.topic_id] = life
            if code == 0:
                send.outcome = Outcome.OK
                continue
            if is_final(code):
                life.history.unexpected.append(f"a write to {PLACE} was refused with {code}")
            # That there is no such topic may be said of one that was there when the write came.
            send.outcome = Outcome.FAILED if code == NOTHING_SENT else Outcome.INFO
            await client.refresh([FLEETING_TOPIC])

    async def _read(self) -> None:
        client = self.reader
        while not self.stopped:
            leader = client.leaders.get(PLACE)
            life = None if leader is None else self._life(leader.topic_id)
            ok = leader is not None and life is not None and await life.consumer.poll(leader.node, [PLACE])
            if life is not None:
                self._news[life.topic_id] = life
            if not ok:
                await client.sleep(0.2 * (0.5 + client.random.random()))
                await client.refresh([FLEETING_TOPIC])

    async def read_all(self, deadline: float) -> bool:
        """The last look at the topic that there is now."""
        final = self._final
        while final.now < deadline:
            await final.refresh([FLEETING_TOPIC])
            leader = final.leaders.get(PLACE)
            if leader is not None:
                return await read_everything(final, PLACE, self._life(leader.topic_id).history, deadline)
            await final.sleep(0.2)
        return False

    # What they found.

    def after_step(self) -> list[tuple[TopicPartition, int]]:
        """Look at the answers that came since the last look. Batches with a wrong checksum are returned, each with the
        node that sent it."""
        if not self._news:
            return []
        corrupt: list[tuple[TopicPartition, int]] = []
        for life in self._news.values():
            life.checker.after_step()
            history = life.history
            while life.judged < len(history.polls):
                self._check_life(life, history.polls[life.judged])
                life.judged += 1
            corrupt += history.corrupt
            history.corrupt.clear()
        self._news = {}
        return corrupt

    def _check_life(self, life: _Life, poll: Poll) -> None:
        """A27, as a client sees it."""
        for read in poll.reads:
            written = self._written.get(read.value)
            if written != life.topic_id:
                raise Violation(
                    "A27",
                    f"{poll.client} asked node {poll.node} for {PLACE} of {uuid_to_text(life.topic_id)} and was given "
                    f"{read.value!r}, written to {None if written is None else uuid_to_text(written)}",
                )

    def at_end(self) -> None:
        for life in self._lives.values():
            life.checker.at_end(may_lose=False)
