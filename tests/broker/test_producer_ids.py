"""What producers are told while the controller gives no ids: to come again, whatever its reason."""

from __future__ import annotations

import asyncio

import pytest

from ottla.broker.transactions.producer_ids import ProducerIds
from ottla.errors import ErrorCode, KafkaError
from ottla.sim.epochs import few_epochs
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from tests.seams.test_maintenance import Stage, stage, until

SETTINGS = {"transaction_state_log_num_partitions": "1", "transaction_state_log_replication_factor": "1"}


async def identify(it: Stage, transactional_id: str | None) -> tuple[ErrorCode, int, int]:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1_000)
    answer = await it.client.ask(request, InitProducerIdResponse, 4)
    return ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize(
    "reason",
    [
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
async def test_whatever_the_controller_says_producers_come_again(reason: ErrorCode) -> None:
    refusals: list[ErrorCode] = [reason]

    async def next_block() -> range:
        if refusals:
            raise KafkaError(refusals[0])
        return range(7000, 7002)

    async with stage(**SETTINGS) as it:
        services = it.node.services
        services.producer_ids = ProducerIds(next_block)
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=["x"])
        await it.client.ask(find, FindCoordinatorResponse, 4)
        await until(lambda: services.transactions.find("x") is not None)
        for transactional_id in ("x", None):
            assert await identify(it, transactional_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
        refusals.clear()
        assert await identify(it, "x") == (ErrorCode.NONE, 7000, 0)
        assert await identify(it, None) == (ErrorCode.NONE, 7001, 0)
        # Who has an id needs no other to go on.
        refusals.append(reason)
        assert await identify(it, "x") == (ErrorCode.NONE, 7000, 1)
        assert await identify(it, None) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)


async def test_who_has_an_id_does_not_wait_for_others_to_be_given() -> None:
    """Only the first use of a transactional id takes one, and an epoch that is the last (KIP-360)."""
    given, asked = asyncio.Event(), 0
    blocks = iter([range(7000, 7001), range(8000, 8010)])

    async def next_block() -> range:
        nonlocal asked
        asked += 1
        if asked > 1:
            await given.wait()
        return next(blocks)

    async with stage(**SETTINGS) as it:
        services = it.node.services
        services.producer_ids = ProducerIds(next_block)
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=["x"])
        await it.client.ask(find, FindCoordinatorResponse, 4)
        await until(lambda: services.transactions.find("x") is not None)
        with few_epochs(3):
            assert await identify(it, "x") == (ErrorCode.NONE, 7000, 0)
            assert not services.producer_ids.has_spare
            assert await identify(it, "x") == (ErrorCode.NONE, 7000, 1)
            assert await identify(it, "x") == (ErrorCode.NONE, 7000, 2)
            assert asked == 1
            exhausted = asyncio.ensure_future(identify(it, "x"))
            await until(lambda: asked == 2)
            assert not exhausted.done()
            given.set()
            assert await exhausted == (ErrorCode.NONE, 8000, 0)
