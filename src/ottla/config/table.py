"""The table of keys: every key of Apache Kafka 4.3.1, found by scope and name.

A scope's rows are imported when the first of them is asked for, so that a node pays only for what it uses. The rows
are never changed. Broker keys may carry a listener's prefix (`listener.name.<name>.`), which `broker_key` sees through.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module

from ottla.config.key import ConfigKey, Scope, Update

AREAS = (
    "kraft",
    "network",
    "log",
    "replication",
    "groups",
    "transactions",
    "share",
    "security",
    "remote",
    "quotas",
    "own",
)
"""The modules of `rows` that hold the broker's keys, in the order of the reference page."""

LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]*\.(.*)", re.DOTALL)

_MECHANISM_KEYS = (
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
)
"""Keys that may carry a SASL mechanism between the listener's prefix and their name."""

_OF_OAUTHBEARER = "sasl.oauthbearer."
"""As may all those of this mechanism."""

_SYNONYMS = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)


@cache
def keys(scope: Scope) -> Mapping[str, ConfigKey]:
    """All keys of a scope, by name, in the order of their modules."""
    if scope is Scope.BROKER:
        return {key.name: key for area in AREAS for key in rows(area)}
    return {key.name: key for key in rows(*_SCOPES[scope])}


def lookup(name: str, scope: Scope = Scope.BROKER) -> ConfigKey | None:
    """The row of a key, or None if Kafka has no such key in that scope."""
    return keys(scope).get(name)


_SCOPES = {
    Scope.TOPIC: ("topic", "ROWS"),
    Scope.GROUP: ("group", "ROWS"),
    Scope.CLIENT_METRICS: ("client_metrics", "ROWS"),
    Scope.USER_QUOTA: ("entity_quotas", "USER_ROWS"),
    Scope.IP_QUOTA: ("entity_quotas", "IP_ROWS"),
}


def rows(module: str, table: str = "ROWS") -> tuple[ConfigKey, ...]:
    """The rows of one module of `rows`."""
    found: tuple[ConfigKey, ...] = getattr(import_module(f"ottla.config.rows.{module}"), table)
    return found


def broker_key(name: str) -> ConfigKey | None:
    """The row that rules a broker's key, with or without a listener's prefix."""
    return lookup(name) or next((key for other in broker_synonyms(name) if (key := lookup(other))), None)


def broker_synonyms(name: str) -> tuple[str, ...]:
    """The names that may set the same thing, strongest first, `name` among them."""
    for names in _SYNONYMS:
        if name in names:
            return names
    if name == "log.flush.interval.ms":
        # One way only: the scheduler's interval is the default of the flush interval.
        return (name, "log.flush.scheduler.interval.ms")
    if prefixed := LISTENER_PREFIX.fullmatch(name):
        base = prefixed[1]
        key = base.partition(".")[2]
        if key.startswith(_OF_OAUTHBEARER):
            return (name, key)
        return (name, next((key for key in _MECHANISM_KEYS if base.endswith(key)), base))
    return (name,)


def is_dynamic(name: str) -> bool:
    """May this broker key, spelled so, be changed while the broker runs?"""
    key = lookup(name)
    return key is not None and key.update is not Update.READ_ONLY


TOPIC_SYNONYMS: Mapping[str, str] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""The broker key that is the default of a topic key; keys that are not here have only a default of their own."""

_GROUP_ONLY = frozenset({"share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable"})


def group_synonym(name: str) -> str | None:
    """The broker key that is the default of a group key, if there is one."""
    return None if name in _GROUP_ONLY else f"group.{name}"
