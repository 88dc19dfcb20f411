"""The topics of a mirror's target: made as the source has them before anything is written there, and grown after them.

What a topic's owner has set goes along, but for what belongs to a cluster: how many replicas must agree, which are
throttled, where old segments go, and whose clock counts, since records bring their timestamps with them. Settings are
taken over when a topic is made, and are the target's own from then on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ottla.client.blocking import BlockingClient, TopicInfo
from ottla.client.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_partitions_response import CreatePartitionsResponse
from ottla.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_configs_response import DescribeConfigsResponse

OF_A_CLUSTER = re.compile(
    r".*\.replication\.throttled\.replicas|message\.timestamp\..*|min\.insync\.replicas"
    r"|unclean\.leader\.election\.enable|remote\..*|local\.retention\..*"
)
_TOPIC = 2
_SET_ON_TOPIC = 1
_DEFAULT_REPLICATION = -1
_TIMEOUT_MS = 30_000


@dataclass(slots=True, kw_only=True)
class TopicMaker:
    """Asked before each batch is written."""

    source: ClientSettings
    target: ClientSettings
    pattern: str
    _made: dict[str, int] = field(default_factory=dict)
    """By topic, how many partitions the target was seen to have."""

    def make(self) -> None:
        """Returns when the target has all topics and partitions of the source. Raises `KafkaError`."""
        with BlockingClient(self.source) as source:
            found = matching(source.persist(source.topics), self.pattern)
            wanted = {name: count for name, count in found.items() if count > self._made.get(name, 0)}
            if wanted:
                with BlockingClient(self.target) as target:
                    self._make(source, target, wanted)

    def _make(self, source: BlockingClient, target: BlockingClient, wanted: Mapping[str, int]) -> None:
        there = target.persist(lambda: target.topics(wanted))
        missing = [name for name in wanted if name not in there]
        if missing:
            _create(target, {name: wanted[name] for name in missing}, _settings(source, missing))
        _grow(target, {name: wanted[name] for name in there if len(there[name].partitions) < wanted[name]})
        self._made.update(target.persist(lambda: _led(target, wanted)))


def matching(topics: Mapping[str, TopicInfo], pattern: str) -> dict[str, int]:
    """How many partitions each topic has whose name matches."""
    matches = re.compile(pattern).fullmatch
    return {name: len(info.partitions) for name, info in sorted(topics.items()) if matches(name)}


def _settings(source: BlockingClient, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=None)
            for name in topics
        ]
    )
    found: dict[str, dict[str, str]] = {}
    for result in source.persist(lambda: source.ask_any(request, DescribeConfigsResponse)).results:
        if result.error_code:
            raise KafkaError(ErrorCode(result.error_code), result.error_message)
        found[result.resource_name] = {
            each.name: each.value
            for each in result.configs
            if each.config_source == _SET_ON_TOPIC and each.value is not None and not OF_A_CLUSTER.fullmatch(each.name)
        }
    return found


def _create(target: BlockingClient, counts: Mapping[str, int], settings: Mapping[str, Mapping[str, str]]) -> None:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=count,
                replication_factor=_DEFAULT_REPLICATION,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings[name].items()],
            )
            for name, count in counts.items()
        ],
        timeout_ms=_TIMEOUT_MS,
    )

    def attempt() -> None:
        for each in target.ask_any(request, CreateTopicsResponse).topics:
            if each.error_code and each.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                reason = f": {each.error_message}" if each.error_message else ""
                raise KafkaError(ErrorCode(each.error_code), f"The topic {each.name} cannot be made{reason}")

    target.persist(attempt)


def _grow(target: BlockingClient, counts: Mapping[str, int]) -> None:
    if not counts:
        return
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts.items()],
        timeout_ms=_TIMEOUT_MS,
    )

    def attempt() -> None:
        for each in target.ask_any(request, CreatePartitionsResponse).results:
            # An attempt whose answer was lost may have succeeded: then there are as many already.
            if each.error_code and each.error_code != ErrorCode.INVALID_PARTITIONS:
                reason = f": {each.error_message}" if each.error_message else ""
                raise KafkaError(ErrorCode(each.error_code), f"The topic {each.name} cannot be grown{reason}")

    target.persist(attempt)


def _led(target: BlockingClient, wanted: Mapping[str, int]) -> dict[str, int]:
    """The partitions of the target's topics, once they are as many as wanted. Raises `KafkaError`, which passes."""
    there = target.topics(wanted)
    for name, count in wanted.items():
        if name not in there or len(there[name].partitions) < count:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The target has not {count} partitions of {name} yet."
            )
    return {name: len(there[name].partitions) for name in wanted}
