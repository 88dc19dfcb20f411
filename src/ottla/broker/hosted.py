"""A partition that this node holds a replica of: its log, its role, and those who wait for it to move."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from ottla.broker.request_metrics import TopicMeters
from ottla.log import Log
from ottla.model import TopicPartition, Uuid
from ottla.partition import PartitionLeader
from ottla.records import ValidationRules


class ProduceWaiter(Protocol):
    """A produce request that waits until what it appended is safe (`broker/purgatory`)."""

    @property
    def waiting(self) -> bool: ...

    def on_safe(self, partition: HostedPartition, offset: int) -> None: ...

    def on_lost(self, partition: HostedPartition, offset: int) -> None: ...


class FetchWaiter(Protocol):
    """A fetch request that waits for bytes (`broker/purgatory`)."""

    def on_advance(self, partition: HostedPartition) -> None: ...


class HostedPartition:
    """State only; `ReplicaManager` is the one who changes it."""

    __slots__ = (
        "durable_offset",
        "durable_waiters",
        "fetch_waiters",
        "flushing",
        "forgotten",
        "gated",
        "index",
        "leader",
        "log",
        "meters",
        "min_isr",
        "offline",
        "rules",
        "topic",
        "topic_id",
        "watermark_waiters",
    )

    def __init__(self, topic: str, topic_id: Uuid, index: int, log: Log, rules: ValidationRules) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.rules = rules
        self.meters: TopicMeters
        """Those of its topic, set when it is hosted."""
        self.leader: PartitionLeader | None = None
        """The machine of our own leadership; none while we do not lead."""
        self.min_isr = 1
        self.forgotten = False
        """Deleted, or moved away: what is still under way for it changes nothing any more."""
        self.offline = False
        """The disk under it failed: it is neither read nor written until the node starts again."""
        self.durable_offset = 0
        """Everything before it satisfies the topic's flush policy; with no policy that is the log end."""
        self.flushing = False
        self.gated = False
        """Something appended waits for a flush before it counts (`flush.messages`)."""
        self.durable_waiters: deque[tuple[int, ProduceWaiter]] = deque()
        self.watermark_waiters: deque[tuple[int, ProduceWaiter]] = deque()
        """Both in the order of their offsets, since appends are."""
        self.fetch_waiters: dict[FetchWaiter, None] = {}

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)


class HostedTopic:
    """The partitions of one topic on this node, found by name (as the wire spells it) or by id."""

    __slots__ = ("meters", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: Uuid, meters: TopicMeters) -> None:
        self.name = name
        self.topic_id = topic_id
        self.meters = meters
        self.partitions: dict[int, HostedPartition] = {}
