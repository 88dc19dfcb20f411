"""A stage for the leader's half of replication: node 1 is real, in memory; brokers 2 and 3 exist in the metadata, and a
test plays them by hand, over the wire. So is the controller, as far as AlterPartition goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from ottla.broker.hosted import HostedPartition
from ottla.broker.node import Node
from ottla.broker.publisher import MetadataPublisher
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.images import RESOURCE_TOPIC, PartitionImage
from ottla.metadata.records import MetadataRecord
from ottla.model import Uuid
from ottla.partition import PartitionLeader
from ottla.records import batches, iterate
from ottla.wire.message import Message
from ottla.wire.messages import alter_partition_request, alter_partition_response
from ottla.wire.messages import fetch_request as fetching
from ottla.wire.messages.alter_partition_request import AlterPartitionRequest
from ottla.wire.messages.alter_partition_response import AlterPartitionResponse
from ottla.wire.messages.fetch_response import FetchResponse, PartitionData
from ottla.wire.messages.partition_change_record import PartitionChangeRecord
from ottla.wire.messages.partition_record import PartitionRecord
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import PartitionProduceResponse, ProduceResponse
from tests.log.faulty_disk import FaultyDisk
from tests.metadata import making
from tests.seams.surroundings import LoopClock, MemoryNetwork, memory_runtime
from tests.seams.test_node_in_memory import CONFIG, Client, batch, fresh

M = TypeVar("M", bound=Message)

TOPIC = "t"
TOPIC_ID = making.uid(77)
BROKER_EPOCHS = {2: 902, 3: 903}
RACKS = {2: "east", 3: "west"}


class StageClock(LoopClock):
    """Monotonic time can be pushed forward: the seconds that a test does not want to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


class ControllerByHand:
    """Answers AlterPartition as it is told, in turn: with an error for the partition, or as whole, or with success.

    What it decides is in the metadata before the answer leaves, as in a node that is the controller itself; unless it
    is `silent`, which has the test bring the metadata later.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.asked: list[alter_partition_request.PartitionData] = []
        self.requests: list[AlterPartitionRequest] = []
        self.answers: list[ErrorCode | KafkaError] = []
        self.hold: asyncio.Event | None = None
        """Set, the answers wait for it."""
        self.silent = False

    async def send(self, request: Message, response: type[M], **options: object) -> M:
        assert isinstance(request, AlterPartitionRequest)
        decoded, _ = AlterPartitionRequest.read(request.encode(3), 0, 3)
        self.requests.append(decoded)
        answered = AlterPartitionResponse()
        for topic in decoded.topics:
            results = [self._decide(partition) for partition in topic.partitions]
            answered.topics.append(alter_partition_response.TopicData(topic_id=topic.topic_id, partitions=results))
        if self.hold is not None:
            await self.hold.wait()
        if not self.silent:
            self._publish(answered)
        assert isinstance(answered, response)
        return answered

    def _publish(self, answered: AlterPartitionResponse) -> None:
        """An in-sync set that was agreed to; with a refusal that is final, the old one in a new partition epoch."""
        for topic in answered.topics:
            for result in topic.partitions:
                if result.error_code == ErrorCode.INELIGIBLE_REPLICA:
                    image = self._stage.services.image.topic_by_id(topic.topic_id)
                    assert image is not None
                    isr = list(image.partitions[result.partition_index].isr)
                elif result.error_code == ErrorCode.NONE:
                    isr = result.isr
                else:
                    continue
                change = PartitionChangeRecord(topic_id=topic.topic_id, partition_id=result.partition_index, isr=isr)
                self._stage.publish(making.latest(change))

    def _decide(self, wanted: alter_partition_request.PartitionData) -> alter_partition_response.PartitionData:
        self.asked.append(wanted)
        answer = self.answers.pop(0) if self.answers else ErrorCode.NONE
        if isinstance(answer, KafkaError):
            raise answer
        result = alter_partition_response.PartitionData(partition_index=wanted.partition_index, error_code=answer)
        if answer is ErrorCode.NONE:
            result.leader_id = 1
            result.leader_epoch = wanted.leader_epoch
            result.isr = [member.broker_id for member in wanted.new_isr_with_epochs]
            result.partition_epoch = wanted.partition_epoch + 1
        return result


class Stage:
    def __init__(self, node: Node, network: MemoryNetwork, clock: StageClock) -> None:
        self.node = node
        self.services = node.services
        self.clock = clock
        self._network = network
        self._publisher = MetadataPublisher(node.services)
        self.controller = ControllerByHand(self)
        node.services.controller = self.controller

    async def connect(self) -> Client:
        client = Client()
        await self._network.connect("memory", 9092, client)
        return client

    # Metadata.

    def publish(self, *records: MetadataRecord) -> None:
        """A partition that `making` made is in the node's directory: one elsewhere would have lost its records."""
        (own,) = (known.properties for known in self.services.logs.directories.values() if known.for_topics)
        assert own is not None
        for record in records:
            if isinstance(record.message, PartitionRecord):
                theirs = record.message.directories or []
                record.message.directories = [own.directory_id if each == making.uid(1001) else each for each in theirs]
        image, delta = making.replayed(*records, onto=self.services.image)
        self._publisher.on_metadata(image, delta, image.last_offset)

    def create(
        self, *, isr: Sequence[int] = (1, 2, 3), replicas: Sequence[int] = (1, 2, 3), leader: int = 1, **configs: str
    ) -> None:
        record = PartitionRecord(
            topic_id=TOPIC_ID,
            partition_id=0,
            replicas=list(replicas),
            isr=list(isr),
            leader=leader,
            leader_epoch=5,
            partition_epoch=10,
        )
        settings = [
            making.config(RESOURCE_TOPIC, TOPIC, name.replace("_", "."), value) for name, value in configs.items()
        ]
        self.publish(making.topic(TOPIC, 77), *settings, making.latest(record))

    def change(self, **fields: object) -> None:
        """A PartitionChangeRecord; a leader of its own means a new leader epoch."""
        self.publish(making.latest(PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, **fields)))  # type: ignore[arg-type]

    @property
    def partition(self) -> HostedPartition:
        found = self.services.replicas.partition(TOPIC, 0)
        assert found is not None
        return found

    @property
    def leader(self) -> PartitionLeader:
        leader = self.partition.leader
        assert leader is not None
        return leader

    @property
    def image(self) -> PartitionImage:
        return self.partition.image

    # Clients.

    async def produce(self, *values: bytes, acks: int = 1, timeout_ms: int = 5_000) -> PartitionProduceResponse:
        client = await self.connect()
        data = PartitionProduceData(index=0, records=batch(*values))
        request = ProduceRequest(
            acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]
        )
        response = await client.ask(request, ProduceResponse, 12)
        return response.responses[0].partition_responses[0]

    async def consume(self, offset: int = 0, *, rack: str = "", version: int = 17, wait_ms: int = 0) -> PartitionData:
        request = fetching.FetchRequest(
            max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, rack_id=rack, topics=[wanted(offset, leader_epoch=-1)]
        )
        response = await (await self.connect()).ask(request, FetchResponse, version)
        return response.responses[0].partitions[0]

    async def follower(self, broker_id: int) -> FollowerByHand:
        return FollowerByHand(broker_id, await self.connect())

    async def settle(self, until: Callable[[], bool]) -> None:
        """Let the loop run until `until` holds."""
        for _ in range(12_000):
            if until():
                return
            await asyncio.sleep(0.005)
        raise AssertionError("it did not come to that")


def wanted(
    offset: int,
    *,
    leader_epoch: int = 5,
    last_epoch: int = -1,
    log_start: int = 0,
    high_watermark: int = (1 << 63) - 1,
    topic_id: Uuid = TOPIC_ID,
) -> fetching.FetchTopic:
    return fetching.FetchTopic(
        topic=TOPIC,
        topic_id=topic_id,
        partitions=[
            fetching.FetchPartition(
                partition=0,
                current_leader_epoch=leader_epoch,
                fetch_offset=offset,
                last_fetched_epoch=last_epoch,
                log_start_offset=log_start,
                partition_max_bytes=1 << 20,
                high_watermark=high_watermark,
            )
        ],
    )


class FollowerByHand:
    """Fetches as a broker does; what it asks for is what it claims to hold."""

    def __init__(self, broker_id: int, client: Client) -> None:
        self.broker_id = broker_id
        self.broker_epoch = BROKER_EPOCHS.get(broker_id, 999)
        self._client = client

    async def ask(
        self,
        *topics: fetching.FetchTopic,
        wait_ms: int = 0,
        session: tuple[int, int] = (0, -1),
        version: int = 18,
        max_bytes: int = 1 << 20,
        forgotten: bool = False,
    ) -> FetchResponse:
        request = fetching.FetchRequest(
            replica_id=self.broker_id if version < 15 else -1,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=session[0],
            session_epoch=session[1],
            topics=list(topics),
            forgotten_topics_data=[fetching.ForgottenTopic(topic_id=TOPIC_ID, partitions=[0])] if forgotten else [],
        )
        if version >= 15:
            request.replica_state = fetching.ReplicaState(replica_id=self.broker_id, replica_epoch=self.broker_epoch)
        return await self._client.ask(request, FetchResponse, version)

    async def fetch(
        self,
        offset: int,
        *,
        wait_ms: int = 0,
        version: int = 18,
        leader_epoch: int = 5,
        last_epoch: int = -1,
        log_start: int = 0,
        high_watermark: int = (1 << 63) - 1,
    ) -> PartitionData:
        topic = wanted(
            offset,
            leader_epoch=leader_epoch,
            last_epoch=last_epoch,
            log_start=log_start,
            high_watermark=high_watermark,
        )
        response = await self.ask(topic, wait_ms=wait_ms, version=version)
        return response.responses[0].partitions[0]


def values(found: PartitionData) -> list[bytes | None]:
    return [record.value for _, each in batches(memoryview(found.records or b"")) for record in iterate(each)]


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    disk, clock, network = FaultyDisk(), StageClock(), MemoryNetwork()
    fresh(disk, clock, network)
    node = Node(CONFIG, memory_runtime(disk, clock, network))
    await node.start()
    control = node.services.controller
    setting = Stage(node, network, clock)
    setting.publish(
        *(making.broker(number, epoch, fenced=False, rack=RACKS[number]) for number, epoch in BROKER_EPOCHS.items())
    )
    try:
        yield setting
    finally:
        node.services.controller = control
        await node.stop()
