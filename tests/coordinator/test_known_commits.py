"""The short way of plain commits: it answers as the long way does, and what it remembers does not outlive its shard."""

from __future__ import annotations

import itertools

from ottla.coordinator.offsets.codec import decode_value
from ottla.coordinator.offsets.table import value_of
from ottla.errors import ErrorCode
from ottla.model import GROUP_TOPIC
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.wire.messages.sync_group_request import SyncGroupRequest
from ottla.wire.messages.sync_group_response import SyncGroupResponse
from tests.group_member import PROTOCOLS
from tests.seams.test_maintenance import Stage, stage, until

COMMIT = OffsetCommitRequest(
    group_id="g",
    topics=[
        OffsetCommitRequestTopic(
            name="t", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
        )
    ],
)


SETTINGS = {
    "offsets_topic_num_partitions": "1",
    "offsets_topic_replication_factor": "1",
    "group_initial_rebalance_delay_ms": "0",
}


async def coordinate(it: Stage) -> None:
    await it.create(partitions=2)
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    await it.client.ask(find, FindCoordinatorResponse, 4)
    await until(lambda: it.node.services.groups.find("g") is not None)


async def join(it: Stage) -> tuple[str, int]:
    """The one member of group `classic`, in its first generation."""
    joining = JoinGroupRequest(
        group_id="classic",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(*protocol) for protocol in PROTOCOLS],
    )
    joined = await it.client.ask(joining, JoinGroupResponse, 3)
    assert joined.error_code == ErrorCode.NONE
    syncing = SyncGroupRequest(
        group_id="classic", generation_id=joined.generation_id, member_id=joined.member_id, protocol_type="consumer"
    )
    assert (await it.client.ask(syncing, SyncGroupResponse, 4)).error_code == ErrorCode.NONE
    return joined.member_id, joined.generation_id


async def test_the_short_way_answers_as_the_long_way_does() -> None:
    async with stage(**SETTINGS) as it:
        await coordinate(it)
        member, generation = await join(it)
        shard = it.node.services.groups.find("g")
        assert shard is not None
        told: dict[bool, list[int]] = {True: [], False: []}
        cases = itertools.product(
            ("classic", "simple", "unknown"), ("", member, "stranger"), (-1, generation, generation + 1), (8, 9)
        )
        for (group, member_id, epoch, version), plain in itertools.product(cases, (True, False)):
            if group == "unknown":
                group = f"unknown-{member_id}-{epoch}-{version}-{plain}"
            partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
            if not plain:
                partitions.append(OffsetCommitRequestPartition(partition_index=1, committed_offset=5))
            request = OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=epoch,
                member_id=member_id,
                topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)],
            )
            answer = await it.client.ask(request, OffsetCommitResponse, version)
            told[plain] += {partition.error_code for partition in answer.topics[0].partitions}
        assert told[True] == told[False]
        assert {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION} <= set(told[True])
        # What both have written is the same, too.
        for group in ("classic", "simple"):
            partitions_kept = shard.shard.offsets.state.table.topics(group)["t"]
            plain_value, long_value = (decode_value(value_of(partitions_kept[index])) for index in (0, 1))
            stamp = plain_value.commit_timestamp_ms
            assert plain_value == long_value._replace(commit_timestamp_ms=stamp)


async def test_a_shard_is_let_go_with_its_leadership() -> None:
    async with stage(**SETTINGS) as it:
        await coordinate(it)
        services = it.node.services
        for _ in range(2):
            answer = await it.client.ask(COMMIT, OffsetCommitResponse, 8)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        assert any(services.known_commits._by_version)
        partition = services.replicas.partition(GROUP_TOPIC, 0)
        assert partition is not None
        services.groups.on_resigned(partition)
        assert not any(services.known_commits._by_version)
