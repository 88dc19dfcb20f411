"""What the source asks of a cluster before it reads: which partitions there are, where they begin and where they end.

Driven by the readers (`batch`, `stream`) and by the tasks (`ranges`).
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from ottla.client.blocking import BlockingClient, TopicInfo
from ottla.errors import ErrorCode, KafkaError
from ottla.model import INTERNAL_TOPICS, ZERO_UUID, TopicPartition, Uuid
from ottla.runtime.blocking import pause
from ottla.spark.clients import shared_client
from ottla.spark.source.offsets import LATEST, OffsetSpec, Positions, SourceError
from ottla.spark.source.options import SourceOptions, Subscription

_LOG = logging.getLogger(__name__)

_LOOKS = 3
"""How often a topic must be missing before it does not exist: a broker may not have heard of a new one yet."""
_BETWEEN_LOOKS_S = 0.3


class Cluster:
    """Asks on behalf of one query."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    @property
    def client(self) -> BlockingClient:
        return shared_client(self.options.client)

    def topics(self, *, must_exist: bool) -> dict[str, TopicInfo]:
        """The topics that the query subscribes to, as they are now. With `must_exist`, one that is named and missing
        is `SourceError`."""
        subscription = self.options.subscription
        if subscription.pattern is not None:
            found = self._ask_topics(None)
            matches = re.compile(subscription.pattern).fullmatch
            return {name: found[name] for name in sorted(found) if matches(name) and name not in INTERNAL_TOPICS}
        names = subscription.topics or tuple(dict.fromkeys(each.topic for each in subscription.assigned))
        for look in range(_LOOKS):
            if look:
                pause(_BETWEEN_LOOKS_S)
            found = self._ask_topics(names)
            missing = [name for name in names if name not in found]
            if not missing:
                break
        if missing and must_exist:
            raise SourceError(f"The topic {missing[0]} does not exist: create it, or correct the option.")
        return found

    def _ask_topics(self, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        return self.client.persist(lambda: self.client.topics(names))

    def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> Positions:
        """For each partition the offset at `EARLIEST`, at `LATEST`, or of the first record that is as young as a
        timestamp; -1 if there is none."""
        found: Positions = {}

        def attempt() -> None:
            self._list_offsets({each: wanted[each] for each in wanted if each not in found}, found)

        self.client.persist(attempt)
        return found

    def _list_offsets(self, wanted: Mapping[TopicPartition, int], found: Positions) -> None:
        """Asks all leaders at once; what was found is kept if another partition has to be asked for again."""
        from ottla.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
        from ottla.wire.messages.list_offsets_response import ListOffsetsResponse

        client = self.client
        by_leader: dict[int, dict[str, list[ListOffsetsPartition]]] = defaultdict(lambda: defaultdict(list))
        for each, timestamp in wanted.items():
            asked = ListOffsetsPartition(partition_index=each.partition, timestamp=timestamp)
            by_leader[client.leader_of(*each)][each.topic].append(asked)
        started = []
        for leader, topics in by_leader.items():
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(self.options.read_committed),
                topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
            )
            started.append(client.start(leader, request, ListOffsetsResponse))
        refused: KafkaError | None = None
        for pending in started:
            for topic in client.finish(pending).topics:
                for answer in topic.partitions:
                    partition = TopicPartition(topic.name, answer.partition_index)
                    if answer.error_code:
                        refused = KafkaError(
                            ErrorCode(answer.error_code), f"The offsets of {partition} cannot be looked up."
                        )
                    else:
                        found[partition] = answer.offset
        if refused is not None:
            raise refused

    def resolve(self, spec: OffsetSpec, partitions: Iterable[TopicPartition], *, option: str) -> Positions:
        """`spec` as offsets. Raises `SourceError`."""
        asked = list(partitions)
        if spec.each is not None and set(spec.each) != set(asked):
            wrong = sorted(set(spec.each) ^ set(asked))[0]
            said = "is not part of the subscription" if wrong in spec.each else "is missing"
            raise SourceError(
                f"{option} must name every partition of the subscription and no other, but {wrong} {said}."
            )
        wanted: Positions = {}
        for each in asked:
            value = spec.each[each] if spec.each is not None else spec.everywhere
            assert value is not None  # A spec has one or the other.
            wanted[each] = value
        if not spec.by_timestamp:
            listed = self.list_offsets({each: value for each, value in wanted.items() if value < 0})
            return {**wanted, **listed}
        found = self.list_offsets(wanted)
        unmatched = [each for each, offset in found.items() if offset == -1]
        if unmatched and option.startswith("starting") and not self.options.latest_without_match:
            raise SourceError(
                f"No record of {unmatched[0]} is as young as the starting timestamp {wanted[unmatched[0]]}: choose an "
                "earlier one, or set startingOffsetsByTimestampStrategy to latest."
            )
        return {**found, **self.list_offsets(dict.fromkeys(unmatched, LATEST))}

    def on_data_loss(self, message: str) -> None:
        """Ends the query, or is written to the log if the query is to go on."""
        if self.options.fail_on_data_loss:
            raise SourceError(f"{message} To go on with what is there, set failOnDataLoss to false.")
        _LOG.warning("%s", message)


def partitions_of(topics: Mapping[str, TopicInfo], subscription: Subscription) -> list[TopicPartition]:
    """The partitions that are subscribed to, sorted. Raises `SourceError` for one that is assigned and is not there."""
    if not subscription.assigned:
        return [TopicPartition(name, each) for name in sorted(topics) for each in sorted(topics[name].partitions)]
    for each in subscription.assigned:
        if each.topic in topics and each.partition not in topics[each.topic].partitions:
            raise SourceError(f"The topic {each.topic} has no partition {each.partition}: correct the option assign.")
    return [each for each in subscription.assigned if each.topic in topics]


def ids_of(topics: Mapping[str, TopicInfo]) -> dict[str, Uuid]:
    return {name: info.topic_id for name, info in topics.items() if info.topic_id != ZERO_UUID}
