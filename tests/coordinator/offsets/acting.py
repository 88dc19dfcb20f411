"""A shard with offsets, driven as `broker/coordinators` drives it, over a log that is a list.

Groups of other kinds are stand-ins (`ActingGroup`): what they allow is what the test says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from ottla.config.node import NodeConfig
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.groups import Group, GroupKind, PartitionCheck, Shared
from ottla.coordinator.offsets import Offsets
from ottla.coordinator.offsets.codec import decode_key
from ottla.coordinator.offsets.listing import list_groups
from ottla.coordinator.outcome import AnyEffect, Outcome, SetTimer
from ottla.coordinator.stored import GROUP_KINDS, AnyRecord, StoredRecord
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.images import EMPTY_IMAGE, MetadataImage
from ottla.model import ZERO_UUID, Uuid
from ottla.wire.messages.describe_groups_response import DescribedGroup
from ottla.wire.messages.group_metadata_key import GroupMetadataKey
from ottla.wire.messages.list_groups_response import ListedGroup
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

if TYPE_CHECKING:
    from ottla.coordinator.classic import ClassicGroups
    from ottla.coordinator.consumer import ConsumerGroups

R = TypeVar("R")
Partition = tuple[str, int]
NOBODY = -1
MINUTE_MS = 60_000
NODE = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
}


@cache
def config_with(*properties: tuple[str, str]) -> NodeConfig:
    """A broker's; dots are spelled as underscores."""
    return NodeConfig(NODE | {key.replace("_", "."): value for key, value in properties})


class Entry(NamedTuple):
    """A record of the log, or a transaction's marker (which has no key)."""

    offset: int
    key: bytes | None
    value: bytes | None = None
    producer_id: int = NOBODY
    commit: bool = False


@dataclass(slots=True)
class ActingGroup:
    """A group of which the others see what the test has set."""

    group_id: str
    kind: GroupKind = GroupKind.CLASSIC
    empty_since_ms: int | None = None
    """None: there are members, and nothing expires."""
    subscribed: frozenset[str] = frozenset()
    refusal: ErrorCode = ErrorCode.NONE
    """Of everything that can be refused."""
    partition_check: PartitionCheck | None = None

    def state_name(self) -> str:
        return "Stable" if self.empty_since_ms is None else "Empty"

    def _refuse(self) -> None:
        if self.refusal:
            raise KafkaError(self.refusal)

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_member_epoch: int,
        is_transactional: bool,
        api_version: int,
    ) -> PartitionCheck | None:
        self._refuse()
        return self.partition_check

    def on_offset_commit(self, member_id: str) -> Sequence[AnyEffect]:
        return (SetTimer(key=("classic", member_id), delay_ms=10),)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        self._refuse()

    def check_offset_delete(self) -> None:
        self._refuse()

    def check_delete(self) -> None:
        self._refuse()
        if not self.is_empty():
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed

    def is_empty(self) -> bool:
        return self.empty_since_ms is not None

    def expiration_base(self, commit_timestamp_ms: int) -> int | None:
        if self.kind is GroupKind.CONSUMER:
            return commit_timestamp_ms
        return self.empty_since_ms

    def tombstones(self) -> list[StoredRecord]:
        return [StoredRecord(GroupMetadataKey(group=self.group_id), None)]

    def listed(self) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id,
            protocol_type="consumer",
            group_state=self.state_name(),
            group_type=self.kind.value,
        )

    def described(self) -> DescribedGroup:
        return DescribedGroup(group_id=self.group_id, group_state=self.state_name(), protocol_type="consumer")


class ActingGroups:
    """A part that has groups, and forgets one when its tombstone is replayed."""

    def __init__(self) -> None:
        self.by_id: dict[str, ActingGroup] = {}

    def add(self, group: ActingGroup) -> ActingGroup:
        self.by_id[group.group_id] = group
        return group

    def group(self, group_id: str) -> Group | None:
        return self.by_id.get(group_id)

    def group_ids(self) -> Iterator[str]:
        return (group.group_id for group in self.groups())

    def groups(self) -> Iterator[Group]:
        return iter(list(self.by_id.values()))

    def replay(self, record: AnyRecord, producer_id: int, producer_epoch: int) -> None:
        assert isinstance(record, StoredRecord)
        assert isinstance(record.key, GroupMetadataKey)
        assert record.value is None
        self.by_id.pop(record.key.group, None)

    def take_up(self, image: MetadataImage) -> Iterator[list[AnyEffect]]:
        return iter(())

    def on_loaded(self, image: MetadataImage, now_ms: int) -> Outcome[None]:
        return Outcome()

    def on_metadata(self, image: MetadataImage, now_ms: int) -> Outcome[None]:
        return Outcome()

    def on_timer(self, key: tuple[str, ...], now_ms: int) -> Outcome[None]:
        raise AssertionError(key)

    def on_written(self, tag: object, error: ErrorCode, now_ms: int) -> Outcome[None]:
        raise AssertionError(tag)


class Acting:
    """The shard, its log, and how far that is committed. Commits at once, unless `held`."""

    def __init__(self, log: Sequence[Entry] = (), image: MetadataImage = EMPTY_IMAGE, **configs: str) -> None:
        config = config_with(*configs.items())
        self.configs = configs
        self.image = image
        self.now_ms = 1_000_000_000
        self.held = False
        self.log = list(log)
        shared = Shared(lambda: config)
        self.others = ActingGroups()
        self.shard = GroupShard(
            shared,
            Offsets(shared),
            cast("ClassicGroups", self.others),
            cast("ConsumerGroups", ActingGroups()),
        )
        self.offsets = self.shard.offsets
        timeline = self.shard.timeline
        timeline.loading = True
        left = self.log
        while left:
            plain = list(takewhile(lambda entry: entry.key is not None and entry.producer_id == NOBODY, left))
            base_offset = left[0].offset
            taken = self.offsets.load(
                base_offset, [(entry.offset - base_offset, entry.key, entry.value) for entry in plain]
            )
            if not taken:
                self._apply(left[0])
            left = left[taken or 1 :]
        timeline.loading = False
        self.timers: dict[tuple[str, ...], int] = {}
        self._tags: list[tuple[int, object]] = []
        """Of outcomes that are not committed: where they end."""
        self.end = self.log[-1].offset + 1 if self.log else 0
        self.committed = self.end
        for timers in self.shard.take_up(image):
            self.do(Outcome(effects=timers))
        self.do(self.shard.on_loaded(image, self.now_ms))

    def moved(self, log: Sequence[Entry] | None = None) -> Acting:
        """Another node took over: what it has is what is committed, perhaps after a compaction."""
        committed = [entry for entry in self.log if entry.offset < self.committed]
        after = Acting(committed if log is None else log, self.image, **self.configs)
        after.now_ms = self.now_ms
        after.others.by_id.update(self.others.by_id)
        return after

    # As the driver does.

    def do(self, outcome: Outcome[R], producer_id: int = NOBODY) -> R:
        """Replay and append the records; the response, without waiting for their commit."""
        for record in outcome.records:
            key, value = GROUP_KINDS.encode(record)
            self._append(Entry(self.end, key, value, producer_id))
        for effect in outcome.effects:
            if isinstance(effect, SetTimer):
                self.timers[effect.key] = effect.delay_ms
        if outcome.tag is not None:
            self._tags.append((self.end, outcome.tag))
        if not self.held:
            self.commit_up_to(self.end)
        return outcome.response  # type: ignore[return-value]

    def _append(self, entry: Entry) -> None:
        self.log.append(entry)
        self._apply(entry)
        self.end = entry.offset + 1

    def _apply(self, entry: Entry) -> None:
        self.shard.timeline.begin(entry.offset)
        if entry.key is None:
            self.shard.replay_marker(entry.producer_id, 0, entry.commit)
            return
        record = GROUP_KINDS.decode(entry.key, entry.value)
        assert record is not None
        self.shard.replay(record, entry.producer_id, 0)

    def commit_up_to(self, end_offset: int) -> None:
        self.shard.timeline.commit(end_offset)
        self.committed = end_offset
        self._tell([tag for end, tag in self._tags if end <= end_offset], ErrorCode.NONE)

    def revert_to(self, end_offset: int) -> None:
        """The append of what lies at `end_offset` and after it failed."""
        assert end_offset >= self.committed
        self.shard.timeline.revert(end_offset)
        self.log = [entry for entry in self.log if entry.offset < end_offset]
        self.end = end_offset
        self._tell([tag for end, tag in self._tags if end > end_offset], ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _tell(self, tags: list[object], error: ErrorCode) -> None:
        """How their writes have ended."""
        self._tags = [(end, tag) for end, tag in self._tags if tag not in tags]
        for tag in tags:
            self.do(self.shard.on_written(tag, error, self.now_ms))

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        self._append(Entry(self.end, None, None, producer_id, commit))
        if not self.held:
            self.commit_up_to(self.end)

    def expire(self) -> None:
        """Until a whole round of the expiry is done."""
        while True:
            self.do(self.shard.on_timer(("offsets", "expiry"), self.now_ms))
            if self.timers[("offsets", "expiry")] > 1000:
                return

    def publish(self, image: MetadataImage) -> None:
        self.image = image
        self.do(self.shard.on_metadata(image, self.now_ms))

    # Requests.

    def commit(
        self,
        group_id: str,
        offsets: dict[Partition, int],
        *,
        member_id: str = "",
        generation: int = -1,
        metadata: str | None = "",
        leader_epoch: int = -1,
        topic_id: Uuid = ZERO_UUID,
        retention_ms: int = -1,
        version: int = 10,
    ) -> dict[Partition, ErrorCode]:
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (name, index), offset in offsets.items():
            topic = topics.setdefault(name, OffsetCommitRequestTopic(name=name, topic_id=topic_id))
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=leader_epoch,
                    committed_metadata=metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            retention_time_ms=retention_ms,
            topics=list(topics.values()),
        )
        response = self.do(self.offsets.commit(request, version, self.now_ms))
        return {
            (topic.name, partition.partition_index): ErrorCode(partition.error_code)
            for topic in response.topics
            for partition in topic.partitions
        }

    def stage(
        self, producer_id: int, group_id: str, offsets: dict[Partition, int], *, generation: int = -1
    ) -> dict[Partition, ErrorCode]:
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (name, index), offset in offsets.items():
            topic = topics.setdefault(name, TxnOffsetCommitRequestTopic(name=name))
            topic.partitions.append(TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset))
        request = TxnOffsetCommitRequest(
            group_id=group_id, producer_id=producer_id, generation_id=generation, topics=list(topics.values())
        )
        response = self.do(self.offsets.commit_transactional(request, 5, self.now_ms), producer_id)
        return {
            (topic.name, partition.partition_index): ErrorCode(partition.error_code)
            for topic in response.topics
            for partition in topic.partitions
        }

    def delete(self, group_id: str, *partitions: Partition) -> dict[Partition, ErrorCode]:
        topics: dict[str, OffsetDeleteRequestTopic] = {}
        for name, index in partitions:
            topic = topics.setdefault(name, OffsetDeleteRequestTopic(name=name))
            topic.partitions.append(OffsetDeleteRequestPartition(partition_index=index))
        request = OffsetDeleteRequest(group_id=group_id, topics=list(topics.values()))
        response = self.do(self.offsets.delete(request))
        return {
            (topic.name, partition.partition_index): ErrorCode(partition.error_code)
            for topic in response.topics
            for partition in topic.partitions
        }

    def delete_groups(self, *group_ids: str) -> list[ErrorCode]:
        results = self.do(self.offsets.delete_groups(group_ids))
        assert [result.group_id for result in results] == list(dict.fromkeys(group_ids))
        return [ErrorCode(result.error_code) for result in results]

    # Questions.

    def fetch(
        self, group_id: str, *partitions: Partition, require_stable: bool = False, topic_id: Uuid = ZERO_UUID
    ) -> dict[Partition, int | ErrorCode]:
        """The offset of each, or its error. Of all if none is named."""
        topics: dict[str, OffsetFetchRequestTopics] = {}
        for name, index in partitions:
            topic = topics.setdefault(name, OffsetFetchRequestTopics(name=name, topic_id=topic_id))
            topic.partition_indexes.append(index)
        request = OffsetFetchRequestGroup(group_id=group_id, topics=list(topics.values()) if partitions else None)
        response = self.offsets.look_up(request, require_stable=require_stable).told()
        assert response.group_id == group_id
        assert response.error_code == 0
        return {
            (found.name, each.partition_index): ErrorCode(each.error_code) if each.error_code else each.committed_offset
            for found in response.topics
            for each in found.partitions
        }

    def fetch_newest(self, group_id: str, *partitions: Partition) -> dict[Partition, int | ErrorCode]:
        return self.fetch(group_id, *partitions, require_stable=True)

    def everything(self, *, require_stable: bool = False) -> dict[tuple[str, str, int], int | ErrorCode]:
        """All offsets of all groups."""
        found: dict[tuple[str, str, int], int | ErrorCode] = {}
        for group_id in {decode_key(entry.key)[0] for entry in self.log if entry.key and entry.key[1] == 1}:
            for (topic, index), answer in self.fetch(group_id, require_stable=require_stable).items():
                found[(group_id, topic, index)] = answer
        return found

    def group_ids(self) -> list[str]:
        return sorted(group.group_id for group in list_groups(self.shard, (), ()))
