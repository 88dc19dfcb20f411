"""A group that has offsets and nothing else: nobody ever joined it.

Consumers that assign partitions to themselves commit so, and administrators who set offsets before a group begins.
Kafka counts it among the classic groups, empty and without a protocol. There may be very many, and no record says that
one exists but its offsets, so none is kept: one is made when somebody asks.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.coordinator.groups import GroupKind, PartitionCheck
from ottla.coordinator.outcome import AnyEffect
from ottla.coordinator.stored import StoredRecord
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.describe_groups_response import DescribedGroup
from ottla.wire.messages.group_metadata_key import GroupMetadataKey
from ottla.wire.messages.list_groups_response import ListedGroup

_EMPTY = "Empty"


class SimpleGroup:
    """A `Group`."""

    __slots__ = ("group_id",)

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    @property
    def kind(self) -> GroupKind:
        return GroupKind.CLASSIC

    def state_name(self) -> str:
        return _EMPTY

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_member_epoch: int,
        is_transactional: bool,
        api_version: int,
    ) -> PartitionCheck | None:
        if generation_or_member_epoch >= 0:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return None

    def on_offset_commit(self, member_id: str) -> Sequence[AnyEffect]:
        return ()

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Anybody may ask."""

    def check_offset_delete(self) -> None:
        """Nobody is there whom it could disturb."""

    def check_delete(self) -> None:
        """Nobody is there whom it could disturb."""

    def is_subscribed_to(self, topic: str) -> bool:
        return False

    def is_empty(self) -> bool:
        return True

    def expiration_base(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def tombstones(self) -> list[StoredRecord]:
        return [StoredRecord(GroupMetadataKey(group=self.group_id), None)]

    def listed(self) -> ListedGroup:
        return ListedGroup(group_id=self.group_id, group_state=_EMPTY, group_type=self.kind.value)

    def described(self) -> DescribedGroup:
        return DescribedGroup(group_id=self.group_id, group_state=_EMPTY)
