"""A client that dies after any of its steps keeps nobody waiting for longer than its timeout says.

A whole node in memory, on a loop whose time jumps. The client falls silent after each step in turn, and with each of
its requests on its way: what it was part of has to go on without it, in time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import pytest

from ottla.broker.control.format import FormatOptions, format_node
from ottla.broker.node import Node
from ottla.config.node import NodeConfig
from ottla.errors import ErrorCode
from ottla.model import Uuid
from ottla.records import BatchBuilder
from ottla.wire.message import Message
from ottla.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from ottla.wire.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from ottla.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.wire.messages.describe_groups_response import DescribeGroupsResponse
from ottla.wire.messages.end_txn_request import EndTxnRequest
from ottla.wire.messages.end_txn_response import EndTxnResponse
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.offset_fetch_response import OffsetFetchResponse
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import ProduceResponse
from ottla.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.messages.sync_group_response import SyncGroupResponse
from ottla.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from tests.group_member import subscription
from tests.jumping_loop import JumpingLoop
from tests.log.faulty_disk import FaultyDisk
from tests.seams.surroundings import LoopClock, MemoryNetwork, memory_runtime
from tests.seams.test_maintenance import Stage
from tests.seams.test_node_in_memory import CONFIG, Client

R = TypeVar("R", bound=Message)

GROUP, ID = "workers", "mover"
SESSION_MS, REBALANCE_MS, DELAY_MS = 6_000, 10_000, 3_000
CONSUMER_SESSION_MS = 45_000
TRANSACTION_MS, LOOK_MS = 20_000, 10_000
"""How long a transaction may take, and how often the coordinator looks for those that have taken longer."""
PATIENCE_MS = 60_000
SLACK_S = 2.0
"""Between two looks of whoever waits."""
SETTINGS = {
    "group.initial.rebalance.delay.ms": str(DELAY_MS),
    "group.consumer.session.timeout.ms": str(CONSUMER_SESSION_MS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(LOOK_MS),
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


class FlowingClock(LoopClock):
    """Wall time goes on with the loop's."""

    def wall_ms(self) -> int:
        return super().wall_ms() + int(asyncio.get_running_loop().time() * 1000)


@asynccontextmanager
async def surroundings() -> AsyncIterator[Stage]:
    config = NodeConfig({**CONFIG.static, **SETTINGS})
    disk, clock, network = FaultyDisk(), FlowingClock(), MemoryNetwork()
    runtime = memory_runtime(disk, clock, network)
    format_node(disk, config, FormatOptions(standalone=True), random=runtime.random, now_ms=clock.wall_ms())
    node = Node(config, runtime)
    await node.start()
    it = Stage(node, Client(), disk, clock, network)
    await network.connect("memory", 9092, it.client)
    await it.create(partitions=2)
    await coordinated(it)
    yield it
    await node.stop()


async def coordinated(it: Stage) -> None:
    """The group and the transactional id have their coordinators, which have been loaded."""

    async def found(kind: int, name: str) -> bool:
        find = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
        return (await it.client.ask(find, FindCoordinatorResponse, 4)).coordinators[0].error_code == 0

    async def served() -> bool:
        services = it.node.services
        return services.groups.find(GROUP) is not None and services.transactions.find(ID) is not None

    for kind, name in ((0, GROUP), (1, ID)):
        await within(PATIENCE_MS, partial(found, kind, name))
    await within(PATIENCE_MS, served)


def run(story: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        async with surroundings() as it:
            await story(it)

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(main())


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def within(limit_ms: int, condition: Callable[[], Awaitable[bool]]) -> None:
    began_s = now_s()
    while not await condition():
        assert now_s() - began_s < limit_ms / 1000 + SLACK_S, f"it took longer than {limit_ms} ms"
        await asyncio.sleep(0.5)


class Mortal(Exception):
    """The client is no more."""


class Steps:
    """Lets a client take so many steps. With `on_its_way` the request of the step after the last leaves it yet."""

    def __init__(self, it: Stage, client: Client, taken: int, *, on_its_way: bool) -> None:
        self._it = it
        self._client = client
        self._left = taken
        self._on_its_way = on_its_way

    @classmethod
    async def of(cls, it: Stage, taken: int, *, on_its_way: bool = False) -> Steps:
        client = Client()
        await it.network.connect("memory", 9092, client)
        return cls(it, client, taken, on_its_way=on_its_way)

    async def ask(self, request: Message, response: type[R], version: int) -> R:
        self._left -= 1
        if self._left < 0:
            if self._on_its_way:
                asking = asyncio.ensure_future(self._client.ask(request, response, version))
                await asyncio.sleep(0)
                asking.cancel()
            raise Mortal
        return await self._client.ask(request, response, version)


FOREVER = 1 << 60


# Classic groups.


class Member:
    """A consumer of the classic protocol."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.member_id = ""
        self.generation = -1

    async def live(self) -> None:
        """Join, take part, and join again whenever it has to; in the end it would leave."""
        while True:
            await self._join()
            if not await self._sync():
                continue
            for _ in range(20):
                if await self._beat() is not ErrorCode.NONE:
                    break
                await asyncio.sleep(1)
            else:
                await self._leave()
                self.member_id = ""

    async def _join(self) -> None:
        while True:
            request = JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
            )
            answer = await self._steps.ask(request, JoinGroupResponse, 9)
            if answer.error_code == ErrorCode.NONE:
                self.member_id, self.generation = answer.member_id, answer.generation_id
                self._others = [member.member_id for member in answer.members]
                return
            self.member_id = answer.member_id if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED else ""

    async def _sync(self) -> bool:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=each, assignment=b"") for each in self._others],
        )
        return (await self._steps.ask(request, SyncGroupResponse, 5)).error_code == ErrorCode.NONE

    async def _beat(self) -> ErrorCode:
        request = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self.member_id)
        return ErrorCode((await self._steps.ask(request, HeartbeatResponse, 4)).error_code)

    async def _leave(self) -> None:
        request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=self.member_id)])
        await self._steps.ask(request, LeaveGroupResponse, 5)


async def lives(member: Member | Modern) -> None:
    with contextlib.suppress(Mortal):
        await member.live()


async def gone(living: asyncio.Future[None]) -> None:
    """It asks for nothing any more."""
    while not living.done():
        living.cancel()
        await asyncio.sleep(0)


async def is_alone(it: Stage, member: Member) -> bool:
    """In a group that is stable."""
    answer = await it.client.ask(DescribeGroupsRequest(groups=[GROUP]), DescribeGroupsResponse, 5)
    (group,) = answer.groups
    return group.group_state == "Stable" and [each.member_id for each in group.members] == [member.member_id]


LIFE_STEPS = 24
"""Two joins, a sync and twenty heartbeats, with a leave at the end; a rebalance for the other takes more."""


@pytest.mark.parametrize("on_its_way", [False, True], ids=["silent", "with a request on its way"])
@pytest.mark.parametrize("beside", [False, True], ids=["before the other comes", "beside the other"])
def test_a_member_of_a_classic_group_dies(beside: bool, on_its_way: bool) -> None:
    async def die_after(it: Stage, steps: int) -> None:
        other = Member(await Steps.of(it, FOREVER))
        living = asyncio.ensure_future(lives(other)) if beside else None
        if living is not None:
            await within(DELAY_MS, lambda: is_alone(it, other))
        await lives(Member(await Steps.of(it, steps, on_its_way=on_its_way)))
        living = living or asyncio.ensure_future(lives(other))
        # Its session, and then those who are there have the time of a rebalance to join again.
        await within(SESSION_MS + REBALANCE_MS + DELAY_MS, lambda: is_alone(it, other))
        await gone(living)
        await it.client.ask(
            LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=other.member_id)]),
            LeaveGroupResponse,
            5,
        )

    async def story(it: Stage) -> None:
        for steps in (*range(7), LIFE_STEPS - 1, LIFE_STEPS):
            await die_after(it, steps)

    run(story)


# Consumer groups.


class Modern:
    """A consumer of KIP-848's protocol."""

    def __init__(self, steps: Steps, member_id: str) -> None:
        self._steps = steps
        self.member_id = member_id
        self.owned: list[TopicPartitions] = []

    @property
    def partitions(self) -> list[int]:
        return [index for topic in self.owned for index in topic.partitions]

    async def live(self) -> None:
        epoch = 0
        while True:
            request = ConsumerGroupHeartbeatRequest(
                group_id=GROUP, member_id=self.member_id, member_epoch=epoch, topic_partitions=self.owned
            )
            if epoch == 0:
                request.rebalance_timeout_ms, request.subscribed_topic_names = REBALANCE_MS, ["t"]
            answer = await self._steps.ask(request, ConsumerGroupHeartbeatResponse, 1)
            assert answer.error_code in (0, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
            epoch = 0 if answer.error_code else answer.member_epoch
            if epoch == 0:
                self.owned = []
            elif answer.assignment is not None:
                self.owned = [
                    TopicPartitions(topic_id=Uuid(each.topic_id), partitions=each.partitions)
                    for each in answer.assignment.topic_partitions
                ]
            await asyncio.sleep(0.5)


@pytest.mark.parametrize("on_its_way", [False, True], ids=["silent", "with a request on its way"])
@pytest.mark.parametrize("beside", [False, True], ids=["before the other comes", "beside the other"])
def test_a_member_of_a_consumer_group_dies(beside: bool, on_its_way: bool) -> None:
    """After its first heartbeats, in which it is given partitions, and gives up some for the other."""

    async def has_all(it: Stage, member: Modern) -> bool:
        request = ConsumerGroupDescribeRequest(group_ids=[GROUP])
        (group,) = (await it.client.ask(request, ConsumerGroupDescribeResponse, 1)).groups
        members = [each.member_id for each in group.members]
        return sorted(member.partitions) == [0, 1] and members == [member.member_id] and group.group_state == "Stable"

    async def die_after(it: Stage, steps: int) -> None:
        other = Modern(await Steps.of(it, FOREVER), f"other-{steps}")
        living = asyncio.ensure_future(lives(other)) if beside else None
        if living is not None:
            await within(0, lambda: has_all(it, other))
        await lives(Modern(await Steps.of(it, steps, on_its_way=on_its_way), f"mortal-{steps}"))
        living = living or asyncio.ensure_future(lives(other))
        await within(CONSUMER_SESSION_MS, lambda: has_all(it, other))
        await gone(living)
        leave = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=other.member_id, member_epoch=-1)
        assert (await it.client.ask(leave, ConsumerGroupHeartbeatResponse, 1)).error_code == 0

    async def story(it: Stage) -> None:
        for steps in range(1, 7):
            await die_after(it, steps)

    run(story)


# Transactions.


class Mover:
    """Consumes, transforms and produces in a transaction, by version 1 or 2 of transactions."""

    def __init__(self, steps: Steps, version: int) -> None:
        self._steps = steps
        self._version = version
        self.producer_id = self.epoch = -1
        self.before_end: Callable[[], None] = lambda: None

    async def live(self) -> None:
        await self.begin()
        await self._write()
        await self._commit_offset()
        self.before_end()
        request = EndTxnRequest(
            transactional_id=ID, producer_id=self.producer_id, producer_epoch=self.epoch, committed=True
        )
        answer = await self._steps.ask(request, EndTxnResponse, 5 if self._version == 2 else 4)
        assert answer.error_code == 0

    async def begin(self) -> None:
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=TRANSACTION_MS)
        while True:
            answer = await self._steps.ask(request, InitProducerIdResponse, 5)
            if not answer.error_code:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
                return
            assert answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode(answer.error_code)
            await asyncio.sleep(0.1)

    async def _write(self) -> None:
        if self._version == 1:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=ID,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0, 1])],
            )
            await self._steps.ask(request, AddPartitionsToTxnResponse, 3)
        for index in (0, 1):
            builder = BatchBuilder(
                producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=0, transactional=True
            )
            builder.append(0, None, b"moved")
            data = PartitionProduceData(index=index, records=bytes(builder.build()))
            produce = ProduceRequest(
                transactional_id=ID,
                acks=-1,
                timeout_ms=10_000,
                topic_data=[TopicProduceData(name="t", partition_data=[data])],
            )
            answer = await self._steps.ask(produce, ProduceResponse, 12 if self._version == 2 else 11)
            assert answer.responses[0].partition_responses[0].error_code == 0

    async def _commit_offset(self) -> None:
        if self._version == 1:
            add = AddOffsetsToTxnRequest(
                transactional_id=ID, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=GROUP
            )
            assert (await self._steps.ask(add, AddOffsetsToTxnResponse, 4)).error_code == 0
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)
        commit = TxnOffsetCommitRequest(
            transactional_id=ID,
            group_id=GROUP,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
        )
        answer = await self._steps.ask(commit, TxnOffsetCommitResponse, 5 if self._version == 2 else 4)
        assert answer.topics[0].partitions[0].error_code == 0


async def nothing_is_open(it: Stage) -> bool:
    """No partition keeps readers of committed records waiting, no offset is unstable, and nothing is under way."""
    services = it.node.services
    logs = [log for place, log in services.logs.logs.items() if place.topic == "t"]
    wanted = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[wanted])], require_stable=True)
    (group,) = (await it.client.ask(fetch, OffsetFetchResponse, 9)).groups
    served = services.transactions.find(ID)
    known = None if served is None else served.shard.transactions.get(ID)
    return (
        all(log.last_stable_offset == log.high_watermark for log in logs)
        and group.topics[0].partitions[0].error_code == 0
        and (known is None or known.state.title in ("Empty", "CompleteAbort", "CompleteCommit"))
    )


@pytest.mark.parametrize("on_its_way", [False, True], ids=["silent", "with a request on its way"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_transactional_producer_dies(version: int, on_its_way: bool) -> None:
    count = {1: 7, 2: 5}[version]

    async def story(it: Stage) -> None:
        for steps in range(count + 1):
            mover = Mover(await Steps.of(it, steps, on_its_way=on_its_way), version)
            try:
                await mover.live()
            except Mortal:
                pass
            else:
                assert steps == count, "it has taken all its steps"
            await within(TRANSACTION_MS + LOOK_MS, lambda: nothing_is_open(it))
            # Its successor need not wait for that: its coming ends what the one before it left open.
            dead = Mover(await Steps.of(it, max(2, steps), on_its_way=on_its_way), version)
            with pytest.raises(Mortal) if steps < count else contextlib.nullcontext():
                await dead.live()
            heir = Mover(await Steps.of(it, FOREVER), version)
            began_s = now_s()
            await heir.live()
            assert now_s() - began_s < SLACK_S
            assert (heir.producer_id, heir.epoch) > (dead.producer_id, dead.epoch)
            assert await nothing_is_open(it)

    run(story)
