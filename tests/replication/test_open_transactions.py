"""Transactions on a replica that follows, and what becomes of them when it leads: node 1 is real, in memory, and gets
what a leader on node 2 has written."""

from __future__ import annotations

import asyncio

import pytest

from ottla.broker.transactions.transaction_markers import Marker, write
from ottla.errors import ErrorCode
from ottla.log import Log
from ottla.model import TopicPartition
from ottla.wire.messages import fetch_request as fetching
from ottla.wire.messages.fetch_response import FetchResponse, PartitionData
from tests.log.faulty_disk import FaultyDisk
from tests.log.story import COORDINATOR, NOW, append, batch, create, marker, open_manager
from tests.replication.leader_stage import TOPIC, Stage, stage

READ_COMMITTED = 1
TP = TopicPartition(TOPIC, 0)


class Elsewhere:
    """The leader on node 2: a log of its own, which node 1 copies as a fetcher would."""

    def __init__(self, setting: Stage) -> None:
        self._stage = setting
        self.log: Log = create(open_manager(FaultyDisk()))

    def write(self, producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0) -> None:
        guard = self.log.producers.start_verification(producer_id, sequence, epoch, NOW)
        data = batch(count, producer_id=producer_id, producer_epoch=epoch, sequence=sequence, transactional=True)
        append(self.log, data, epoch=5, verification_guard=guard)

    def end(self, producer_id: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 3) -> None:
        data = marker(commit=commit, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=coordinator_epoch)
        append(self.log, data, epoch=5, origin=COORDINATOR)

    def copy(self, *, high_watermark: int | None = None) -> None:
        """Node 1 fetches everything that it lacks, and hears of the high watermark."""
        partition = self._stage.partition
        log = partition.log
        span = self.log.read(log.log_end_offset, max_bytes=1 << 20, upper_bound=self.log.log_end_offset)
        if span is not None:
            log.append_replicated(memoryview(span.file.read(span.position, span.size)), NOW)
        log.update_high_watermark(log.log_end_offset if high_watermark is None else high_watermark)
        self._stage.services.replicas.on_follower_advanced(partition)


async def read(setting: Stage, offset: int = 0, *, wait_ms: int = 0) -> PartitionData:
    wanted = fetching.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = fetching.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=READ_COMMITTED,
        topics=[fetching.FetchTopic(topic=TOPIC, partitions=[wanted])],
    )
    response = await (await setting.connect()).ask(request, FetchResponse, 12)
    return response.responses[0].partitions[0]


def aborted(found: PartitionData) -> list[tuple[int, int]]:
    assert found.aborted_transactions is not None
    return [(each.producer_id, each.first_offset) for each in found.aborted_transactions]


async def test_a_follower_knows_the_transactions_that_it_copied() -> None:
    async with stage() as setting:
        setting.create(leader=2)
        there = Elsewhere(setting)
        there.write(1, 0, 2)
        there.write(2, 0)
        there.end(1, commit=False)
        there.write(3, 0, epoch=7)
        there.end(2, commit=True)
        there.copy()
        there.log.update_high_watermark(there.log.log_end_offset)
        here = setting.partition.log
        assert here.last_stable_offset == there.log.last_stable_offset == 4
        assert here.aborted_transactions(0, 4) == there.log.aborted_transactions(0, 4) != []
        for producer_id, entry in there.log.producers.entries.items():
            copied = here.producers.entries[producer_id]
            assert (copied.epoch, copied.coordinator_epoch) == (entry.epoch, entry.coordinator_epoch)
            assert (copied.txn_first_offset, copied.batches) == (entry.txn_first_offset, entry.batches)


async def test_a_consumer_that_reads_from_a_follower_is_told_what_was_aborted() -> None:
    """KIP-392: the nearest replica may be one that follows."""
    async with stage() as setting:
        setting.create(leader=2)
        there = Elsewhere(setting)
        there.write(1, 0, 2)
        there.copy()
        found = await read(setting)
        assert (found.error_code, found.last_stable_offset, found.records) == (0, 0, b"")
        there.end(1, commit=False)
        there.copy(high_watermark=2)
        assert (await read(setting)).last_stable_offset == 0, "the marker may not be replicated yet"
        there.copy()
        found = await read(setting)
        assert (found.last_stable_offset, aborted(found)) == (3, [(1, 0)])


async def test_who_waits_at_a_follower_wakes_when_the_transaction_is_over() -> None:
    async with stage() as setting:
        setting.create(leader=2)
        there = Elsewhere(setting)
        there.write(1, 0)
        there.copy()
        waiting = asyncio.create_task(read(setting, wait_ms=9_000))
        await setting.settle(lambda: bool(setting.partition.fetch_waiters))
        there.write(2, 0)
        there.copy()
        await asyncio.sleep(0)
        assert not waiting.done()
        there.end(1, commit=False)
        there.copy()
        assert aborted(await waiting) == [(1, 0)]


@pytest.mark.parametrize("commit", [True, False])
async def test_a_new_leader_goes_on_with_open_transactions(commit: bool) -> None:
    async with stage() as setting:
        setting.create(leader=2)
        there = Elsewhere(setting)
        there.write(1, 0, 2)
        there.end(1, commit=False, coordinator_epoch=4)
        there.write(1, 2)
        there.copy(high_watermark=2)
        setting.change(leader=1, isr=[1])
        assert setting.leader.leader_epoch == 6
        log = setting.partition.log
        assert log.high_watermark == 4, "it is alone in sync"
        assert log.last_stable_offset == 3
        append(
            log,
            batch(producer_id=1, producer_epoch=0, sequence=3, transactional=True),
            epoch=6,
            verification_guard=log.producers.start_verification(1, 3, 0, NOW),
        )
        fenced = Marker(1, 0, 3, commit, 1)
        assert await write(setting.services, [(fenced, [TP])]) == [{TP: ErrorCode.TRANSACTION_COORDINATOR_FENCED}]
        assert await write(setting.services, [(fenced._replace(coordinator_epoch=4), [TP])]) == [{TP: ErrorCode.NONE}]
        found = await read(setting)
        assert (found.last_stable_offset, aborted(found)) == (6, [(1, 0)] if commit else [(1, 0), (1, 3)])


async def test_a_marker_counts_when_all_in_sync_have_it() -> None:
    async with stage() as setting:
        setting.create(isr=(1, 2), replicas=(1, 2))
        log = setting.partition.log
        guard = log.producers.start_verification(1, 0, 0, NOW)
        setting.services.replicas.append_by_coordinator(
            setting.partition,
            batch(producer_id=1, producer_epoch=0, sequence=0, transactional=True),
            guard=guard,
        )
        follower = await setting.follower(2)
        await follower.fetch(1)
        assert (log.high_watermark, log.last_stable_offset) == (1, 0)
        writing = asyncio.ensure_future(write(setting.services, [(Marker(1, 0, 0, True, 1), [TP])]))
        await setting.settle(lambda: log.log_end_offset == 2)
        assert not writing.done()
        assert log.last_stable_offset == 0
        await follower.fetch(2)
        assert await writing == [{TP: ErrorCode.NONE}]
        assert log.last_stable_offset == 2


async def test_a_marker_whose_leader_is_deposed_is_to_be_sent_again() -> None:
    async with stage() as setting:
        setting.create(isr=(1, 2), replicas=(1, 2))
        writing = asyncio.ensure_future(write(setting.services, [(Marker(1, 0, 0, True, 1), [TP])]))
        await setting.settle(lambda: setting.partition.log.log_end_offset == 1)
        setting.change(leader=2)
        assert await writing == [{TP: ErrorCode.NOT_LEADER_OR_FOLLOWER}]
        assert await write(setting.services, [(Marker(1, 0, 0, True, 1), [TP])]) == [
            {TP: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        ]


async def test_a_marker_is_not_taken_where_too_few_are_in_sync() -> None:
    async with stage() as setting:
        setting.create(isr=(1,), replicas=(1, 2), min_insync_replicas="2")
        assert await write(setting.services, [(Marker(1, 0, 0, True, 1), [TP])]) == [
            {TP: ErrorCode.NOT_ENOUGH_REPLICAS}
        ]
        assert setting.partition.log.log_end_offset == 0
