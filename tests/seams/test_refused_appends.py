"""A coordinator's partition takes no records for a while: what was tried meanwhile holds nobody up afterwards."""

from __future__ import annotations

import asyncio

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.wire.messages.delete_groups_response import DeleteGroupsResponse
from ottla.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from tests.seams.test_client_deaths import DELAY_MS, FOREVER, GROUP, Member, Steps, gone, is_alone, lives, run, within
from tests.seams.test_maintenance import Stage


def refuse(*arguments: object, **options: object) -> None:
    raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)


async def deleted(it: Stage) -> ErrorCode:
    answer = await it.client.ask(DeleteGroupsRequest(groups_names=[GROUP]), DeleteGroupsResponse, 2)
    return ErrorCode(answer.results[0].error_code)


def test_a_group_can_be_deleted_though_it_was_left_and_deleted_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last record has the member that left, who is not there to be waited for."""

    async def story(it: Stage) -> None:
        member = Member(await Steps.of(it, FOREVER))
        living = asyncio.ensure_future(lives(member))
        await within(DELAY_MS, lambda: is_alone(it, member))
        await gone(living)
        with monkeypatch.context() as outage:
            outage.setattr(it.node.services.replicas, "append_by_coordinator", refuse)
            leave = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=member.member_id)])
            left = await it.client.ask(leave, LeaveGroupResponse, 5)
            assert left.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await deleted(it) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await deleted(it) is ErrorCode.NONE

    run(story)
