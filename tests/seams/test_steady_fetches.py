"""A consumer that reads on is answered the short way, and never otherwise than the long way would have answered."""

from __future__ import annotations

from random import Random

import pytest

from ottla.broker.fetching.steady_fetches import SteadyFetch
from ottla.broker.reply import Ready
from ottla.broker.services import Services
from ottla.model import Uuid
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.delete_records_response import DeleteRecordsResponse
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import ProduceResponse
from tests.log.faulty_disk import FaultyDisk
from tests.seams.surroundings import LoopClock, MemoryNetwork
from tests.seams.test_node_in_memory import Client, batch, fresh, serving

STEPS = 1000


class Reader:
    """Asks by its session, most of the time for what comes next, on either of two connections."""

    def __init__(self, clients: list[Client], topic_id: Uuid, random: Random) -> None:
        self._clients = clients
        self._topic_id = topic_id
        self._random = random
        self._session = (0, 0)
        self._offset = 0
        self._max_bytes = 300
        self._min_bytes = 1
        self._version = 17
        self._leader_epoch = -1

    @property
    def session_id(self) -> int:
        return self._session[0]

    async def ask(self) -> FetchResponse:
        random = self._random
        isolation = rack = 0
        forgotten: list[ForgottenTopic] = []
        partitions = [0]
        match random.randrange(40):
            case 0:
                self._offset = random.randrange(-1, 40)
            case 1:
                self._session = (self._session[0], random.randrange(5))
            case 2:
                self._session = (0, 0)
            case 3:
                self._clients.reverse()
            case 4:
                self._leader_epoch = random.choice((-1, 0, 0, 1))
            case 5:
                isolation = 1
            case 6:
                self._max_bytes = random.choice((1, 100, 300, 1000))
            case 7:
                partitions = [0, 1]
            case 8:
                forgotten = [ForgottenTopic(topic_id=self._topic_id, partitions=[random.randrange(2)])]
            case 9:
                rack = 1
            case 10:
                partitions = []
            case 11:
                self._min_bytes = random.choice((1, 1, 1, 400))
            case 12:
                self._version = random.choice((16, 17, 18))
        wanted = [
            FetchPartition(
                partition=index,
                fetch_offset=self._offset,
                partition_max_bytes=self._max_bytes,
                current_leader_epoch=self._leader_epoch,
            )
            for index in partitions
        ]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=self._min_bytes,
            max_bytes=1 << 20,
            isolation_level=isolation,
            session_id=self._session[0],
            session_epoch=self._session[1],
            topics=[FetchTopic(topic_id=self._topic_id, partitions=wanted)] if wanted else [],
            forgotten_topics_data=forgotten,
            rack_id="r" if rack else "",
        )
        response = await self._clients[0].ask(request, FetchResponse, self._version)
        if response.error_code:
            self._session = (0, 0)
        else:
            self._session = (response.session_id, self._session[1] + 1 if response.session_id else 0)
        for topic in response.responses:
            for partition in topic.partitions:
                if partition.error_code:
                    self._offset, self._leader_epoch = 20, -1
                if partition.records:
                    header = partition.records
                    self._offset = int.from_bytes(header[:8], "big") + int.from_bytes(header[23:27], "big") + 1
        return response


async def story(seed: int) -> list[FetchResponse]:
    random = Random(seed)
    disk, clock, network = FaultyDisk(), LoopClock(), MemoryNetwork()
    answers = []
    async with serving(fresh(disk, clock, network), network) as (node, client):
        created = await client.ask(
            CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=2, replication_factor=1)]),
            CreateTopicsResponse,
            7,
        )
        other = Client()
        await network.connect("memory", 9092, other)
        reader = Reader([client, other], created.topics[0].topic_id, random)
        hosted = node.services.replicas.partition("t", 0)
        assert hosted is not None
        for _ in range(STEPS):
            if random.randrange(2):
                records = batch(*(random.randbytes(random.randrange(150)) for _ in range(random.randrange(1, 4))))
                data = PartitionProduceData(index=random.randrange(3) // 2, records=records)
                wanted = TopicProduceData(name="t", partition_data=[data])
                await client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[wanted]), ProduceResponse, 12)
            elif not random.randrange(60):
                node.services.fetch_sessions.close(reader.session_id)
            elif not random.randrange(30):
                hosted.image = hosted.image._replace(leader_epoch=random.randrange(2))
            elif not random.randrange(40):
                before = DeleteRecordsPartition(partition_index=0, offset=random.randrange(20))
                await client.ask(
                    DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[before])], timeout_ms=1000),
                    DeleteRecordsResponse,
                    2,
                )
            else:
                answers.append(await reader.ask())
            clock.advance(random.randrange(1000))
    return answers


@pytest.mark.parametrize("seed", range(4))
async def test_the_short_way_answers_as_the_long_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    short = 0
    answer = SteadyFetch.answer

    def counted(fetch: SteadyFetch, services: Services, body: bytes, version: int, correlation_id: int) -> Ready | None:
        nonlocal short
        reply = answer(fetch, services, body, version, correlation_id)
        short += reply is not None
        return reply

    monkeypatch.setattr(SteadyFetch, "answer", counted)
    quickly = await story(seed)
    assert short > STEPS // 40
    monkeypatch.setattr(SteadyFetch, "answer", lambda *_: None)
    assert await story(seed) == quickly
    assert {each.error_code for each in quickly} > {0}
    assert {partition.error_code for each in quickly for topic in each.responses for partition in topic.partitions} > {
        0
    }
