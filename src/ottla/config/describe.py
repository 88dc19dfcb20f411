"""DescribeConfigs: every key of a resource with its value, where that comes from, and what else would set it.

The entries are plain values; `broker` puts them into messages, leaving out synonyms and documentation where they were
not asked for. Synonyms come in Kafka's order: the resource's own, then this broker's dynamic config, then that of all
brokers, then the properties file, then the default.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.config.group import client_metrics_values, group_default
from ottla.config.key import ConfigKey, ConfigValue, Scope, Type, format_value, parse_value
from ottla.config.node import NodeConfig
from ottla.config.table import TOPIC_SYNONYMS, broker_key, broker_synonyms, group_synonym, is_dynamic, keys, lookup
from ottla.config.topic import broker_default


class ConfigSource(IntEnum):
    """Where a value comes from, with its number in DescribeConfigs."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One key of a resource. A sensitive value is never told, and None is also the value of an unset key."""

    name: str
    value: str | None
    type: Type
    source: ConfigSource
    read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str | None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


def describe_topic(
    config: NodeConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """A topic's entries, all of them or those that are named. Unknown overrides are not shown."""

    def entry(key: ConfigKey) -> ConfigEntry:
        synonym = TOPIC_SYNONYMS.get(key.name)
        inherited = () if synonym is None else _synonyms(config, synonym, sensitive=False)
        if key.name not in overrides:
            return _entry(key, broker_default(config, key.name), inherited)
        value = parse_value(key, overrides[key.name])
        own = ConfigSynonym(key.name, format_value(value), ConfigSource.DYNAMIC_TOPIC_CONFIG)
        return _entry(key, value, (own, *inherited))

    return [entry(key) for key in _shown(Scope.TOPIC, overrides, names)]


def describe_group(
    config: NodeConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """A group's entries; a group need not exist to have them."""

    def entry(key: ConfigKey) -> ConfigEntry:
        synonym = group_synonym(key.name)
        if synonym is None:
            inherited: tuple[ConfigSynonym, ...] = (ConfigSynonym(key.name, key.default, ConfigSource.DEFAULT_CONFIG),)
        else:
            inherited = _synonyms(config, synonym, sensitive=False)
        if key.name not in overrides:
            return _entry(key, group_default(config, key.name), inherited)
        value = parse_value(key, overrides[key.name])
        own = ConfigSynonym(key.name, format_value(value), ConfigSource.DYNAMIC_GROUP_CONFIG)
        return _entry(key, value, (own, *inherited))

    return [entry(key) for key in _shown(Scope.GROUP, overrides, names)]


def describe_client_metrics(overrides: Mapping[str, str], names: Collection[str] | None = None) -> list[ConfigEntry]:
    """A subscription's entries."""
    values = client_metrics_values(overrides)

    def entry(key: ConfigKey) -> ConfigEntry:
        value = values[key.name]
        if key.name not in overrides:
            return _entry(key, value, ())
        own = ConfigSynonym(key.name, format_value(value), ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG)
        return _entry(key, value, (own,))

    return [entry(key) for key in _shown(Scope.CLIENT_METRICS, overrides, names)]


def describe_broker(config: NodeConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """This broker's entries: every key of the table, and every other that is set."""
    shown = [key.name for key in _shown(Scope.BROKER, config.properties, None)]
    shown += [name for name in config.properties if lookup(name) is None]
    return [_broker_entry(config, name, config.properties) for name in shown if not names or name in names]


def describe_cluster_default(config: NodeConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """The dynamic configs of all brokers, which are all that the resource without a name has."""
    shown = [name for name in config.cluster if not names or name in names]
    entries = [_broker_entry(config, name, config.cluster) for name in shown]
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return [
        entry._replace(synonyms=tuple(each for each in entry.synonyms if each.source is source), source=source)
        for entry in entries
    ]


def describe_loggers(levels: Mapping[str, str], names: Collection[str] | None = None) -> list[ConfigEntry]:
    """A node's loggers and their levels, which are configs only in that they travel the same way."""
    source = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    return [
        ConfigEntry(name, level, Type.UNKNOWN, source, False, False, (), None)
        for name, level in levels.items()
        if not names or name in names
    ]


def _shown(scope: Scope, set_keys: Collection[str], names: Collection[str] | None) -> Iterator[ConfigKey]:
    for name, key in keys(scope).items():
        hidden = key.internal or key.dynamic_only
        if (name in set_keys or not hidden) and (not names or name in names):
            yield key


def _entry(key: ConfigKey, value: ConfigValue, synonyms: tuple[ConfigSynonym, ...]) -> ConfigEntry:
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
    return ConfigEntry(key.name, format_value(value), key.type, source, False, False, synonyms, key.documentation)


def _broker_entry(config: NodeConfig, name: str, properties: Mapping[str, str]) -> ConfigEntry:
    key = broker_key(name)
    # What a key without a row means no one knows, so it may well be a secret.
    sensitive = key is None or key.sensitive
    synonyms = _synonyms(config, name, sensitive=sensitive)
    if sensitive:
        value = None
    elif properties is config.properties:
        value = format_value(config[name])
    else:
        value = properties[name]
    return ConfigEntry(
        name=name,
        value=value,
        type=Type.UNKNOWN if key is None else key.type,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        read_only=not is_dynamic(name),
        is_sensitive=sensitive,
        synonyms=synonyms,
        documentation=None if key is None else key.documentation,
    )


def _synonyms(config: NodeConfig, name: str, *, sensitive: bool) -> tuple[ConfigSynonym, ...]:
    found: list[ConfigSynonym] = []
    names = broker_synonyms(name)
    for source, properties in (
        (ConfigSource.DYNAMIC_BROKER_CONFIG, config.broker),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, config.cluster),
        (ConfigSource.STATIC_BROKER_CONFIG, config.static),
    ):
        found += [ConfigSynonym(each, properties[each], source) for each in names if each in properties]
    for each in names:
        key = lookup(each)
        if key is not None and key.default is not None and not key.dynamic_only:
            found.append(ConfigSynonym(each, key.default, ConfigSource.DEFAULT_CONFIG))
    # What stands before the first mention of the key itself is another key's business; Kafka leaves it out, and with
    # it everything where the key itself is not set anywhere.
    first = next((index for index, synonym in enumerate(found) if synonym.name == name), len(found))
    shown = found[first:]
    return tuple(synonym._replace(value=None) for synonym in shown) if sensitive else tuple(shown)
