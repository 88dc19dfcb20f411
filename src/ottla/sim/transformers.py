"""Consume, transform, produce: members of a group whose offsets are committed with what they made of the records.

A transformer is a member of a group (KIP-848) and a producer with transactions. What it reads of
what others have committed it writes again under another name, and commits with that how far it has come (KIP-447).
After whatever it is not sure of it asks the group where to go on. In the end nothing has been made into two.
"""

from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.model import TopicPartition
from ottla.sim.consumers import Consumer
from ottla.sim.group_clients import Life, MemberOptions
from ottla.sim.group_members import ConsumerMember
from ottla.sim.history import History, Read, Txn
from ottla.sim.transaction_clients import Transactor

MADE = b"made:"
"""What the values that transformers write begin with; they do not read those."""
AT_ONCE_MAX = 3
READS_AGAIN = 0.3
"""How often a transaction reads on after it has written, from where it was and from where it wrote."""


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
        reader = Consumer(client, self.places, History(), read_committed=True)
        reader.positions[place] = self.positions[place]
        if not await self._poll(reader, place):
            await client.refresh([place.topic])
            return
        reads = [read for poll in reader.history.polls for read in poll.reads][:AT_ONCE_MAX]
        if not reads:
            return
        sources = [read for read in reads if not read.value.startswith(MADE)]
        position = await self._transform(reader, place, sources, reads[-1].offset + 1)
        if place in self.positions:
            self.positions[place] = position

    async def _poll(self, reader: Consumer, place: TopicPartition) -> bool:
        leader = self.client.leaders.get(place)
        polls = reader.history.polls
        known = len(polls)
        done = leader is not None and await reader.poll(leader.node, [place], 50)
        self.history.inner += polls[known:]
        return done

    async def _transform(self, reader: Consumer, place: TopicPartition, sources: list[Read], end: int) -> int:
        """Where to go on."""
        transactor = self._transactor
        deadline = self.client.now + transactor.options.delivery_timeout_s
        done = await transactor.identify(deadline)
        if done:
            transaction = transactor.begin()
            transaction.sources = [(place, source.offset) for source in sources]
            transaction.polls = reader.history.polls
            if sources:
                done = await self._make(reader, place, transaction, sources, deadline)
            if done:
                who = Life(self.member_id, self.epoch)
                code = await transactor.commit_offsets(transaction, self.group_id, {place: end}, deadline, member=who)
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

    async def _make(
        self, reader: Consumer, place: TopicPartition, transaction: Txn, sources: list[Read], deadline: float
    ) -> bool:
        """Write what comes of the sources, and sometimes look whether that, or more of them, is there to be read."""
        self._made += 1
        name = f"{self.client.name}:{self._made}"
        values = tuple(MADE + b"%s:%d:%s" % (name.encode(), read.offset, read.value) for read in sources)
        random = self.client.random
        target = random.choice(self.places)
        sent = await self._transactor.send(transaction, target, len(values), deadline, values)
        if sent is not None and random.random() < READS_AGAIN:
            if target != place:
                reader.positions[target] = sent[0].offset
            for again in {place: None, target: None}:
                await self._poll(reader, again)
        return sent is not None
