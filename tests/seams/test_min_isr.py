"""`min.insync.replicas` as a producer meets it: two replicas are asked for, and one of the two is not in sync."""

from __future__ import annotations

from ottla.broker.hosted import HostedPartition
from ottla.errors import ErrorCode
from ottla.metadata.images import PartitionImage
from ottla.wire.messages.produce_response import ProduceResponse
from tests.seams.test_maintenance import Stage, stage
from tests.seams.test_node_in_memory import fetch, produce

OTHER = 2


async def produced(it: Stage, value: bytes, acks: int) -> tuple[int, int]:
    """The error code and base offset that a producer gets."""
    request = produce(value)
    request.acks = acks
    request.timeout_ms = 50
    answer = await it.client.ask(request, ProduceResponse, 12)
    partition = answer.responses[0].partition_responses[0]
    return partition.error_code, partition.base_offset


async def lead_alone(it: Stage) -> HostedPartition:
    """A topic that asks for two in sync, of which this node leads a partition without the other replica."""
    await it.create(min_insync_replicas="2")
    partition = it.node.services.replicas.partition("t", 0)
    assert partition is not None
    assert await produced(it, b"alone by design", -1) == (0, 0)  # With one replica in all, one is enough.
    image = PartitionImage((1, OTHER), (1,), 1, 7, 9, ())
    it.node.services.replicas.lead(partition, image)
    return partition


async def test_acks_all_is_refused_before_anything_is_written() -> None:
    async with stage() as it:
        partition = await lead_alone(it)
        assert await produced(it, b"refused", -1) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        assert partition.log.log_end_offset == 1


async def test_other_acks_are_taken_but_not_shown_until_enough_are_in_sync() -> None:
    async with stage() as it:
        partition = await lead_alone(it)
        assert await produced(it, b"not committed", 1) == (0, 1)
        assert await produced(it, b"nor this", 1) == (0, 2)
        assert await fetch(it.client) == [b"alone by design"]
        assert partition.log.high_watermark == 1


async def test_a_lower_minimum_lets_the_producer_in() -> None:
    async with stage() as it:
        partition = await lead_alone(it)
        partition.min_isr = 1
        it.node.services.replicas.on_min_isr(partition)
        assert await produced(it, b"enough", -1) == (0, 1)
        assert await fetch(it.client) == [b"alone by design", b"enough"]
