"""What consumer groups ask of classic ones, to become of the other kind and back while their members stay (KIP-848)."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ottla.coordinator.outcome import AnyEffect
from ottla.wire.messages.group_metadata_value import GroupMetadataValue


class ClassicMemberView(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


class ClassicGroupView(NamedTuple):
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    members: tuple[ClassicMemberView, ...]


class ClassicSide(Protocol):
    def view(self, group_id: str) -> ClassicGroupView | None:
        """The newest state of a classic group; None if there is no such group."""
        ...

    def dissolve(self, group_id: str) -> list[AnyEffect]:
        """The group becomes a consumer group: who waits shall join again, and its timers are of no use."""
        ...

    def adopt(self, group_id: str, value: GroupMetadataValue, *, rebalance: bool, now_ms: int) -> list[AnyEffect]:
        """A consumer group becomes this classic one, by a record with `value` that is written with the effects."""
        ...
