"""Who may do what: the access control entries of the metadata, asked one question at a time.

The rules are those of Kafka's StandardAuthorizer. Super users may do everything. An entry speaks of a resource by its
very name, by `*`, or by how its name begins; of a principal by name or by `User:*`; of a host by address or by `*`.
What is denied is denied, whatever else is allowed. Who may read, write, delete or alter something may also describe it,
and who may alter configs may describe them; to deny one of those denies only that. Where no entry speaks of the
resource at all, `allow.everyone.if.no.acl.found` decides.

An `Authorizer` never changes: another set of entries is another one. So its answers may be remembered, and are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from ottla.metadata.acls import WILDCARD, Acl, Operation, PatternType, Permission, ResourceType

ANY_USER = "User:*"
ANSWERS_MAX = 10_000
"""Remembered at a time: a client that asks about ever new names must not fill the memory."""

_IMPLIED_BY = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
_NONE: frozenset[Operation] = frozenset()
_SOME_NAME = "hardcode"
"""What Kafka asks about when it wants to know of any resource at all: an entry for this name counts here too."""


class Authorizer:
    """Made anew whenever the entries change; asked by every handler."""

    __slots__ = ("_allow_where_none", "_answers", "_literal", "_prefixed", "_super_users")

    def __init__(
        self, acls: Iterable[Acl] = (), *, super_users: frozenset[str] = frozenset(), allow_where_none: bool = False
    ) -> None:
        """`allow_where_none` is `allow.everyone.if.no.acl.found`."""
        self._super_users = super_users
        self._allow_where_none = allow_where_none
        self._literal: dict[tuple[int, str], list[Acl]] = {}
        prefixed: dict[int, dict[str, list[Acl]]] = {}
        for acl in acls:
            if acl.pattern_type == PatternType.LITERAL:
                self._literal.setdefault((acl.resource_type, acl.resource_name), []).append(acl)
            else:
                prefixed.setdefault(acl.resource_type, {}).setdefault(acl.resource_name, []).append(acl)
        self._prefixed = {kind: _Prefixes(found) for kind, found in prefixed.items()}
        self._answers: dict[tuple[str, str, int, int, str], bool] = {}

    def may(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        """May `principal`, speaking from `host`, do `operation` to the resource `name`?"""
        asked = (principal, host, operation, kind, name)
        answer = self._answers.get(asked)
        if answer is None:
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            answer = self._answers[asked] = self._decide(principal, host, operation, kind, name)
        return answer

    def may_for_some(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Is there a resource of this kind, whatever its name, to which the principal may do it?

        An idempotent producer, for one, need not name its topics when it asks for its id.
        """
        if self._decide(principal, host, operation, kind, _SOME_NAME):
            return True
        denied_literal: set[str] = set()
        denied_prefixes: set[str] = set()
        allowed: list[Acl] = []
        for acl in self._of_kind(kind):
            if not _concerns(acl, principal, host) or acl.operation not in (Operation.ALL, operation):
                continue
            if acl.permission_type == Permission.ALLOW:
                allowed.append(acl)
            elif acl.pattern_type == PatternType.PREFIXED:
                denied_prefixes.add(acl.resource_name)
            elif acl.resource_name == WILDCARD:
                return False
            else:
                denied_literal.add(acl.resource_name)
        return any(self._is_open(acl, denied_literal, denied_prefixes) for acl in allowed)

    @staticmethod
    def _is_open(acl: Acl, denied_literal: set[str], denied_prefixes: set[str]) -> bool:
        """Does anything of what `acl` allows stay allowed?"""
        name = acl.resource_name
        if acl.pattern_type == PatternType.LITERAL:
            if name == WILDCARD:
                return True
            if name in denied_literal:
                return False
        return not any(name.startswith(prefix) for prefix in denied_prefixes)

    def _decide(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        if principal in self._super_users:
            return True
        implied_by = _IMPLIED_BY.get(operation, _NONE)
        spoken_of = allowed = False
        for acl in self._about(kind, name):
            spoken_of = True
            if not _concerns(acl, principal, host):
                continue
            matches = acl.operation in (Operation.ALL, operation)
            if acl.permission_type == Permission.DENY:
                if matches:
                    return False
            elif matches or acl.operation in implied_by:
                allowed = True
        return allowed or (self._allow_where_none and not spoken_of)

    def _about(self, kind: int, name: str) -> Iterator[Acl]:
        """Every entry that speaks of the resource."""
        yield from self._literal.get((kind, name), ())
        if name != WILDCARD:
            yield from self._literal.get((kind, WILDCARD), ())
        prefixes = self._prefixed.get(kind)
        if prefixes is not None:
            yield from prefixes.of(name)

    def _of_kind(self, kind: int) -> Iterator[Acl]:
        for (resource_type, _), acls in self._literal.items():
            if resource_type == kind:
                yield from acls
        prefixes = self._prefixed.get(kind)
        if prefixes is not None:
            yield from prefixes.all()


class _Prefixes:
    """Entries by how a name begins. Only lengths that some prefix has are looked up."""

    __slots__ = ("_by_prefix", "_lengths")

    def __init__(self, by_prefix: dict[str, list[Acl]]) -> None:
        self._by_prefix = by_prefix
        self._lengths = sorted({len(prefix) for prefix in by_prefix})

    def of(self, name: str) -> Iterator[Acl]:
        for length in self._lengths[: bisect_right(self._lengths, len(name))]:
            yield from self._by_prefix.get(name[:length], ())

    def all(self) -> Iterator[Acl]:
        for acls in self._by_prefix.values():
            yield from acls


def _concerns(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, ANY_USER) and acl.host in (host, WILDCARD)
