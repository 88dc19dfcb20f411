"""Groups, whatever their kind: what the parts of one shard ask of each other's.

A group id names one group, of one kind at a time. Each part keeps the groups of its own kind, and answers for them as a
`Group`; who does not care about the kind asks `Shared.groups`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from ottla.config.node import NodeConfig
from ottla.coordinator.outcome import AnyEffect
from ottla.coordinator.stored import StoredRecord
from ottla.coordinator.tally import GroupTally
from ottla.coordinator.timeline import Timeline
from ottla.metadata.images import EMPTY_IMAGE, MetadataImage
from ottla.model import Uuid

if TYPE_CHECKING:
    from ottla.wire.messages.list_groups_response import ListedGroup

EMBEDDED_ELEMENTS_MAX = 100_000
"""Topics and partitions that a consumer may name inside its own protocol's messages. The request that carries them is
counted without what is in there."""

PartitionCheck = Callable[[str, Uuid, int], None]
"""May this partition's offset be committed? A topic's name and id, and the partition; raises `KafkaError`."""


class GroupKind(Enum):
    """The value is how ListGroups calls it (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Group(Protocol):
    """One group as the others see it. The checks raise `KafkaError`, with the code that Kafka answers."""

    @property
    def group_id(self) -> str: ...

    @property
    def kind(self) -> GroupKind: ...

    def state_name(self) -> str:
        """As ListGroups says it: "Empty", "Stable", ….  Of committed state."""
        ...

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_member_epoch: int,
        is_transactional: bool,
        api_version: int,
    ) -> PartitionCheck | None:
        """What it returns, if anything, is asked of each partition."""
        ...

    def on_offset_commit(self, member_id: str) -> Sequence[AnyEffect]:
        """A member that commits is alive."""
        ...

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None: ...

    def check_offset_delete(self) -> None: ...

    def check_delete(self) -> None: ...

    def is_subscribed_to(self, topic: str) -> bool: ...

    def is_empty(self) -> bool: ...

    def expiration_base(self, commit_timestamp_ms: int) -> int | None:
        """From when on the time of an offset that was committed then runs; None while it may not expire."""
        ...

    def tombstones(self) -> list[StoredRecord]:
        """What takes the group back, but for its offsets. Its timers go on: they find no group, unless the tombstones
        cannot be written."""
        ...

    def listed(self) -> ListedGroup:
        """Of committed state."""
        ...


class GroupDirectory(Protocol):
    """All groups of one shard. `GroupShard` is one."""

    def group(self, group_id: str) -> Group | None: ...

    def groups(self) -> Iterator[Group]: ...

    def one_by_one(self) -> Iterator[Group | None]:
        """All groups, committed or not, for who takes a long time over them: each as it is when it is reached. None
        stands for one that has gone meanwhile, or has come already. Each costs little, and little is done before."""
        ...


class _NoGroups:
    def group(self, group_id: str) -> Group | None:
        return None

    def groups(self) -> Iterator[Group]:
        return iter(())

    def one_by_one(self) -> Iterator[Group | None]:
        return iter(())


class Shared:
    """What the parts of one shard have in common."""

    __slots__ = ("_config", "groups", "image", "tally", "timeline")

    def __init__(self, config: Callable[[], NodeConfig], tally: GroupTally | None = None) -> None:
        """`config` gives the node's configuration that is in force when it is asked."""
        self._config = config
        self.tally = GroupTally() if tally is None else tally
        self.timeline = Timeline()
        self.image: MetadataImage = EMPTY_IMAGE
        """The newest metadata that the shard was told of."""
        self.groups: GroupDirectory = _NoGroups()

    @property
    def config(self) -> NodeConfig:
        return self._config()
