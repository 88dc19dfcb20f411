"""How plain offset commits begin, and what that comes to: the group's shard, the topic, the record's key.

Consumers commit the same partition over and over. What one request named need not be looked up for the next, as long as
the topics are the same and the shard is served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.metadata.images import TopicImage, TopicsImage
from ottla.wire.commit_codec import LAST_VERSION, Opening, read_opening

if TYPE_CHECKING:
    from ottla.broker.connection import ClientConnection
    from ottla.broker.coordinators.served import ServedShard
    from ottla.broker.services import Services
    from ottla.coordinator.group_shard import GroupShard

KNOWN_MAX = 20_000
"""Openings of one version remembered; then all of them are forgotten and learned again."""


class KnownCommit:
    __slots__ = ("key", "opening", "place", "served", "tail", "topics")

    def __init__(
        self, opening: Opening, topic: TopicImage, topics: TopicsImage, served: ServedShard[GroupShard]
    ) -> None:
        # A shard is made by now. A node that starts has none, and does not load what it is made of.
        from ottla.coordinator.offsets.codec import encode_key, value_tail

        self.opening = opening
        self.topics = topics
        """Those among which its own was found."""
        self.served = served
        self.place = (opening.group_id, topic.name, opening.partition)
        self.key = encode_key(*self.place)
        self.tail = value_tail(topic.topic_id)


class KnownCommits:
    """One instance a node. An opening means the same on each connection; `commit_size` of a connection is the size of
    the one that came by it last."""

    __slots__ = ("_by_version",)

    def __init__(self) -> None:
        self._by_version: list[dict[bytes, KnownCommit]] = [{} for _ in range(LAST_VERSION + 1)]

    def on_unloaded(self, partition: int) -> None:
        """A shard is not served any more, and may be large: nothing of it is kept. The rest is soon learned again."""
        for known in self._by_version:
            known.clear()

    def find(
        self,
        services: Services,
        connection: ClientConnection,
        view: memoryview,
        version: int,
        position: int,
        end: int,
    ) -> KnownCommit | None:
        """What the request whose body is at `position` begins with. None if it is of another kind, or names something
        that is not there."""
        size = connection.commit_size
        if size:
            known = self._by_version[version].get(bytes(view[position : position + size]))
            if known is not None and known.topics is services.image.topics and known.served.active:
                return known
        return self._learn(services, connection, view, version, position, end)

    def _learn(
        self,
        services: Services,
        connection: ClientConnection,
        view: memoryview,
        version: int,
        position: int,
        end: int,
    ) -> KnownCommit | None:
        connection.commit_size = 0
        read = read_opening(view, version, position, end)
        if read is None:
            return None
        opening, at = read
        key, topics = opening.topic, services.image.topics
        topic = topics.by_name.get(key) if isinstance(key, str) else topics.by_id.get(key)
        served = services.groups.find(opening.group_id)
        if topic is None or opening.partition not in topic.partitions or served is None:
            return None
        if not services.group_cap.has_room_for(opening.group_id):
            return None
        known = self._by_version[version]
        if len(known) >= KNOWN_MAX:
            known.clear()
        learned = known[bytes(view[position:at])] = KnownCommit(opening, topic, topics, served)
        connection.commit_size = at - position
        return learned
