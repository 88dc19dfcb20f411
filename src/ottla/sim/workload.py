"""All clients of one simulation at work: so many operations a second, of every kind."""

from __future__ import annotations

import asyncio
from random import Random

from ottla.model import TopicPartition
from ottla.sim.client import SimClient, report_failure
from ottla.sim.clients import Clients
from ottla.sim.consumers import watch_end
from ottla.sim.group_clients import fetch_offsets, live
from ottla.sim.history import History


class Workload:
    """All clients of one simulation."""

    def __init__(
        self,
        clients: Clients,
        history: History,
        *,
        random: Random,
        rate: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`rate` operations a second: batches, mostly, and now and then a question for the end of a partition or the
        offsets of a group."""
        self._clients = clients
        self._history = history
        self._random = random
        self._rate = rate
        self._loop = loop
        self.tasks: set[asyncio.Task[None]] = set()
        self.stopped = False
        self.turned_away = 0
        """Operations for which every lane was busy."""

    def start(self, until: float) -> None:
        for consumer in self._clients.consumers:
            self._spawn(consumer.run())
        for member in self._clients.members:
            self._spawn(live(member, until))
        self._tick()

    def stop(self) -> None:
        self.stopped = True
        for consumer in self._clients.consumers:
            consumer.stopped = True
        for member in self._clients.members:
            member.stopped = True

    def groups(self) -> dict[str, list[tuple[str, bool, set[TopicPartition]]]]:
        """Who is in each group, whether it has settled, and what it has."""
        found: dict[str, list[tuple[str, bool, set[TopicPartition]]]] = {}
        for member in self._clients.members:
            found.setdefault(member.group_id, []).append((member.member_id, member.settled, set(member.positions)))
        return found

    def _tick(self) -> None:
        if self.stopped:
            return
        random = self._random
        self._loop.call_later(random.expovariate(self._rate), self._tick)
        clients = self._clients
        if clients.watchers and random.random() < 0.05:
            client, place = random.choice(clients.watchers)
            if clients.group_ids and random.random() < 0.5:
                self._spawn(self._look(client, place, random.choice(clients.group_ids), stable=random.random() < 0.5))
            else:
                self._spawn(watch_end(client, place, self._history))
            return
        if clients.transactors and random.random() < 0.15:
            free = [transactor for transactor in clients.transactors if not transactor.busy]
            if free:
                self._spawn(random.choice(free).transact())
                return
        idle = [lane for lane in clients.lanes if not lane.busy]
        if idle:
            self._spawn(random.choice(idle).send(random.choice((1, 1, 1, 2, 5))))
        else:
            self.turned_away += 1

    async def _look(self, client: SimClient, place: TopicPartition, group_id: str, *, stable: bool) -> None:
        await fetch_offsets(client, group_id, place.topic, [place.partition], self._history, stable=stable)

    def _spawn(self, work: asyncio._CoroutineLike[None]) -> None:
        task = self._loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        task.add_done_callback(report_failure)
