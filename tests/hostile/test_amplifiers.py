"""Small questions with large answers, and sound requests that decode into very much: what each may cost is bounded.

For every array of every request there is one with as many elements as are allowed, and one with more. The measure is
the work of the event loop's thread, in rounds of a plain loop (`harness.Cost`), and the peak of the node's memory.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import pytest

from ottla.broker.api import HANDLERS
from ottla.broker.bounds.limits import AUTO_CREATED_MAX, DESCRIBED_CONFIGS_MAX, ELEMENTS_MAX, elements_max
from ottla.errors import ErrorCode
from ottla.metadata.acls import Operation, PatternType, Permission, ResourceType
from ottla.model import Uuid
from ottla.wire.apis import APIS
from ottla.wire.message import Message
from ottla.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from ottla.wire.messages.create_acls_response import CreateAclsResponse
from ottla.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_configs_response import DescribeConfigsResponse
from ottla.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.wire.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.describe_producers_response import DescribeProducersResponse
from ottla.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse
from ottla.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.schema import Field, fields_of
from tests.behaviour.client import eventually
from tests.group_member import GroupMember, find_coordinator

from .canary import produce
from .harness import VICTIM_TOPIC, Target, exchange, frame, watched

pytestmark = pytest.mark.slow

WORK_MAX = 7
"""Millions of rounds of a plain loop: twice what a request ought to take."""
PEAK_MB_MAX = 64
PIPELINED = 60

Path = tuple[str, ...]


def arrays(owner: type[Message], version: int, before: Path = ()) -> Iterator[Path]:
    """Every array of a message, those within others included."""
    for field in fields_of(owner):
        if field.is_array and version in field.versions and version not in field.tagged:
            yield (*before, field.name)
            if field.struct is not None:
                yield from arrays(field.struct, version, (*before, field.name))


def scalar(field: Field, number: int) -> object:
    """A value; names and numbers of things are all different."""
    if field.kind == "string":
        return f"t{number}" if "name" in field.name or field.name == "topic" else "x"
    if field.kind == "uuid":
        return number.to_bytes(16, "big")
    if field.kind in ("bytes", "records"):
        return b""
    if field.kind == "bool":
        return True  # Also `validate_only`, so that nothing changes.
    if field.name in ("partition", "partition_index", "index"):
        return number
    return 2 if field.name == "resource_type" else 1


def crowded(owner: type[Message], version: int, path: Path, count: int, number: int = 0) -> Message:
    """A message with `count` elements in the array at `path`, and one in each that holds it."""
    values: dict[str, object] = {}
    for field in fields_of(owner):
        if version not in field.versions or version in field.tagged:
            continue
        if not field.is_array:
            if field.struct is None:
                values[field.name] = scalar(field, number)
        elif path and path[0] == field.name:
            numbers = range(count if len(path) == 1 else 1)
            if field.struct is None:
                values[field.name] = [scalar(field, n) for n in numbers]
            else:
                values[field.name] = [crowded(field.struct, version, path[1:], count, n) for n in numbers]
    return owner(**values)


CROWDED = [(key, path) for key in sorted(HANDLERS) for path in arrays(APIS[key].request, APIS[key].last_version)]


def name_of(value: object) -> str:
    return APIS[value].name if isinstance(value, int) else ".".join(value) if isinstance(value, tuple) else str(value)


@pytest.mark.parametrize(("key", "path"), CROWDED, ids=name_of)
def test_as_many_elements_as_are_allowed_cost_little(target: Target, key: int, path: Path) -> None:
    version = APIS[key].last_version
    request = crowded(APIS[key].request, version, path, ELEMENTS_MAX - len(path))
    with target.costing() as cost:
        answer = target.outcome(frame(key, version, request.encode(version)), timeout_s=60)
    assert answer is not None
    assert cost[0].work < WORK_MAX
    assert cost[0].peak_mb < PEAK_MB_MAX


@pytest.mark.parametrize(
    ("key", "path"), [(key, path) for key, path in CROWDED if elements_max(key) > ELEMENTS_MAX], ids=name_of
)
def test_where_more_are_allowed_others_are_served_meanwhile(target: Target, key: int, path: Path) -> None:
    version = APIS[key].last_version
    request = crowded(APIS[key].request, version, path, elements_max(key) - len(path))
    data = frame(key, version, request.encode(version))
    target.mark()
    with target.costing() as cost:
        assert target.outcome(data, timeout_s=60) is not None
    figures = target.mark()
    print(f"{APIS[key].name} {'.'.join(path)}: {cost[0]}, canary {figures}")
    assert cost[0].work < (elements_max(key) / ELEMENTS_MAX) * WORK_MAX
    assert cost[0].peak_mb < 2 * PEAK_MB_MAX


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A node with an authorizer, on which nobody may do anything to the topics that `crowded` names."""
    authorizer = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    arguments = ("--set", authorizer, "--set", "allow.everyone.if.no.acl.found=true")
    denial = AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name="t",
        resource_pattern_type=PatternType.PREFIXED,
        principal="User:*",
        host="*",
        operation=Operation.ALL,
        permission_type=Permission.DENY,
    )
    with watched(tmp_path_factory.mktemp("guarded"), *arguments) as made:
        with made.client() as client:
            answer = client.call(CreateAclsRequest(creations=[denial]), CreateAclsResponse)
            assert answer.results[0].error_code == 0
        yield made


IN_SHORT = [(9, ("groups", "topics"))]
"""OffsetFetch looked at each topic once more for each that was forbidden."""
BY_NAME = {0: 12, 1: 12, 8: 9, 9: 9}
"""The last version in which topics have names, where they have ids now: so that there is something to forbid."""


@pytest.mark.parametrize(
    ("key", "path"),
    [*IN_SHORT, *(pytest.param(*each, marks=pytest.mark.long) for each in CROWDED if each not in IN_SHORT)],
    ids=name_of,
)
def test_so_many_that_are_forbidden_cost_little(guarded: Target, key: int, path: Path) -> None:
    version = BY_NAME.get(key, APIS[key].last_version)
    request = crowded(APIS[key].request, version, path, ELEMENTS_MAX - len(path))
    with guarded.costing() as cost:
        answer = guarded.outcome(frame(key, version, request.encode(version)), timeout_s=60)
    assert answer is not None
    assert cost[0].work < 2 * WORK_MAX, "twice what it may cost where nobody asks who may"
    assert cost[0].peak_mb < PEAK_MB_MAX


def test_more_elements_than_are_allowed_hang_up(target: Target) -> None:
    for key, path in CROWDED[::4]:
        version = APIS[key].last_version
        request = crowded(APIS[key].request, version, path, elements_max(key) + 1)
        with target.costing() as cost:
            assert target.outcome(frame(key, version, request.encode(version))) is None, (APIS[key].name, path)
        assert cost[0].work < WORK_MAX / 4
        assert cost[0].peak_mb < 16


def test_tagged_fields_are_elements(target: Target) -> None:
    tags = tuple((1000 + number, b"") for number in range(ELEMENTS_MAX + 1))
    for key in (1, 3, 18):
        version = APIS[key].last_version
        request = APIS[key].request()
        request.unknown_tagged_fields = tags
        assert target.outcome(frame(key, version, request.encode(version))) is None


def test_a_topic_is_described_once_however_often_it_is_asked_for(target: Target) -> None:
    asked = [MetadataRequestTopic(name=VICTIM_TOPIC) for _ in range(10_000)]
    with target.client() as client:
        answer = client.call(MetadataRequest(topics=asked), MetadataResponse)
    assert [topic.name for topic in answer.topics] == [VICTIM_TOPIC]


@pytest.mark.parametrize(
    "request_of_many",
    [
        DescribeGroupsRequest(groups=["g"] * 10_000),
        ConsumerGroupDescribeRequest(group_ids=["g"] * 10_000),
        DescribeTransactionsRequest(transactional_ids=["t"] * 10_000),
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None) for _ in range(10_000)]),
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_group_or_an_id_is_described_once_however_often_it_is_asked_for(
    target: Target, request_of_many: Message
) -> None:
    assert request_of_many.API_KEY is not None
    with target.client() as client:
        answer = client.call(request_of_many, APIS[request_of_many.API_KEY].response)
    (described,) = (value for name in answer.__slots__ if isinstance(value := getattr(answer, name), list) and value)
    assert len(described) == 1


def test_the_producers_of_a_partition_are_described_once_however_often_it_is_asked_for(target: Target) -> None:
    asked = [TopicRequest(name=VICTIM_TOPIC, partition_indexes=[number % 2]) for number in range(9_000)]
    with target.client() as client:
        answer = client.call(DescribeProducersRequest(topics=asked), DescribeProducersResponse)
    assert [[each.partition_index for each in topic.partitions] for topic in answer.topics] == [[0, 1]]


def test_one_request_creates_so_many_topics_and_no_more(target: Target) -> None:
    asked = [MetadataRequestTopic(name=f"auto-{number}") for number in range(AUTO_CREATED_MAX + 50)]
    with target.client() as client, target.costing() as cost:
        answer = client.call(MetadataRequest(topics=asked, allow_auto_topic_creation=True), MetadataResponse)
    codes = [topic.error_code for topic in answer.topics]
    assert codes.count(ErrorCode.NONE) == AUTO_CREATED_MAX
    assert codes.count(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) == 50
    assert cost[0].work < WORK_MAX


@pytest.mark.parametrize(("kind", "name"), [(2, VICTIM_TOPIC), (4, "1"), (32, "group"), (16, "metrics")])
def test_configs_are_described_up_to_a_limit(target: Target, kind: int, name: str) -> None:
    resources = [
        DescribeConfigsResource(
            resource_type=kind,
            resource_name=name if kind in (2, 4) else f"{name}-{number}",
            configuration_keys=None,
        )
        for number in range(ELEMENTS_MAX - 1)
    ]
    request = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
    with target.client() as client, target.costing() as cost:
        answer = client.call(request, DescribeConfigsResponse)
    described = sum(len(result.configs) for result in answer.results)
    assert described <= DESCRIBED_CONFIGS_MAX + 500
    assert answer.results[-1].error_code == ErrorCode.POLICY_VIOLATION
    assert cost[0].work < WORK_MAX
    assert cost[0].peak_mb < PEAK_MB_MAX


def test_a_partition_is_fetched_once_however_often_it_is_asked_for(target: Target) -> None:
    wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000) for _ in range(15_000)]
    request = FetchRequest(max_wait_ms=0, session_epoch=0, topics=[FetchTopic(topic=VICTIM_TOPIC, partitions=wanted)])
    with target.client() as client:
        answer = client.call(request, FetchResponse, 12)
    assert len(answer.responses[0].partitions) == 1


def test_what_a_consumer_says_inside_its_own_protocol_is_bounded_too(target: Target) -> None:
    """Millions of topics, or of partitions that it says it owns, in one JoinGroup."""
    topics = b"\0\0" + (4_000_000).to_bytes(4, "big") + bytes(8_000_000) + b"\xff" * 4
    owned = b"\0\1" + bytes(4) + b"\xff" * 4 + (1_300_000).to_bytes(4, "big") + bytes(7_800_000)
    with GroupMember(target.node.address, "many-topics") as member:
        await_group(member)
        with target.costing() as cost:
            assert member.join([("range", topics)]).generation_id == 1
        assert cost[0].work < WORK_MAX
        assert cost[0].peak_mb < PEAK_MB_MAX
        assert member.leave() is ErrorCode.NONE
    with GroupMember(target.node.address, "many-partitions") as member:
        modern = ConsumerGroupHeartbeatRequest(group_id=member.group, member_id="m", rebalance_timeout_ms=60_000)
        modern.subscribed_topic_names, modern.topic_partitions = [VICTIM_TOPIC], []
        await_group(member)
        assert member.call(modern, ConsumerGroupHeartbeatResponse).error_code == 0
        member.get_id()
        with target.costing() as cost:
            assert member.try_join([("range", owned)]).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert cost[0].work < WORK_MAX
        assert cost[0].peak_mb < PEAK_MB_MAX
        modern.member_epoch = -1
        assert member.call(modern, ConsumerGroupHeartbeatResponse).error_code == 0


def await_group(member: GroupMember) -> None:
    """Its coordinator answers."""
    eventually(lambda: find_coordinator(member, member.group), lambda error: error is ErrorCode.NONE)
    eventually(member.beat, lambda error: error is ErrorCode.UNKNOWN_MEMBER_ID)


def test_sessions_remember_only_so_much(target: Target) -> None:
    """Sessions of very many partitions, which need not exist: then clients get none, and memory stays where it is."""
    sessions: list[int] = []
    wanted = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=10) for n in range(19_000)]
    request = FetchRequest(max_wait_ms=0, session_epoch=0, topics=[FetchTopic(topic="nowhere", partitions=wanted)])
    with target.client() as client, target.costing() as cost:
        data, _ = client.frame(request, 12)
        for _ in range(14):
            client.send_raw(data)
            sessions.append(int.from_bytes(client.receive_frame()[11:15], "big"))
    assert sum(session != 0 for session in sessions) == 10
    assert cost[0].peak_mb < 120
    # Who cannot have a session is served all the same; the others are closed, so as to leave the node as it was.
    with target.client() as client:
        for session in sessions:
            client.call(FetchRequest(max_wait_ms=0, session_id=session, session_epoch=-1), FetchResponse, 12)


def test_strangers_with_long_names_do_not_fill_the_memory(target: Target) -> None:
    """The node remembers clients that ask what to measure; not the 32 kB that each calls itself."""
    from ottla.wire.frames import request_frame

    name = "n" * 32_000
    with target.connect() as sock, target.costing() as cost:
        for number in range(1, 1500):
            request = GetTelemetrySubscriptionsRequest(client_instance_id=Uuid(number.to_bytes(16, "big")))
            assert exchange(sock, request_frame(71, 0, number, name, request.encode(0))) is not None
    assert cost[0].peak_mb < 16


def test_produce_to_topics_with_endless_names_leaves_nothing_behind(target: Target) -> None:
    with target.client() as client, target.costing() as cost:
        for number in range(1000):
            name = f"{number:05}" + "x" * 32_000
            assert produce(client, name, b"")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cost[0].peak_mb < 16


def test_one_connection_takes_turns_with_the_others(target: Target) -> None:
    """Requests that take long, pipelined, as many as a buffer holds: the canary waits for some of them, not for all."""
    request = crowded(APIS[3].request, 12, ("topics",), 500)
    request.allow_auto_topic_creation = False  # type: ignore[attr-defined]
    data = frame(3, 12, request.encode(12)) * PIPELINED
    shares = []
    for _ in range(9):
        target.mark()
        began_s = time.monotonic()
        with target.connect() as sock:
            sock.sendall(data)
            for _ in range(PIPELINED):
                assert exchange(sock, b"") is not None
        took_ms = 1000 * (time.monotonic() - began_s)
        shares.append(target.mark()["max_ms"] / took_ms)
    print(f"the canary's longest wait, in what all of them took: {', '.join(f'{share:.2f}' for share in shares)}")
    assert statistics.median(shares) < 1 / 3
