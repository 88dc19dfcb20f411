"""Access control entries: the numbers that the protocol and the records give their parts, and how filters match them.

Read by the controller, which creates and deletes them, and by the brokers, which describe them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.wire.messages.access_control_entry_record import AccessControlEntryRecord

WILDCARD = "*"
"""The name of a literal pattern that stands for every resource of its type."""

CLUSTER_NAME = "kafka-cluster"
"""The one resource of type CLUSTER."""


class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    """Of filters: every pattern that covers the name."""

    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One entry, without its id: two entries with the same parts are the same."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    @classmethod
    def of(cls, record: AccessControlEntryRecord) -> Acl:
        return cls(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )

    def invalid_because(self) -> str | None:
        """Why there can be no such entry, or None if there can."""
        if not _is_one(ResourceType, self.resource_type):
            return f"The type of the resource, {_name(ResourceType, self.resource_type)}, is not one."
        if self.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
            return f"The type of the pattern, {_name(PatternType, self.pattern_type)}, is neither LITERAL nor PREFIXED."
        if not _is_one(Operation, self.operation):
            return f"The operation, {_name(Operation, self.operation)}, is not one."
        if self.permission_type not in (Permission.DENY, Permission.ALLOW):
            return f"The permission, {_name(Permission, self.permission_type)}, is neither ALLOW nor DENY."
        if not self.resource_name:
            return "The name of the resource is empty."
        if self.resource_type == ResourceType.CLUSTER and self.resource_name != CLUSTER_NAME:
            return f"The only name for the CLUSTER resource is {CLUSTER_NAME}."
        if ":" not in self.principal:
            return f"The principal {self.principal!r} has no colon between its type and its name."
        return None


class AclFilter(NamedTuple):
    """None, and ANY, match everything."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    @property
    def is_unknown(self) -> bool:
        """Does it name something that this release does not know?"""
        return not (
            0 < self.resource_type < len(ResourceType)
            and 0 < self.pattern_type < len(PatternType)
            and 0 < self.operation < len(Operation)
            and 0 < self.permission_type < len(Permission)
        )

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission_type in (Permission.ANY, acl.permission_type)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return self.resource_name == acl.resource_name
        if acl.pattern_type == PatternType.LITERAL:
            return acl.resource_name in (self.resource_name, WILDCARD)
        return self.resource_name.startswith(acl.resource_name)


def _is_one(kind: type[IntEnum], number: int) -> bool:
    """Neither UNKNOWN nor ANY, which all kinds begin with."""
    return 1 < number < len(kind)


def _name(kind: type[IntEnum], number: int) -> str:
    return kind(number).name if 0 <= number < len(kind) else str(number)
