"""The groups of a shard, as ListGroups and DescribeGroups tell of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol, cast

from ottla.coordinator.groups import GroupDirectory, GroupKind
from ottla.errors import ErrorCode
from ottla.wire.messages.describe_groups_response import DescribedGroup
from ottla.wire.messages.list_groups_response import ListedGroup

DEAD = "Dead"
FIRST_VERSION_WITH_NOT_FOUND = 6
"""Older clients of DescribeGroups take a group that does not exist for a dead one (KIP-1043)."""


class Describable(Protocol):
    """What every group of the classic kind is besides."""

    def described(self) -> DescribedGroup: ...


def list_groups(groups: GroupDirectory, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
    """Those in one of the states and of one of the types, by their names in any case; no name stands for all."""
    wanted_states = {state.strip().lower() for state in states}
    wanted_types = {name.lower() for name in types}
    return [
        group.listed()
        for group in groups.groups()
        if (not wanted_types or group.kind.value in wanted_types)
        and (not wanted_states or group.state_name().lower() in wanted_states)
    ]


def describe_groups(groups: GroupDirectory, group_ids: Iterable[str], api_version: int) -> list[DescribedGroup]:
    """Classic groups. Others have a request of their own."""
    described = []
    for group_id in group_ids:
        group = groups.group(group_id)
        if group is not None and group.kind is GroupKind.CLASSIC:
            described.append(cast("Describable", group).described())
            continue
        answer = DescribedGroup(group_id=group_id, group_state=DEAD)
        if api_version >= FIRST_VERSION_WITH_NOT_FOUND:
            answer.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            answer.error_message = (
                f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
            )
        described.append(answer)
    return described
