"""The configuration of a topic: its own overrides on top of what its broker has, in Kafka's order.

`topic_values` is what a log is built from; `validate_topic` is what CreateTopics and the two AlterConfigs ask before
anything is stored.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.config.key import ConfigValue, InvalidConfig, Scope, default_value, invalid_value, parse_value
from ottla.config.node import NodeConfig
from ottla.config.table import TOPIC_SYNONYMS, keys

_LATEST_LOCAL = -2
"""A local retention that follows the whole one."""


def broker_default(config: NodeConfig, name: str) -> ConfigValue:
    """The value of a topic key where the topic has no override."""
    match name:
        case "retention.ms":
            return config.log_retention_ms
        case "segment.ms":
            return config.log_roll_ms
        case "segment.jitter.ms":
            return config.log_roll_jitter_ms
        case "flush.ms":
            return config.log_flush_interval_ms
    synonym = TOPIC_SYNONYMS.get(name)
    return default_value(keys(Scope.TOPIC)[name]) if synonym is None else config[synonym]


def topic_values(config: NodeConfig, overrides: Mapping[str, str]) -> dict[str, ConfigValue]:
    """The value of every topic key; `InvalidConfig` for an override that is not valid. Unknown ones are ignored."""
    known = keys(Scope.TOPIC)
    defaults = config.topic_defaults
    if not defaults:
        defaults.update((name, broker_default(config, name)) for name in known)
    values = defaults.copy()
    if overrides:
        values.update((name, parse_value(key, overrides[name])) for name, key in known.items() if name in overrides)
    return values


def validate_topic(
    config: NodeConfig, overrides: Mapping[str, str | None], existing: Mapping[str, str] | None = None
) -> None:
    """Refuse overrides that no topic may have; `existing` are those that it has now, if it exists."""
    nulls = [name for name, value in overrides.items() if value is None]
    if nulls:
        raise InvalidConfig(f"Null value not supported for topic configs: {','.join(nulls)}")
    known = keys(Scope.TOPIC)
    for name in overrides:
        if name not in known:
            raise InvalidConfig(f"Unknown topic config name: {name}")
    values = topic_values(config, {name: value for name, value in overrides.items() if value is not None})
    least, most = _number(values, "min.compaction.lag.ms"), _number(values, "max.compaction.lag.ms")
    if least > most:
        raise InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
        )
    if values["remote.storage.enable"]:
        _check_remote(config, values)
    elif not values["remote.log.delete.on.disable"] and (existing or {}).get("remote.storage.enable") == "true":
        raise InvalidConfig(
            "It is invalid to disable remote storage without deleting remote data: keep it readable with "
            "remote.storage.enable=true and remote.log.copy.disable=true, or delete it with "
            "remote.storage.enable=false and remote.log.delete.on.disable=true."
        )


def _check_remote(config: NodeConfig, values: Mapping[str, ConfigValue]) -> None:
    if not config.get_bool("remote.log.storage.system.enable"):
        raise InvalidConfig(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    policy = values["cleanup.policy"]
    assert isinstance(policy, tuple)
    if "compact" in policy:
        raise InvalidConfig("Remote log storage is unsupported for the compacted topics")
    for unit in ("bytes", "ms"):
        whole, local = _number(values, f"retention.{unit}"), _number(values, f"local.retention.{unit}")
        if local == _LATEST_LOCAL:
            continue
        if whole > -1:
            if local == -1:
                reason = f"Value must not be -1 as retention.{unit} value is set as {whole}."
                raise invalid_value(f"local.retention.{unit}", local, reason)
            if local > whole:
                reason = f"Value must not be more than retention.{unit} property value: {whole}"
                raise invalid_value(f"local.retention.{unit}", local, reason)
        if values["remote.log.copy.disable"] and local != whole:
            raise InvalidConfig(
                f"When `remote.log.copy.disable` is set to true, the `local.retention.{unit}` and `retention.{unit}` "
                "must be set to the identical value because there will be no more logs copied to the remote storage."
            )


def _number(values: Mapping[str, ConfigValue], name: str) -> int:
    value = values[name]
    assert isinstance(value, int)
    return value
