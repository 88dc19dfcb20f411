"""ListGroups (key 16): the groups whose coordinator this node is."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.coordinator.offsets.listing import list_groups
from ottla.errors import KafkaError
from ottla.metadata.acls import Operation
from ottla.wire.messages.list_groups_request import ListGroupsRequest
from ottla.wire.messages.list_groups_response import ListGroupsResponse


def handle(context: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    try:
        found = context.services.groups.read_all(
            lambda shard, _: list_groups(shard, request.states_filter, request.types_filter)
        )
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code)
    client = context.silently
    sees_all = client.may_cluster(Operation.DESCRIBE)
    return ListGroupsResponse(
        groups=[
            group
            for groups in found
            for group in groups
            if sees_all or client.may_group(Operation.DESCRIBE, group.group_id)
        ]
    )
