"""Which node each part of a request is for, and how several answers become one. Without I/O.

A request is cut by the leaders of its partitions, by the coordinators of its groups or transactional ids, or is for
every node. Each part is a request of its own; the answers' lists, joined, are the answer. A part whose node is not
known is for this node, which will say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any, NamedTuple, Protocol

from ottla.model import ZERO_UUID, TopicKey
from ottla.wire.message import Message

FETCH = 1
OFFSET_FETCH = 9
FIRST_WITH_GROUPS = 8
"""From this version on OffsetFetch asks for several groups at once (KIP-709)."""


class Cluster(Protocol):
    """What is to be known of the cluster."""

    @property
    def node_id(self) -> int: ...

    def leader(self, topic: TopicKey, partition: int) -> int | None: ...

    def group_coordinator(self, group_id: str) -> int | None: ...

    def transaction_coordinator(self, transactional_id: str) -> int | None: ...

    def brokers(self) -> Iterable[int]: ...


class ByPartition(NamedTuple):
    """Names of fields: of the request's topics, of their partitions, of a partition's number (none if it is nothing
    but its number), and of the response's topics."""

    topics: str
    partitions: str
    number: str | None
    answered: str


class ByKey(NamedTuple):
    """Names of fields that hold a group id or a transactional id."""

    field: str
    transactional: bool = False


class ByKeys(NamedTuple):
    """Names of fields: of a list of ids in the request, and of the list of their answers."""

    field: str
    answered: str
    transactional: bool = False
    key: str | None = None
    """The field of an element that is its id, unless it is nothing but that."""


class Everywhere(NamedTuple):
    answered: str


Route = ByPartition | ByKey | ByKeys | Everywhere

ROUTES: dict[int, Route] = {
    0: ByPartition("topic_data", "partition_data", "index", "responses"),
    FETCH: ByPartition("topics", "partitions", "partition", "responses"),
    2: ByPartition("topics", "partitions", "partition_index", "topics"),  # ListOffsets
    8: ByKey("group_id"),  # OffsetCommit
    OFFSET_FETCH: ByKeys("groups", "groups", key="group_id"),
    11: ByKey("group_id"),  # JoinGroup
    12: ByKey("group_id"),  # Heartbeat
    13: ByKey("group_id"),  # LeaveGroup
    14: ByKey("group_id"),  # SyncGroup
    15: ByKeys("groups", "groups"),  # DescribeGroups
    16: Everywhere("groups"),  # ListGroups
    21: ByPartition("topics", "partitions", "partition_index", "topics"),  # DeleteRecords
    22: ByKey("transactional_id", transactional=True),  # InitProducerId
    23: ByPartition("topics", "partitions", "partition", "topics"),  # OffsetForLeaderEpoch
    24: ByKey("v3_and_below_transactional_id", transactional=True),  # AddPartitionsToTxn
    25: ByKey("transactional_id", transactional=True),  # AddOffsetsToTxn
    26: ByKey("transactional_id", transactional=True),  # EndTxn
    28: ByKey("group_id"),  # TxnOffsetCommit
    42: ByKeys("groups_names", "results"),  # DeleteGroups
    47: ByKey("group_id"),  # OffsetDelete
    61: ByPartition("topics", "partition_indexes", None, "topics"),  # DescribeProducers
    65: ByKeys("transactional_ids", "transaction_states", transactional=True),  # DescribeTransactions
    66: Everywhere("transaction_states"),  # ListTransactions
    68: ByKey("group_id"),  # ConsumerGroupHeartbeat
    69: ByKeys("group_ids", "groups"),  # ConsumerGroupDescribe
}
"""The APIs of which some part may be for another node; all others are answered by this one."""


def route_of(api_key: int, version: int) -> Route | None:
    if api_key == OFFSET_FETCH and version < FIRST_WITH_GROUPS:
        return ByKey("group_id")
    return ROUTES.get(api_key)


def split(route: Route, request: Message, cluster: Cluster) -> dict[int, Message]:
    """The part of each node; the whole request, as it is, if it is for one."""
    here = cluster.node_id
    match route:
        case Everywhere():
            return dict.fromkeys(sorted({here, *cluster.brokers()}), request)
        case ByKey():
            key = getattr(request, route.field)
            return {_or_here(key and _coordinator(cluster, route.transactional)(key), here): request}
        case ByKeys():
            elements: dict[int, list[Any]] = {}
            find = _coordinator(cluster, route.transactional)
            for element in getattr(request, route.field):
                key = element if route.key is None else getattr(element, route.key)
                elements.setdefault(_or_here(find(key), here), []).append(element)
            if len(elements) <= 1:
                return {next(iter(elements), here): request}
            return {node: _with(request, **{route.field: some}) for node, some in elements.items()}
        case ByPartition():
            return _split_by_partition(route, request, cluster)


def _split_by_partition(route: ByPartition, request: Message, cluster: Cluster) -> dict[int, Message]:
    here = cluster.node_id
    topics_of: dict[int, list[Message]] = {}
    for topic in getattr(request, route.topics):
        partitions_of: dict[int, list[Any]] = {}
        key = _topic_key(topic)
        for partition in getattr(topic, route.partitions):
            index = partition if route.number is None else getattr(partition, route.number)
            partitions_of.setdefault(_or_here(cluster.leader(key, index), here), []).append(partition)
        for node, partitions in partitions_of.items():
            part = topic if len(partitions_of) == 1 else _with(topic, **{route.partitions: partitions})
            topics_of.setdefault(node, []).append(part)
    if len(topics_of) <= 1:
        return {next(iter(topics_of), here): request}
    return {node: _with(request, **{route.topics: topics}) for node, topics in topics_of.items()}


def join(route: Route, answers: Sequence[Message]) -> Message:
    """The answers to the parts of a request, as one."""
    first = answers[0]
    if len(answers) > 1:
        assert not isinstance(route, ByKey)
        for other in answers[1:]:
            getattr(first, route.answered).extend(getattr(other, route.answered))
            if code := getattr(other, "error_code", 0):
                first.error_code = first.error_code or code  # type: ignore[attr-defined]
            first.throttle_time_ms = max(first.throttle_time_ms, other.throttle_time_ms)  # type: ignore[attr-defined]
    return first


def forget_leaders(answer: Message) -> None:
    """Clients of a gateway know no leader but the gateway, so none is named to them (KIP-951, KIP-392)."""
    if not hasattr(answer, "node_endpoints"):
        return
    answer.node_endpoints = []
    for topic in answer.responses:  # type: ignore[attr-defined]
        produced = hasattr(topic, "partition_responses")
        for partition in topic.partition_responses if produced else topic.partitions:
            partition.current_leader = type(partition.current_leader)()
            if not produced:
                partition.preferred_read_replica = -1


def _coordinator(cluster: Cluster, transactional: bool) -> Callable[[str], int | None]:
    return cluster.transaction_coordinator if transactional else cluster.group_coordinator


def _topic_key(topic: Any) -> TopicKey:
    topic_id = getattr(topic, "topic_id", ZERO_UUID)
    if topic_id != ZERO_UUID:
        key: TopicKey = topic_id
        return key
    name: str = topic.topic if hasattr(topic, "topic") else topic.name
    return name


def _or_here(node: int | str | None, here: int) -> int:
    return node if isinstance(node, int) else here


def _with(message: Message, **fields: Any) -> Message:
    changed = copy(message)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed
