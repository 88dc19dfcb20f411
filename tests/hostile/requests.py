"""Sound requests of every API and version that the node serves, to be spoilt.

Two kinds: drawn from the schemas by Hypothesis, and those that really reach the log, the sessions and the metadata.
"""

from __future__ import annotations

from functools import cache

from hypothesis import HealthCheck, Phase, given, settings

from ottla.broker.api import HANDLERS
from ottla.wire.apis import APIS
from ottla.wire.message import Message
from ottla.wire.messages import fetch_request, list_offsets_request, metadata_request, produce_request
from ottla.wire.messages.join_group_request import JoinGroupRequest
from ottla.wire.messages.update_features_request import UpdateFeaturesRequest
from tests.wire.strategies import messages

from .canary import batch_of
from .harness import VICTIM_TOPIC

UNREGISTER_BROKER = 64
"""Whoever asks for it with the number of the very node that is tried gets what he asked for: it is gone."""

ALLOWED_SESSIONS_MS = range(6_000, 1_800_001)
"""The sessions that a node allows a member by default."""

SERVED = [
    (key, version)
    for key in sorted(HANDLERS)
    if key != UNREGISTER_BROKER
    for version in range(APIS[key].first_version, APIS[key].last_version + 1)
]
"""Every API that the node serves, but one, in every version."""


@cache
def drawn(key: int, version: int, count: int) -> tuple[bytes, ...]:
    """The bodies of `count` requests or so; always the same ones."""
    owner = APIS[key].request
    bodies: dict[bytes, None] = {}

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(messages(owner, version))
    def draw(message: Message) -> None:
        tame(message, version)
        bodies[message.encode(version)] = None

    draw()
    return tuple(bodies)


def tame(message: Message, version: int) -> None:
    """Nothing that would make the node wait, or change what other tests look at."""
    for name in ("max_wait_ms", "timeout_ms"):
        if hasattr(message, name):
            setattr(message, name, 0)
    # A join waits for the members that earlier requests left in the group, until their sessions end.
    if isinstance(message, JoinGroupRequest) and message.session_timeout_ms in ALLOWED_SESSIONS_MS:
        message.session_timeout_ms = message.rebalance_timeout_ms = ALLOWED_SESSIONS_MS.start
    if hasattr(message, "validate_only"):
        if isinstance(message, UpdateFeaturesRequest) and version == 0:
            message.feature_updates = []  # That version cannot say that it is only to be validated.
        else:
            message.validate_only = True


def meaningful(key: int, version: int) -> bytes | None:
    """A request that finds what it asks for."""
    made: Message
    if key == 0:
        partition = produce_request.PartitionProduceData(index=0, records=batch_of(b"one", b"two"))
        topic = produce_request.TopicProduceData(name=VICTIM_TOPIC, partition_data=[partition])
        made = produce_request.ProduceRequest(acks=1, timeout_ms=0, topic_data=[topic])
        return made.encode(version) if version <= 12 else None
    if key == 1:
        if version > 12:
            return None
        wanted = fetch_request.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        made = fetch_request.FetchRequest(
            max_wait_ms=0,
            session_epoch=-1,
            topics=[fetch_request.FetchTopic(topic=VICTIM_TOPIC, partitions=[wanted])],
        )
        return made.encode(version)
    if key == 2:
        asked = list_offsets_request.ListOffsetsPartition(partition_index=0, timestamp=5)
        topics = [list_offsets_request.ListOffsetsTopic(name=VICTIM_TOPIC, partitions=[asked])]
        return list_offsets_request.ListOffsetsRequest(topics=topics).encode(version)
    if key == 3:
        named = [metadata_request.MetadataRequestTopic(name=VICTIM_TOPIC)]
        return metadata_request.MetadataRequest(topics=named, allow_auto_topic_creation=version < 4).encode(version)
    return None
