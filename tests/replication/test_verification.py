"""A partition's leader and a coordinator on another node: what is asked, when, and what the producer hears of it.

Node 1 is real, in memory, and leads the partition. Node 2 coordinates the transactions: a test plays it by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar, cast

import pytest

from ottla.broker.transactions.transaction_markers import Marker, write
from ottla.broker.transactions.verification import Claim, Operation, TransactionVerification
from ottla.client.peer import PeerLost
from ottla.errors import ErrorCode, KafkaError, Malformed
from ottla.log.producers import KNOWN_OPEN
from ottla.model import GROUP_TOPIC, NO_SEQUENCE, TRANSACTION_TOPIC, TopicPartition
from ottla.records import BatchBuilder
from ottla.wire.frames import request_frame
from ottla.wire.message import Message
from ottla.wire.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import PartitionProduceResponse, ProduceResponse
from tests.metadata import making
from tests.replication.leader_stage import TOPIC, Stage, stage

M = TypeVar("M", bound=Message)

PRODUCER = 4_000
TP = TopicPartition(TOPIC, 0)
TRANSACTION_TOPIC_NUMBER = 88


class Coordinator:
    """Node 2, or another: keeps what it was asked, and answers when and what it is told."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.asked: list[AddPartitionsToTxnRequest] = []
        self._answers: list[asyncio.Future[AddPartitionsToTxnResponse]] = []
        self.closed = False

    async def send(self, request: Message, response: type[M], *, timeout_ms: int, max_version: int = 1000) -> M:
        assert isinstance(request, AddPartitionsToTxnRequest)
        if self.closed:
            raise PeerLost(ErrorCode.NETWORK_EXCEPTION, "it is gone")
        self.asked.append(AddPartitionsToTxnRequest.decode(request.encode(5), 5))
        future: asyncio.Future[AddPartitionsToTxnResponse] = asyncio.get_running_loop().create_future()
        self._answers.append(future)
        return cast(M, await future)

    def close(self) -> None:
        self.closed = True
        for future in self._answers:
            if not future.done():
                future.set_exception(PeerLost(ErrorCode.NETWORK_EXCEPTION, "it is gone"))

    # By hand.

    @property
    def waiting(self) -> bool:
        return bool(self._answers) and not self._answers[-1].done()

    def answer(self, code: ErrorCode = ErrorCode.NONE, *, silent_on: frozenset[TopicPartition] = frozenset()) -> None:
        """Say the same of all partitions that it was asked about last."""
        response = AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                                for index in topic.partitions
                                if TopicPartition(topic.name, index) not in silent_on
                            ],
                        )
                        for topic in transaction.topics
                    ],
                )
                for transaction in self.asked[-1].transactions
            ]
        )
        self._answers[-1].set_result(response)

    def refuse(self, code: ErrorCode) -> None:
        """Refuse the request as a whole."""
        self._answers[-1].set_result(AddPartitionsToTxnResponse(error_code=code))


class Coordinators:
    """The `Peers` of node 1."""

    def __init__(self) -> None:
        self.made: list[Coordinator] = []

    def at(self, host: str, port: int) -> Coordinator:
        self.made.append(Coordinator((host, port)))
        return self.made[-1]

    @property
    def last(self) -> Coordinator:
        return self.made[-1]


class Theatre:
    """The stage, and node 2 on it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.coordinators = Coordinators()
        self.verification = TransactionVerification(stage.services, self.coordinators, stage.services.add_to_txn)
        stage.services.verification = self.verification

    @property
    def coordinator(self) -> Coordinator:
        return self.coordinators.last

    def coordinate(self, leader: int = 2) -> None:
        self.stage.publish(
            making.topic(TRANSACTION_TOPIC, TRANSACTION_TOPIC_NUMBER),
            making.partition(TRANSACTION_TOPIC_NUMBER, 0, replicas=(2, 3), leader=leader),
        )

    def produce(
        self,
        sequence: int = 0,
        *,
        version: int = 11,
        epoch: int = 0,
        producer_id: int = PRODUCER,
        transactional_id: str = "t1",
    ) -> asyncio.Task[PartitionProduceResponse]:
        """One batch over a connection of its own; the answer is the task's."""

        async def ask() -> PartitionProduceResponse:
            client = await self.stage.connect()
            request = produce_request(sequence, epoch=epoch, producer_id=producer_id, transactional_id=transactional_id)
            response = await client.ask(request, ProduceResponse, version)
            return response.responses[0].partition_responses[0]

        return asyncio.create_task(ask())

    async def end(self, *, commit: bool = True, epoch: int = 0, version: int = 1) -> None:
        marker = Marker(PRODUCER, epoch, 0, commit, version)
        ((code,),) = (each.values() for each in await write(self.stage.services, [(marker, [TP])]))
        assert code is ErrorCode.NONE

    async def until(self, fact: Callable[[], bool]) -> None:
        await self.stage.settle(fact)

    async def until_asked(self, times: int = 1) -> None:
        await self.until(lambda: bool(self.coordinators.made) and len(self.coordinator.asked) == times)

    @property
    def log_end(self) -> int:
        return self.stage.partition.log.log_end_offset


def produce_request(
    sequence: int, *, epoch: int = 0, producer_id: int = PRODUCER, transactional_id: str = "t1"
) -> ProduceRequest:
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True)
    builder.append(1_800_000_000_000, None, b"%d" % sequence)
    data = PartitionProduceData(index=0, records=bytes(builder.build()))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=1,
        timeout_ms=5_000,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
    )


@asynccontextmanager
async def theatre(*, coordinated: bool = True) -> AsyncIterator[Theatre]:
    async with stage() as setting:
        setting.create(isr=(1,), replicas=(1,))
        made = Theatre(setting)
        if coordinated:
            made.coordinate()
        yield made
        made.verification.close()


async def test_a_marker_of_nobody_is_refused_wherever_it_goes() -> None:
    async with theatre() as play:
        everywhere = [TP, TopicPartition(GROUP_TOPIC, 0)]
        codes = await write(
            play.stage.services,
            [(Marker(-1, 0, 0, True, 1), everywhere), (Marker(PRODUCER, -1, 0, True, 1), everywhere)],
        )
        assert codes == [
            dict.fromkeys(everywhere, ErrorCode.INVALID_REQUEST),
            dict.fromkeys(everywhere, ErrorCode.INVALID_PRODUCER_EPOCH),
        ]


# What is asked, and when.


async def test_the_first_batch_of_a_transaction_asks_and_those_after_it_do_not() -> None:
    async with theatre() as play:
        first = play.produce(0)
        await play.until_asked()
        (transaction,) = play.coordinator.asked[0].transactions
        assert (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch) == (
            "t1",
            PRODUCER,
            0,
        )
        assert transaction.verify_only
        assert [(topic.name, topic.partitions) for topic in transaction.topics] == [(TOPIC, [0])]
        assert play.log_end == 0
        play.coordinator.answer()
        assert ((await first).error_code, play.log_end) == (0, 1)
        assert (await play.produce(1)).base_offset == 1
        assert len(play.coordinator.asked) == 1


@pytest.mark.parametrize(("version", "verify_only"), [(3, True), (11, True), (12, False)])
async def test_newer_producers_have_the_partition_added(version: int, verify_only: bool) -> None:
    async with theatre() as play:
        answer = play.produce(0, version=version)
        await play.until_asked()
        assert play.coordinator.asked[0].transactions[0].verify_only is verify_only
        play.coordinator.answer()
        assert (await answer).error_code == 0


async def test_the_next_transaction_asks_again() -> None:
    async with theatre() as play:
        first = play.produce(0)
        await play.until_asked()
        play.coordinator.answer()
        await first
        await play.end()
        second = play.produce(1)
        await play.until_asked(2)
        play.coordinator.answer()
        assert (await second).base_offset == 2


async def test_what_comes_up_while_a_node_is_asked_goes_into_its_next_request() -> None:
    async with theatre() as play:
        answers = [play.produce(0, producer_id=1, transactional_id="a")]
        await play.until_asked()
        answers += [play.produce(0, producer_id=each, transactional_id=f"t{each}") for each in (2, 3, 4)]
        # Two of the same transaction, over two connections: it is asked about once.
        answers += [play.produce(0, producer_id=2, transactional_id="t2")]
        line = play.verification._lines._lines[2]
        await play.until(lambda: sum(len(each) for each in line.waiting.values()) == 4)
        assert len(play.coordinator.asked) == 1
        play.coordinator.answer()
        await play.until_asked(2)
        asked = [each.transactional_id for each in play.coordinator.asked[1].transactions]
        assert sorted(asked) == ["t2", "t3", "t4"]
        play.coordinator.answer()
        assert {(await answer).error_code for answer in answers} == {0}
        assert play.log_end == 4, "the second of the two was the same batch"


async def test_an_answer_that_cannot_be_read_is_none() -> None:
    async with theatre() as play:
        first = play.produce(0, producer_id=1, transactional_id="a")
        await play.until_asked()
        second = play.produce(0, producer_id=2, transactional_id="b")
        line = play.verification._lines._lines[2]
        await play.until(lambda: bool(line.waiting))
        play.coordinator._answers[-1].set_exception(Malformed("it cannot be read"))
        assert (await first).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        await play.until_asked(2)
        play.coordinator.answer()
        assert (await second).error_code == 0


async def test_one_who_fails_at_an_answer_keeps_nobody_else_from_theirs() -> None:
    async with theatre() as play:
        busy = play.produce(0, producer_id=1, transactional_id="a")
        await play.until_asked()
        bugs: list[BaseException] = []
        play.stage.services.stop_node = bugs.append
        line = play.verification._lines._lines[2]
        answers = [play.produce(0, producer_id=each, transactional_id=f"t{each}") for each in (2, 3)]
        await play.until(lambda: len(line.waiting) == 2)
        stumbling = next(iter(line.waiting.values()))[0]

        def stumble(errors: object) -> None:
            raise AssertionError("it cannot be")

        then, stumbling.then = stumbling.then, stumble
        play.coordinator.answer()
        await play.until_asked(2)
        play.coordinator.answer()
        await play.until(lambda: any(answer.done() for answer in answers))
        assert len(bugs) == 1
        then({})
        assert {(await answer).error_code for answer in (busy, *answers)} == {0}


async def test_a_fenced_producer_is_told_so_and_nobody_is_asked() -> None:
    async with theatre() as play:
        await play.end(epoch=3)
        assert (await play.produce(0, epoch=2)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert play.coordinators.made == []


async def test_a_newer_epoch_takes_the_place_of_an_older_one_that_waits() -> None:
    async with theatre() as play:
        busy = play.produce(0, producer_id=1, transactional_id="another")
        await play.until_asked()
        line = play.verification._lines._lines[2]
        old = play.produce(0, epoch=1)
        await play.until(lambda: "t1" in line.waiting)
        new = play.produce(0, epoch=2)
        assert (await old).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        late = play.produce(0, epoch=1, producer_id=PRODUCER + 1)
        assert (await late).error_code == ErrorCode.INVALID_PRODUCER_EPOCH, "and stays there"
        play.coordinator.answer()
        await play.until_asked(2)
        play.coordinator.answer()
        assert {(await busy).error_code, (await new).error_code} == {0}


async def test_without_verification_nobody_is_asked_unless_to_add() -> None:
    async with theatre() as play:
        services = play.stage.services
        services.config = services.config.with_dynamic({"transaction.partition.verification.enable": "false"}, {})
        services.on_config()
        assert (await play.produce(0, version=11)).error_code == 0
        assert play.coordinators.made == []
        adding = play.produce(0, version=12, producer_id=PRODUCER + 1)
        await play.until_asked()
        play.coordinator.answer()
        assert (await adding).error_code == 0


# What the producer hears.

RETRIABLE = ErrorCode.NOT_ENOUGH_REPLICAS
"""What producers retry, of old and of new, and without asking for new metadata."""


@pytest.mark.parametrize(
    ("code", "old", "aware", "adding"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE, None),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE, None, None),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, None, None),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH, None, None),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING, None, None),
        (ErrorCode.NOT_COORDINATOR, RETRIABLE, None, None),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, RETRIABLE, None, None),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, RETRIABLE, None, None),
        (ErrorCode.CONCURRENT_TRANSACTIONS, RETRIABLE, None, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, None, None),
    ],
)
async def test_a_coordinators_error_is_told_as_the_producer_understands_it(
    code: ErrorCode, old: ErrorCode, aware: ErrorCode | None, adding: ErrorCode | None
) -> None:
    aware = old if aware is None else aware
    adding = aware if adding is None else adding
    async with theatre() as play:
        for version, told in ((10, old), (11, aware), (12, adding)):
            answer = play.produce(0, version=version, producer_id=version, transactional_id=str(version))
            while not answer.done():
                if play.coordinators.made and play.coordinator.waiting:
                    play.coordinator.answer(code)
                await asyncio.sleep(0.002)
            assert ((await answer).error_code, (await answer).base_offset) == (told, -1)
        assert play.log_end == 0


async def test_a_request_that_is_refused_as_a_whole_is_refused_for_all() -> None:
    async with theatre() as play:
        answer = play.produce(0)
        await play.until_asked()
        play.coordinator.refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        assert (await answer).error_code == ErrorCode.INVALID_TXN_STATE


async def test_a_coordinator_that_says_nothing_of_a_partition_has_not_said_yes() -> None:
    async with theatre() as play:
        answer = play.produce(0)
        await play.until_asked()
        play.coordinator.answer(silent_on=frozenset({TP}))
        assert (await answer).error_code == RETRIABLE
        assert play.log_end == 0


async def test_a_coordinator_that_is_lost_is_tried_again_by_the_producer() -> None:
    async with theatre() as play:
        answer = play.produce(0)
        await play.until_asked()
        play.coordinator.close()
        assert (await answer).error_code == RETRIABLE
        assert (await play.produce(0)).error_code == RETRIABLE


async def test_where_nobody_coordinates_nobody_is_asked() -> None:
    async with theatre(coordinated=False) as play:
        assert (await play.produce(0)).error_code == RETRIABLE
        play.coordinate(leader=-1)
        assert (await play.produce(0)).error_code == RETRIABLE
        assert play.coordinators.made == []


async def test_whoever_coordinates_now_is_asked() -> None:
    async with theatre() as play:
        answer = play.produce(0)
        await play.until_asked()
        play.stage.publish(making.change(TRANSACTION_TOPIC_NUMBER, 0, leader=3))
        play.coordinator.answer(ErrorCode.NOT_COORDINATOR)
        assert (await answer).error_code == RETRIABLE
        again = play.produce(0)
        await play.until(lambda: len(play.coordinators.made) == 2)
        await play.until_asked()
        play.coordinator.answer()
        assert (await again).error_code == 0


async def test_a_transaction_that_is_not_over_yet_is_waited_for_where_the_partition_is_added() -> None:
    """Its marker is on its way; the client would come back much later."""
    async with theatre() as play:
        answer = play.produce(0, version=12)
        await play.until_asked()
        play.coordinator.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        await play.until_asked(2)
        play.coordinator.answer()
        assert (await answer).error_code == 0


# What happens meanwhile.


async def test_batches_behind_one_that_waits_do_not_pass_it() -> None:
    async with theatre() as play:
        client = await play.stage.connect()
        first = asyncio.create_task(client.ask(produce_request(0), ProduceResponse, 11))
        await play.until_asked()
        assert client._connection is not None
        for sequence in range(1, 5):
            request = produce_request(sequence)
            client._connection.write(request_frame(0, 11, 7, "test", request.encode(11)))
        for _ in range(20):
            await asyncio.sleep(0)  # Long enough for all of them to arrive.
        assert play.log_end == 0
        assert len(play.coordinator.asked) == 1
        play.coordinator.answer()
        await play.until(lambda: play.log_end == 5)
        assert (await first).responses[0].partition_responses[0].base_offset == 0
        entry = play.stage.partition.log.producers.entries[PRODUCER]
        assert [each.first_sequence for each in entry.batches] == [0, 1, 2, 3, 4]
        assert len(play.coordinator.asked) == 1


async def test_a_verification_is_of_no_use_after_the_transactions_end() -> None:
    """The coordinator said yes, and the marker was quicker than its answer."""
    async with theatre() as play:
        answer = play.produce(0)
        await play.until_asked()
        await play.end(commit=False)
        play.coordinator.answer()
        assert (await answer).error_code == ErrorCode.INVALID_TXN_STATE
        assert play.log_end == 1, "the marker alone"


async def test_the_marker_of_the_transaction_before_does_not_undo_the_next_ones() -> None:
    """Each transaction has its own epoch: the marker of the last has that of the next."""
    async with theatre() as play:
        first = play.produce(0, version=12, epoch=0)
        await play.until_asked()
        play.coordinator.answer()
        await first
        second = play.produce(0, version=12, epoch=1)
        await play.until_asked(2)
        await play.end(epoch=1, version=2)
        play.coordinator.answer()
        assert (await second).base_offset == 2


async def test_a_leader_that_was_deposed_meanwhile_takes_nothing() -> None:
    async with theatre() as play:
        play.stage.change(replicas=[1, 2], isr=[1, 2])
        answer = play.produce(0)
        await play.until_asked()
        play.stage.change(leader=2)
        play.coordinator.answer()
        assert (await answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert play.log_end == 0


async def test_a_producer_that_hung_up_is_not_forgotten_half_way() -> None:
    """As if its answer had been lost: what it sent is appended, and its retry is known as one."""
    async with theatre() as play:
        client = await play.stage.connect()
        assert client._connection is not None
        client._connection.write(request_frame(0, 11, 7, "test", produce_request(0).encode(11)))
        await play.until_asked()
        client._connection.abort()
        play.coordinator.answer()
        await play.until(lambda: play.log_end == 1)
        assert (await play.produce(0)).base_offset == 0
        assert play.log_end == 1


async def test_a_groups_offsets_are_verified_alike() -> None:
    async with theatre() as play:
        partition = play.stage.partition
        claim = Claim("t1", PRODUCER, 0, Operation.of_txn_offset_commit(4))
        asking = asyncio.create_task(play.verification.verify_partition(partition, claim))
        await play.until_asked()
        play.coordinator.answer(ErrorCode.TRANSACTION_ABORTABLE)
        with pytest.raises(KafkaError) as refusal:
            await asking
        assert refusal.value.code is ErrorCode.TRANSACTION_ABORTABLE
        claim = Claim("t1", PRODUCER, 0, Operation.of_txn_offset_commit(5))
        asking = asyncio.create_task(play.verification.verify_partition(partition, claim))
        await play.until_asked(2)
        play.coordinator.answer()
        guard = await asking
        builder = BatchBuilder(producer_id=PRODUCER, producer_epoch=0, base_sequence=NO_SEQUENCE, transactional=True)
        builder.append(0, b"k", b"v")
        play.stage.services.replicas.append_by_coordinator(partition, memoryview(builder.build()), guard=guard)
        assert await play.verification.verify_partition(partition, claim) is KNOWN_OPEN
