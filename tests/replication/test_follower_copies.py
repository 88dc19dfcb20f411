"""A follower copies its leaders: what it asks, what it appends, and what it makes of every kind of answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from ottla.errors import ErrorCode
from ottla.log import Log, LogConfig
from ottla.partition.follower import FollowerState
from ottla.runtime.seams import DiskError
from ottla.wire.messages.fetch_response import FetchResponse
from tests.jumping_loop import JumpingLoop
from tests.log.faulty_disk import Operation
from tests.log.story import all_batches, append, batch
from tests.replication.follower_stage import BROKER_EPOCH, NODE_ID, Asked, Leader, Stage

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=300)


@asynccontextmanager
async def stage(**options: object) -> AsyncIterator[Stage]:
    made = Stage(**options)  # type: ignore[arg-type]
    try:
        yield made
        assert not made.bugs
    finally:
        await made.stop()


async def test_a_copy_is_the_same_byte_for_byte() -> None:
    async with stage() as it:
        led = it.leader.lead(0, epoch=3, config=SMALL)
        it.leader.produce(0, 60, records=2)
        partition = it.host(0, config=SMALL)
        it.fetchers.follow(partition, 1, 3)
        await it.caught_up(partition)
        it.leader.produce(0, 5)
        await it.caught_up(partition)
        assert all_batches(partition.log) == all_batches(led.log)
        assert partition.log.epochs.entries == [(3, 0)]
        assert partition in it.replicas.advanced
        follower = it.fetchers.follower(partition)
        assert follower is not None
        assert (follower.lag, it.fetchers.lag_max) == (0, 0)


async def test_what_a_fetch_says() -> None:
    """Who asks, in which broker epoch (KIP-903); from where, under which leader epoch, after a record of which."""
    async with stage(replica_fetch_max_bytes="5000") as it:
        it.leader.lead(0, epoch=3)
        it.leader.produce(0, 2, records=5)
        partition = it.host(0)
        it.fetchers.follow(partition, 1, 3)
        await it.caught_up(partition)
        await it.until(lambda: len(it.leader.requests) >= 2)
        first, second = it.leader.requests[:2]
        assert first.replica == second.replica == (NODE_ID, BROKER_EPOCH)
        assert first.partitions == [(0, 3, 0, -1, 0, 5000, (1 << 63) - 1)]
        assert second.partitions == [(0, 3, 10, 3, 0, 5000, (1 << 63) - 1)]


async def test_a_session_says_only_what_changed() -> None:
    async with stage(replica_fetch_wait_max_ms="20") as it:
        for index in range(3):
            it.leader.lead(index)
        for index in range(3):
            it.fetchers.follow(it.host(index), 1, 0)
        await it.until(lambda: len(it.leader.requests) >= 2)
        assert len(it.leader.requests[0].partitions) == 3
        assert it.leader.requests[0].session_epoch == 0
        seen = len(it.leader.requests)
        it.leader.produce(1)
        await it.until(lambda: any(request.partitions for request in it.leader.requests[seen:]))
        news = [request for request in it.leader.requests[1:] if request.partitions]
        assert [asked.partition for asked in news[-1].partitions] == [1]
        assert [request.session_epoch for request in it.leader.requests] == list(range(len(it.leader.requests)))
        assert len(it.leader.sessions) == 1


async def test_one_that_is_let_go_is_forgotten_by_the_session() -> None:
    async with stage(replica_fetch_wait_max_ms="20") as it:
        partitions = [it.host(index) for index in range(2)]
        for index, partition in enumerate(partitions):
            it.leader.lead(index)
            it.fetchers.follow(partition, 1, 0)
        await it.until(lambda: len(it.leader.requests) >= 2)
        it.fetchers.unfollow(partitions[0])
        await it.until(lambda: any(request.forgotten == [0] for request in it.leader.requests))
        it.leader.produce(0)
        it.leader.produce(1)
        await it.caught_up(partitions[1])
        assert partitions[0].log.log_end_offset == 0


async def test_sessions_that_end_begin_anew() -> None:
    async with stage(replica_fetch_wait_max_ms="10") as it:
        it.leader.lead(0)
        partition = it.host(0)
        it.fetchers.follow(partition, 1, 0)
        await it.until(lambda: len(it.leader.requests) >= 3)
        # Put out by the leader: 70, and a new one.
        it.leader.sessions.clear()
        it.leader.produce(0)
        await it.caught_up(partition)
        await it.until(lambda: len(it.leader.sessions) == 1)  # What was under way may have brought the record.
        # Out of step: 71. The full request that follows names the old session, and so ends it.
        ((number, session),) = it.leader.sessions.items()
        session.epoch += 5
        it.leader.produce(0)
        await it.caught_up(partition)
        assert number not in it.leader.sessions
        assert any(request.session_id == number and request.session_epoch == 0 for request in it.leader.requests)
        # No room for a session: full requests, one after the other.
        it.leader.session_slots = 0
        it.leader.sessions.clear()
        it.leader.produce(0)
        await it.caught_up(partition)
        seen = len(it.leader.requests)
        await it.until(lambda: len(it.leader.requests) >= seen + 2)
        assert all(request.session_epoch == 0 and request.partitions for request in it.leader.requests[seen:])


async def test_a_leader_that_refuses_every_request_is_not_asked_without_a_pause() -> None:
    async with stage(replica_fetch_backoff_ms="40") as it:
        it.leader.lead(0)
        refusal = FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        it.leader.overrides = [lambda response: refusal] * 1000
        partition = it.host(0)
        it.fetchers.follow(partition, 1, 0)
        await asyncio.sleep(0.2)
        assert 2 <= len(it.leader.requests) < 15
        it.leader.overrides.clear()
        it.leader.produce(0)
        await it.caught_up(partition)


async def test_a_bug_in_one_partition_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage() as it:
        partitions = [it.host(index) for index in range(2)]
        broken = partitions[0].log
        append_replicated = Log.append_replicated

        def fail(self: Log, *arguments: object, **options: object) -> object:
            if self is broken:
                raise ValueError("nobody thought of this")
            return append_replicated(self, *arguments, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(Log, "append_replicated", fail)
        for index, partition in enumerate(partitions):
            it.leader.lead(index)
            it.leader.produce(index)
            it.fetchers.follow(partition, 1, 0)
        await it.caught_up(partitions[1])
        assert it.fetchers.failed_count == 1


async def test_histories_that_part_are_cut_by_epochs_and_copied_again() -> None:
    """KIP-279's story, over the wire's messages and with real logs."""
    async with stage() as it:
        led = it.leader.lead(0, epoch=5, config=SMALL)
        for epoch, count in ((0, 8), (1, 7), (4, 9)):
            for _ in range(count):
                append(led.log, batch(1, value=b"leader's"), epoch=epoch)
        led.log.update_high_watermark(8)
        partition = it.host(0, config=SMALL)
        for epoch, count in ((0, 10), (2, 5), (3, 5)):
            for _ in range(count):
                append(partition.log, batch(1, value=b"leader's" if epoch == 0 else b"follower"), epoch=epoch)
        partition.log.update_high_watermark(8)
        it.fetchers.follow(partition, 1, 5)
        await it.caught_up(partition)
        assert all_batches(partition.log) == all_batches(led.log)
        assert partition.log.epochs.entries == led.log.epochs.entries
        assert it.fetchers.truncations == 2
        assert it.replicas.flushes == 2, "each cut was on the disk before anything took its place"
        assert not partition.log.cut_unsynced


async def test_nothing_is_appended_before_a_cut_is_on_the_disk() -> None:
    async with stage(replica_fetch_wait_max_ms="10") as it:
        led = it.leader.lead(0, epoch=2)
        append(led.log, batch(1, value=b"other"), epoch=2)
        partition = it.host(0)
        append(partition.log, batch(1), epoch=1)
        it.replicas.flush_gate = asyncio.Event()
        it.fetchers.follow(partition, 1, 2)
        await it.until(lambda: partition.log.log_end_offset == 0)
        await asyncio.sleep(0.05)
        assert partition.log.log_end_offset == 0
        assert partition.log.cut_unsynced
        it.replicas.flush_gate.set()
        await it.caught_up(partition)


async def test_out_of_range_below_and_above() -> None:
    async with stage() as it:
        # Away too long: the leader has deleted what we would go on from.
        behind = it.leader.lead(0)
        it.leader.produce(0, 50)
        behind.log.advance_log_start(40)
        late = it.host(0)
        for _ in range(5):
            append(late.log, batch(1), epoch=0)
        # Ahead of a leader that was elected uncleanly, and whose epochs are gone.
        ahead = it.leader.lead(1, epoch=0)
        it.leader.produce(1, 3)
        ahead.log.epochs.clear()
        early = it.host(1)
        for _ in range(9):
            append(early.log, batch(1), epoch=0)
        it.fetchers.follow(late, 1, 0)
        it.fetchers.follow(early, 1, 0)
        await it.caught_up(late)
        assert (late.log.log_start_offset, late.log.log_end_offset) == (40, 50)
        await it.until(lambda: early.log.log_end_offset == 3)


async def test_a_log_that_starts_within_a_batch_is_copied_with_the_whole_batch() -> None:
    async with stage() as it:
        led = it.leader.lead(0)
        it.leader.produce(0, 3, records=10)
        led.log.advance_log_start(14)
        partition = it.host(0)
        append(partition.log, batch(5), epoch=0)
        it.fetchers.follow(partition, 1, 0)
        await it.caught_up(partition)
        log = partition.log
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (14, 30, 30)
        assert all_batches(log) == all_batches(led.log)


async def test_the_log_start_follows_and_the_watermark_may_fall() -> None:
    async with stage(replica_fetch_wait_max_ms="10") as it:
        led = it.leader.lead(0)
        it.leader.produce(0, 10)
        partition = it.host(0)
        it.fetchers.follow(partition, 1, 0)
        await it.caught_up(partition)
        led.log.advance_log_start(4)
        await it.until(lambda: partition.log.log_start_offset == 4)
        led.log.high_watermark = 6
        await it.until(lambda: partition.log.high_watermark == 6)


async def test_the_answer_to_an_older_epoch_is_dropped() -> None:
    """A21 and A22: records under way when the leader epoch changes are not for the new one."""
    async with stage(leaders=(1, 2)) as it:
        first, second = it.leaders[1], it.leaders[2]
        first.lead(0, epoch=0)
        first.produce(0, 5)
        second.lead(0, epoch=1)
        partition = it.host(0)
        first.held = asyncio.Event()
        it.fetchers.follow(partition, 1, 0)
        await it.until(lambda: bool(first.requests))
        it.fetchers.follow(partition, 2, 1)
        first.held.set()
        second.produce(0, 2)
        await it.caught_up(partition, second)
        assert [header.leader_epoch for header, _ in all_batches(partition.log)] == [1, 1]
        assert first.peers[0].closed, "nothing is left to copy from it"
        assert it.fetchers.pipeline_count == 1

        # The same leader in a new epoch: the connection stays, the old answer goes.
        await it.until(lambda: second.requests[-1].session_epoch > 0)
        held = second.held = asyncio.Event()
        second.produce(0, 3)
        await asyncio.sleep(0.01)  # The answer, with three records, is held back.
        second.partitions[partition.topic_id, 0].epoch = 2
        it.fetchers.follow(partition, 2, 2)
        second.held = None
        held.set()
        second.produce(0, 1)
        await it.caught_up(partition, second)
        assert all_batches(partition.log) == all_batches(second.partitions[partition.topic_id, 0].log)
        assert not second.peers[0].closed
        assert len(second.peers) == 1


async def test_a_lost_connection_is_opened_again_with_a_new_session() -> None:
    async with stage() as it:
        it.leader.lead(0)
        it.leader.produce(0)
        partition = it.host(0)
        it.fetchers.follow(partition, 1, 0)
        await it.caught_up(partition)
        it.leader.peers[0].cut()
        it.leader.produce(0)
        await it.caught_up(partition)
        assert sum(request.session_epoch == 0 for request in it.leader.requests) == 2

        it.leader.reachable = False
        it.leader.peers[0].cut()
        it.leader.produce(0)
        await asyncio.sleep(0.05)
        it.leader.reachable = True
        await it.caught_up(partition)


async def test_an_error_of_one_partition_holds_up_no_other() -> None:
    async with stage(replica_fetch_backoff_ms="30") as it:
        it.leader.lead(0, epoch=4)
        it.leader.lead(1, epoch=4)
        early, good, unknown = it.host(0), it.host(1), it.host(2)
        it.fetchers.follow(early, 1, 5)  # The leader has not heard of epoch 5.
        it.fetchers.follow(good, 1, 4)
        it.fetchers.follow(unknown, 1, 4)
        it.leader.produce(1, 3)
        await it.caught_up(good)
        follower = it.fetchers.follower(early)
        assert follower is not None
        await it.until(lambda: follower.state is FollowerState.DELAYED and follower.errors > 2)
        assert early.log.log_end_offset == 0
        it.leader.partitions[early.topic_id, 0].epoch = 5
        it.leader.produce(0, 2)
        await it.caught_up(early)
        it.leader.lead(2, epoch=4)
        it.leader.produce(2)
        await it.caught_up(unknown)


async def test_corrupt_batches_are_never_appended() -> None:
    async with stage(replica_fetch_backoff_ms="5") as it:
        it.leader.lead(0)
        partition = it.host(0)
        bad, good = it.host(1), it.host(2)

        def spoil(response: FetchResponse) -> FetchResponse:
            for topic in response.responses:
                for data in topic.partitions:
                    if data.partition_index == 0 and data.records:
                        spoiled = bytearray(data.records)
                        spoiled[-1] ^= 1
                        data.records = memoryview(spoiled)
            return response

        it.leader.overrides = [spoil, spoil]
        it.leader.produce(0, 3)
        it.fetchers.follow(partition, 1, 0)
        await it.caught_up(partition)
        follower = it.fetchers.follower(partition)
        assert follower is not None
        assert follower.state is FollowerState.FETCHING

        # Its disk is bad: after some attempts the partition stands still, and others go on.
        for index in (1, 2):
            it.leader.lead(index)
            it.leader.produce(index)
        segment = it.leader.partitions[bad.topic_id, 1].log
        span = segment.read(0, max_bytes=1000, upper_bound=9)
        assert span is not None
        span.file.write(span.position + span.size - 1, b"\xff")
        it.fetchers.follow(bad, 1, 0)
        it.fetchers.follow(good, 1, 0)
        await it.until(lambda: it.fetchers.failed_count == 1)
        await it.caught_up(good)
        assert bad.log.log_end_offset == 0
        # Another leader epoch is another chance.
        span.file.write(span.position + span.size - 1, b"\x00")
        it.leader.partitions[bad.topic_id, 1].epoch = 1
        it.fetchers.follow(bad, 1, 1)
        await it.caught_up(bad)


async def test_a_disk_that_fails_takes_only_its_partition_along() -> None:
    async with stage() as it:
        for index in range(2):
            it.leader.lead(index)
        partitions = [it.host(index) for index in range(2)]

        def fail(operation: Operation) -> None:
            if operation.kind == "write" and operation.path.startswith("/data/topic0-0/"):
                raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")

        it.disk.hook = fail
        for index, partition in enumerate(partitions):
            it.leader.produce(index)
            it.fetchers.follow(partition, 1, 0)
        await it.caught_up(partitions[1])
        assert list(it.replicas.failed) == [partitions[0]]
        assert partitions[0].log.offline


async def test_flush_messages_is_obeyed_before_the_leader_hears_of_it() -> None:
    """A follower's next fetch says that it holds what came: with `flush.messages` only after the fsync."""
    async with stage(replica_fetch_wait_max_ms="10") as it:
        it.leader.lead(0)
        it.leader.lead(1)
        partition, other = it.host(0, config=LogConfig(flush_messages=1)), it.host(1)
        it.replicas.flush_gate = asyncio.Event()
        it.fetchers.follow(partition, 1, 0)
        it.fetchers.follow(other, 1, 0)
        it.leader.produce(0)
        await it.until(lambda: partition.log.log_end_offset == 1)
        seen = len(it.leader.requests)
        it.leader.produce(1)
        await it.caught_up(other)
        await it.until(lambda: len(it.leader.requests) > seen + 2)
        assert not any(asked.fetch_offset == 1 and asked.partition == 0 for asked in _all_asked(it.leader))
        it.replicas.flush_gate.set()
        await it.until(lambda: any(asked.fetch_offset == 1 and asked.partition == 0 for asked in _all_asked(it.leader)))
        assert partition.log.recovery_point == 1


def _all_asked(leader: Leader) -> list[Asked]:
    return [asked for request in leader.requests for asked in request.partitions]


async def test_a_partition_that_comes_while_a_fetch_waits_does_not_wait_with_it() -> None:
    async with stage(replica_fetch_wait_max_ms="3000") as it:
        for index in range(2):
            it.leader.lead(index)
        old, new = it.host(0), it.host(1)
        it.fetchers.follow(old, 1, 0)
        await it.until(lambda: len(it.leader.requests) == 2)  # The second one waits at the leader.
        it.leader.produce(1, 3)
        it.fetchers.follow(new, 1, 0)
        await it.caught_up(new, within_s=1)
        it.leader.produce(0, 2)
        await it.caught_up(old, within_s=1)
        assert [request.session_epoch for request in it.leader.requests] == list(range(len(it.leader.requests)))


async def test_stopping_does_not_wait_for_an_answer() -> None:
    it = Stage(replica_fetch_wait_max_ms="30000")
    it.leader.lead(0)
    it.fetchers.follow(it.host(0), 1, 0)
    await it.until(lambda: len(it.leader.requests) == 2)
    began = asyncio.get_running_loop().time()
    await it.stop()
    assert asyncio.get_running_loop().time() - began < 0.5
    assert it.leader.peers[0].closed


async def test_pipelines_are_as_many_as_configured_and_spread_the_partitions() -> None:
    async with stage(num_replica_fetchers="3") as it:
        partitions = [it.host(index) for index in range(12)]
        for index, partition in enumerate(partitions):
            it.leader.lead(index)
            it.leader.produce(index)
            it.fetchers.follow(partition, 1, 0)
        for partition in partitions:
            await it.caught_up(partition)
        assert it.fetchers.pipeline_count == len(it.leader.peers) == len(it.leader.sessions) == 3
        shares = [len(session.partitions) for session in it.leader.sessions.values()]
        assert sum(shares) == 12
        assert min(shares) >= 3
        it.configure(num_replica_fetchers="1")
        assert it.fetchers.pipeline_count == 1
        it.leader.produce(5)
        await it.caught_up(partitions[5])


def test_four_pipelines_are_faster_than_one_over_a_long_way() -> None:
    async def copy(pipelines: int) -> float:
        it = Stage(num_replica_fetchers=str(pipelines), replica_fetch_response_max_bytes="20000")
        it.leader.delay_s = 0.1
        began_s = asyncio.get_running_loop().time()
        partitions = [it.host(index) for index in range(8)]
        for index, partition in enumerate(partitions):
            it.leader.lead(index)
            it.leader.produce(index, 20, size=5000)
            it.fetchers.follow(partition, 1, 0)
        for partition in partitions:
            await it.caught_up(partition, within_s=60)
        took_s = asyncio.get_running_loop().time() - began_s
        await it.stop()
        return took_s

    took_s = []
    for pipelines in (1, 4):
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            took_s.append(runner.run(copy(pipelines)))
    assert took_s[1] < took_s[0] / 2


async def test_a_leader_that_moved_is_found_at_its_new_address() -> None:
    async with stage(leaders=(1, 2)) as it:
        for leader in it.leaders.values():
            leader.lead(0)
            leader.produce(0, 2)
        partition = it.host(0)
        it.leaders[1].reachable = False
        it.fetchers.follow(partition, 1, 0)
        await asyncio.sleep(0.03)
        # Broker 1 is now where broker 2 was.
        brokers = dict(it.image.cluster.brokers)
        brokers[1] = brokers[1]._replace(endpoints=brokers[2].endpoints)
        it.image = type(it.image)(cluster=type(it.image.cluster)(brokers=brokers))
        it.fetchers.on_metadata(it.image)
        await it.caught_up(partition, it.leaders[2])


async def test_a_large_answer_leaves_the_loop_its_turns() -> None:
    async with stage() as it:
        partitions = [it.host(index) for index in range(40)]
        for index in range(40):
            it.leader.lead(index)
            it.leader.produce(index, 2, size=130_000)
        turns: list[int] = []

        async def others() -> None:
            while True:
                turns.append(sum(partition.log.log_end_offset > 0 for partition in partitions))
                await asyncio.sleep(0)

        busy = asyncio.ensure_future(others())
        for partition in partitions:
            it.fetchers.follow(partition, 1, 0)
        await it.caught_up(partitions[39])
        busy.cancel()
        steps = [after - before for before, after in pairwise(turns)]
        assert max(steps) <= 8, "10 MB in one turn"
        for partition in partitions:
            await it.caught_up(partition)
