"""Requests of very many elements: others have their turns while one is read and answered, and nothing overtakes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ottla.broker.bounds.limits import ELEMENTS_A_TURN_MAX
from ottla.model import Uuid
from ottla.wire.apis import APIS
from ottla.wire.frames import request_frame
from ottla.wire.in_steps import STEP_BYTES
from ottla.wire.message import Message
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.offset_fetch_response import OffsetFetchResponse
from tests.log.faulty_disk import FaultyDisk
from tests.seams.surroundings import LoopClock, MemoryNetwork
from tests.seams.test_node_in_memory import Client, fresh, serving

MANY = 30_000
LONG, SHORT = 1, 2
"""Correlation ids."""


def id_of(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def of_groups() -> Message:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=f"g{number}") for number in range(MANY)])


def of_topics() -> Message:
    topics = [OffsetFetchRequestTopics(topic_id=id_of(number), partition_indexes=[]) for number in range(1, MANY)]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])


def of_partitions() -> Message:
    topic = OffsetFetchRequestTopics(topic_id=id_of(1), partition_indexes=list(range(MANY)))
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[topic])])


def listing_topics() -> Message:
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=f"t{number}") for number in range(MANY)])


def listing_partitions() -> Message:
    partitions = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(MANY)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=partitions)])


def framed(correlation_id: int, request: Message) -> bytes:
    key = request.API_KEY
    assert key is not None
    version = APIS[key].last_version
    return request_frame(key, version, correlation_id, "test", request.encode(version))


async def connected(network: MemoryNetwork) -> Client:
    client = Client()
    await network.connect("memory", 9092, client)
    return client


async def coordinated(client: Client) -> None:
    """The node has the group that the requests name."""
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g")])
    for _ in range(1000):
        if not (await client.ask(asked, OffsetFetchResponse, 9)).groups[0].error_code:
            return
        await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), FindCoordinatorResponse, 4)
        await asyncio.sleep(0.01)
    raise AssertionError("the node does not become the coordinator")


async def answers(client: Client, count: int) -> list[tuple[int, int]]:
    """The correlation ids and the sizes of the next answers."""
    found: list[tuple[int, int]] = []
    while len(found) < count:
        frame = await client.next_frame()
        found.append((int.from_bytes(frame[:4], "big"), len(frame)))
    return found


class Turns:
    """Of the loop, which others have."""

    count = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.count += 1


@pytest.mark.parametrize(
    "asked", [of_groups, of_topics, of_partitions, listing_topics, listing_partitions], ids=lambda each: each.__name__
)
async def test_others_have_their_turns_while_it_is_read_and_answered(asked: Callable[[], Message]) -> None:
    network = MemoryNetwork()
    async with serving(fresh(FaultyDisk(), LoopClock(), network), network) as (_, client):
        await coordinated(client)
        turns = Turns()
        others = asyncio.ensure_future(turns.run())
        data = framed(LONG, asked())
        client.send(data)
        ((_, size),) = await answers(client, 1)
        others.cancel()
        read = len(data) // STEP_BYTES if asked is not of_partitions else 0  # Numbers are read all at once.
        assert turns.count > read + MANY // ELEMENTS_A_TURN_MAX
        assert size > MANY


async def test_what_is_sent_behind_it_is_answered_behind_it() -> None:
    network = MemoryNetwork()
    async with serving(fresh(FaultyDisk(), LoopClock(), network), network) as (_, client):
        client.send(framed(LONG, of_groups()) + framed(SHORT, ApiVersionsRequest()) + framed(LONG, of_groups()))
        assert [correlation_id for correlation_id, _ in await answers(client, 3)] == [LONG, SHORT, LONG]
        client.send(framed(SHORT, ApiVersionsRequest()))
        assert [correlation_id for correlation_id, _ in await answers(client, 1)] == [SHORT]


async def test_who_goes_away_meanwhile_leaves_nothing_behind() -> None:
    network = MemoryNetwork()
    async with serving(fresh(FaultyDisk(), LoopClock(), network), network) as (_, client):
        client.send(framed(LONG, of_groups()))
        await asyncio.sleep(0)
        client.hang_up()
        neighbour = await connected(network)
        neighbour.send(framed(SHORT, ApiVersionsRequest()))
        assert [correlation_id for correlation_id, _ in await answers(neighbour, 1)] == [SHORT]


@pytest.mark.parametrize("asked", [of_groups, listing_topics], ids=lambda each: each.__name__)
async def test_one_that_ends_too_soon_is_cut_off(asked: Callable[[], Message]) -> None:
    network = MemoryNetwork()
    async with serving(fresh(FaultyDisk(), LoopClock(), network), network) as (_, client):
        data = framed(LONG, asked())[4:-100]
        client.send(len(data).to_bytes(4, "big") + data + framed(SHORT, ApiVersionsRequest()))
        with pytest.raises(ConnectionResetError):
            await answers(client, 1)
        neighbour = await connected(network)
        neighbour.send(framed(SHORT, ApiVersionsRequest()))
        assert [correlation_id for correlation_id, _ in await answers(neighbour, 1)] == [SHORT]
