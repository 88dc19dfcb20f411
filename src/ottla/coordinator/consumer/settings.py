"""The keys that consumer groups obey: the node's, and a group's own within the bounds that the node sets."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ottla.config.group import group_values
from ottla.config.node import NodeConfig
from ottla.coordinator.consumer.assignors import ASSIGNORS
from ottla.coordinator.groups import Shared
from ottla.metadata.images import RESOURCE_GROUP, ConfigResource

_CLASSES = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
"""`group.consumer.assignors` may name Kafka's own by their class."""


class GroupSettings(NamedTuple):
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    """The least time between two targets."""


def assignor_names(config: NodeConfig) -> tuple[str, ...]:
    """Those that members may ask for; the first is for those that ask for none."""
    return _known_assignors(config.get_list("group.consumer.assignors"))


@lru_cache(maxsize=16)
def _known_assignors(configured: tuple[str, ...]) -> tuple[str, ...]:
    """Remembered: every heartbeat asks."""
    names = (_CLASSES.get(name, name) for name in configured)
    return tuple(name for name in names if name in ASSIGNORS) or tuple(ASSIGNORS)  # Java classes are not ours.


class Settings:
    """Worked out when first asked for, and again when the node's keys or the group's are others."""

    __slots__ = ("_config", "_default", "_own", "_shared")

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._config: NodeConfig | None = None
        self._default: GroupSettings | None = None
        self._own: dict[str, tuple[dict[str, str], GroupSettings]] = {}

    @property
    def config(self) -> NodeConfig:
        return self._shared.config

    def of(self, group_id: str) -> GroupSettings:
        config = self._shared.config
        if config is not self._config:
            self._config = config
            self._default = None
            self._own = {}
        overrides = self._shared.image.configs.get(ConfigResource(RESOURCE_GROUP, group_id))
        if not overrides:
            if self._default is None:
                self._default = _settings(config, {})
            return self._default
        own = self._own.get(group_id)
        if own is None or own[0] is not overrides:
            own = self._own[group_id] = (overrides, _settings(config, overrides))
        return own[1]

    @property
    def may_upgrade(self) -> bool:
        return self.config.get_text("group.consumer.migration.policy") in ("bidirectional", "upgrade")

    @property
    def may_downgrade(self) -> bool:
        return self.config.get_text("group.consumer.migration.policy") in ("bidirectional", "downgrade")

    @property
    def members_max(self) -> int:
        return self.config.get_int("group.consumer.max.size")

    @property
    def classic_members_max(self) -> int:
        return self.config.get_int("group.max.size")

    @property
    def regex_refresh_interval_ms(self) -> int:
        return self.config.get_int("group.consumer.regex.refresh.interval.ms")


def _settings(config: NodeConfig, overrides: dict[str, str]) -> GroupSettings:
    values = group_values(config, overrides)
    session, heartbeat, interval = (
        values[f"consumer.{name}"] for name in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
    )
    assert isinstance(session, int)
    assert isinstance(heartbeat, int)
    assert isinstance(interval, int)
    return GroupSettings(session, heartbeat, interval)
