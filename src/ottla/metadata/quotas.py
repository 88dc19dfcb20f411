"""Client quotas: what they are for, and how the entities are found that a filter describes.

Read by the controller, which alters them, and by the brokers, which describe them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.metadata.images import EntityPart, QuotaEntity

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)


def entity_of(parts: Mapping[str, str | None]) -> QuotaEntity:
    """The entity of the types and names in `parts`; no name stands for the default of its type."""
    return tuple(sorted(EntityPart(kind, name is not None, name or "") for kind, name in parts.items()))


class QuotaFilter(NamedTuple):
    """Of each type that it names, the entity has a part: with that name, the default (None), or any at all."""

    exact: Mapping[str, str | None]
    any_of: frozenset[str]
    strict: bool
    """May the entity have no parts besides?"""

    def matches(self, entity: QuotaEntity) -> bool:
        parts = {part.type: part.name if part.named else None for part in entity}
        if self.strict and len(parts) != len(self.exact) + len(self.any_of):
            return False
        return self.any_of <= parts.keys() and all(
            kind in parts and parts[kind] == name for kind, name in self.exact.items()
        )
