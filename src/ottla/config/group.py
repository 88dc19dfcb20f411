"""The configuration of groups, and of subscriptions to the metrics of clients (KIP-714).

A group's key must lie between the bounds that its brokers set. Bounds may be drawn tighter later: a stored value that
then lies outside is moved to the nearest that is allowed, when it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ottla.config.key import ConfigValue, InvalidConfig, Scope, default_value, parse_value
from ottla.config.node import NodeConfig
from ottla.config.table import group_synonym, keys, lookup
from ottla.errors import ErrorCode

MATCH_ATTRIBUTES = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
_INTERVAL_MS_LEAST = 100
_INTERVAL_MS_MOST = 3_600_000


def group_values(config: NodeConfig, overrides: Mapping[str, str]) -> dict[str, ConfigValue]:
    """The value of every group key as the coordinator uses it, within the broker's bounds."""
    values = _parse(config, overrides)
    for name in keys(Scope.GROUP):
        value = values[name]
        for bound, is_least in _bounds(name):
            assert isinstance(value, int)
            value = max(value, config.get_int(bound)) if is_least else min(value, config.get_int(bound))
        values[name] = value
    return values


def validate_group(config: NodeConfig, name: str, overrides: Mapping[str, str | None]) -> None:
    """Refuse configs that a group may not have."""
    if not name:
        raise InvalidConfig("Default group resources are not allowed.", ErrorCode.INVALID_REQUEST)
    nulls = [key for key, value in overrides.items() if value is None]
    if nulls:
        raise InvalidConfig(f"Null value not supported for group configs: {','.join(nulls)}")
    for key in overrides:
        if lookup(key, Scope.GROUP) is None:
            raise InvalidConfig(f"Unknown group config name: {key}")
    values = _parse(config, {key: value for key, value in overrides.items() if value is not None})
    for key in overrides:
        value = values[key]
        for bound, is_least in _bounds(key):
            assert isinstance(value, int)
            if is_least and value < config.get_int(bound):
                raise InvalidConfig(f"{key} must be greater than or equal to {bound}")
            if not is_least and value > config.get_int(bound):
                raise InvalidConfig(f"{key} must be less than or equal to {bound}")
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = values[f"{kind}.session.timeout.ms"], values[f"{kind}.heartbeat.interval.ms"]
        assert isinstance(session, int)
        assert isinstance(heartbeat, int)
        if session <= heartbeat:
            raise InvalidConfig(f"{kind}.session.timeout.ms must be greater than {kind}.heartbeat.interval.ms")


def group_default(config: NodeConfig, name: str) -> ConfigValue:
    """The value of a group key where the group has no override."""
    synonym = group_synonym(name)
    return default_value(keys(Scope.GROUP)[name]) if synonym is None else config[synonym]


def _parse(config: NodeConfig, overrides: Mapping[str, str]) -> dict[str, ConfigValue]:
    return {
        name: parse_value(key, overrides[name]) if name in overrides else group_default(config, name)
        for name, key in keys(Scope.GROUP).items()
    }


def _bounds(name: str) -> Iterator[tuple[str, bool]]:
    """The broker keys that bound a group key, and whether each is the least."""
    kind, _, what = name.partition(".")
    for bound, is_least in ((f"group.{kind}.min.{what}", True), (f"group.{kind}.max.{what}", False)):
        if lookup(bound) is not None:
            yield bound, is_least
    if name == "streams.num.standby.replicas":
        yield "group.streams.max.standby.replicas", False


def client_metrics_values(overrides: Mapping[str, str]) -> dict[str, ConfigValue]:
    """The value of every key of a subscription."""
    return {
        name: parse_value(key, overrides[name]) if name in overrides else default_value(key)
        for name, key in keys(Scope.CLIENT_METRICS).items()
    }


def validate_client_metrics(name: str, overrides: Mapping[str, str]) -> None:
    """Refuse configs that a subscription may not have."""
    if not name:
        raise InvalidConfig("Subscription name can't be empty", ErrorCode.INVALID_REQUEST)
    for key in overrides:
        if lookup(key, Scope.CLIENT_METRICS) is None:
            raise InvalidConfig(f"Unknown client metrics configuration: {key}", ErrorCode.INVALID_REQUEST)
    values = client_metrics_values(overrides)
    interval_ms = values["interval.ms"]
    assert isinstance(interval_ms, int)
    if not _INTERVAL_MS_LEAST <= interval_ms <= _INTERVAL_MS_MOST:
        raise InvalidConfig(
            f"Invalid value {interval_ms} for interval.ms, interval must be between {_INTERVAL_MS_LEAST} and "
            f"{_INTERVAL_MS_MOST} (1 hour)",
            ErrorCode.INVALID_REQUEST,
        )
    match = values["match"]
    assert isinstance(match, tuple)
    parse_match(match)


class Pattern(Protocol):
    """A compiled pattern of RE2's."""

    def fullmatch(self, text: str, /) -> object: ...


def parse_match(entries: Sequence[str]) -> dict[str, Pattern]:
    """The pattern that each attribute of a client must match as a whole.

    Patterns come over the wire and are tried on the event loop, so they are RE2's: linear in the text, bounded in
    memory. What RE2 does not have, references back and looks around, Kafka would take and we refuse.
    """
    import re2  # Here, because few nodes ever see a pattern.

    options = re2.Options()
    options.log_errors = False
    patterns: dict[str, Pattern] = {}
    for entry in entries:
        attribute, _, pattern = (part.strip() for part in entry.partition("="))
        try:
            if attribute not in MATCH_ATTRIBUTES or not pattern:
                raise ValueError
            patterns[attribute] = re2.compile(pattern, options)
        except (ValueError, re2.error):
            raise InvalidConfig(f"Illegal client matching pattern: {entry}") from None
    return patterns
