"""Producers with transactions: each writes to some partitions, commits or aborts, and writes down what it was told.

A transactor has one transactional id, by the rules of transaction version 2 (KIP-890): partitions join a transaction
with their first batch, and every end hands out the next epoch. Two may share an id, so that each fences the other again
and again. What it cannot know, it says: a commit without an answer may have happened. After anything unexpected it asks
for a new identity, which ends whatever it had begun.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from ottla.errors import ErrorCode, Malformed
from ottla.model import TopicPartition
from ottla.records import BatchBuilder
from ottla.sim.client import Lost, SimClient
from ottla.sim.group_clients import GROUP, OUT
from ottla.sim.history import Commit, History, Identity, Outcome, Send, Txn
from ottla.wire.message import Message
from ottla.wire.messages.end_txn_request import EndTxnRequest
from ottla.wire.messages.end_txn_response import EndTxnResponse
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import ProduceResponse
from ottla.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.messages.txn_offset_commit_response import TxnOffsetCommitResponse

M = TypeVar("M", bound=Message)

TRANSACTION = 1
"""The kind of coordinator."""

_ANOTHER_COORDINATOR = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})

_AGAIN = _ANOTHER_COORDINATOR | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
}
"""What a coordinator says to whoever may ask the same again."""

_PRODUCE_NOT_APPENDED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)

_PRODUCE_AGAIN = _PRODUCE_NOT_APPENDED | {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
}

_FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""What somebody hears whose transaction was ended by others: by its timeout, or by another with the same id."""

_UNSURE = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_TXN_STATE, ErrorCode.UNKNOWN_PRODUCER_ID}
)
"""What somebody may hear who has been fenced, and whose successor's transaction is not here yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactorOptions:
    timeout_ms: int
    """After which the coordinator aborts a transaction by itself."""
    commits: float = 0.7
    """How often it commits what it could have committed."""
    stalls: float = 0.05
    """How often it forgets a transaction for longer than its timeout."""
    misbehaves: float = 0.1
    """How often it sends requests of an ended transaction again."""
    commits_offsets: float = 0.0
    """How often an offset of a group is part of the transaction."""
    request_timeout_s: float = 2.0
    delivery_timeout_s: float = 15.0


class Transactor:
    """One producer with a transactional id. One transaction at a time."""

    def __init__(
        self,
        client: SimClient,
        transactional_id: str,
        places: list[TopicPartition],
        options: TransactorOptions,
        history: History,
    ) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self._places = places
        self.options = options
        self._history = history
        self.producer_id = -1
        self.producer_epoch = -1
        self._known = False
        """Do we know who we are? Not after an end of which we have not heard."""
        self._sequences: dict[TopicPartition, int] = {}
        self._count = 0
        self._commits = 0
        self.busy = False

    async def transact(self) -> None:
        """One transaction, to whatever end it comes."""
        self.busy = True
        try:
            await self._transact()
        finally:
            self.busy = False

    async def _transact(self) -> None:
        client, options, random = self.client, self.options, self.client.random
        deadline = client.now + options.delivery_timeout_s
        if not await self.identify(deadline):
            return
        transaction = self.begin()
        last: tuple[Send, bytes] | None = None
        places = random.sample(self._places, random.randint(1, len(self._places)))
        done = True
        for place in places * random.choice((1, 1, 2)):
            sent = await self.send(transaction, place, random.choice((1, 1, 2)), deadline)
            if sent is None:
                done = False
                break  # Its sequence may be used or not: nothing can follow.
            last = sent
        if random.random() < options.stalls:
            await client.sleep(options.timeout_ms / 1000 * random.uniform(0.8, 2.5))
            deadline = client.now + options.delivery_timeout_s
        commit = done and random.random() < options.commits
        if done and random.random() < options.commits_offsets:
            group_id = f"of-{self.transactional_id}"
            place = random.choice(self._places)
            done = not await self.commit_offsets(transaction, group_id, {place: 0}, deadline)
            commit = commit and done
        before = (self.producer_id, self.producer_epoch)
        await self.end(transaction, commit, deadline)
        if last is not None and random.random() < options.misbehaves:
            await self._misbehave(transaction, commit, before, last)

    def begin(self) -> Txn:
        transaction = Txn(
            client=self.client.name,
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            began=self.client.now,
        )
        self._history.transactions.append(transaction)
        return transaction

    # Identity.

    async def identify(self, deadline: float) -> bool:
        """Get a new identity where ours is not sure. It ends whatever was begun with the old one."""
        client = self.client
        while not self._known and client.now < deadline:
            request = InitProducerIdRequest(
                transactional_id=self.transactional_id, transaction_timeout_ms=self.options.timeout_ms
            )
            if self.producer_id >= 0 and client.random.random() < 0.5:
                # As the same producer that goes on (KIP-360), and not as one that has just started.
                request.producer_id, request.producer_epoch = self.producer_id, self.producer_epoch
            invoked = client.now
            response = await self.ask(request, InitProducerIdResponse)
            if response is not None and not response.error_code:
                self._become(response.producer_id, response.producer_epoch, invoked)
            elif response is not None and response.error_code in (ErrorCode.PRODUCER_FENCED, 47):
                self.producer_id = self.producer_epoch = -1
            elif response is not None and response.error_code not in _AGAIN:
                self._complain("InitProducerId", response.error_code)
                return False
            else:
                await self.pause()
        return self._known

    def _become(self, producer_id: int, producer_epoch: int, invoked: float) -> None:
        self.producer_id, self.producer_epoch, self._known = producer_id, producer_epoch, True
        self._sequences.clear()
        self._history.identities.append(
            Identity(self.transactional_id, producer_id, producer_epoch, invoked, self.client.now)
        )

    @property
    def is_known(self) -> bool:
        """Did the last transaction end as it was asked to?"""
        return self._known

    # Writing.

    async def send(
        self, transaction: Txn, place: TopicPartition, size: int, deadline: float, values: tuple[bytes, ...] = ()
    ) -> tuple[Send, bytes] | None:
        """One batch; None if it is not known to be there."""
        client = self.client
        if not values:
            name = f"{self.transactional_id}@{client.name}".encode()
            values = tuple(b"%s:%d" % (name, self._count + at) for at in range(size))
            self._count += size
        send = Send(
            client=f"{client.name}/{place.partition}",
            place=place,
            values=values,
            acks=-1,
            idempotent=True,
            invoked=client.now,
            transaction=transaction,
        )
        self._history.sends.append(send)
        transaction.sends.append(send)
        batch = self._batch(place, values)
        try:
            while True:
                code = await self._produce(batch, send)
                if code == 0:
                    send.outcome = Outcome.OK
                    self._sequences[place] = self._sequences.get(place, 0) + len(values)
                    return send, batch
                if code is not None and code != _NOTHING_SENT and code not in _PRODUCE_AGAIN:
                    if code not in _FENCED | _UNSURE:
                        self._complain(f"Produce to {place}", code)
                    break
                if code is None or (code != _NOTHING_SENT and code not in _PRODUCE_NOT_APPENDED):
                    send.uncertain_attempts += 1
                if client.now >= deadline:
                    break
                await self.pause()
                await client.refresh([place.topic])
            send.outcome = Outcome.INFO if send.uncertain_attempts else Outcome.FAILED
            return None
        finally:
            send.completed = client.now

    def _batch(self, place: TopicPartition, values: tuple[bytes, ...]) -> bytes:
        builder = BatchBuilder(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self._sequences.get(place, 0),
            transactional=True,
        )
        now_ms = self.client.loop.clock.wall_ms()
        for value in values:
            builder.append(now_ms, None, value)
        return bytes(builder.build())

    async def _produce(self, batch: bytes, send: Send) -> int | None:
        """The error code, 0 with the offset noted, `_NOTHING_SENT`, or None where no answer came."""
        client, place = self.client, send.place
        leader = client.leaders.get(place)
        wire = None if leader is None else client.to_node(leader.node, self.transactional_id)
        if leader is None or wire is None:
            return _NOTHING_SENT
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=int(self.options.request_timeout_s * 800),
            topic_data=[
                TopicProduceData(
                    topic_id=leader.topic_id,
                    partition_data=[PartitionProduceData(index=place.partition, records=batch)],
                )
            ],
        )
        try:
            response = await wire.call(request, ProduceResponse, timeout_s=self.options.request_timeout_s)
        except Lost as lost:
            return None if lost.sent else _NOTHING_SENT
        answer = response.responses[0].partition_responses[0]
        if not answer.error_code:
            send.offset = answer.base_offset
        return answer.error_code

    async def commit_offsets(
        self,
        transaction: Txn,
        group_id: str,
        offsets: dict[TopicPartition, int],
        deadline: float,
        *,
        member: tuple[str, int] = ("", -1),
    ) -> int | None:
        """Offsets of a group, as part of the transaction. The error code; None if it is not known to be there."""
        client = self.client
        self._commits += 1
        commit = Commit(
            group_id=group_id,
            name=f"{self.transactional_id}@{client.name}:{self._commits}",
            offsets=offsets,
            invoked=client.now,
            transaction=transaction,
        )
        self._history.commits.append(commit)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            generation_id=member[1],
            member_id=member[0],
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=place.topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=place.partition, committed_offset=offset, committed_metadata=commit.name
                        )
                    ],
                )
                for place, offset in offsets.items()
            ],
        )
        code: int | None = None
        while client.now < deadline:
            response = await self._ask_of(group_id, GROUP, request, TxnOffsetCommitResponse)
            if response is None:
                # It may be there or not, and once more does no harm: the same offset of the same transaction.
                await self.pause()
                continue
            code = max(each.error_code for topic in response.topics for each in topic.partitions)
            if code in _ANOTHER_COORDINATOR:
                client.forget_coordinator(group_id, GROUP)
            if code not in _AGAIN:
                break
            await self.pause()
        commit.completed = client.now
        commit.outcome = Outcome.OK if code == 0 else Outcome.INFO
        if code and code not in _AGAIN | _FENCED | _UNSURE | OUT:
            self._complain(f"TxnOffsetCommit to {group_id}", code)
        return code

    # Ending.

    async def end(self, transaction: Txn, commit: bool, deadline: float) -> None:
        """Commit or abort, until that is known or the time is up."""
        client = self.client
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commit,
        )
        asked = False
        self._known = False
        while client.now < deadline:
            invoked = client.now
            asked = True
            response = await self.ask(request, EndTxnResponse)
            if response is not None and not response.error_code:
                self._become(response.producer_id, response.producer_epoch, invoked)
                break
            if response is not None and response.error_code not in _AGAIN:
                if response.error_code not in _FENCED | {ErrorCode.INVALID_TXN_STATE}:
                    self._complain("EndTxn", response.error_code)
                break
            await self.pause()
        transaction.ended = client.now
        if not commit or not asked:
            transaction.outcome = Outcome.FAILED
        else:
            transaction.outcome = Outcome.OK if self._known else Outcome.INFO

    async def _misbehave(
        self, transaction: Txn, commit: bool, identity: tuple[int, int], last: tuple[Send, bytes]
    ) -> None:
        """What belongs to a transaction that has ended, once more: nothing of it may be believed."""
        if not self._known:
            return  # Not known to have ended.
        send, batch = last
        echo = Send(client=send.client, place=send.place, values=(), acks=-1, idempotent=True, invoked=self.client.now)
        self._history.resent += 1
        if await self._produce(batch, echo) == 0 and echo.offset != send.offset:
            # While the marker is on its way, a retry may still be told where the original is.
            self._history.unexpected.append(
                f"D8: {self.transactional_id} has ended its transaction, sent {send.values[0]!r} to {send.place} again "
                f"and was told that it is at {echo.offset}"
            )
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity[0],
            producer_epoch=identity[1],
            committed=not commit,
        )
        response = await self.ask(request, EndTxnResponse)
        if response is not None and not response.error_code:
            self._history.unexpected.append(
                f"D7: {self.transactional_id} was told that its transaction is "
                f"{'committed' if commit else 'aborted'}, and then the opposite"
            )

    # Asking.

    async def ask(self, request: Message, response: type[M]) -> M | None:
        """Our coordinator's answer, if one comes."""
        return await self._ask_of(self.transactional_id, TRANSACTION, request, response)

    async def _ask_of(self, key: str, kind: int, request: Message, response: type[M]) -> M | None:
        client = self.client
        wire = await client.coordinator(key, kind)
        if wire is None:
            return None
        try:
            answer = await wire.call(request, response, timeout_s=self.options.request_timeout_s)
        except (Lost, Malformed):
            client.forget_coordinator(key, kind)
            return None
        if getattr(answer, "error_code", 0) in _ANOTHER_COORDINATOR:
            client.forget_coordinator(key, kind)
        return answer

    async def pause(self) -> None:
        await self.client.sleep(0.02 + 0.2 * self.client.random.random())

    def _complain(self, what: str, code: int) -> None:
        self._history.unexpected.append(f"{what} of {self.transactional_id} was refused with {ErrorCode(code).name}")


_NOTHING_SENT = -1000
