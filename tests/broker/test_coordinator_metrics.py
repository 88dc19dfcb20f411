"""What a node tells of its groups and transactions, under the names that Kafka's users know."""

from __future__ import annotations

import re

from ottla.broker.coordinators.loading import LoadTimes
from ottla.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.offset_delete_response import OffsetDeleteResponse
from tests.coordinator.test_known_commits import SETTINGS, coordinate, join
from tests.seams.test_maintenance import Stage, stage, until

GROUPS = "kafka_server_group_coordinator_metrics_"
CLASSIC = "kafka_coordinator_group_groupmetadatamanager_"
TRANSACTIONS = "kafka_server_transaction_coordinator_metrics_"
LINE = re.compile(r"^(kafka_\w+(?:{[^}]*})?) (\S+)$", re.MULTILINE)


def shown(it: Stage) -> dict[str, float]:
    """The page as it is now, and not as it was a moment ago."""
    metrics = it.node.services.metrics
    metrics._pages.clear()
    return {name: float(value) for name, value in LINE.findall(metrics.page())}


async def commit(it: Stage, group: str, *partitions: int) -> None:
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=5) for index in partitions
                ],
            )
        ],
    )
    answer = await it.client.ask(request, OffsetCommitResponse, 8)
    assert {partition.error_code for partition in answer.topics[0].partitions} == {ErrorCode.NONE}


async def test_groups_by_state_and_protocol() -> None:
    async with stage(**SETTINGS) as it:
        await coordinate(it)
        await join(it)
        await commit(it, "simple", 0)
        request = ConsumerGroupHeartbeatRequest(
            group_id="new",
            member_id="m",
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        answer = await it.client.ask(request, ConsumerGroupHeartbeatResponse, 1)
        assert answer.error_code == ErrorCode.NONE
        page = shown(it)
        assert page[f"{CLASSIC}numgroups"] == 2
        assert page[f"{CLASSIC}numgroupsstable"] == 1
        assert page[f"{CLASSIC}numgroupsempty"] == 1
        for state in ("preparingrebalance", "completingrebalance", "dead"):
            assert page[f"{CLASSIC}numgroups{state}"] == 0
        assert page[f'{GROUPS}group_count{{protocol="classic"}}'] == 2
        assert page[f'{GROUPS}group_count{{protocol="consumer"}}'] == 1
        states = {state: page[f'{GROUPS}consumer_group_count{{state="{state}"}}'] for state in ("empty", "stable")}
        assert states == {"empty": 0, "stable": 1}
        assert page[f"{GROUPS}group_completed_rebalance_total"] == 1
        assert page[f"{GROUPS}consumer_group_rebalance_total"] == 1
        assert page[f'{GROUPS}num_partitions{{state="active"}}'] == 1


async def test_offsets_committed_and_deleted() -> None:
    async with stage(**SETTINGS) as it:
        await coordinate(it)
        for _ in range(3):
            await commit(it, "g", 0)
        await commit(it, "g", 0, 1)
        page = shown(it)
        assert page[f"{CLASSIC}numoffsets"] == 2
        assert page[f"{GROUPS}offset_commit_total"] == 5
        assert f"{GROUPS}offset_commit_rate" in page
        topic = OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        deleted = await it.client.ask(OffsetDeleteRequest(group_id="g", topics=[topic]), OffsetDeleteResponse, 0)
        assert deleted.error_code == ErrorCode.NONE
        page = shown(it)
        assert page[f"{CLASSIC}numoffsets"] == 1
        assert page[f"{GROUPS}offset_deletion_total"] == 1
        assert page[f"{GROUPS}offset_expiration_total"] == 0


async def test_transactional_ids_by_state() -> None:
    settings = {
        **SETTINGS,
        "transaction_state_log_num_partitions": "1",
        "transaction_state_log_replication_factor": "1",
        "transaction_state_log_min_isr": "1",
    }
    async with stage(**settings) as it:
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=["x"])
        await it.client.ask(find, FindCoordinatorResponse, 4)
        await until(lambda: it.node.services.transactions.find("x") is not None)
        request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1_000)

        async def initialised() -> bool:
            answer = await it.client.ask(request, InitProducerIdResponse, 4)
            return answer.error_code == ErrorCode.NONE

        while not await initialised():  # The first block of producer ids is on its way.
            pass
        page = shown(it)
        assert page[f'{TRANSACTIONS}transactional_id_count{{state="Empty"}}'] == 1
        assert page[f'{TRANSACTIONS}num_partitions{{state="active"}}'] == 1
        assert page[f"{TRANSACTIONS}partition_load_time_max"] == 0


class HandClock:
    now_s = 100.0

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic(self) -> float:
        return self.now_s


def test_how_long_partitions_took_to_load_is_told_for_a_while() -> None:
    clock = HandClock()
    times = LoadTimes(clock)
    assert (times.max_ms, times.average_ms) == (0, 0)
    times.add(1.0)
    clock.now_s += 20
    times.add(3.0)
    assert (times.max_ms, times.average_ms) == (3_000, 2_000)
    clock.now_s += 10.1
    assert (times.max_ms, times.average_ms) == (3_000, 3_000)
    clock.now_s += 30
    assert (times.max_ms, times.average_ms) == (0, 0)
