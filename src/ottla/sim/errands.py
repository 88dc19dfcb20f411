"""What clients do before the trouble begins and after it is over: topics to work with, and a last look at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.sim.client import Lost
from ottla.sim.consumers import read_everything
from ottla.sim.fleeting import FLEETING_TOPIC
from ottla.sim.group_clients import fetch_offsets
from ottla.sim.lanes import Lane, LaneOptions
from ottla.sim.options import Options
from ottla.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse

if TYPE_CHECKING:
    from ottla.sim.run import Simulation

TOPIC = "orders"
COMPACTED_TOPIC = "profiles"
PATIENCE_S = 90.0
"""In which everything can be written and read again, once all is healed."""


def new_topic(options: Options, name: str, partitions: int, configs: dict[str, str]) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=options.replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )


async def create_topics(simulation: Simulation) -> bool:
    options, admin = simulation.options, simulation.admin
    wanted = [(TOPIC, options.partitions, options.topic)]
    if options.compacted is not None:
        wanted.append((COMPACTED_TOPIC, len(simulation.compacted), options.compacted))
    if options.fleeting is not None:
        wanted.append((FLEETING_TOPIC, 1, options.fleeting))
    request = CreateTopicsRequest(topics=[new_topic(options, *each) for each in wanted], timeout_ms=3000)
    while True:
        try:
            response = await admin.anywhere(request, CreateTopicsResponse, timeout_s=5.0)
        except Lost:
            await admin.sleep(0.2)
            continue
        if all(topic.error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS) for topic in response.topics):
            break
        await admin.sleep(0.2)
    places, busy = [*simulation.places, *simulation.compacted], simulation.clients.busy
    while True:
        for client in [admin, *busy]:
            await client.refresh([name for name, _, _ in wanted])
        if all(place in client.leaders for client in busy for place in places):
            return True
        await admin.sleep(0.2)


async def settle(simulation: Simulation) -> bool:
    """Wait until no client waits any more, and a write to every partition is answered."""
    fleeting = simulation.fleeting
    while simulation.workload.tasks or (fleeting is not None and fleeting.tasks):
        await simulation.final.sleep(0.1)
    options = LaneOptions(acks=-1, idempotent=False, retry_uncertain=True, delivery_timeout_s=PATIENCE_S)
    for at, place in enumerate(simulation.places):
        lane = Lane(simulation.final, at, place, options, simulation.history)
        await simulation.final.refresh([TOPIC])
        await lane.send(1)
    return True


async def read_all(simulation: Simulation) -> bool:
    deadline = simulation.scheduler.now + PATIENCE_S
    for place in simulation.places:
        if not await read_everything(simulation.final, place, simulation.history, deadline):
            return False
        if simulation.options.coordinated and not await read_everything(
            simulation.final, place, simulation.history, deadline, read_committed=True
        ):
            return False
    for place in simulation.compacted:
        if not await read_everything(simulation.final, place, simulation.kept, deadline, read_committed=True):
            return False
    if simulation.fleeting is not None and not await simulation.fleeting.read_all(deadline):
        return False
    groups = {commit.group_id: None for commit in simulation.history.commits}
    for group_id in groups:
        while simulation.scheduler.now < deadline:
            partitions = [place.partition for place in simulation.places]
            found = await fetch_offsets(simulation.final, group_id, TOPIC, partitions, simulation.history)
            if found is not None:
                simulation.history.final_offsets[group_id] = found
                break
            await simulation.final.sleep(0.2)
    return len(simulation.history.final_offsets) == len(groups)
