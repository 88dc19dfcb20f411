"""What requests cost on a whole node in memory: whoever only says that it is a broker pays like everybody."""

from __future__ import annotations

import inspect
from itertools import count

import pytest

from ottla.broker.api import HANDLERS, load
from ottla.broker.bounds.client_quotas import ClientQuotas
from ottla.errors import ErrorCode
from ottla.metadata.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from ottla.wire.messages.alter_client_quotas_request import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.wire.messages.alter_client_quotas_response import AlterClientQuotasResponse
from ottla.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from ottla.wire.messages.create_acls_response import CreateAclsResponse
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.wire.messages.write_txn_markers_response import WriteTxnMarkersResponse
from tests.seams.test_maintenance import Stage, stage, until

OPEN = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""Until there is an entry about a resource everybody may do everything to it."""

MARKERS = WriteTxnMarkersRequest(
    markers=[WritableTxnMarker(producer_id=7, topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])])]
)
REPLICA_FETCH = FetchRequest(
    replica_id=1,
    max_wait_ms=0,
    session_epoch=-1,
    topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])],
)


async def limit_to_next_to_nothing(it: Stage) -> None:
    entity = EntityData(entity_type="client-id", entity_name="test")
    entry = EntryData(entity=[entity], ops=[OpData(key="request_percentage", value=0.000001)])
    answer = await it.client.ask(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse, 1)
    assert answer.entries[0].error_code == 0
    await until(lambda: it.node.services.quotas is not None)


async def let_only_admin_act_for_the_cluster(it: Stage) -> None:
    entry = AclCreation(
        resource_type=ResourceType.CLUSTER,
        resource_name=CLUSTER_NAME,
        resource_pattern_type=PatternType.LITERAL,
        principal="User:admin",
        host="*",
        operation=Operation.CLUSTER_ACTION,
        permission_type=Permission.ALLOW,
    )
    answer = await it.client.ask(CreateAclsRequest(creations=[entry]), CreateAclsResponse, 3)
    assert answer.results[0].error_code == 0
    await until(lambda: len(it.node.services.image.acls) == 1)


async def test_brokers_pay_nothing_and_whoever_poses_as_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    moments = count()
    monkeypatch.setattr(ClientQuotas, "now_s", lambda quotas: next(moments) / 1000)  # Every request takes a while.
    monkeypatch.setattr(ClientQuotas, "mute", lambda quotas, connection, wait_ms: waits.append(wait_ms))

    async def ask(it: Stage) -> tuple[list[int], list[int]]:
        """The codes of the answers, and how long the client was to wait for each."""
        waits.clear()
        ended = await it.client.ask(MARKERS, WriteTxnMarkersResponse, 1)
        fetched = await it.client.ask(REPLICA_FETCH, FetchResponse, 12)
        codes = [ended.markers[0].topics[0].partitions[0].error_code, fetched.responses[0].partitions[0].error_code]
        return codes, list(waits)

    async with stage(**OPEN) as it:
        await it.create()
        await limit_to_next_to_nothing(it)
        codes, told = await ask(it)
        assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED not in codes
        assert told == [0, 0]
        await let_only_admin_act_for_the_cluster(it)
        codes, told = await ask(it)
        assert codes == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert min(told) > 0


def test_what_a_handler_does_by_itself_it_does_in_the_phase_that_is_charged_for() -> None:
    """A coroutine function would begin in a later turn of the loop. What is handed on is not this node's work."""
    later = {module for module in set(HANDLERS.values()) - {"produce", "fetch"} if is_coroutine_function(module)}
    assert later == {"forwarded"}


def is_coroutine_function(module: str) -> bool:
    return inspect.iscoroutinefunction(load(module))
