"""The table of configuration keys (`ottla.config`), seen with the dynamic configs of the newest image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.config.alter import Change, apply_changes
from ottla.config.describe import ConfigEntry, describe_topic
from ottla.config.dynamic import validate_broker
from ottla.config.group import validate_client_metrics, validate_group
from ottla.config.key import Scope
from ottla.config.node import NodeConfig
from ottla.config.topic import validate_topic
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.images import (
    DEFAULT_BROKER,
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    ConfigResource,
    MetadataImage,
)

MIN_INSYNC_REPLICAS = "min.insync.replicas"

_SCOPES = {
    RESOURCE_TOPIC: Scope.TOPIC,
    RESOURCE_BROKER: Scope.BROKER,
    RESOURCE_CLIENT_METRICS: Scope.CLIENT_METRICS,
    RESOURCE_GROUP: Scope.GROUP,
}


def scope_of(resource: ConfigResource) -> Scope:
    scope = _SCOPES.get(resource.type)
    if scope is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Resources of type {resource.type} cannot be altered.")
    return scope


class ConfigTable:
    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._own = ConfigResource(RESOURCE_BROKER, str(config.node_id))
        self.static_min_insync_replicas = config.with_dynamic({}, {}).get_int(MIN_INSYNC_REPLICAS)
        """What this node's own file says, whatever was altered since."""

    def node_config(self, image: MetadataImage) -> NodeConfig:
        """This node's configuration under the dynamic configs of `image`; made anew only when they changed."""
        cluster, broker = image.config(DEFAULT_BROKER), image.config(self._own)
        if self._config.cluster != cluster or self._config.broker != broker:
            self._config = self._config.with_dynamic(cluster, broker)
        return self._config

    def changed(
        self, resource: ConfigResource, current: Mapping[str, str], changes: Sequence[Change]
    ) -> dict[str, str]:
        return apply_changes(scope_of(resource), current, changes)

    def validate(
        self, image: MetadataImage, resource: ConfigResource, values: Mapping[str, str], existing: Mapping[str, str]
    ) -> None:
        """Raises `KafkaError` for an unknown key, a bad value, or values that do not go together."""
        config = self.node_config(image)
        if resource.type == RESOURCE_TOPIC:
            validate_topic(config, values, existing)
        elif resource.type == RESOURCE_GROUP:
            validate_group(config, resource.name, values)
        elif resource.type == RESOURCE_CLIENT_METRICS:
            validate_client_metrics(resource.name, values)
        elif resource in (DEFAULT_BROKER, self._own):
            # Of another broker only that broker can say; it has, before it passed the request on.
            validate_broker(config, values, per_broker=resource == self._own)

    def effective_topic_configs(self, image: MetadataImage, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        entries = describe_topic(self.node_config(image), overrides)
        return sorted(entries, key=lambda entry: entry.name)

    def unclean_leader_election(self, image: MetadataImage, topic: str) -> bool:
        own = image.topic_config(topic).get("unclean.leader.election.enable")
        if own is not None:
            return own.strip().lower() == "true"
        return self.node_config(image).get_bool("unclean.leader.election.enable")

    def min_insync_replicas(self, image: MetadataImage, topic: str) -> int:
        own = image.topic_config(topic).get(MIN_INSYNC_REPLICAS)
        return int(own) if own is not None else self.node_config(image).get_int(MIN_INSYNC_REPLICAS)
