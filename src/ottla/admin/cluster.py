"""The cluster as a whole: its brokers, its quorum, its feature levels, and elections of leaders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ottla.admin.asking import TIMEOUT_MS, ask_once, check, meaning
from ottla.client.blocking import NO_NODE, BlockingClient
from ottla.errors import ErrorCode, KafkaError
from ottla.model import METADATA_TOPIC, TopicPartition, uuid_to_text
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.wire.messages.describe_cluster_response import DescribeClusterResponse
from ottla.wire.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from ottla.wire.messages.describe_quorum_response import DescribeQuorumResponse, ReplicaState
from ottla.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.elect_leaders_response import ElectLeadersResponse

_FENCED_SINCE = 2
"""The version of DescribeCluster that lists fenced brokers too (KIP-1073)."""

_PREFERRED, _UNCLEAN = range(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    node: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    cluster_id: str
    controller: int | None
    """As brokers tell it to clients: under KRaft any of themselves. The active one is the leader of the `Quorum`."""
    brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumReplica:
    node: int
    directory_id: str
    log_end_offset: int
    lag: int
    """Behind the leader's log end."""
    last_fetch_ms: int
    last_caught_up_ms: int
    """Both as times since 1970; -1 where nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    leader: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    name: str
    level: int
    """0 is off."""
    supported_min: int
    supported_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    topic: str
    partition: int
    error: str | None
    """Why there was none; none if the leader is the one that was wanted, new or already."""
    was_needed: bool


def describe_cluster(client: BlockingClient) -> Cluster:
    try:
        answer = client.ask_any(DescribeClusterRequest(include_fenced_brokers=True), DescribeClusterResponse)
    except KafkaError as error:
        if error.code != ErrorCode.UNSUPPORTED_VERSION:
            raise
        answer = client.ask_any(DescribeClusterRequest(), DescribeClusterResponse, max_version=_FENCED_SINCE - 1)
    check(answer.error_code, answer.error_message, "The cluster cannot be described")
    brokers = [
        Broker(node=each.broker_id, host=each.host, port=each.port, rack=each.rack, is_fenced=each.is_fenced)
        for each in answer.brokers
    ]
    return Cluster(
        cluster_id=answer.cluster_id,
        controller=None if answer.controller_id == NO_NODE else answer.controller_id,
        brokers=tuple(sorted(brokers, key=lambda broker: broker.node)),
    )


def describe_quorum(client: BlockingClient, *, timeout_ms: int | None = None) -> Quorum:
    """The controllers, as their leader sees them."""
    asked = TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])
    answer = client.ask_any(DescribeQuorumRequest(topics=[asked]), DescribeQuorumResponse, timeout_ms=timeout_ms)
    if answer.error_code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER):
        why = "no active controller answered in time; a majority of the controllers must live"
        raise KafkaError(ErrorCode(answer.error_code), f"The quorum cannot be described: {why}.")
    check(answer.error_code, answer.error_message, "The quorum cannot be described")
    (partition,) = answer.topics[0].partitions
    check(partition.error_code, partition.error_message, "The quorum cannot be described")
    replicas = [*partition.current_voters, *partition.observers]
    end = max((each.log_end_offset for each in replicas), default=0)
    return Quorum(
        leader=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        high_watermark=partition.high_watermark,
        voters=tuple(_replica(each, end) for each in partition.current_voters),
        observers=tuple(_replica(each, end) for each in partition.observers),
    )


def list_features(client: BlockingClient) -> list[Feature]:
    """Sorted by name."""
    from ottla import __version__

    request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
    answer = client.ask_any(request, ApiVersionsResponse)
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    return [
        Feature(
            name=each.name,
            level=levels.get(each.name, 0),
            supported_min=each.min_version,
            supported_max=each.max_version,
        )
        for each in sorted(answer.supported_features, key=lambda feature: feature.name)
    ]


def elect_leaders(
    client: BlockingClient, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
) -> list[Election]:
    """Gives these partitions, or all, their preferred leaders; or, `unclean`, any replica that lives, which may lose
    records, to those without a leader."""
    topics = None
    if partitions is not None:
        wanted: dict[str, list[int]] = defaultdict(list)
        for each in partitions:
            wanted[each.topic].append(each.partition)
        topics = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in wanted.items()]
    request = ElectLeadersRequest(
        election_type=_UNCLEAN if unclean else _PREFERRED, topic_partitions=topics, timeout_ms=TIMEOUT_MS
    )
    answer = ask_once(client, request, ElectLeadersResponse)
    check(answer.error_code, None, "No election can be held")
    return [
        Election(
            topic=topic.topic,
            partition=each.partition_id,
            error=None
            if each.error_code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
            else each.error_message or meaning(ErrorCode(each.error_code)),
            was_needed=each.error_code != ErrorCode.ELECTION_NOT_NEEDED,
        )
        for topic in sorted(answer.replica_election_results, key=lambda topic: topic.topic)
        for each in sorted(topic.partition_result, key=lambda partition: partition.partition_id)
    ]


def _replica(state: ReplicaState, end: int) -> QuorumReplica:
    return QuorumReplica(
        node=state.replica_id,
        directory_id=uuid_to_text(state.replica_directory_id),
        log_end_offset=state.log_end_offset,
        lag=end - state.log_end_offset,
        last_fetch_ms=state.last_fetch_timestamp,
        last_caught_up_ms=state.last_caught_up_timestamp,
    )
