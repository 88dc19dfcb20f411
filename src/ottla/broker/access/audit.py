"""The audit log: who was denied what, and who changed what. Logger `ottla.audit`, one line each.

A denial is written where a right is asked (`authorisation.Asker`), a failed login at the gate (`doors`), a change
by the node that decides on it: the active controller for what is metadata, the broker for records, groups and loggers.
A line is words of the form key=value; whatever a client has chosen stands in quotes, as in JSON. What configs and
credentials are set to is not told, only their names.

Denials are for the asking, so they are bounded: the same one is told once a minute, with how often it was repeated, and
no more than `LINES_PER_SECOND_MAX` are told in a second. The logger's level switches the log off (FATAL), also while
the node runs: kafka-configs with `--entity-type broker-loggers`.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any

from ottla.broker.bounds.line_budget import LineBudget
from ottla.broker.monitoring.error_codes import error_codes, error_name
from ottla.errors import ErrorCode
from ottla.metadata.acls import Operation, ResourceType
from ottla.model import ZERO_UUID, uuid_to_text
from ottla.runtime import Clock
from ottla.wire.apis import APIS
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.broker.context import Context

_log = logging.getLogger("ottla.audit")

REPEAT_S = 60.0
SEEN_MAX = 1_000
LINES_PER_SECOND_MAX = 100
NAMES_PER_LINE_MAX = 50
TEXT_CHARS_MAX = 300

_LOGGERS = 8
_WRITE_TXN_MARKERS = 27
_ALTER_REPLICA_LOG_DIRS = 34
_INCREMENTAL_ALTER_CONFIGS = 44

ON_CONTROLLER = frozenset({19, 20, 30, 31, 33, 37, 38, 39, 40, 43, 44, 45, 49, 51, 57, 64, 80, 81})
"""The keys of what administrators change in the metadata."""
ON_BROKER = frozenset({21, _WRITE_TXN_MARKERS, _ALTER_REPLICA_LOG_DIRS, 42, 47, _INCREMENTAL_ALTER_CONFIGS})
"""And elsewhere: DeleteRecords, transactions that are ended by hand, AlterReplicaLogDirs, DeleteGroups, OffsetDelete,
levels of loggers."""

_LISTS = (
    "topics",
    "topic_names",
    "resources",
    "entries",
    "creations",
    "filters",
    "deletions",
    "upsertions",
    "topic_partitions",
    "feature_updates",
    "groups_names",
    "renewers",
    "topic_data",
    "groups",
    "dirs",
    "markers",
)
"""Fields that list what a request is about."""
_NAMES = (
    "name",
    "topic",
    "resource_name",
    "resource_name_filter",
    "principal",
    "principal_filter",
    "feature",
    "group_id",
    "transactional_id",
    "voter_id",
    "broker_id",
    "path",
    "producer_id",
)


class _Seen:
    __slots__ = ("repeated", "told_s")

    def __init__(self, told_s: float) -> None:
        self.told_s = told_s
        self.repeated = 0


class AuditLog:
    """One instance a node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[tuple[str, str, Operation, ResourceType, str], _Seen] = {}
        self._budget = LineBudget(clock, LINES_PER_SECOND_MAX, lambda untold: _log.info("untold=%d", untold))

    def denied(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> None:
        if not _log.isEnabledFor(logging.INFO):
            return
        now_s = self._clock.monotonic()
        key = (principal, host, operation, kind, name[:TEXT_CHARS_MAX])
        seen = self._seen.get(key)
        if seen is not None and now_s - seen.told_s < REPEAT_S:
            seen.repeated += 1
            return
        if not self._budget.may_tell():
            return
        self._seen.pop(key, None)
        self._seen[key] = _Seen(now_s)
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        repeated = f" repeated={seen.repeated}" if seen is not None and seen.repeated else ""
        _log.info(
            "denied principal=%s host=%s operation=%s resource=%s name=%s%s",
            _quoted(principal),
            _quoted(host),
            operation.name,
            kind.name,
            _quoted(name),
            repeated,
        )

    def login_failed(self, host: str, listener: str, reason: str) -> None:
        """Somebody could not prove who he is. `reason` names no password."""
        if not _log.isEnabledFor(logging.INFO):
            return
        if self._budget.may_tell():
            _log.info("login failed host=%s listener=%s reason=%s", _quoted(host), listener, _quoted(reason))


def follow(context: Context, request: Message, result: Message | Awaitable[Message]) -> Message | Awaitable[Message]:
    """`result`, and a line when it is there, if the request changes something that is decided here."""
    decided_here = context.api_key in (ON_CONTROLLER if context.on_controller else ON_BROKER)
    if not decided_here or not _log.isEnabledFor(logging.INFO):
        return result
    if context.api_key == _INCREMENTAL_ALTER_CONFIGS and not context.on_controller and not _is_of_loggers(request):
        return result
    if context.api_key == _WRITE_TXN_MARKERS and not _is_by_hand(context):
        return result
    named = about(request)
    if isinstance(result, Message):
        _tell(context, request, named, result)
        return result
    return _tell_later(context, request, named, result)


async def _tell_later(context: Context, request: Message, about: list[str], result: Awaitable[Message]) -> Message:
    response = await result
    _tell(context, request, about, response)
    return response


def _tell(context: Context, request: Message, about: list[str], response: Message) -> None:
    errors = Counter(error_codes(response))
    if errors.get(ErrorCode.NOT_CONTROLLER):
        return  # Nothing was decided; whoever is asked next says what came of it.
    told = " ".join(f"{error_name(code)}={count}" for code, count in sorted(errors.items()))
    _log.info(
        "%s principal=%s host=%s api=%s about=%s%s%s",
        "asked" if getattr(request, "validate_only", False) else "changed",
        _quoted(context.principal),
        _quoted(context.client_host),
        APIS[context.api_key].name,
        json.dumps(about[:NAMES_PER_LINE_MAX]),
        f" and={len(about) - NAMES_PER_LINE_MAX}" if len(about) > NAMES_PER_LINE_MAX else "",
        f" refused: {told}" if told else "",
    )


def about(request: Message) -> list[str]:
    """What a request names, without any value that it sets."""
    found = [text for field in _LISTS for each in getattr(request, field, None) or () for text in _named(each)]
    return found or list(_named(request))


def _named(part: Any) -> Iterable[str]:
    if isinstance(part, str):
        return [part[:TEXT_CHARS_MAX]]
    if (entity := getattr(part, "entity", None)) is not None:
        return ["/".join(f"{each.entity_type}:{each.entity_name or '<default>'}" for each in entity)[:TEXT_CHARS_MAX]]
    names = [str(value)[:TEXT_CHARS_MAX] for field in _NAMES if (value := getattr(part, field, None)) is not None]
    topic_id = getattr(part, "topic_id", ZERO_UUID)
    if topic_id != ZERO_UUID:
        names.append(uuid_to_text(topic_id))
    if getattr(part, "path", None) is not None or hasattr(part, "producer_id"):
        names += [topic.name[:TEXT_CHARS_MAX] for topic in part.topics[:NAMES_PER_LINE_MAX]]
    configs = getattr(part, "configs", None)
    if configs:
        names.append("(" + ", ".join(config.name[:TEXT_CHARS_MAX] for config in configs[:NAMES_PER_LINE_MAX]) + ")")
    return [" ".join(names)]


def _is_by_hand(context: Context) -> bool:
    """Brokers end transactions all the time; an administrator does so in their stead, where one hangs (KIP-664)."""
    between_brokers = context.listener == context.services.config.inter_broker_listener_name
    return not between_brokers or not context.silently.may_cluster(Operation.CLUSTER_ACTION)


def _is_of_loggers(request: Message) -> bool:
    return any(resource.resource_type == _LOGGERS for resource in getattr(request, "resources", ()))


def _quoted(text: str) -> str:
    return json.dumps(text[:TEXT_CHARS_MAX])
