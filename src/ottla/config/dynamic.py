"""Which of a broker's keys may be changed while it runs, by whom, and whether a change fits the broker.

A change is for one broker or the default of all. Kafka answers INVALID_REQUEST, not INVALID_CONFIG, to a change that
the broker refuses, and clients have come to expect it (KAFKA-13609).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.config.key import InvalidConfig, Update, parse_value
from ottla.config.node import NodeConfig
from ottla.config.table import LISTENER_PREFIX, broker_key, lookup
from ottla.errors import ErrorCode

SECURITY_KEYS = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""Keys that may be changed for a listener only, so that the listeners between brokers are not cut off."""

_CLUSTER_LEVEL_LISTENER_KEYS = frozenset({"max.connection.creation.rate", "max.connections", "num.network.threads"})


def validate_broker(config: NodeConfig, configs: Mapping[str, str], *, per_broker: bool) -> NodeConfig:
    """The configuration that the broker would have with `configs` as its own (`per_broker`) or as everyone's dynamic
    configs; INVALID_REQUEST if it may not have them."""
    _refuse(
        "Cannot update these configs dynamically",
        (name for name in configs if (key := lookup(name)) is not None and key.update is Update.READ_ONLY),
    )
    _refuse(
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        (name for name in configs if name in SECURITY_KEYS),
    )
    if not per_broker:
        _refuse(
            "Cannot update these configs at default cluster level, broker id must be specified",
            (name for name in configs if is_per_broker(name)),
        )
    try:
        for name, text in configs.items():
            # Also those that another level hides, and that the whole configuration would not show to be wrong.
            if (key := broker_key(name)) is not None:
                parse_value(key, text)
        if per_broker:
            return config.with_dynamic(config.cluster, configs)
        return config.with_dynamic(configs, config.broker)
    except InvalidConfig as refused:
        raise InvalidConfig(refused.message or "", ErrorCode.INVALID_REQUEST) from refused


def replay_broker(
    config: NodeConfig, cluster: Mapping[str, str], broker: Mapping[str, str]
) -> tuple[NodeConfig, list[str]]:
    """The configuration under the dynamic configs that the metadata log holds, and sentences about what was left out.

    What is committed must be lived with, whoever checked it: a key that this node cannot have is ignored, as in Kafka,
    rather than the node stopped.
    """
    ignored: list[str] = []

    def usable(configs: Mapping[str, str]) -> dict[str, str]:
        kept: dict[str, str] = {}
        for name, text in configs.items():
            key = broker_key(name)
            try:
                if key is not None and key.name == name and key.update is Update.READ_ONLY:
                    raise InvalidConfig("it cannot be changed while the node runs")
                if key is not None:
                    parse_value(key, text)
                kept[name] = text
            except InvalidConfig as refused:
                ignored.append(f"The dynamic config {name} is ignored: {refused.message}")
        return kept

    cluster, broker = usable(cluster), usable(broker)
    for some_cluster, some_broker in ((cluster, broker), (cluster, {}), ({}, broker)):
        try:
            return config.with_dynamic(some_cluster, some_broker), ignored
        except InvalidConfig as refused:
            ignored.append(f"Dynamic configs are ignored because they do not fit together: {refused.message}")
    return config.with_dynamic({}, {}), ignored


def is_per_broker(name: str) -> bool:
    """Can the key only be set broker by broker?"""
    if prefixed := LISTENER_PREFIX.fullmatch(name):
        return prefixed[1] not in _CLUSTER_LEVEL_LISTENER_KEYS
    key = lookup(name)
    return key is not None and key.update is Update.PER_BROKER


def _refuse(reason: str, names: Iterable[str]) -> None:
    if found := ", ".join(names):
        raise InvalidConfig(f"{reason}: [{found}]", ErrorCode.INVALID_REQUEST)
