"""How a batch gets to the leader of its partition, and what the answers mean for whoever sent it."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.errors import ErrorCode
from ottla.model import TopicPartition
from ottla.records import BatchBuilder
from ottla.sim.client import Lost, SimClient
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import ProduceResponse

NOTHING_SENT = -1000
"""In the place of an error code: there was nobody to send it to."""

NOT_APPENDED = frozenset(
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
"""Refusals that come before anything is appended."""

RETRIABLE = NOT_APPENDED | {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
}

KEYS = 6
"""So many keys has whoever writes to a compacted topic, each in its turn."""
TOMBSTONE_EVERY = 5


def may_be_appended(code: int | None) -> bool:
    """After this answer, or none?"""
    return code is None or (code != NOTHING_SENT and code not in NOT_APPENDED)


def is_final(code: int | None) -> bool:
    """Is there no sense in sending the same again?"""
    return code is not None and code != NOTHING_SENT and code not in RETRIABLE


def keyed(value: bytes) -> tuple[bytes, bytes | None]:
    """The key and the value of the record that stands for `value`, which ends in a number, on a compacted topic. Some
    are tombstones."""
    name, _, number = value.rpartition(b":")
    at = int(number)
    return b"%s/%d" % (name, at % KEYS), None if at % TOMBSTONE_EVERY == 3 else value


def fill(builder: BatchBuilder, client: SimClient, values: Iterable[bytes], *, keys: bool) -> bytes:
    """The batch with these values; with their `keys` if there are to be any."""
    now_ms = client.loop.clock.wall_ms()
    for value in values:
        key, content = keyed(value) if keys else (None, value)
        builder.append(now_ms, key, content)
    return bytes(builder.build())


async def produce(
    client: SimClient,
    place: TopicPartition,
    batch: bytes,
    *,
    purpose: str,
    acks: int,
    timeout_s: float,
    transactional_id: str | None = None,
    version: int | None = None,
) -> tuple[int | None, int]:
    """The error code, `NOTHING_SENT`, or None where no answer came; and where the batch is, if the code is 0. The
    request is of the newest version, if none is asked for."""
    leader = client.leaders.get(place)
    wire = None if leader is None else client.to_node(leader.node, purpose)
    if leader is None or wire is None:
        return NOTHING_SENT, -1
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=int(timeout_s * 800),
        topic_data=[
            TopicProduceData(
                name=place.topic,
                topic_id=leader.topic_id,
                partition_data=[PartitionProduceData(index=place.partition, records=batch)],
            )
        ],
    )
    try:
        response = await wire.call(request, ProduceResponse, timeout_s=timeout_s, version=version)
    except Lost as lost:
        return (None if lost.sent else NOTHING_SENT), -1
    answer = response.responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset
