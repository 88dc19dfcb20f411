"""A partition that this node holds a replica of: its log, its role, and those who wait for it to move.

A replica has one role at a time: it leads (`leader` is there), or it follows (`following` says whom), or neither,
because nobody leads, its disk failed, or it was elected and lacks committed records. `ReplicaManager` alone moves it
from one to another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

from ottla.broker.monitoring.request_metrics import TopicMeters
from ottla.log import Log
from ottla.metadata.images import MetadataImage, PartitionImage
from ottla.model import INTERNAL_TOPICS, TopicPartition, Uuid
from ottla.partition import PartitionLeader
from ottla.partition.follower import PartitionFollower
from ottla.records import ValidationRules


class ProduceWaiter(Protocol):
    """A produce request that waits until what it appended is safe (`broker/purgatory`)."""

    @property
    def waiting(self) -> bool: ...

    def on_safe(self, partition: HostedPartition, offset: int) -> None: ...

    def on_lost(self, partition: HostedPartition, offset: int) -> None: ...


class FetchWaiter(Protocol):
    """A consumer's fetch request that waits for bytes (`broker/purgatory`)."""

    def on_advance(self, partition: HostedPartition) -> None: ...


class ReplicaReader(Protocol):
    """A follower that copies partitions from here (`broker/fetching/follower_sessions`)."""

    def on_append(self, partition: HostedPartition) -> bool:
        """The log has grown, or something else happened that concerns its readers. True if one waits: `wake` it."""
        ...

    def on_watermark(self, partition: HostedPartition) -> bool:
        """The high watermark moved."""
        ...

    def wake(self) -> None: ...


class DeleteWaiter(Protocol):
    """A DeleteRecords request that waits until every live replica has given the records up."""

    def on_low_watermark(self, partition: HostedPartition, offset: int) -> bool:
        """The low watermark is `offset`. True if that was all it waited for here."""
        ...

    def on_lost(self, partition: HostedPartition) -> None: ...


class LeadershipListener(Protocol):
    """Something that lives only where a partition is led (`broker/coordinators`)."""

    def on_elected(self, partition: HostedPartition) -> None:
        """This node leads the partition from now on, in a leader epoch that is new."""
        ...

    def on_resigned(self, partition: HostedPartition) -> None:
        """It does not, because another does, the partition is gone, its disk failed or its log is damaged. May be
        told again."""
        ...

    def before_outsider(self, partition: HostedPartition) -> None:
        """Somebody else is about to append to the partition: an administrator's tool may."""
        ...

    def on_outsider(self, partition: HostedPartition, batch: memoryview, first_offset: int) -> None:
        """The records of `batch` are in the log now, from `first_offset` on."""
        ...


class Fetchers(Protocol):
    """What copies partitions from their leaders (`broker/replication`)."""

    def follow(self, partition: HostedPartition, leader_id: int, leader_epoch: int) -> None: ...

    def unfollow(self, partition: HostedPartition) -> None: ...

    def on_metadata(self, image: MetadataImage) -> None: ...

    def followed(self) -> Iterator[tuple[TopicPartition, PartitionFollower]]: ...

    @property
    def lag_max(self) -> int: ...


class HostedPartition:
    """State only. `ReplicaManager` changes who leads and what is committed and durable; what configs say of it
    comes from the publisher, and followers' copying moves the end that is durable."""

    __slots__ = (
        "damaged_at",
        "delete_waiters",
        "durable_offset",
        "durable_waiters",
        "failed",
        "fetch_waiters",
        "flushing",
        "following",
        "forgotten",
        "gated",
        "image",
        "index",
        "leader",
        "log",
        "meters",
        "min_isr",
        "replica_readers",
        "rules",
        "throttled",
        "topic",
        "topic_id",
        "watermark_waiters",
    )

    def __init__(
        self, topic: str, topic_id: Uuid, index: int, log: Log, rules: ValidationRules, image: PartitionImage
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.rules = rules
        self.image = image
        """The newest that the metadata says of it."""
        self.meters: TopicMeters
        """Those of its topic, set when it is hosted."""
        self.leader: PartitionLeader | None = None
        """The machine of our own leadership; none while we do not lead."""
        self.following: tuple[int, int] | None = None
        """The leader that we copy from, and its epoch; none while we copy from nobody."""
        self.min_isr = 1
        self.damaged_at: int | None = None
        """The first offset of a batch that is not what was written; none once the log is cut there, or where it is not
        known. What lacks altogether the log knows (`Log.lacks_committed`)."""
        self.forgotten = False
        """Deleted, or moved away: what is still under way for it changes nothing any more."""
        self.failed = False
        """Was everybody told that it is offline?"""
        self.throttled = False
        """Is what followers that are not in sync fetch of it here counted against
        `leader.replication.throttled.rate`?"""
        self.durable_offset = 0
        """Everything before it satisfies the topic's flush policy; with no policy that is the log end."""
        self.flushing = False
        self.gated = False
        """Something appended waits for a flush before it counts (`flush.messages`)."""
        self.durable_waiters: deque[tuple[int, ProduceWaiter]] = deque()
        self.watermark_waiters: deque[tuple[int, ProduceWaiter]] = deque()
        """Both in the order of their offsets, since appends are."""
        self.fetch_waiters: dict[FetchWaiter, None] = {}
        """Consumers, who see no further than the high watermark."""
        self.replica_readers: dict[ReplicaReader, None] = {}
        """Followers, who see to the end of the log."""
        self.delete_waiters: dict[DeleteWaiter, None] = {}

    @property
    def offline(self) -> bool:
        """The disk under it failed: it is neither read nor written until the node starts again. The log is the first
        to know."""
        return self.log.offline

    @property
    def leader_epoch(self) -> int:
        return self.image.leader_epoch

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)


class HostedTopic:
    """The partitions of one topic on this node, found by name (as the wire spells it) or by id."""

    __slots__ = ("internal", "meters", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: Uuid, meters: TopicMeters) -> None:
        self.name = name
        self.topic_id = topic_id
        self.internal = name in INTERNAL_TOPICS
        """Do only coordinators write to it?"""
        self.meters = meters
        self.partitions: dict[int, HostedPartition] = {}
