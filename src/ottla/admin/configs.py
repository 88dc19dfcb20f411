"""Configs of topics, brokers and groups: each value with where it comes from, and changes to single keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from ottla.admin.asking import ask_once, check
from ottla.client.blocking import BlockingClient
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_configs_response import DescribeConfigsResourceResult, DescribeConfigsResponse
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse


class ResourceKind(IntEnum):
    """As the protocol numbers them. A broker's name is its id, and an empty one stands for all brokers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    """Set on this broker while it runs."""
    ALL_BROKERS = 3
    """Set on all brokers while they run."""
    FILE = 4
    """The broker's server.properties."""
    DEFAULT = 5
    LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:
        return cls.UNKNOWN

    @property
    def text(self) -> str:
        return self.name.lower().replace("_", " ")


_TYPES = ("unknown", "boolean", "string", "int", "short", "long", "double", "list", "class", "password")

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    name: str
    value: str | None
    """None where it is a secret, or not set."""
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    type: str
    documentation: str | None
    synonyms: tuple[Synonym, ...]
    """What the value would be if this one were taken away, and so on; the first is the value itself."""

    @property
    def is_default(self) -> bool:
        return self.source == ConfigSource.DEFAULT

    @property
    def is_own(self) -> bool:
        """Was it set on this very resource?"""
        own = (ConfigSource.TOPIC, ConfigSource.BROKER, ConfigSource.GROUP, ConfigSource.CLIENT_METRICS)
        return self.source in own


def describe_configs(
    client: BlockingClient,
    kind: ResourceKind,
    name: str,
    *,
    keys: Iterable[str] | None = None,
    documentation: bool = False,
) -> list[ConfigEntry]:
    """Every key of the resource, or these, sorted by name."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
            )
        ],
        include_synonyms=True,
        include_documentation=documentation,
    )
    if kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER) and name:
        # What a broker was started with only it can tell.
        answer = client.ask(_broker(client, name), request, DescribeConfigsResponse)
    else:
        answer = client.ask_any(request, DescribeConfigsResponse)
    entries: list[ConfigEntry] = []
    for result in answer.results:
        check(result.error_code, result.error_message, f"The configs of {_named(kind, name)} cannot be read")
        entries += [_entry(each) for each in result.configs]
    return sorted(entries, key=lambda entry: entry.name)


def alter_configs(
    client: BlockingClient,
    kind: ResourceKind,
    name: str,
    *,
    set: Mapping[str, str] | None = None,
    delete: Iterable[str] = (),
    append: Mapping[str, str] | None = None,
    subtract: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> None:
    """Changes these keys and leaves the others alone. `append` and `subtract` are for lists."""
    changes = [
        *(AlterableConfig(key, _SET, value) for key, value in (set or {}).items()),
        *(AlterableConfig(key, _DELETE, None) for key in delete),
        *(AlterableConfig(key, _APPEND, value) for key, value in (append or {}).items()),
        *(AlterableConfig(key, _SUBTRACT, value) for key, value in (subtract or {}).items()),
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    if kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER) and name:
        answer = client.ask(_broker(client, name), request, IncrementalAlterConfigsResponse)
    else:
        answer = ask_once(client, request, IncrementalAlterConfigsResponse)
    for result in answer.responses:
        check(result.error_code, result.error_message, f"The configs of {_named(kind, name)} cannot be changed")


def own_configs(client: BlockingClient, topic: str) -> dict[str, str]:
    """What was set on the topic itself: what another topic needs in order to be like it."""
    entries = describe_configs(client, ResourceKind.TOPIC, topic)
    return {each.name: each.value for each in entries if each.is_own and each.value is not None}


def _broker(client: BlockingClient, name: str) -> int:
    if not name.isdecimal() or int(name) not in client.nodes():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The cluster has no broker {name} now.")
    return int(name)


def _named(kind: ResourceKind, name: str) -> str:
    if kind == ResourceKind.BROKER and not name:
        return "all brokers"
    return f"the {kind.name.lower().replace('_', ' ')} {name}"


def _entry(result: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=result.name,
        value=result.value,
        source=ConfigSource(result.config_source),
        is_read_only=result.read_only,
        is_sensitive=result.is_sensitive,
        type=_TYPES[result.config_type] if 0 <= result.config_type < len(_TYPES) else _TYPES[0],
        documentation=result.documentation or None,
        synonyms=tuple(
            Synonym(name=each.name, value=each.value, source=ConfigSource(each.source)) for each in result.synonyms
        ),
    )
