"""What a node remembers of commits does not outlive the shard that they went to."""

from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.model import GROUP_TOPIC
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from tests.seams.test_maintenance import stage, until

COMMIT = OffsetCommitRequest(
    group_id="g",
    topics=[
        OffsetCommitRequestTopic(
            name="t", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
        )
    ],
)


async def test_a_shard_is_let_go_with_its_leadership() -> None:
    async with stage(offsets_topic_num_partitions="1", offsets_topic_replication_factor="1") as it:
        await it.create()
        services = it.node.services
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        await it.client.ask(find, FindCoordinatorResponse, 4)
        await until(lambda: services.groups.find("g") is not None)
        for _ in range(2):
            answer = await it.client.ask(COMMIT, OffsetCommitResponse, 8)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        assert any(services.known_commits._by_version)
        partition = services.replicas.partition(GROUP_TOPIC, 0)
        assert partition is not None
        services.groups.on_resigned(partition)
        assert not any(services.known_commits._by_version)
