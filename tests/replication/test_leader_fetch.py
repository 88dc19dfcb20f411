"""What a leader gives to followers, and what it learns from them."""

from __future__ import annotations

import asyncio

import pytest

from ottla.broker.fetching.replica_selector import RackAwareSelector
from ottla.errors import ErrorCode
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.list_offsets_response import ListOffsetsPartitionResponse, ListOffsetsResponse
from tests.metadata import making
from tests.replication.leader_stage import TOPIC, Stage, stage, values, wanted
from tests.seams.test_node_in_memory import batch


async def list_offset(setting: Stage, timestamp: int, replica_id: int = -1) -> ListOffsetsPartitionResponse:
    topic = ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
    request = ListOffsetsRequest(replica_id=replica_id, topics=[topic])
    response = await (await setting.connect()).ask(request, ListOffsetsResponse, 7)
    return response.topics[0].partitions[0]


async def test_a_follower_reads_to_the_end_and_a_consumer_to_the_high_watermark() -> None:
    async with stage() as setting:
        setting.create()
        await setting.produce(b"one", b"two")
        two, three = await setting.follower(2), await setting.follower(3)
        found = await two.fetch(0)
        assert (found.error_code, values(found), found.high_watermark) == (0, [b"one", b"two"], 0)
        consumed = await setting.consume(0)
        assert (consumed.error_code, values(consumed), consumed.high_watermark) == (0, [], 0)
        await two.fetch(2)
        assert values(await setting.consume(0)) == [], "the other follower may still be without it"
        # The last fetch that was waited for is told of what it made possible.
        found = await three.fetch(2)
        assert (values(found), found.high_watermark) == ([], 2)
        assert values(await setting.consume(0)) == [b"one", b"two"]


async def test_a_consumer_between_the_high_watermark_and_the_end_finds_nothing_and_is_not_lost() -> None:
    async with stage() as setting:
        setting.create()
        await setting.produce(b"one", b"two")
        for offset in (0, 1, 2):
            found = await setting.consume(offset)
            assert (found.error_code, values(found), found.high_watermark) == (0, [], 0), offset
        assert (await setting.consume(3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_consumer_that_waits_is_woken_by_the_high_watermark_and_not_by_an_append() -> None:
    async with stage() as setting:
        setting.create(isr=(1, 2), replicas=(1, 2))
        two = await setting.follower(2)
        waiting = asyncio.ensure_future(setting.consume(0, wait_ms=60_000))
        await setting.settle(lambda: bool(setting.partition.fetch_waiters))
        await setting.produce(b"one")
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await two.fetch(1)
        found = await asyncio.wait_for(waiting, 30)
        assert (values(found), found.high_watermark) == ([b"one"], 1)


async def test_acks_all_waits_for_the_whole_isr_and_acks_1_for_nobody() -> None:
    async with stage() as setting:
        setting.create()
        assert (await setting.produce(b"a", acks=1)).error_code == 0
        waiting = asyncio.ensure_future(setting.produce(b"b", acks=-1))
        two, three = await setting.follower(2), await setting.follower(3)
        await two.fetch(0)
        await two.fetch(2)
        await three.fetch(1)
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await three.fetch(2)
        answer = await waiting
        assert (answer.error_code, answer.base_offset) == (0, 1)


@pytest.mark.parametrize("version", [12, 14, 18])
async def test_a_stranger_gets_an_error_and_leaves_no_trace(version: int) -> None:
    async with stage() as setting:
        setting.create(replicas=(1, 2), isr=(1, 2))
        await setting.produce(b"one")
        three = await setting.follower(3)
        assert (await three.fetch(1, version=version)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        unsaid = await three.fetch(1, version=version, leader_epoch=-1)
        assert unsaid.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await (await setting.follower(1)).fetch(1)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert list(setting.leader.followers) == [2]
        assert setting.partition.log.high_watermark == 0


async def test_an_incarnation_that_was_followed_by_another_is_refused() -> None:
    async with stage() as setting:
        setting.create()
        old, new = await setting.follower(2), await setting.follower(2)
        new.broker_epoch += 1
        assert (await old.fetch(0)).error_code == 0
        assert (await new.fetch(0)).error_code == 0
        assert (await old.fetch(0)).error_code == ErrorCode.STALE_BROKER_EPOCH
        three = await setting.follower(3)
        three.broker_epoch -= 1
        assert (await three.fetch(0)).error_code == ErrorCode.STALE_BROKER_EPOCH
        assert setting.leader.followers[3].broker_epoch is None


@pytest.mark.parametrize(("epoch", "code"), [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)])
async def test_a_follower_of_another_epoch_is_turned_away(epoch: int, code: ErrorCode) -> None:
    async with stage() as setting:
        setting.create()
        two = await setting.follower(2)
        assert (await two.fetch(0, leader_epoch=epoch)).error_code == code
        assert setting.leader.followers[2].log_end == -1


async def test_a_follower_with_another_history_is_told_where_it_parted() -> None:
    """Records of epoch 5 end at 2 here. A follower that has more of epoch 5, or has an epoch between, has to cut."""
    async with stage() as setting:
        setting.create(isr=(1, 2))
        await setting.produce(b"one", b"two")
        setting.change(leader=1)
        await setting.produce(b"three")
        assert setting.leader.leader_epoch == 6
        two = await setting.follower(2)
        # It has four records of epoch 5, which is also more than we have at all.
        found = await two.fetch(4, leader_epoch=6, last_epoch=5)
        assert found.error_code == 0
        assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (5, 2)
        assert (values(found), found.log_start_offset, found.high_watermark) == ([], 0, 0)
        assert setting.leader.followers[2].log_end == -1, "what it holds is not what we hold"
        found = await two.fetch(2, leader_epoch=6, last_epoch=5)
        assert (found.diverging_epoch.epoch, values(found)) == (-1, [b"three"])
        assert setting.leader.followers[2].log_end == 2


async def test_a_follower_behind_the_log_start_is_out_of_range_whatever_its_epochs() -> None:
    async with stage() as setting:
        setting.create(isr=(1,), replicas=(1, 2))
        await setting.produce(b"one", b"two", b"three")
        setting.partition.log.advance_log_start(2)
        two = await setting.follower(2)
        assert (await two.fetch(0, last_epoch=3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await two.fetch(0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await two.fetch(9)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await two.fetch(2, last_epoch=8)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE, "an epoch from nowhere"
        assert setting.leader.followers[2].log_end == -1


async def test_a_waiting_follower_is_answered_by_data_and_not_by_the_watermark() -> None:
    async with stage() as setting:
        setting.create()
        await setting.produce(b"one")
        two, three = await setting.follower(2), await setting.follower(3)
        waiting = asyncio.ensure_future(two.fetch(1, wait_ms=60_000))
        await asyncio.sleep(0.02)
        await three.fetch(1)
        assert setting.partition.log.high_watermark == 1
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await setting.produce(b"two")
        found = await asyncio.wait_for(waiting, 30)
        assert (values(found), found.high_watermark) == ([b"two"], 1)


async def test_a_follower_that_says_which_watermark_it_knows_hears_of_a_higher_one_at_once() -> None:
    async with stage() as setting:
        setting.create()
        await setting.produce(b"one")
        two, three = await setting.follower(2), await setting.follower(3)
        waiting = asyncio.ensure_future(two.fetch(1, wait_ms=60_000, high_watermark=0))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await three.fetch(1)
        found = await asyncio.wait_for(waiting, 30)
        assert (values(found), found.high_watermark) == ([], 1)
        # And in the first place, if it is late.
        found = await asyncio.wait_for(two.fetch(1, wait_ms=60_000, high_watermark=0), 30)
        assert found.high_watermark == 1


async def test_a_follower_waits_no_longer_than_it_asks_to() -> None:
    async with stage() as setting:
        setting.create()
        two = await setting.follower(2)
        found = await asyncio.wait_for(two.fetch(0, wait_ms=30), 30)
        assert (found.error_code, values(found)) == (0, [])


async def test_a_follower_that_waits_when_the_leadership_moves_is_told() -> None:
    async with stage() as setting:
        setting.create()
        two = await setting.follower(2)
        waiting = asyncio.ensure_future(two.fetch(0, wait_ms=60_000))
        await asyncio.sleep(0.02)
        setting.change(leader=3)
        found = await asyncio.wait_for(waiting, 30)
        assert found.error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_a_follower_in_a_session_tells_its_position_by_saying_nothing() -> None:
    async with stage() as setting:
        setting.create()
        await setting.produce(b"one")
        two, three = await setting.follower(2), await setting.follower(3)
        first = await two.ask(wanted(0), session=(0, 0))
        session = first.session_id
        assert session
        second = await two.ask(wanted(1), session=(session, 1))
        assert second.responses == []
        await three.fetch(1)
        third = await two.ask(session=(session, 2))
        assert third.responses[0].partitions[0].high_watermark == 1
        fourth = await two.ask(session=(session, 3))
        assert fourth.responses == []
        setting.clock.ahead_s += 40
        await two.ask(session=(session, 4))
        assert setting.leader.followers[2].caught_up_ms > 40_000


async def test_a_session_is_told_where_logs_part_until_it_has_cut() -> None:
    """Neither the high watermark nor the log start moves, and yet the partition is named each time."""
    async with stage() as setting:
        setting.create(isr=(1, 2))
        await setting.produce(b"one", b"two")
        setting.change(leader=1)
        two = await setting.follower(2)
        answer = await two.ask(wanted(4, leader_epoch=6, last_epoch=5), session=(0, 0))
        session = answer.session_id
        for epoch in (1, 2):
            answer = await two.ask(session=(session, epoch))
            (told,) = answer.responses[0].partitions
            assert (told.diverging_epoch.epoch, told.diverging_epoch.end_offset) == (5, 2)
        answer = await two.ask(wanted(2, leader_epoch=6, last_epoch=5), session=(session, 3))
        (told,) = answer.responses[0].partitions
        assert (told.diverging_epoch.epoch, told.high_watermark) == (-1, 2)


async def test_a_session_is_told_whom_else_to_ask_each_time() -> None:
    async with stage() as setting:
        setting.create()
        setting.services.replica_selector = RackAwareSelector()
        await setting.produce(b"one")
        await (await setting.follower(2)).fetch(1)

        async def ask(*topics: FetchTopic, session: tuple[int, int]) -> FetchResponse:
            request = FetchRequest(
                max_bytes=1 << 20,
                session_id=session[0],
                session_epoch=session[1],
                topics=list(topics),
                rack_id="east",
            )
            return await (await setting.connect()).ask(request, FetchResponse, 17)

        answer = await ask(wanted(0, leader_epoch=-1), session=(0, 0))
        for epoch in (1, 2):
            answer = await ask(session=(answer.session_id, epoch))
            assert [told.preferred_read_replica for told in answer.responses[0].partitions] == [2]


async def test_a_second_request_of_a_session_has_the_first_answered_as_it_stands() -> None:
    """Answers leave in order, and the follower wants something else by now: it must not wait behind its own poll."""
    async with stage() as setting:
        setting.create(isr=(1, 2), replicas=(1, 2))
        await setting.produce(b"one")
        two, again = await setting.follower(2), await setting.follower(2)
        session = (await two.ask(wanted(0), session=(0, 0))).session_id
        waiting = asyncio.ensure_future(two.ask(wanted(1), session=(session, 1), wait_ms=60_000))
        await asyncio.sleep(0.02)
        second = await again.ask(wanted(0), session=(session, 2))
        assert values(second.responses[0].partitions[0]) == [b"one"]
        first = await asyncio.wait_for(waiting, 30)
        assert [values(told) for topic in first.responses for told in topic.partitions] == [[]]


async def test_two_requests_of_one_consumer_session_at_once_each_get_what_they_asked_for() -> None:
    async with stage() as setting:
        setting.create(isr=(1,), replicas=(1,))
        await setting.produce(b"one")

        async def ask(offset: int, session: tuple[int, int], wait_ms: int = 0) -> FetchResponse:
            request = FetchRequest(
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=1 << 20,
                session_id=session[0],
                session_epoch=session[1],
                topics=[wanted(offset)],
            )
            return await (await setting.connect()).ask(request, FetchResponse, 17)

        session = (await ask(0, (0, 0))).session_id
        waiting = asyncio.ensure_future(ask(1, (session, 1), 5_000))
        await asyncio.sleep(0.02)
        second = await ask(0, (session, 2))
        assert values(second.responses[0].partitions[0]) == [b"one"]
        await setting.produce(b"two")
        first = await asyncio.wait_for(waiting, 30)
        assert values(first.responses[0].partitions[0]) == [b"two"]


async def test_a_session_is_for_whoever_opened_it() -> None:
    async with stage() as setting:
        setting.create()
        two, three = await setting.follower(2), await setting.follower(3)
        session = (await two.ask(wanted(0), session=(0, 0))).session_id
        assert (await three.ask(session=(session, 1))).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert (await two.ask(session=(session, 1))).error_code == 0


async def test_a_request_looks_only_at_what_has_moved() -> None:
    """Fifty quiet partitions and a busy one: all fifty-one are known to be copied, and one is looked at."""
    async with stage() as setting:
        partitions = [making.partition(77, index, replicas=(1, 2)) for index in range(51)]
        setting.publish(making.topic(TOPIC, 77), *partitions)
        two = await setting.follower(2)
        topic = wanted(0, leader_epoch=0)
        topic.partitions = [
            FetchPartition(partition=index, current_leader_epoch=0, partition_max_bytes=1 << 20) for index in range(51)
        ]
        session = (await two.ask(topic, session=(0, 0))).session_id
        looked = setting.partition.meters.fetches.value
        for epoch in range(1, 6):
            await setting.produce(b"%d" % epoch)
            answer = await two.ask(session=(session, epoch))
            assert [partition.partition_index for partition in answer.responses[0].partitions] == [0]
        assert setting.partition.meters.fetches.value - looked == 5
        setting.clock.ahead_s += 100
        await two.ask(session=(session, 6))
        setting.services.replicas.on_tick()
        quiet, busy = setting.services.replicas.partition(TOPIC, 50), setting.partition
        assert quiet is not None
        assert quiet.leader is not None
        assert quiet.leader.pending is None
        assert busy.leader is not None
        assert busy.leader.pending is not None
        # It has something to copy only now, and was caught up until a moment ago, whatever it has said of itself.
        setting.clock.ahead_s += 20
        setting.services.replicas.produce(quiet, memoryview(bytearray(batch(b"news"))), 1, 12)
        setting.services.replicas.wake_fetches()
        await two.ask(session=(session, 7))
        setting.services.replicas.on_tick()
        assert quiet.leader.pending is None


async def test_a_partition_that_a_session_let_go_of_is_not_copied_any_more() -> None:
    async with stage() as setting:
        setting.create(replicas=(1, 2), isr=(1, 2))
        two = await setting.follower(2)
        session = (await two.ask(wanted(0), session=(0, 0))).session_id
        await two.ask(session=(session, 1), forgotten=True)
        assert setting.partition.replica_readers == {}
        await setting.produce(b"one")
        setting.clock.ahead_s += 31
        other = await setting.follower(2)
        await other.ask(session=(0, 0))
        setting.services.replicas.on_tick()
        assert setting.leader.pending is not None


async def test_a_session_that_ends_is_forgotten_by_its_partitions() -> None:
    async with stage() as setting:
        setting.create()
        two = await setting.follower(2)
        session = (await two.ask(wanted(0), session=(0, 0))).session_id
        assert len(setting.partition.replica_readers) == 1
        await two.ask(wanted(0), session=(session, -1))
        assert setting.partition.replica_readers == {}
        assert (await asyncio.wait_for(two.fetch(0, wait_ms=20), 30)).error_code == 0
        assert setting.partition.replica_readers == {}


async def test_offsets_that_a_new_leader_does_not_know_yet() -> None:
    """Epoch 6 began at 2, and what the last leader had committed is known up to 1 only."""
    async with stage() as setting:
        setting.create(isr=(1, 2), replicas=(1, 2))
        await setting.produce(b"one")
        two = await setting.follower(2)
        await two.fetch(1)
        await setting.produce(b"two")
        setting.change(leader=1)
        assert (await list_offset(setting, -1)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert (await list_offset(setting, 1_800_000_000_001)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert (await list_offset(setting, -2)).offset == 0
        assert (await list_offset(setting, -1, replica_id=2)).offset == 2, "a replica asks for the end of the log"
        await two.fetch(2, leader_epoch=6)
        latest = await list_offset(setting, -1)
        assert (latest.error_code, latest.offset, latest.leader_epoch) == (0, 2, 6)


async def test_an_old_leader_names_the_new_one_and_its_address() -> None:
    async with stage() as setting:
        setting.create()
        setting.change(leader=3)
        two = await setting.follower(2)
        response = await two.ask(wanted(0, leader_epoch=6))
        told = response.responses[0].partitions[0]
        assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == (3, 6)
        assert [(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints] == [
            (3, "host3", 9092, "west")
        ]
        response = await two.ask(wanted(0, leader_epoch=6), version=15)
        assert response.responses[0].partitions[0].current_leader.leader_id == 3
        assert response.node_endpoints == []
