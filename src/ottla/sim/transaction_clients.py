"""Producers with transactions: each writes to some partitions, commits or aborts, and writes down what it was told.

A transactor has one transactional id. By the rules of transaction version 2 (KIP-890) partitions join a transaction
with their first batch, and every end hands out the next epoch. By those of version 1 it names each partition to the
coordinator before it writes there (`transaction_enrolment`), and one epoch has many transactions: so what may still be
under way could be taken for a part of the next one, and after any request without an answer it asks for another epoch.

Two may share an id, so that each fences the other again and again. What it cannot know, it says: a commit without an
answer may have happened. After anything unexpected it asks for a new identity, which ends whatever it had begun.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.errors import ErrorCode
from ottla.model import TopicPartition
from ottla.records import BatchBuilder
from ottla.sim.client import SimClient
from ottla.sim.coordinator_client import AGAIN, ANOTHER_COORDINATOR, GROUP, TRANSACTION, CoordinatorClient
from ottla.sim.group_clients import OUT, commit_name
from ottla.sim.history import Commit, History, Identity, Outcome, Send, Txn
from ottla.sim.producing import fill, is_final, may_be_appended, produce
from ottla.sim.transaction_enrolment import Enrolment
from ottla.wire.messages.end_txn_request import EndTxnRequest
from ottla.wire.messages.end_txn_response import EndTxnResponse
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.messages.txn_offset_commit_response import TxnOffsetCommitResponse

_AGAIN = AGAIN | {ErrorCode.CONCURRENT_TRANSACTIONS}

_PRODUCE_V1, _TXN_OFFSET_COMMIT_V1, _END_TXN_V1 = 11, 4, 4
"""The newest requests of transaction version 1."""

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
    version: int = 2
    """By whose rules."""
    commits: float = 0.7
    """How often it commits what it could have committed."""
    stalls: float = 0.05
    """How often it forgets a transaction for longer than its timeout."""
    misbehaves: float = 0.1
    """How often it sends requests of an ended transaction again."""
    commits_offsets: float = 0.0
    """How often an offset of a group is part of the transaction."""
    keys: bool = False
    """Is it for a compacted topic?"""
    request_timeout_s: float = 2.0
    delivery_timeout_s: float = 15.0


class Transactor(CoordinatorClient):
    """One producer with a transactional id. One transaction at a time."""

    def __init__(
        self,
        client: SimClient,
        transactional_id: str,
        places: list[TopicPartition],
        options: TransactorOptions,
        history: History,
    ) -> None:
        super().__init__(client, transactional_id, TRANSACTION, places, history, options.request_timeout_s)
        self.transactional_id = transactional_id
        self.options = options
        self.producer_id = -1
        self.producer_epoch = -1
        self._known = False
        """Do we know who we are? Not after an end of which we have not heard."""
        self._sequences: dict[TopicPartition, int] = {}
        self._enrolment = Enrolment(self) if options.version == 1 else None
        self._is_unsure = False
        """Has a request of this transaction not been answered?"""
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
        places = random.sample(self.places, random.randint(1, len(self.places)))
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
            place = random.choice(self.places)
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
        self.history.transactions.append(transaction)
        self._is_unsure = False
        if self._enrolment is not None:
            self._enrolment.begin()
            self.history.by_version_1 += 1
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
                self.complain("InitProducerId", response.error_code)
                return False
            else:
                await self.pause()
        return self._known

    def _become(self, producer_id: int, producer_epoch: int, invoked: float) -> None:
        self.producer_id, self.producer_epoch, self._known = producer_id, producer_epoch, True
        self._sequences.clear()
        self.history.identities.append(
            Identity(self.transactional_id, producer_id, producer_epoch, invoked, self.client.now)
        )

    @property
    def is_known(self) -> bool:
        """Did the last transaction end as it was asked to?"""
        return self._known

    def doubt(self) -> None:
        """A request of this transaction was not answered, and may come late."""
        self._is_unsure = True

    # Writing.

    async def send(
        self, transaction: Txn, place: TopicPartition, size: int, deadline: float, values: tuple[bytes, ...] = ()
    ) -> tuple[Send, bytes] | None:
        """One batch; None if it is not known to be there."""
        client = self.client
        if self._enrolment is not None and not await self._enrolment.enrol(place, deadline):
            self._is_unsure = True
            return None
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
        self.history.sends.append(send)
        transaction.sends.append(send)
        batch = self._batch(place, values)
        try:
            while True:
                code = await self._produce(batch, send)
                if code == 0:
                    send.outcome = Outcome.OK
                    self._sequences[place] = self._sequences.get(place, 0) + len(values)
                    return send, batch
                if code is not None and is_final(code):
                    if code not in _FENCED | _UNSURE:
                        self.complain(f"Produce to {place}", code)
                    break
                if may_be_appended(code):
                    send.uncertain_attempts += 1
                if client.now >= deadline:
                    break
                await self.pause()
                await client.refresh([place.topic])
            send.outcome = Outcome.INFO if send.uncertain_attempts else Outcome.FAILED
            return None
        finally:
            self._is_unsure = self._is_unsure or send.outcome is not Outcome.OK or send.uncertain_attempts > 0
            send.completed = client.now

    def _batch(self, place: TopicPartition, values: tuple[bytes, ...]) -> bytes:
        builder = BatchBuilder(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self._sequences.get(place, 0),
            transactional=True,
        )
        return fill(builder, self.client, values, keys=self.options.keys)

    async def _produce(self, batch: bytes, send: Send) -> int | None:
        """As `produce`, with the offset noted."""
        code, offset = await produce(
            self.client,
            send.place,
            batch,
            purpose=self.transactional_id,
            acks=-1,
            timeout_s=self.options.request_timeout_s,
            transactional_id=self.transactional_id,
            version=None if self._enrolment is None else _PRODUCE_V1,
        )
        if code == 0:
            send.offset = offset
        return code

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
            name=commit_name((member[0] or f"{self.transactional_id}@{client.name}", member[1]), self._commits),
            offsets=offsets,
            invoked=client.now,
            transaction=transaction,
        )
        self.history.commits.append(commit)
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
        version: int | None = None
        if self._enrolment is not None:
            version = _TXN_OFFSET_COMMIT_V1
            if not await self._enrolment.enrol_group(group_id, deadline):
                self._is_unsure = True
                commit.completed, commit.outcome = client.now, Outcome.INFO
                return None
        while client.now < deadline:
            response = await self.ask_of(group_id, GROUP, request, TxnOffsetCommitResponse, version=version)
            if response is None:
                # It may be there or not, and once more does no harm: the same offset of the same transaction.
                self._is_unsure = True
                await self.pause()
                continue
            code = max(each.error_code for topic in response.topics for each in topic.partitions)
            if code in ANOTHER_COORDINATOR:
                client.forget_coordinator(group_id, GROUP)
            if code not in _AGAIN:
                break
            await self.pause()
        commit.completed = client.now
        commit.outcome = Outcome.OK if code == 0 else Outcome.INFO
        self._is_unsure = self._is_unsure or code != 0
        if code and code not in _AGAIN | _FENCED | _UNSURE | OUT:
            self.complain(f"TxnOffsetCommit to {group_id}", code)
        return code

    # Ending.

    async def end(self, transaction: Txn, commit: bool, deadline: float) -> None:
        """Commit or abort, until that is known or the time is up."""
        client = self.client
        request = self._end_request((self.producer_id, self.producer_epoch), commit)
        version = None if self._enrolment is None else _END_TXN_V1
        asked = answered = False
        self._known = False
        while client.now < deadline:
            invoked = client.now
            asked = True
            response = await self.ask(request, EndTxnResponse, version=version)
            self._is_unsure = self._is_unsure or response is None
            if response is not None and not response.error_code:
                answered = True
                if self._enrolment is None:
                    self._become(response.producer_id, response.producer_epoch, invoked)
                else:
                    self._known = not self._is_unsure
                break
            if response is not None and response.error_code not in _AGAIN:
                if response.error_code not in _FENCED | {ErrorCode.INVALID_TXN_STATE}:
                    self.complain("EndTxn", response.error_code)
                break
            await self.pause()
        transaction.ended = client.now
        if not commit or not asked:
            transaction.outcome = Outcome.FAILED
        else:
            transaction.outcome = Outcome.OK if answered else Outcome.INFO

    def _end_request(self, identity: tuple[int, int], commit: bool) -> EndTxnRequest:
        if not commit:
            self.history.aborts.add(identity)
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity[0],
            producer_epoch=identity[1],
            committed=commit,
        )

    async def _misbehave(
        self, transaction: Txn, commit: bool, identity: tuple[int, int], last: tuple[Send, bytes]
    ) -> None:
        """What belongs to a transaction that has ended, once more: nothing of it may be believed."""
        if not self._known:
            return  # Not known to have ended.
        send, batch = last
        echo = Send(client=send.client, place=send.place, values=(), acks=-1, idempotent=True, invoked=self.client.now)
        self.history.resent += 1
        if await self._produce(batch, echo) == 0 and echo.offset != send.offset:
            # While the marker is on its way, a retry may still be told where the original is.
            self.history.unexpected.append(
                f"D8: {self.transactional_id} has ended its transaction, sent {send.values[0]!r} to {send.place} again "
                f"and was told that it is at {echo.offset}"
            )
        request = self._end_request(identity, not commit)
        version = None if self._enrolment is None else _END_TXN_V1
        response = await self.ask(request, EndTxnResponse, version=version)
        if response is None and self._enrolment is not None:
            self._known = False  # It may come late, and would end the next transaction.
        if response is not None and not response.error_code:
            self.history.unexpected.append(
                f"D7: {self.transactional_id} was told that its transaction is "
                f"{'committed' if commit else 'aborted'}, and then the opposite"
            )
