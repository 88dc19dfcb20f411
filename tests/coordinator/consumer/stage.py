"""A driver on paper: what a shard of groups decides is replayed, written down, and committed when told to.

The shard is a whole one, so that classic groups can become consumer groups and back. `Stage` keeps the log, the timers
and who waits, so that a test can let time pass, undo what is not committed, or let another coordinator take over
(`moved`). Every record passes through its stored form.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ottla.config.node import NodeConfig
from ottla.coordinator import by_kind
from ottla.coordinator.classic import ClassicGroups, Joiner
from ottla.coordinator.consumer import ConsumerGroups, Sender
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.groups import Shared
from ottla.coordinator.offsets import Offsets
from ottla.coordinator.outcome import Answer, CancelTimer, Outcome, SetTimer
from ottla.coordinator.stored import GROUP_KINDS, AnyRecord
from ottla.errors import ErrorCode, KafkaError
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
from ottla.wire.message import Message
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.messages.sync_group_response import SyncGroupResponse
from tests.group_plans import plan_bytes

Shard = GroupShard
M = TypeVar("M", bound=Message)

PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "group.consumer.assignment.interval.ms": "0",
}


SENDER = Sender(client_id="client", client_host="/127.0.0.1", fresh_id="fresh")


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().rjust(16, b"."))


@dataclass(slots=True)
class Reply:
    """What a request will be answered: one of the two, once it is committed."""

    response: Message | None = None
    error: ErrorCode | None = None

    @property
    def done(self) -> bool:
        return self.response is not None or self.error is not None


@dataclass(slots=True)
class _Pending:
    """Waits until everything below `end` is committed."""

    end: int
    replies: list[tuple[Reply, Message]]
    tag: object
    own: Reply | None


class Stage:
    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self._properties = {**PROPERTIES, **(properties or {})}
        config = NodeConfig(self._properties)
        self.shared = Shared(lambda: config)
        classic = ClassicGroups(self.shared)
        self.shard: Shard = GroupShard(self.shared, Offsets(self.shared), classic, ConsumerGroups(self.shared, classic))
        self.groups = self.shard.consumer
        self.now_ms = 1_000_000
        self.log: list[AnyRecord] = []
        self.committed = 0
        self.auto_commit = True
        """Whether what is written is committed at once."""
        self.timers: dict[tuple[str, ...], int] = {}
        """By key, when each ends."""
        self.image = MetadataImage()
        self._pending: deque[_Pending] = deque()
        self._waiting: dict[int, Reply] = {}
        self._tokens = 0

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
        self._take(self.shard.on_metadata(self.image, self.now_ms))

    # What is decided.

    def ask(self, operation: Callable[[Shard, int, int], Outcome[M]]) -> Reply:
        """A request; refusals are answered at once."""
        self._tokens += 1
        token = self._tokens
        reply = self._waiting[token] = Reply()
        try:
            outcome = operation(self.shard, token, self.now_ms)
        except KafkaError as error:
            reply.error = error.code
            return reply
        self._take(outcome, reply)
        return reply

    def _take(self, outcome: Outcome[M] | Outcome[None], own: Reply | None = None) -> None:
        """Make what was decided so, as the broker's driver does."""
        for record in outcome.records:
            read = GROUP_KINDS.decode(*GROUP_KINDS.encode(record))
            assert read == record, "a record is read as it was written"
            self._replay(read)
        replies: list[tuple[Reply, Message]] = []
        if own is not None and outcome.response is not None:
            replies.append((own, outcome.response))
        for effect in outcome.effects:
            match effect:
                case SetTimer(key=key, delay_ms=delay_ms):
                    self.timers[key] = self.now_ms + delay_ms
                case CancelTimer(key=key):
                    self.timers.pop(key, None)
                case Answer(token=token, response=response):
                    replies.append((self._waiting[token], response))
                case _:
                    raise AssertionError(effect)
        self._pending.append(_Pending(len(self.log), replies, outcome.tag, own))
        if self.auto_commit:
            self.commit()

    def _replay(self, record: AnyRecord) -> None:
        self.shared.timeline.begin(len(self.log))
        self.log.append(record)
        self.shard.replay(record, -1, -1)

    def commit(self, end: int | None = None) -> None:
        """All that was written, or what lies before `end`."""
        while self._pending and (end is None or self._pending[0].end <= end):
            pending = self._pending.popleft()
            self.committed = pending.end
            self.shared.timeline.commit(pending.end)
            for reply, response in pending.replies:
                reply.response = response
            if pending.tag is not None:
                self._take(self.shard.on_written(pending.tag, ErrorCode.NONE, self.now_ms))

    def revert(self) -> None:
        """What is not committed could not be written."""
        lost, self._pending = self._pending, deque()
        del self.log[self.committed :]
        self.shared.timeline.revert(self.committed)
        for pending in lost:
            if pending.own is not None:
                pending.own.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            for reply, _ in pending.replies:
                reply.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if pending.tag is not None:
                self._take(self.shard.on_written(pending.tag, ErrorCode.COORDINATOR_NOT_AVAILABLE, self.now_ms))
        self.commit()

    def moved(self) -> Stage:
        """Another coordinator, that has read what is committed. Who waits here is turned away."""
        other = Stage(self._properties)
        other.now_ms = self.now_ms
        other.image = other.shared.image = self.image
        other.shared.timeline.loading = True
        for record in self.log[: self.committed]:
            other._replay(record)
        other.shared.timeline.loading = False
        other.committed = len(other.log)
        for timers in other.shard.take_up(self.image):
            other._take(Outcome(effects=timers))
        other._take(other.shard.on_loaded(self.image, self.now_ms))
        return other

    def close(self) -> None:
        for reply in self._waiting.values():
            if not reply.done:
                reply.error = ErrorCode.NOT_COORDINATOR

    # Time.

    def advance(self, delay_ms: int) -> list[str]:
        """Let time pass; the timers that ended, in order."""
        ended = []
        until = self.now_ms + delay_ms
        while due := [(at, key) for key, at in self.timers.items() if at <= until]:
            at, key = min(due)
            self.now_ms = max(self.now_ms, at)
            del self.timers[key]
            if key[0] != "offsets":
                ended.append(" ".join(part for part in key[1:] if part))
            self._take(self.shard.on_timer(key, self.now_ms))
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
        response = self.told(self.ask(lambda shard, _, now_ms: shard.consumer.heartbeat(request, SENDER, now_ms)))
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    def told(self, reply: Reply) -> Message:
        """The response; what is not committed yet is told as well, since a story knows what it does."""
        if reply.error is not None:
            raise KafkaError(reply.error)
        if reply.response is not None:
            return reply.response
        return next(response for pending in self._pending for known, response in pending.replies if known is reply)

    # Requests of classic members.

    def join(
        self,
        member_id: str,
        topics: Sequence[str],
        *,
        group_id: str = "g",
        owned: Mapping[str, Sequence[int]] | None = None,
        instance: str | None = None,
        protocols: Sequence[str] = ("cooperative-sticky",),
        fresh: str = "fresh",
        version: int = 9,
    ) -> Reply:
        subscription = ConsumerProtocolSubscription(
            topics=list(topics),
            owned_partitions=[TopicPartition(topic=name, partitions=list(had)) for name, had in (owned or {}).items()],
        )
        metadata = b"\x00\x03" + subscription.encode(3)
        request = JoinGroupRequest(
            group_id=group_id,
            member_id=member_id,
            group_instance_id=instance,
            session_timeout_ms=20_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in protocols],
        )

        def operation(shard: Shard, token: int, now_ms: int) -> Outcome[JoinGroupResponse]:
            joiner = Joiner(client_id="old", client_host="/h", api_version=version, unique=fresh, token=token)
            return by_kind.join(shard, request, joiner, now_ms)

        return self.ask(operation)

    def sync(
        self,
        member_id: str,
        generation_id: int,
        *,
        group_id: str = "g",
        assignments: Mapping[str, Mapping[str, Sequence[int]]] | None = None,
        protocol: str = "cooperative-sticky",
        instance: str | None = None,
    ) -> Reply:
        """`assignments` is a leader's plan."""
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=other, assignment=plan_bytes(plan))
                for other, plan in (assignments or {}).items()
            ],
        )

        def operation(shard: Shard, token: int, now_ms: int) -> Outcome[SyncGroupResponse]:
            return by_kind.sync(shard, request, token, now_ms)

        return self.ask(operation)

    def beat(self, member_id: str, generation_id: int, *, group_id: str = "g", instance: str | None = None) -> Reply:
        request = HeartbeatRequest(
            group_id=group_id, generation_id=generation_id, member_id=member_id, group_instance_id=instance
        )

        def operation(shard: Shard, token: int, now_ms: int) -> Outcome[HeartbeatResponse]:
            return by_kind.heartbeat(shard, request, now_ms)

        return self.ask(operation)

    def leave(self, *members: tuple[str, str | None], group_id: str = "g") -> Reply:
        """Member id and instance id of each."""
        request = LeaveGroupRequest(
            group_id=group_id,
            members=[MemberIdentity(member_id=member, group_instance_id=instance) for member, instance in members],
        )

        def operation(shard: Shard, token: int, now_ms: int) -> Outcome[LeaveGroupResponse]:
            return by_kind.leave(shard, request, now_ms)

        return self.ask(operation)

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
