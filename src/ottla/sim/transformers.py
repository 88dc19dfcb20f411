"""Consume, transform, produce: members of a group whose offsets are committed with what they made of the records.

A transformer is a member of a group (KIP-848) and a producer with transactions. What it reads of
what others have committed it writes again under another name, and commits with that how far it has come (KIP-447).
After whatever it is not sure of it asks the group where to go on. In the end nothing has been made into two.
"""

from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.model import TopicPartition
from ottla.sim.group_clients import ConsumerMember, MemberOptions
from ottla.sim.history import History, Read
from ottla.sim.transaction_clients import Transactor
from ottla.sim.workload import Consumer

MADE = b"made:"
"""What the values that transformers write begin with; they do not read those."""
AT_ONCE_MAX = 3


class Transformer(ConsumerMember):
    def __init__(
        self,
        transactor: Transactor,
        group_id: str,
        places: list[TopicPartition],
        options: MemberOptions,
        history: History,
    ) -> None:
        super().__init__(transactor.client, group_id, places, options, history)
        self._transactor = transactor
        self._made = 0

    async def work(self) -> None:
        """One transaction over some of what is new in one of our partitions."""
        client = self.client
        if not self.positions:
            return
        place = client.random.choice(sorted(self.positions))
        leader = client.leaders.get(place)
        if leader is None:
            await client.refresh([place.topic])
            return
        reader = Consumer(client, [place], History(), read_committed=True)
        reader.positions[place] = self.positions[place]
        if not await reader.poll(leader.node, [place], 50):
            await client.refresh([place.topic])
            return
        reads = [read for poll in reader._history.polls for read in poll.reads][:AT_ONCE_MAX]
        if not reads:
            return
        sources = [read for read in reads if not read.value.startswith(MADE)]
        position = await self._transform(place, sources, reads[-1].offset + 1)
        if place in self.positions:
            self.positions[place] = position

    async def _transform(self, place: TopicPartition, sources: list[Read], end: int) -> int:
        """Where to go on."""
        transactor = self._transactor
        deadline = self.client.now + transactor.options.delivery_timeout_s
        done = await transactor.identify(deadline)
        if done:
            transaction = transactor.begin()
            transaction.sources = [(place, source.offset) for source in sources]
            if sources:
                self._made += 1
                name = f"{self.client.name}:{self._made}"
                values = tuple(MADE + b"%s:%d:%s" % (name.encode(), read.offset, read.value) for read in sources)
                target = self.client.random.choice(self.places)
                done = await transactor.send(transaction, target, len(values), deadline, values) is not None
            if done:
                code = await transactor.commit_offsets(
                    transaction, self.group_id, {place: end}, deadline, member=(self.member_id, self.epoch)
                )
                done = code == ErrorCode.NONE
            await transactor.end(transaction, done, deadline)
            if done and transactor.is_known:
                return end
        # Ask again; until the coordinator knows how it ended, it does not say.
        while not self.stopped:
            found = await self.fetch_positions([place])
            if found is not None:
                return found[place]
            if not await self.beat() or place not in self.positions:
                self.doubtful = True
                break
            await self.pause()
        return end
