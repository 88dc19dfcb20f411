"""Asking a transaction's coordinator before the first batch of a transaction enters a partition (KIP-890).

Without that, a batch that comes late would open a transaction of which no coordinator knows, and nobody would end it.
Older clients have told the coordinator of the partition, which is verified here; newer ones leave it to us to add it.
In between the partition holds a guard (`log/producers`), so that the answer is of no use after the transaction's end.

Owns the questions under way. Another node is asked one thing at a time: what comes up meanwhile goes into its next
request, with all partitions of one transaction together. Driven by Produce, and by whoever writes a group's offsets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.broker.hosted import HostedPartition
from ottla.broker.node_lines import Line, Lines, NodeServices
from ottla.client.peer import PeerLost, Peers
from ottla.coordinator.java_hash import partition_for
from ottla.errors import ErrorCode, KafkaError
from ottla.log import VerificationGuard
from ottla.log.producers import KNOWN_OPEN
from ottla.metrics.instruments import Histogram, Meter
from ottla.model import NO_SEQUENCE, TRANSACTION_TOPIC, TopicPartition

if TYPE_CHECKING:
    from ottla.wire.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest
    from ottla.wire.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse

_log = logging.getLogger(__name__)


class Operation(Enum):
    """What is asked, and which answers the client can bear, by the version of its request."""

    VERIFY = auto()
    VERIFY_KNOWS_ABORTABLE = auto()
    """It knows TRANSACTION_ABORTABLE, after which it aborts and goes on; others get INVALID_TXN_STATE."""
    ADD = auto()
    """Each of its transactions has an epoch of its own, and a partition is added when it is first written to."""

    @classmethod
    def of_produce(cls, version: int) -> Operation:
        return cls._of(version - 11)

    @classmethod
    def of_txn_offset_commit(cls, version: int) -> Operation:
        return cls._of(version - 4)

    @classmethod
    def _of(cls, beyond: int) -> Operation:
        return cls.VERIFY if beyond < 0 else cls.VERIFY_KNOWS_ABORTABLE if beyond == 0 else cls.ADD


class Claim(NamedTuple):
    """Whose transaction it is said to be."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    operation: Operation


class Verdict:
    """What may be appended: with its guard, or why not."""

    __slots__ = ("guards", "refusals")

    def __init__(self) -> None:
        self.guards: dict[HostedPartition, VerificationGuard] = {}
        self.refusals: dict[HostedPartition, KafkaError] = {}

    def refuse(self, partition: HostedPartition, code: ErrorCode) -> None:
        del self.guards[partition]
        self.refusals[partition] = KafkaError(code)


Errors = dict[TopicPartition, ErrorCode]
"""The partitions that are not part of the transaction, and what the coordinator says of them."""


class _Question:
    __slots__ = ("asked_s", "claim", "partitions", "then")

    def __init__(
        self, claim: Claim, partitions: list[TopicPartition], then: Callable[[Errors], None], asked_s: float
    ) -> None:
        self.claim = claim
        self.partitions = partitions
        self.then = then
        self.asked_s = asked_s


Questions = dict[str, list[_Question]]
"""By transactional id, so that those about one transaction go together."""
QuestionLine = Line[str, list[_Question]]


class VerificationMetrics(Protocol):
    @property
    def verification_failures(self) -> Meter: ...

    @property
    def verification_time(self) -> Histogram: ...


class Replicas(Protocol):
    def leader_or_refuse(self, partition: HostedPartition, leader_epoch: int = -1) -> None: ...


class VerificationServices(NodeServices, Protocol):
    @property
    def replicas(self) -> Replicas: ...

    @property
    def metrics(self) -> VerificationMetrics: ...

    def spawn(self, work: Coroutine[object, object, None]) -> None: ...


class TransactionVerification:
    """One instance a node."""

    def __init__(
        self,
        services: VerificationServices,
        peers: Peers,
        here: Callable[[AddPartitionsToTxnRequest], Awaitable[AddPartitionsToTxnResponse]],
    ) -> None:
        """`here` answers for the coordinators of this very node."""
        self._services = services
        self._here = here
        self._lines: Lines[str, list[_Question]] = Lines(services, peers)
        self._closed = False

    # What callers ask.

    def verify(
        self, claim: Claim, batches: Iterable[tuple[HostedPartition, int]], then: Callable[[Verdict], None]
    ) -> Verdict | None:
        """May these batches, each with its first sequence, enter their partitions as part of the claimed transaction?

        The verdict, if nobody need be asked; else None, and `then` is called with it later. It holds only as long as
        the caller does not wait again.
        """
        config = self._services.config
        within_ms = min(
            config.get_int("add.partitions.to.txn.retry.backoff.max.ms"), config.get_int("request.timeout.ms")
        )
        deadline_s = self._services.clock.monotonic() + within_ms / 1000
        return self._verify(claim, list(batches), then, deadline_s if claim.operation is Operation.ADD else 0.0)

    async def verify_partition(self, partition: HostedPartition, claim: Claim) -> VerificationGuard:
        """The same of one partition and a batch without sequences, such as a group's offsets. Raises `KafkaError`."""
        future: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        verdict = self._verify(claim, [(partition, NO_SEQUENCE)], future.set_result, 0.0)
        if verdict is None:
            verdict = await future
        if (refusal := verdict.refusals.get(partition)) is not None:
            raise refusal
        return verdict.guards[partition]

    def close(self) -> None:
        """Hang up; whoever waits is told that nobody answered."""
        self._closed = True
        self._lines.close()

    # Guards.

    def _verify(
        self,
        claim: Claim,
        batches: list[tuple[HostedPartition, int]],
        then: Callable[[Verdict], None],
        retry_until_s: float,
    ) -> Verdict | None:
        services = self._services
        verdict = Verdict()
        adding = claim.operation is Operation.ADD
        if not adding and not services.config.get_bool("transaction.partition.verification.enable"):
            verdict.guards = {partition: KNOWN_OPEN for partition, _ in batches}
            return verdict
        asked: dict[TopicPartition, HostedPartition] = {}
        for partition, sequence in batches:
            try:
                services.replicas.leader_or_refuse(partition)
                guard = partition.log.producers.start_verification(
                    claim.producer_id,
                    sequence,
                    claim.producer_epoch,
                    services.clock.wall_ms(),
                    new_epoch_each=adding,
                )
            except KafkaError as error:
                verdict.refusals[partition] = error
                continue
            verdict.guards[partition] = guard
            if guard is not KNOWN_OPEN:
                asked[partition.topic_partition] = partition
        if not asked:
            return verdict

        def on_answer(errors: Errors) -> None:
            if ErrorCode.CONCURRENT_TRANSACTIONS in errors.values() and services.clock.monotonic() < retry_until_s:
                # The marker of the transaction before is still on its way; clients would come back much later.
                pause_ms = services.config.get_int("add.partitions.to.txn.retry.backoff.ms")
                services.timers.after(pause_ms, lambda: self._again(claim, batches, then, retry_until_s))
                return
            for topic_partition, code in errors.items():
                verdict.refuse(asked[topic_partition], code)
            then(verdict)

        code = self._ask(_Question(claim, list(asked), on_answer, services.clock.monotonic()))
        if not code:
            return None
        for partition in asked.values():
            verdict.refuse(partition, code)
        return verdict

    def _again(
        self,
        claim: Claim,
        batches: list[tuple[HostedPartition, int]],
        then: Callable[[Verdict], None],
        retry_until_s: float,
    ) -> None:
        verdict = self._verify(claim, batches, then, retry_until_s)
        if verdict is not None:
            then(verdict)

    # Questions.

    def _ask(self, question: _Question) -> ErrorCode:
        """Ask it, so that it is answered later; or the error why there is nothing to ask."""
        claim = question.claim
        line = self._line_to_coordinator(claim.transactional_id)
        if line is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if line.peer is None:
            # There is no request to share, and nothing to wait for.
            self._services.spawn(self._ask_node(line, {claim.transactional_id: [question]}))
            return ErrorCode.NONE
        before = line.waiting.get(claim.transactional_id)
        if before is None:
            line.waiting[claim.transactional_id] = [question]
        elif before[0].claim == claim:
            before.append(question)
        elif before[0].claim.producer_epoch > claim.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        else:
            fenced = before[0].claim.producer_epoch < claim.producer_epoch
            code = ErrorCode.INVALID_PRODUCER_EPOCH if fenced else ErrorCode.NETWORK_EXCEPTION
            line.waiting[claim.transactional_id] = [question]
            for other in before:
                asyncio.get_running_loop().call_soon(self._answer_all, other, code)
        if not line.busy:
            line.busy = True
            self._services.spawn(self._converse(line))
        return ErrorCode.NONE

    def _line_to_coordinator(self, transactional_id: str) -> QuestionLine | None:
        """None while nobody coordinates the transaction."""
        image = self._services.image
        topic = image.topic(TRANSACTION_TOPIC)
        if topic is None or self._closed:
            return None
        leader_id = topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader
        return self._lines.to(leader_id)

    async def _converse(self, line: QuestionLine) -> None:
        try:
            while line.waiting:
                asked, line.waiting = line.waiting, {}
                await self._ask_node(line, asked)
        finally:
            line.busy = False

    async def _ask_node(self, line: QuestionLine, asked: Questions) -> None:
        code = ErrorCode.NONE
        results: dict[str, Errors] = {}
        try:
            response = await self._send(line, _request(asked))
        except PeerLost:
            code = ErrorCode.NETWORK_EXCEPTION
        except KafkaError as error:
            code = error.code
        except Exception as error:
            # Whatever it is, those who asked are answered.
            _log.error("a question about transactions failed", exc_info=error)
            self._services.on_bug(error)
            code = ErrorCode.NETWORK_EXCEPTION
        else:
            code = ErrorCode(response.error_code)
            if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                code = ErrorCode.INVALID_TXN_STATE  # That this node may not ask is no affair of the client's.
            results = _results(response)
        for transactional_id, questions in asked.items():
            codes = results.get(transactional_id, {})
            for question in questions:
                if code:
                    self._answer_all(question, code)
                else:
                    self._answer(question, codes)

    async def _send(self, line: QuestionLine, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        if line.peer is None:
            return await self._here(request)
        from ottla.wire.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse

        timeout_ms = self._services.config.get_int("request.timeout.ms")
        return await line.peer.send(request, AddPartitionsToTxnResponse, timeout_ms=timeout_ms)

    def _answer_all(self, question: _Question, code: ErrorCode) -> None:
        self._answer(question, dict.fromkeys(question.partitions, code))

    def _answer(self, question: _Question, codes: Errors) -> None:
        errors: Errors = {}
        for partition in question.partitions:
            # A coordinator that says nothing of a partition has not said yes.
            code = _for_client(codes.get(partition, ErrorCode.NETWORK_EXCEPTION), question.claim.operation)
            if code:
                errors[partition] = code
        metrics = self._services.metrics
        metrics.verification_failures.value += len(errors)
        metrics.verification_time.observe(int((self._services.clock.monotonic() - question.asked_s) * 1e6))
        try:
            question.then(errors)
        except Exception as error:  # Others asked in the same request.
            _log.error("an answer about transaction %r failed", question.claim.transactional_id, exc_info=error)
            self._services.on_bug(error)


def _request(asked: Questions) -> AddPartitionsToTxnRequest:
    from ottla.wire.messages.add_partitions_to_txn_request import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTransaction,
    )

    request = AddPartitionsToTxnRequest()
    for transactional_id, questions in asked.items():
        claim = questions[0].claim
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, index in dict.fromkeys(each for question in questions for each in question.partitions):
            topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic)).partitions.append(index)
        request.transactions.append(
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=claim.producer_id,
                producer_epoch=claim.producer_epoch,
                verify_only=claim.operation is not Operation.ADD,
                topics=list(topics.values()),
            )
        )
    return request


def _results(response: AddPartitionsToTxnResponse) -> dict[str, Errors]:
    return {
        result.transactional_id: {
            TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
            for topic in result.topic_results
            for each in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }


def _for_client(code: ErrorCode, operation: Operation) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH  # What producers expect to hear from a partition.
    if code is ErrorCode.TRANSACTION_ABORTABLE and operation is Operation.VERIFY:
        return ErrorCode.INVALID_TXN_STATE
    return code


_TRY_AGAIN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def for_producer(refusal: KafkaError, operation: Operation) -> KafkaError:
    """A coordinator's error as Produce tells it: producers retry some of them only under another name."""
    code = refusal.code
    if code is ErrorCode.INVALID_TXN_STATE:
        return KafkaError(code, "The partition was not added to the transaction.")
    if code in _TRY_AGAIN or (code is ErrorCode.CONCURRENT_TRANSACTIONS and operation is not Operation.ADD):
        # One that makes producers retry and not look for new metadata.
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"It could not be verified that the partition was added to the transaction: {code.name}.",
        )
    return refusal
