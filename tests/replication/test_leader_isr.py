"""Who is in sync: asked of the controller, counted in the meantime, and what producers and consumers get of it."""

from __future__ import annotations

import asyncio

import pytest

from ottla.broker.replica_manager import NoFetchers
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.images import RESOURCE_BROKER, RESOURCE_TOPIC
from ottla.partition import LiveBroker
from ottla.runtime import DiskError
from ottla.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.delete_records_response import DeleteRecordsPartitionResult, DeleteRecordsResponse
from ottla.wire.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.messages.describe_topic_partitions_response import DescribeTopicPartitionsResponse
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse
from ottla.wire.messages.partition_change_record import PartitionChangeRecord
from tests.metadata import making
from tests.replication.leader_stage import BROKER_EPOCHS, TOPIC, TOPIC_ID, Stage, stage, values, wanted
from tests.seams.test_node_in_memory import batch


def isr(setting: Stage) -> list[int]:
    return sorted(setting.leader.isr)


async def test_a_follower_that_caught_up_is_proposed_with_the_epoch_it_fetched_with() -> None:
    async with stage() as setting:
        setting.create(isr=(1,))
        await setting.produce(b"one")
        two = await setting.follower(2)
        await two.fetch(0)
        assert setting.controller.asked == []
        await two.fetch(1)
        await setting.settle(lambda: isr(setting) == [1, 2])
        request = setting.controller.requests[0]
        assert (request.broker_id, request.broker_epoch) == (1, setting.services.control.broker_epoch)
        assert request.topics[0].topic_id == TOPIC_ID
        (asked,) = setting.controller.asked
        assert (asked.leader_epoch, asked.partition_epoch, asked.leader_recovery_state) == (5, 10, 0)
        own_epoch = setting.services.control.broker_epoch
        assert [(member.broker_id, member.broker_epoch) for member in asked.new_isr_with_epochs] == [
            (1, own_epoch),
            (2, BROKER_EPOCHS[2]),
        ]
        assert setting.leader.partition_epoch == 11


async def test_proposals_of_a_turn_go_together() -> None:
    async with stage() as setting:
        setting.publish(making.topic(TOPIC, 77), *(making.partition(77, index, replicas=(1, 2)) for index in range(20)))
        setting.clock.ahead_s += 31
        replicas = setting.services.replicas
        for partition in replicas.partitions():
            replicas.produce(partition, memoryview(bytearray(batch(b"one"))), 1, 12)
        replicas.on_tick()
        await setting.settle(lambda: all(p.leader and p.leader.isr == {1} for p in replicas.partitions()))
        (request,) = setting.controller.requests
        assert [asked.partition_index for asked in request.topics[0].partitions] == list(range(20))


async def test_one_request_is_on_its_way_at_a_time() -> None:
    async with stage() as setting:
        setting.create(isr=(1,))
        setting.controller.hold = asyncio.Event()
        two, three = await setting.follower(2), await setting.follower(3)
        await two.fetch(0)
        await three.fetch(0)
        await setting.settle(lambda: len(setting.controller.requests) == 1)
        await asyncio.sleep(0.02)
        assert len(setting.controller.requests) == 1, "2 is on its way, and 3 has to wait"
        setting.controller.hold.set()
        # 3 has nothing to fetch and so nothing to say, and still joins when its turn has come.
        await setting.settle(lambda: isr(setting) == [1, 2, 3])
        assert [asked.partition_epoch for asked in setting.controller.asked] == [10, 11]


async def test_who_is_about_to_join_counts_before_the_controller_has_answered() -> None:
    async with stage() as setting:
        setting.create(isr=(1,))
        setting.controller.hold = asyncio.Event()
        two = await setting.follower(2)
        await two.fetch(0)
        waiting = asyncio.ensure_future(setting.produce(b"one", acks=-1))
        await asyncio.sleep(0.05)
        assert not waiting.done(), "the controller may have put 2 into the ISR already, and 2 has not got it"
        await two.fetch(1)
        assert (await waiting).error_code == 0
        setting.controller.hold.set()


async def test_a_controller_that_cannot_answer_is_asked_until_it_does() -> None:
    async with stage() as setting:
        setting.create(isr=(1,))
        setting.controller.answers = [
            KafkaError(ErrorCode.NOT_CONTROLLER),
            KafkaError(ErrorCode.REQUEST_TIMED_OUT),
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ]
        await (await setting.follower(2)).fetch(0)
        await setting.settle(lambda: isr(setting) == [1, 2])
        assert [asked.partition_epoch for asked in setting.controller.asked] == [10] * 4


async def test_a_quiet_follower_joins_when_it_may_though_it_has_nothing_new_to_say() -> None:
    """It restarted, and fetched before the metadata told the leader of its new incarnation; then the controller is not
    ready for it either. Its requests go on, and name no partition any more."""
    async with stage() as setting:
        setting.create(isr=(1,))
        two = await setting.follower(2)
        two.broker_epoch += 1
        session = (await two.ask(wanted(0), session=(0, 0))).session_id
        await two.ask(session=(session, 1))
        assert setting.controller.requests == []
        setting.publish(making.broker(2, two.broker_epoch, fenced=False))
        setting.controller.answers = [ErrorCode.INELIGIBLE_REPLICA]
        await two.ask(session=(session, 2))
        await setting.settle(lambda: len(setting.controller.requests) == 1 and setting.leader.pending is None)
        assert isr(setting) == [1]
        await two.ask(session=(session, 3))
        await setting.settle(lambda: isr(setting) == [1, 2])


async def test_only_the_metadata_brings_another_in_sync_set() -> None:
    """The answer does not say that the minimum in sync was raised before it: who believed it would commit alone."""
    async with stage() as setting:
        setting.create(replicas=(1, 2), isr=(1, 2))
        setting.controller.silent = True
        await (await setting.follower(2)).fetch(0)
        await setting.produce(b"one")
        setting.clock.ahead_s += 31
        setting.services.replicas.on_tick()
        await setting.settle(lambda: len(setting.controller.requests) == 1)
        await asyncio.sleep(0.05)
        assert (isr(setting), setting.partition.log.high_watermark) == ([1, 2], 0)
        assert setting.leader.pending is not None
        setting.publish(making.config(RESOURCE_TOPIC, TOPIC, "min.insync.replicas", "2"))
        setting.change(isr=[1])
        assert isr(setting) == [1]
        assert setting.partition.log.high_watermark == 0


@pytest.mark.parametrize("resource", [(RESOURCE_TOPIC, TOPIC), (RESOURCE_BROKER, "")])
async def test_a_lower_minimum_finds_the_in_sync_set_that_came_before_it(resource: tuple[int, str]) -> None:
    """The set shrinks, and then the minimum is lowered; the leader hears of both at once. The old set under the new
    minimum would be enough to commit, but the two were never in force together."""
    async with stage() as setting:
        setting.publish(making.config(*resource, "min.insync.replicas", "3"))
        setting.create(isr=(1, 2))
        await setting.produce(b"one")
        await (await setting.follower(2)).fetch(1)
        assert setting.partition.log.high_watermark == 0, "two of three are not enough"
        setting.publish(
            making.latest(PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, isr=[1])),
            making.config(*resource, "min.insync.replicas", "2"),
        )
        assert (isr(setting), setting.leader.min_isr) == ([1], 2)
        assert setting.partition.log.high_watermark == 0, "neither is one of two"


async def test_what_the_metadata_has_overtaken_is_not_asked_again() -> None:
    async with stage() as setting:
        setting.create(isr=(1,))
        setting.controller.answers = [KafkaError(ErrorCode.REQUEST_TIMED_OUT)] * 3
        await (await setting.follower(2)).fetch(0)
        await setting.settle(lambda: len(setting.controller.requests) == 1)
        setting.change(isr=[1, 3])
        await asyncio.sleep(0.15)
        assert len(setting.controller.requests) == 1
        assert isr(setting) == [1, 3]


async def test_a_refusal_by_a_controller_that_knows_better_waits_for_the_metadata() -> None:
    async with stage() as setting:
        setting.create(isr=(1,))
        setting.controller.answers = [ErrorCode.INVALID_UPDATE_VERSION]
        two = await setting.follower(2)
        await two.fetch(0)
        await setting.settle(lambda: len(setting.controller.requests) == 1)
        await asyncio.sleep(0.1)
        assert sorted(setting.leader.maximal_isr) == [1, 2]
        assert len(setting.controller.requests) == 1
        setting.change(isr=[1, 2])
        assert (isr(setting), setting.leader.pending) == ([1, 2], None)


async def test_a_follower_that_stays_behind_leaves_and_commits_go_on() -> None:
    async with stage() as setting:
        setting.create()
        two, three = await setting.follower(2), await setting.follower(3)
        await three.fetch(0)
        waiting = asyncio.ensure_future(setting.produce(b"one", acks=-1))
        await setting.settle(lambda: setting.partition.log.log_end_offset == 1)
        setting.clock.ahead_s += 31
        await two.fetch(1)
        setting.services.replicas.on_tick()
        await setting.settle(lambda: isr(setting) == [1, 2])
        assert (await waiting).error_code == 0
        # It catches up, and returns.
        await three.fetch(0)
        await three.fetch(1)
        await setting.settle(lambda: isr(setting) == [1, 2, 3])
        page = setting.services.metrics.page()
        assert "kafka_server_replicamanager_isrshrinks_total 1\n" in page
        assert "kafka_server_replicamanager_isrexpands_total 1\n" in page


async def test_below_the_minimum_acks_all_is_refused_and_nothing_becomes_visible() -> None:
    async with stage() as setting:
        setting.create(isr=(1,), min_insync_replicas="2")
        refused = await setting.produce(b"no", acks=-1)
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert setting.partition.log.log_end_offset == 0
        assert (await setting.produce(b"yes", acks=1)).error_code == 0
        assert values(await setting.consume()) == []
        two = await setting.follower(2)
        await two.fetch(1)
        await setting.settle(lambda: isr(setting) == [1, 2])
        assert values(await setting.consume()) == [b"yes"]


async def test_an_isr_that_shrinks_below_the_minimum_after_the_append_leaves_the_outcome_open() -> None:
    async with stage() as setting:
        setting.create(isr=(1, 2), replicas=(1, 2), min_insync_replicas="2")
        waiting = asyncio.ensure_future(setting.produce(b"one", acks=-1, timeout_ms=100))
        await setting.settle(lambda: setting.partition.log.log_end_offset == 1)
        setting.change(isr=[1])
        assert (await waiting).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert setting.partition.log.log_end_offset == 1, "the record stays"
        assert setting.partition.log.high_watermark == 0


async def test_who_waits_when_the_leadership_goes_is_told_that_it_went() -> None:
    async with stage() as setting:
        setting.create()
        waiting = asyncio.ensure_future(setting.produce(b"one", acks=-1))
        await setting.settle(lambda: setting.partition.log.log_end_offset == 1)
        setting.change(leader=2)
        assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await setting.produce(b"two", acks=1)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert setting.partition.leader is None


async def test_a_fenced_follower_holds_nothing_back_once_it_is_out() -> None:
    async with stage() as setting:
        setting.create(isr=(1,), replicas=(1, 2))
        two = await setting.follower(2)
        setting.controller.answers = [ErrorCode.INELIGIBLE_REPLICA] * 9
        await two.fetch(0)
        await setting.produce(b"one")
        assert setting.partition.log.high_watermark == 0, "2 is caught up, and waited for"
        setting.publish(making.broker_change(2, BROKER_EPOCHS[2], fenced=1))
        assert setting.leader.brokers == {
            1: LiveBroker(setting.services.control.broker_epoch),
            3: LiveBroker(BROKER_EPOCHS[3]),
        }
        assert setting.partition.log.high_watermark == 1


async def test_a_log_that_goes_offline_by_itself_takes_its_partition_along() -> None:
    """Retention met a disk error: nobody was writing to the partition, and yet everybody is told."""
    async with stage() as setting:
        setting.create()
        waiting = asyncio.ensure_future(setting.produce(b"one", acks=-1))
        two = await setting.follower(2)
        polling = asyncio.ensure_future(two.fetch(1, wait_ms=60_000))
        await setting.settle(lambda: bool(setting.partition.replica_readers))
        partition = setting.partition
        partition.log.offline = True
        assert partition.offline
        error = DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "cannot rename")
        failures: list[object] = []
        setting.services.replicas.on_offline = lambda failed, reason: failures.append(failed)
        setting.services.replicas.fail_offline(error)
        setting.services.replicas.fail_offline(error)
        assert failures == [partition]
        assert partition.leader is None
        assert (await waiting).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await polling).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await setting.produce(b"two", acks=1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_roles_follow_the_metadata() -> None:
    calls: list[tuple[object, ...]] = []

    class Fetchers(NoFetchers):
        def follow(self, partition: object, leader_id: int, leader_epoch: int) -> None:
            calls.append(("follow", leader_id, leader_epoch))

        def unfollow(self, partition: object) -> None:
            calls.append(("unfollow",))

    async with stage() as setting:
        setting.services.fetchers = Fetchers()
        setting.create(leader=2)
        assert (setting.partition.leader, setting.partition.following) == (None, (2, 5))
        setting.change(isr=[2, 3])
        assert calls == [("follow", 2, 5)], "an ISR is no news to a follower"
        setting.change(leader=3)
        setting.change(leader=-1)
        assert calls[1:] == [("follow", 3, 6), ("unfollow",)]
        setting.change(leader=1, isr=[1])
        assert setting.leader.leader_epoch == 8
        assert setting.partition.following is None
        setting.change(leader=2)
        setting.publish(making.removed(77))
        assert calls[3:] == [("follow", 2, 9), ("unfollow",)]


async def delete_records(setting: Stage, offset: int, timeout_ms: int = 5_000) -> DeleteRecordsPartitionResult:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        timeout_ms=timeout_ms, topics=[DeleteRecordsTopic(name=TOPIC, partitions=[partition])]
    )
    response = await (await setting.connect()).ask(request, DeleteRecordsResponse, 2)
    return response.topics[0].partitions[0]


async def test_records_are_deleted_when_every_live_replica_has_given_them_up() -> None:
    async with stage() as setting:
        setting.create()
        await setting.produce(b"one", b"two", b"three")
        two, three = await setting.follower(2), await setting.follower(3)
        await two.fetch(3)
        await three.fetch(3)
        waiting = asyncio.ensure_future(delete_records(setting, 2))
        await setting.settle(lambda: setting.partition.log.log_start_offset == 2)
        await two.fetch(3, log_start=2)
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await three.fetch(3, log_start=2)
        result = await waiting
        assert (result.error_code, result.low_watermark) == (0, 2)
        assert setting.partition.delete_waiters == {}


async def test_a_replica_that_is_down_does_not_keep_records_from_being_deleted() -> None:
    async with stage() as setting:
        setting.create(replicas=(1, 2), isr=(1,))
        await setting.produce(b"one", b"two")
        waiting = asyncio.ensure_future(delete_records(setting, 1))
        await setting.settle(lambda: setting.partition.log.log_start_offset == 1)
        setting.publish(making.broker_change(2, BROKER_EPOCHS[2], fenced=1))
        assert (await waiting).low_watermark == 1


async def test_a_deletion_that_a_follower_does_not_follow_times_out() -> None:
    async with stage() as setting:
        setting.create(replicas=(1, 2), isr=(1,))
        await setting.produce(b"one", b"two")
        result = await delete_records(setting, 1, timeout_ms=50)
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
        waiting = asyncio.ensure_future(delete_records(setting, 1))
        await setting.settle(lambda: bool(setting.partition.delete_waiters))
        setting.change(leader=2)
        assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_follower_out_of_sync_may_be_throttled_and_one_in_sync_never() -> None:
    async with stage() as setting:
        setting.create(isr=(1, 3), leader_replication_throttled_replicas="0:1")
        setting.publish(making.config(RESOURCE_BROKER, "1", "leader.replication.throttled.rate", "10"))
        throttle = setting.services.leader_throttle
        await setting.produce(b"one")
        two, three = await setting.follower(2), await setting.follower(3)
        await three.fetch(1)
        assert values(await two.fetch(0)) == [b"one"], "nothing has passed yet"
        assert throttle.is_exceeded(setting.services.replicas.monotonic_ms())
        found = await two.fetch(0)
        assert (found.error_code, values(found)) == (0, [])
        assert values(await three.fetch(0)) == [b"one"]
        setting.publish(making.config(RESOURCE_BROKER, "1", "leader.replication.throttled.rate", "1000000"))
        assert values(await two.fetch(0)) == [b"one"]
        setting.publish(making.config(RESOURCE_BROKER, "1", "leader.replication.throttled.rate", "10"))
        setting.publish(making.config(RESOURCE_TOPIC, TOPIC, "leader.replication.throttled.replicas", "0:2"))
        assert values(await two.fetch(0)) == [b"one"], "that is about another broker's copies"


async def test_a_consumer_is_sent_to_the_follower_in_its_rack() -> None:
    from ottla.broker.fetching.replica_selector import RackAwareSelector

    async with stage() as setting:
        setting.create()
        setting.services.replica_selector = RackAwareSelector()
        await setting.produce(b"one")
        two, three = await setting.follower(2), await setting.follower(3)
        assert (await setting.consume(0, rack="east")).preferred_read_replica == -1, "2 has not got offset 0 yet"
        await two.fetch(1)
        await three.fetch(1)
        sent = await asyncio.wait_for(setting.consume(0, rack="east", wait_ms=60_000), 30)
        assert (sent.preferred_read_replica, values(sent), sent.high_watermark) == (2, [], 1)
        assert (await setting.consume(0, rack="west")).preferred_read_replica == 3
        for rack in ("", "north"):
            stays = await setting.consume(0, rack=rack)
            assert (stays.preferred_read_replica, values(stays)) == (-1, [b"one"])
        setting.change(isr=[1, 3])
        assert (await setting.consume(0, rack="east")).preferred_read_replica == -1


async def test_a_follower_serves_consumers_up_to_its_own_high_watermark() -> None:
    async with stage() as setting:
        setting.create(isr=(1, 2), replicas=(1, 2))
        await setting.produce(b"one", b"two")
        setting.change(leader=2)
        log = setting.partition.log
        assert values(await setting.consume(0, version=17)) == []
        waiting = asyncio.ensure_future(setting.consume(0, wait_ms=60_000))
        await asyncio.sleep(0.02)
        log.update_high_watermark(2)
        setting.services.replicas.on_follower_advanced(setting.partition)
        found = await asyncio.wait_for(waiting, 30)
        assert values(found) == [b"one", b"two"]
        assert (await setting.consume(3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await setting.consume(0, version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        follower = await setting.follower(2)
        response = await follower.ask(wanted(0, leader_epoch=6))
        assert response.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_hundreds_of_logs_are_made_a_few_at_a_time_and_end_as_the_newest_metadata_says() -> None:
    async with stage() as setting:
        replicas = setting.services.replicas
        records = [making.partition(5, index, replicas=(1, 2)) for index in range(300)]
        setting.publish(making.topic("wide", 5), *records)
        assert replicas.partition("wide", 299) is None
        # Before they are all made one changes its leader, and the topic grows.
        setting.publish(making.change(5, 299, leader=2), making.partition(5, 300))
        await setting.settle(lambda: replicas.partition("wide", 300) is not None)
        hosted = [replicas.partition("wide", index) for index in range(301)]
        assert [partition is not None and partition.leader is not None for partition in hosted] == [
            index != 299 for index in range(301)
        ]
        moved = hosted[299]
        assert moved is not None
        assert moved.following == (2, 1)


async def test_a_topic_that_is_deleted_before_its_logs_are_made_leaves_none() -> None:
    async with stage() as setting:
        records = [making.partition(5, index, replicas=(1,)) for index in range(300)]
        setting.publish(making.topic("wide", 5), *records)
        setting.publish(making.removed(5))
        await asyncio.sleep(0.05)
        assert "wide" not in setting.services.replicas.by_name
        assert not any(where.topic == "wide" for where in setting.services.logs.logs)


async def test_the_metrics_page_says_who_is_behind() -> None:
    async with stage() as setting:
        setting.create(isr=(1, 2), min_insync_replicas="2")
        await setting.produce(b"one", b"two")
        two, three = await setting.follower(2), await setting.follower(3)
        await two.fetch(2)
        await three.fetch(0)
        assert setting.node._fetchers is not None
        setting.node._fetchers.bytes_in.value += 42
        page = setting.services.metrics.page()

        def shown(name: str, **labels: str) -> float:
            said = ",".join(f'{key}="{value}"' for key, value in labels.items())
            head = f"{name}{{{said}}} " if said else f"{name} "
            return next(float(line[len(head) :]) for line in page.splitlines() if line.startswith(head))

        where = {"topic": TOPIC, "partition": "0"}
        assert shown("kafka_cluster_partition_followerlag", **where, replica="2") == 0
        assert shown("kafka_cluster_partition_followerlag", **where, replica="3") == 2
        assert shown("kafka_cluster_partition_insyncreplicascount", **where) == 2
        assert shown("kafka_server_replicamanager_underreplicatedpartitions") == 1
        assert shown("kafka_server_replicamanager_atminisrpartitioncount") == 1
        assert shown("kafka_server_replicamanager_underminisrpartitioncount") == 0
        assert shown("kafka_server_brokertopicmetrics_replicationbytesout_total") > 0
        assert shown("kafka_server_brokertopicmetrics_replicationbytesin_total") == 42
        assert shown("kafka_server_brokertopicmetrics_bytesout_total", topic=TOPIC) == 0


async def test_clients_are_told_who_is_out_of_reach() -> None:
    async with stage() as setting:
        setting.create(isr=(1, 3))
        setting.publish(making.broker_change(2, BROKER_EPOCHS[2], fenced=1))
        client = await setting.connect()
        response = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), MetadataResponse, 12)
        told = response.topics[0].partitions[0]
        assert (told.error_code, told.leader_id, told.leader_epoch) == (0, 1, 5)
        assert (told.replica_nodes, told.isr_nodes, told.offline_replicas) == ([1, 2, 3], [1, 3], [2])
        assert [broker.node_id for broker in response.brokers] == [1, 3]
        old = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), MetadataResponse, 0)
        assert (old.topics[0].partitions[0].error_code, old.topics[0].partitions[0].replica_nodes) == (
            ErrorCode.REPLICA_NOT_AVAILABLE,
            [1, 3],
        )
        setting.change(leader=-1)
        response = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), MetadataResponse, 12)
        told = response.topics[0].partitions[0]
        assert (told.error_code, told.leader_id, told.leader_epoch) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, 6)
        described = await client.ask(
            DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)], response_partition_limit=10),
            DescribeTopicPartitionsResponse,
            0,
        )
        partition = described.topics[0].partitions[0]
        assert (partition.error_code, partition.leader_id, partition.offline_replicas) == (0, -1, [2])
