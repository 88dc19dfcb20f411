"""One partition of `__consumer_offsets`: groups of every kind, and the offsets that they committed.

The shard owns nothing but the order in which its parts are asked: a record goes to the part that makes its kind, a
timer or the end of a write to the part that its first word names. Driven by `broker/coordinators`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from ottla.config.node import NodeConfig
from ottla.coordinator.classic import ClassicGroups
from ottla.coordinator.consumer import ConsumerGroups
from ottla.coordinator.groups import Group, GroupKind, Shared
from ottla.coordinator.offsets import Offsets
from ottla.coordinator.offsets.simple_group import SimpleGroup
from ottla.coordinator.outcome import AnyEffect, Outcome
from ottla.coordinator.stored import AnyRecord, EncodedRecord
from ottla.coordinator.tally import GroupTally
from ottla.coordinator.timeline import Timeline
from ottla.errors import ErrorCode
from ottla.metadata.images import MetadataImage
from ottla.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from ottla.wire.messages.group_metadata_key import GroupMetadataKey


class Part(Protocol):
    """What the shard asks of each part."""

    def replay(self, record: AnyRecord, producer_id: int, producer_epoch: int) -> None: ...

    def take_up(self, image: MetadataImage) -> Iterator[list[AnyEffect]]: ...

    def on_loaded(self, image: MetadataImage, now_ms: int) -> Outcome[None]: ...

    def on_metadata(self, image: MetadataImage, now_ms: int) -> Outcome[None]: ...

    def on_timer(self, key: tuple[str, ...], now_ms: int) -> Outcome[None]: ...

    def on_written(self, tag: object, error: ErrorCode, now_ms: int) -> Outcome[None]: ...


_OFFSET_KINDS = frozenset({0, 1})


class GroupShard:
    """A `Shard`, and the `GroupDirectory` of its parts."""

    __slots__ = ("_parts", "classic", "consumer", "offsets", "shared")

    def __init__(self, shared: Shared, offsets: Offsets, classic: ClassicGroups, consumer: ConsumerGroups) -> None:
        self.shared = shared
        self.offsets = offsets
        self.classic = classic
        self.consumer = consumer
        self._parts: dict[str, Part] = {"classic": classic, "consumer": consumer, "offsets": offsets}
        shared.groups = self

    @classmethod
    def empty(cls, config: Callable[[], NodeConfig], tally: GroupTally | None = None) -> GroupShard:
        """`config` gives the node's configuration that is in force when it is asked."""
        shared = Shared(config, tally)
        classic = ClassicGroups(shared)
        return cls(shared, Offsets(shared), classic, ConsumerGroups(shared, classic))

    @property
    def timeline(self) -> Timeline:
        return self.shared.timeline

    # Groups.

    def group(self, group_id: str) -> Group | None:
        return self.classic.group(group_id) or self.consumer.group(group_id) or self.offsets.group(group_id)

    def groups(self) -> Iterator[Group]:
        yield from self.classic.groups()
        yield from self.consumer.groups()
        yield from self.offsets.groups()

    def one_by_one(self) -> Iterator[Group | None]:
        for group_id in list(self.classic.group_ids()):
            yield self.classic.group(group_id)
        for group_id in list(self.consumer.group_ids()):
            yield self.consumer.group(group_id)
        for group_id in self.offsets.group_ids():
            group = self.group(group_id)
            yield group if isinstance(group, SimpleGroup) else None

    def count_simple_groups(self) -> int:
        """How many groups have offsets and nothing else."""
        return sum(
            group_id not in self.classic and self.consumer.group(group_id) is None
            for group_id in self.offsets.group_ids()
        )

    def kind(self, group_id: str) -> GroupKind | None:
        group = self.group(group_id)
        return None if group is None else group.kind

    # Records.

    def replay(self, record: AnyRecord, producer_id: int, producer_epoch: int) -> None:
        if type(record) is EncodedRecord:
            self.offsets.replay(record, producer_id, producer_epoch)
            return
        key = record.key
        assert not isinstance(key, bytes)
        if isinstance(key, GroupMetadataKey):
            self.classic.replay(record, producer_id, producer_epoch)
            if record.value is None:
                self.offsets.on_group_tombstone(key.group)
        elif key.API_KEY in _OFFSET_KINDS:
            self.offsets.replay(record, producer_id, producer_epoch)
        else:
            self.consumer.replay(record, producer_id, producer_epoch)
            if record.value is None and isinstance(key, ConsumerGroupMetadataKey):
                self.offsets.on_group_tombstone(key.group_id)

    def replay_marker(self, producer_id: int, producer_epoch: int, commit: bool) -> None:
        self.offsets.replay_marker(producer_id, producer_epoch, commit)

    # Facts.

    def take_up(self, image: MetadataImage) -> Iterator[list[AnyEffect]]:
        self.shared.image = image
        for part in self._parts.values():
            yield from part.take_up(image)

    def on_loaded(self, image: MetadataImage, now_ms: int) -> Outcome[None]:
        self.shared.image = image
        return _together([part.on_loaded(image, now_ms) for part in self._parts.values()])

    def on_metadata(self, image: MetadataImage, now_ms: int) -> Outcome[None]:
        self.shared.image = image
        return _together([part.on_metadata(image, now_ms) for part in self._parts.values()])

    def on_timer(self, key: tuple[str, ...], now_ms: int) -> Outcome[None]:
        return self._parts[key[0]].on_timer(key, now_ms)

    def on_written(self, tag: object, error: ErrorCode, now_ms: int) -> Outcome[None]:
        assert isinstance(tag, tuple), "a tag begins with the name of its part"
        return self._parts[tag[0]].on_written(tag, error, now_ms)


def _together(outcomes: list[Outcome[None]]) -> Outcome[None]:
    """One outcome of several. Their records go in one write, so that at most one of them may ask how it ended."""
    records: list[AnyRecord] = []
    effects: list[AnyEffect] = []
    tag: object = None
    atomic = True
    for outcome in outcomes:
        records += outcome.records
        effects += outcome.effects
        atomic = atomic and outcome.atomic
        if outcome.tag is not None:
            assert tag is None, "two parts want to hear of one write"
            tag = outcome.tag
    return Outcome(records=records, effects=effects, tag=tag, atomic=atomic)
