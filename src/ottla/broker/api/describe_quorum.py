"""DescribeQuorum (key 55): how far each voter and observer of the metadata log is. The leader of the quorum answers."""

from __future__ import annotations

from ottla.broker.api.raft_request import ask_leader
from ottla.broker.context import Context
from ottla.broker.control.quorum_description import describe_quorum
from ottla.model import ZERO_UUID
from ottla.wire.messages.describe_quorum_request import DescribeQuorumRequest
from ottla.wire.messages.describe_quorum_response import DescribeQuorumResponse


async def handle(context: Context, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    control = context.services.control
    if context.on_controller or control.is_active_controller:
        response = describe_quorum(request, control.quorum_status())
    else:
        response = await ask_leader(context, request, DescribeQuorumResponse)
    if context.api_version < 2:
        # Older versions cannot say which directory it is, or where (KIP-853).
        response.nodes = []
        for topic in response.topics:
            for partition in topic.partitions:
                for replica in (*partition.current_voters, *partition.observers):
                    replica.replica_directory_id = ZERO_UUID
    return response
