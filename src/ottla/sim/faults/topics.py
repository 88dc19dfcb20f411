"""What an operator does to a topic that nobody needs for long: deletes records, or all of it, and creates it again."""

from __future__ import annotations

from random import Random

from ottla.errors import Malformed
from ottla.metadata.images import EMPTY_IMAGE, MetadataImage
from ottla.sim import view
from ottla.sim.client import Lost
from ottla.sim.errands import new_topic
from ottla.sim.faults.operations import ask
from ottla.sim.faults.schedule import Faults
from ottla.sim.fleeting import FLEETING_TOPIC, PLACE
from ottla.sim.options import RECORD_DELETION, TOPIC_ANEW
from ottla.wire.messages.create_topics_request import CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.delete_records_response import DeleteRecordsResponse
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.delete_topics_response import DeleteTopicsResponse


def topic_anew(faults: Faults, random: Random) -> bool | None:
    """The topic is deleted, and another of the same name takes its place, at once or a little later."""
    fleeting = faults.simulation.fleeting
    topic = _known(faults).topic(FLEETING_TOPIC)
    if fleeting is None or fleeting.changing or topic is None:
        return False
    fleeting.changing = True
    pause_s = random.choice((0.0, random.uniform(0.0, 0.5), random.uniform(0.5, 4.0)))
    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic.topic_id)], timeout_ms=3000)

    async def delete_and_create() -> None:
        faults.cluster.trace.note("operator", f"deletes {FLEETING_TOPIC}")
        await ask(faults, request, DeleteTopicsResponse)
        sleep = faults.simulation.admin.sleep
        for _ in range(40):
            if _known(faults).topic_by_id(topic.topic_id) is None:
                faults.count(TOPIC_ANEW)
                await sleep(pause_s)
                await create(faults)
                break
            await sleep(0.25)
        fleeting.changing = False

    faults.spawn(delete_and_create())
    return None


def _known(faults: Faults) -> MetadataImage:
    """The newest metadata that anybody ever had: those who run may be behind, or nobody may run."""
    return faults.simulation.inspection.metadata.newest or EMPTY_IMAGE


async def create(faults: Faults) -> None:
    """Until it is there."""
    options = faults.simulation.options
    assert options.fleeting is not None
    request = CreateTopicsRequest(topics=[new_topic(options, FLEETING_TOPIC, 1, options.fleeting)], timeout_ms=3000)
    while _known(faults).topic(FLEETING_TOPIC) is None:
        faults.cluster.trace.note("operator", f"creates {FLEETING_TOPIC}")
        await ask(faults, request, CreateTopicsResponse, tries=1)
        await faults.simulation.admin.sleep(0.3)


def record_deletion(faults: Faults, random: Random) -> bool | None:
    """The leader is asked to forget what lies before some offset that is committed."""
    simulation = faults.simulation
    partition = view.newest_image(faults.cluster).partition(*PLACE)
    machine = None if partition is None else faults.cluster.machines.get(partition.leader)
    hosted = None if machine is None else view.hosted(machine, PLACE)
    if simulation.fleeting is None or machine is None or hosted is None or hosted.leader is None:
        return False
    start, end = hosted.log.log_start_offset, hosted.log.high_watermark
    if hosted.offline or start >= end:
        return False
    offset = random.randint(start + 1, end)
    # From now on it may happen, whatever becomes of the question.
    simulation.inspection.replicas.allow_start(PLACE, offset)
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=FLEETING_TOPIC,
                partitions=[DeleteRecordsPartition(partition_index=PLACE.partition, offset=offset)],
            )
        ],
        timeout_ms=2000,
    )

    async def delete() -> None:
        faults.cluster.trace.note("operator", f"deletes what {PLACE} has before {offset}")
        wire = simulation.admin.to_node(machine.id)
        if wire is None:
            return
        try:
            response = await wire.call(request, DeleteRecordsResponse, timeout_s=4.0)
        except (Lost, Malformed):
            return
        if not response.topics[0].partitions[0].error_code:
            faults.count(RECORD_DELETION)

    faults.spawn(delete())
    return None
