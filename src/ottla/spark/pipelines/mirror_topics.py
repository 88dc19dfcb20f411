"""The topics of a mirror's target: made as the source has them before anything is written there, and grown after them.

What a topic's owner has set goes along, but for what belongs to a cluster: how many replicas must agree, which are
throttled, where old segments go, and whose clock counts, since records bring their timestamps with them. Settings are
taken over when a topic is made, and are the target's own from then on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ottla.admin.configs import own_configs
from ottla.admin.topics import add_partitions, create_topic
from ottla.client.blocking import BlockingClient, TopicInfo
from ottla.client.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError

OF_A_CLUSTER = re.compile(
    r".*\.replication\.throttled\.replicas|message\.timestamp\..*|min\.insync\.replicas"
    r"|unclean\.leader\.election\.enable|remote\..*|local\.retention\..*"
)


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
        for name, count in wanted.items():
            if name not in there:
                _create(source, target, name, count)
            elif len(there[name].partitions) < count:
                _grow(target, name, count)
        self._made.update(target.persist(lambda: _seen(target, wanted)))


def matching(topics: Mapping[str, TopicInfo], pattern: str) -> dict[str, int]:
    """How many partitions each topic has whose name matches."""
    matches = re.compile(pattern).fullmatch
    return {name: len(info.partitions) for name, info in sorted(topics.items()) if matches(name)}


def _create(source: BlockingClient, target: BlockingClient, name: str, count: int) -> None:
    own = source.persist(lambda: own_configs(source, name))
    configs = {key: value for key, value in own.items() if not OF_A_CLUSTER.fullmatch(key)}
    _unless_done(
        target, lambda: create_topic(target, name, partitions=count, configs=configs), ErrorCode.TOPIC_ALREADY_EXISTS
    )


def _grow(target: BlockingClient, name: str, count: int) -> None:
    _unless_done(target, lambda: add_partitions(target, name, count), ErrorCode.INVALID_PARTITIONS)


def _unless_done(target: BlockingClient, change: Callable[[], None], done: ErrorCode) -> None:
    """An attempt whose answer was lost may have succeeded, and another mirror may have been quicker."""
    try:
        target.persist(change)
    except KafkaError as error:
        if error.code is not done:
            raise


def _seen(target: BlockingClient, wanted: Mapping[str, int]) -> dict[str, int]:
    """The partitions of the target's topics, once they are as many as wanted. Raises `KafkaError`, which passes."""
    there = target.topics(wanted)
    for name, count in wanted.items():
        if name not in there or len(there[name].partitions) < count:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The target has not {count} partitions of {name} yet."
            )
    return {name: len(there[name].partitions) for name in wanted}
