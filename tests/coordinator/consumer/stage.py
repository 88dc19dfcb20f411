"""A driver on paper: what a shard of consumer groups decides is replayed, written down, and committed when told to.

`Stage` keeps the log and the timers, so that a test can ask for the next timer, undo what is not committed, or let
another coordinator take over (`moved`). `PaperClassic` stands for the classic groups of the shard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from ottla.config.node import NodeConfig
from ottla.coordinator.consumer import ConsumerGroups, Sender
from ottla.coordinator.consumer.classic_side import ClassicGroupView, ClassicMemberView
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.groups import Shared
from ottla.coordinator.outcome import AnyEffect, CancelTimer, Outcome, SetTimer
from ottla.coordinator.stored import GROUP_KINDS, StoredRecord
from ottla.errors import ErrorCode
from ottla.metadata.images import (
    RESOURCE_GROUP,
    ConfigResource,
    MetadataImage,
    PartitionImage,
    Provenance,
    TopicImage,
    TopicsImage,
)
from ottla.metadata.persistent import PersistentMap
from ottla.model import Uuid
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.group_metadata_key import GroupMetadataKey
from ottla.wire.messages.group_metadata_value import GroupMetadataValue

R = TypeVar("R")

PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "group.consumer.assignment.interval.ms": "0",
}


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().rjust(16, b"."))


class PaperClassic:
    """Classic groups as their records say; who waits in one is nobody's business here."""

    def __init__(self) -> None:
        self.views: dict[str, ClassicGroupView] = {}
        self.converted: list[tuple[str, bool]] = []
        self.dissolved: list[str] = []

    def view(self, group_id: str) -> ClassicGroupView | None:
        return self.views.get(group_id)

    def dissolve(self, group_id: str) -> list[AnyEffect]:
        self.dissolved.append(group_id)
        return []

    def on_converted(self, group_id: str, *, rebalance: bool, now_ms: int) -> Outcome[None]:
        self.converted.append((group_id, rebalance))
        return Outcome()

    def replay(self, group_id: str, value: GroupMetadataValue | None) -> None:
        if value is None:
            self.views.pop(group_id, None)
            return
        assert value.protocol is not None
        self.views[group_id] = ClassicGroupView(
            generation_id=value.generation,
            protocol_type=value.protocol_type,
            protocol_name=value.protocol,
            members=tuple(
                ClassicMemberView(
                    member_id=member.member_id,
                    instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout,
                    session_timeout_ms=member.session_timeout,
                    protocols=((value.protocol, member.subscription),),
                    assignment=member.assignment,
                )
                for member in value.members
            ),
        )


class Stage:
    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self._properties = {**PROPERTIES, **(properties or {})}
        config = NodeConfig(self._properties)
        self.shared = Shared(lambda: config)
        self.classic = PaperClassic()
        self.groups = ConsumerGroups(self.shared, self.classic)
        self.now_ms = 1_000_000
        self.log: list[StoredRecord] = []
        self.committed = 0
        self.auto_commit = True
        """Whether what is written is committed at once."""
        self.timers: dict[tuple[str, ...], int] = {}
        """By key, when each ends."""
        self.image = MetadataImage()

    # The cluster.

    def topics(self, **partitions: int) -> None:
        """The topics that there are, from now on."""
        images = []
        for name, count in partitions.items():
            partition = PartitionImage(
                replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0, directories=()
            )
            known = self.image.topic(name)
            if known is not None and len(known.partitions) == count:
                images.append(known)
                continue
            indexes = PersistentMap((index, partition) for index in range(count))
            images.append(TopicImage(name=name, topic_id=topic_id(name), partitions=indexes))
        self._publish(
            TopicsImage(
                by_name=PersistentMap((topic.name, topic) for topic in images),
                by_id=PersistentMap((topic.topic_id, topic) for topic in images),
            ),
            self.image.configs,
        )

    def configure(self, group_id: str, **values: str) -> None:
        overrides = {name.replace("_", "."): value for name, value in values.items()}
        configs = self.image.configs.updated({ConfigResource(RESOURCE_GROUP, group_id): overrides})
        self._publish(self.image.topics, configs)

    def _publish(self, topics: TopicsImage, configs: PersistentMap[ConfigResource, dict[str, str]]) -> None:
        before = self.image.provenance
        self.image = MetadataImage(
            provenance=Provenance(before.offset + 1, 1, self.now_ms), topics=topics, configs=configs
        )
        self.shared.image = self.image
        self.take(self.groups.on_metadata(self.image, self.now_ms))

    # What is decided.

    def take(self, outcome: Outcome[R]) -> R | None:
        """Make what was decided so: as the broker's driver does."""
        for record in outcome.records:
            read = GROUP_KINDS.decode(*GROUP_KINDS.encode(record))
            assert read == record, "a record is read as it was written"
            assert isinstance(read, StoredRecord)
            self._replay(read)
        for effect in outcome.effects:
            match effect:
                case SetTimer(key=key, delay_ms=delay_ms):
                    self.timers[key] = self.now_ms + delay_ms
                case CancelTimer(key=key):
                    self.timers.pop(key, None)
                case _:
                    raise AssertionError(effect)
        if self.auto_commit:
            self.commit()
            if outcome.tag is not None:
                self.take(self.groups.on_written(outcome.tag, ErrorCode.NONE, self.now_ms))
        return outcome.response

    def _replay(self, record: StoredRecord) -> None:
        self.shared.timeline.begin(len(self.log))
        self.log.append(record)
        if isinstance(record.key, GroupMetadataKey):
            assert record.value is None or isinstance(record.value, GroupMetadataValue)
            self.classic.replay(record.key.group, record.value)
        else:
            self.groups.replay(record, -1, -1)

    def commit(self) -> None:
        self.committed = len(self.log)
        self.shared.timeline.commit(self.committed)

    def revert(self) -> None:
        """What is not committed could not be written."""
        del self.log[self.committed :]
        self.shared.timeline.revert(self.committed)
        self.classic.views.clear()
        for record in self.log:
            if isinstance(record.key, GroupMetadataKey):
                assert record.value is None or isinstance(record.value, GroupMetadataValue)
                self.classic.replay(record.key.group, record.value)

    def moved(self) -> Stage:
        """Another coordinator, that has read what is committed."""
        other = Stage(self._properties)
        other.now_ms = self.now_ms
        other.image = other.shared.image = self.image
        other.shared.timeline.loading = True
        for record in self.log[: self.committed]:
            other._replay(record)
        other.shared.timeline.loading = False
        other.committed = len(other.log)
        other.take(other.groups.on_loaded(self.image, self.now_ms))
        return other

    # Time.

    def advance(self, delay_ms: int) -> list[str]:
        """Let time pass; the timers that ended, in order."""
        ended = []
        until = self.now_ms + delay_ms
        while due := [(at, key) for key, at in self.timers.items() if at <= until]:
            at, key = min(due)
            self.now_ms = max(self.now_ms, at)
            del self.timers[key]
            ended.append(" ".join(part for part in key[1:] if part))
            self.take(self.groups.on_timer(key, self.now_ms))
        self.now_ms = until
        return ended

    # Requests.

    def heartbeat(
        self,
        member_id: str,
        epoch: int,
        *,
        group_id: str = "g",
        topics: Sequence[str] | None = None,
        regex: str | None = None,
        owned: Mapping[str, Sequence[int]] | None = None,
        instance: str | None = None,
        rack: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int | None = None,
        version: int = 1,
    ) -> ConsumerGroupHeartbeatResponse:
        """A request as a client sends it: one that joins says everything."""
        joining = epoch == 0
        if rebalance_timeout_ms is None:
            rebalance_timeout_ms = 60_000 if joining else -1
        if joining and owned is None:
            owned = {}
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance,
            rack_id=rack,
            rebalance_timeout_ms=rebalance_timeout_ms,
            subscribed_topic_names=None if topics is None else list(topics),
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=None
            if owned is None
            else [TopicPartitions(topic_id=topic_id(name), partitions=list(parts)) for name, parts in owned.items()],
        )
        self.groups.check_heartbeat(request, version)
        sender = Sender(client_id="client", client_host="/127.0.0.1", fresh_id="fresh")
        response = self.take(self.groups.heartbeat(request, sender, self.now_ms))
        assert response is not None
        return response

    def group(self, group_id: str = "g") -> ConsumerGroup:
        group = self.groups.group(group_id)
        assert group is not None
        return group


def assigned(response: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]] | None:
    """What a heartbeat was told, by the names of topics."""
    if response.assignment is None:
        return None
    return {
        topic.topic_id.lstrip(b".").decode(): sorted(topic.partitions) for topic in response.assignment.topic_partitions
    }
