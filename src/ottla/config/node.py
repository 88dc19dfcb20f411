"""The configuration of one node: what its properties say, with Kafka's defaults, checked as a whole.

A `NodeConfig` is immutable. It is built from text (a properties file, `--set KEY=VALUE`); what the cluster's metadata
adds while the node runs makes a new one (`with_dynamic`). Whoever holds one can rely on every rule of the table and
on every rule between keys (`rules`). Errors are `InvalidConfig`, one sentence that names the key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from ottla.config.key import ConfigValue, InvalidConfig, Scope, default_value, parse_value
from ottla.config.listeners import (
    Listener,
    Voter,
    listener_name,
    parse_addresses,
    parse_connection_limits,
    parse_listeners,
    parse_protocol_map,
    parse_voters,
)
from ottla.config.properties import parse_properties
from ottla.config.rules import check
from ottla.config.table import broker_key, broker_synonyms, keys

_REQUIRED = ("process.roles", "node.id", "controller.listener.names")

_SUCCESSORS = {
    "advertised.host.name": "advertised.listeners",
    "advertised.port": "advertised.listeners",
    "host.name": "listeners",
    "port": "listeners",
    "replica.lag.max.messages": "replica.lag.time.max.ms",
    "zookeeper.connect": "controller.quorum.bootstrap.servers",
}
"""Keys that Kafka once had, and what took their place: an old file may still have them."""


SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"
"""Keys of the authorizer, not of Kafka's table: Kafka hands its authorizer the node's own file as it is."""


class NodeConfig:
    """A node's configuration: `config["num.partitions"]`, or typed, `config.get_int("num.partitions")`."""

    def __init__(
        self,
        static: Mapping[str, str],
        *,
        cluster: Mapping[str, str] | None = None,
        broker: Mapping[str, str] | None = None,
    ) -> None:
        """`static` is the node's own file; `cluster` and `broker` are the dynamic configs of all brokers and of this
        one, which the metadata log holds."""
        self.static: Mapping[str, str] = _with_both_ids(static)
        self.cluster: Mapping[str, str] = dict(cluster or {})
        self.broker: Mapping[str, str] = dict(broker or {})
        self.properties: Mapping[str, str] = override(override(self.static, self.cluster), self.broker)
        self._values: dict[str, ConfigValue] = {}
        for name in _REQUIRED:
            if name not in self.properties:
                raise InvalidConfig(f'Missing required configuration "{name}" which has no default value.')
        self.topic_defaults: dict[str, ConfigValue] = {}
        """What topics without overrides have; worked out by `config.topic` when first asked for."""
        for name, text in self.properties.items():
            key = broker_key(name)
            if key is not None:
                self._values[name] = parse_value(key if key.name == name else key._replace(name=name), text)
        check(self)

    @classmethod
    def from_text(cls, text: str, overrides: Mapping[str, str] | None = None) -> NodeConfig:
        """From the text of a properties file; `overrides` win."""
        return cls({**parse_properties(text), **(overrides or {})})

    def with_dynamic(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> NodeConfig:
        """The same node under other dynamic configs; `InvalidConfig` if they do not fit."""
        return NodeConfig(self.static, cluster=cluster, broker=broker)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Keys that are set and that Kafka does not have: kept, shown, and worth a warning."""
        return tuple(name for name in self.properties if broker_key(name) is None)

    def warnings(self) -> Iterator[str]:
        """Sentences for the log of a starting node."""
        for name in self.unknown:
            if self.has_authorizer and name in (SUPER_USERS, ALLOW_EVERYONE):
                continue
            import difflib  # Here, because most nodes have nothing to be warned of.

            successor = _SUCCESSORS.get(name)
            if successor is None:
                similar = difflib.get_close_matches(name, keys(Scope.BROKER), n=1, cutoff=0.85)
                successor = similar[0] if similar else None
            instead = "" if successor is None else f": use {successor} instead"
            yield f"The configuration {name!r} is not known and has no effect{instead}."
        if self.get_list("config.providers"):
            yield "config.providers is set, but variables in values are not replaced."

    # The authorizer.

    @property
    def has_authorizer(self) -> bool:
        return bool(self["authorizer.class.name"])

    @property
    def super_users(self) -> frozenset[str]:
        """Principals who may do everything, `type:name` each, with semicolons between them."""
        users = (user.strip() for user in self.static.get(SUPER_USERS, "").split(";"))
        return frozenset(user for user in users if user)

    @property
    def allow_everyone_if_no_acl_found(self) -> bool:
        return self.static.get(ALLOW_EVERYONE, "").strip().lower() == "true"

    # Values.

    def __getitem__(self, name: str) -> ConfigValue:
        """The value of a key of the table, with Kafka's default."""
        try:
            return self._values[name]
        except KeyError:
            key = broker_key(name)
            if key is None:
                raise
            value = self._values[name] = default_value(key)
            return value

    def get_int(self, name: str) -> int:
        value = self[name]
        assert isinstance(value, int)
        return value

    def find_int(self, name: str) -> int | None:
        """For keys that may be unset."""
        value = self[name]
        assert value is None or isinstance(value, int)
        return value

    def int_where_set(self, name: str, otherwise: int) -> int:
        """For keys whose default is Apache Kafka's choice and not ours: theirs counts only where somebody set it."""
        return self.get_int(name) if name in self.properties else otherwise

    def get_bool(self, name: str) -> bool:
        value = self[name]
        assert isinstance(value, bool)
        return value

    def get_float(self, name: str) -> float:
        value = self[name]
        assert isinstance(value, int | float)
        return float(value)

    def get_text(self, name: str) -> str:
        value = self[name]
        assert isinstance(value, str)
        return value

    def find_text(self, name: str) -> str | None:
        """For keys that may be unset."""
        value = self[name]
        assert value is None or isinstance(value, str)
        return value

    def get_list(self, name: str) -> tuple[str, ...]:
        value = self[name]
        assert value is None or isinstance(value, tuple)
        return value or ()

    def listener_value(self, listener: str, name: str) -> ConfigValue:
        """The value of a key for one listener: its own (`listener.name.<listener>.<key>`), or else everyone's."""
        own = f"listener.name.{listener.lower()}.{name}"
        return self[own] if own in self.properties else self[name]

    def mechanism_value(self, listener: str, mechanism: str, name: str) -> ConfigValue:
        """The value of a key for one SASL mechanism of one listener, or else the listener's."""
        own = f"listener.name.{listener.lower()}.{mechanism.lower()}.{name}"
        return self[own] if own in self.properties else self.listener_value(listener, name)

    def listener_ints(self, name: str) -> dict[str, int]:
        """The same for every listener, by its name."""
        values = {listener.name: self.listener_value(listener.name, name) for listener in self.listeners}
        return {listener: value for listener, value in values.items() if isinstance(value, int)}

    # Identity and quorum.

    @property
    def node_id(self) -> int:
        return self.get_int("node.id")

    @property
    def is_broker(self) -> bool:
        return "broker" in self.get_list("process.roles")

    @property
    def is_controller(self) -> bool:
        return "controller" in self.get_list("process.roles")

    @cached_property
    def voters(self) -> tuple[Voter, ...]:
        return parse_voters("controller.quorum.voters", self.get_list("controller.quorum.voters"))

    @cached_property
    def bootstrap_controllers(self) -> tuple[tuple[str, int], ...]:
        key = "controller.quorum.bootstrap.servers"
        return parse_addresses(key, self.get_list(key))

    # Listeners.

    @cached_property
    def controller_listener_names(self) -> tuple[str, ...]:
        return tuple(name.upper() for name in self.get_list("controller.listener.names"))

    @cached_property
    def security_protocols(self) -> Mapping[str, str]:
        """The protocol of each listener name. Controller listeners need no entry while all is PLAINTEXT."""
        key = "listener.security.protocol.map"
        protocols = parse_protocol_map(key, self.get_text(key))
        if key not in self.properties:
            names = {listener_name("listeners", entry) for entry in self.get_list("listeners")}
            if not names.union(self.controller_listener_names) & {"SSL", "SASL_PLAINTEXT", "SASL_SSL"}:
                protocols |= dict.fromkeys(self.controller_listener_names, "PLAINTEXT")
        return protocols

    @cached_property
    def listeners(self) -> tuple[Listener, ...]:
        """Every listener of the node, for brokers and for controllers."""
        return parse_listeners("listeners", self.get_list("listeners"), self.security_protocols, distinct_ports=True)

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        return tuple(each for each in self.listeners if each.name not in self.controller_listener_names)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        return tuple(each for each in self.listeners if each.name in self.controller_listener_names)

    @cached_property
    def _advertised(self) -> tuple[Listener, ...]:
        key = "advertised.listeners"
        if self[key] is None:
            return self.listeners
        return parse_listeners(key, self.get_list(key), self.security_protocols, distinct_ports=False)

    @property
    def advertised_broker_listeners(self) -> tuple[Listener, ...]:
        """What clients are told; an empty host stands for this machine's name, a port 0 for the port that was got."""
        return tuple(each for each in self._advertised if each.name not in self.controller_listener_names)

    @property
    def advertised_controller_listeners(self) -> tuple[Listener, ...]:
        """What other nodes are told, in the order of `controller.listener.names`; a listener on all addresses that is
        not advertised elsewhere has an empty host."""
        advertised = {each.name: each for each in self._advertised}
        own = {each.name: each for each in self.listeners}
        found: list[Listener] = []
        for name in self.controller_listener_names:
            if (listener := advertised.get(name) if self["advertised.listeners"] is not None else None) is not None:
                found.append(listener)
            elif (listener := own.get(name)) is not None:
                found.append(listener._replace(host="") if listener.host == "0.0.0.0" else listener)
        return tuple(found)

    @property
    def inter_broker_listener_name(self) -> str:
        name = self.find_text("inter.broker.listener.name")
        return self.get_text("security.inter.broker.protocol") if name is None else name.upper()

    @cached_property
    def gateway_listeners(self) -> frozenset[str]:
        """Those on which this node stands for the whole cluster."""
        return frozenset(name.upper() for name in self.get_list("ottla.gateway.listeners"))

    @cached_property
    def connection_limits(self) -> Mapping[str, int]:
        """The most connections of single hosts."""
        key = "max.connections.per.ip.overrides"
        return parse_connection_limits(key, self.get_text(key))

    # Logs.

    @property
    def log_dirs(self) -> tuple[str, ...]:
        return self.get_list("log.dirs") or self.get_list("log.dir")

    @property
    def metadata_log_dir(self) -> str:
        return self.find_text("metadata.log.dir") or self.log_dirs[0]

    @property
    def cordoned_log_dirs(self) -> frozenset[str]:
        named = self.get_list("cordoned.log.dirs")
        return frozenset(self.log_dirs if "*" in named else named)

    @property
    def log_retention_ms(self) -> int:
        """-1 for ever."""
        value = self.find_int("log.retention.ms")
        if value is None:
            minutes = self.find_int("log.retention.minutes")
            value = self.get_int("log.retention.hours") * 3_600_000 if minutes is None else minutes * 60_000
        return max(value, -1)

    @property
    def log_roll_ms(self) -> int:
        value = self.find_int("log.roll.ms")
        return self.get_int("log.roll.hours") * 3_600_000 if value is None else value

    @property
    def log_roll_jitter_ms(self) -> int:
        value = self.find_int("log.roll.jitter.ms")
        return self.get_int("log.roll.jitter.hours") * 3_600_000 if value is None else value

    @property
    def log_flush_interval_ms(self) -> int:
        value = self.find_int("log.flush.interval.ms")
        return self.get_int("log.flush.scheduler.interval.ms") if value is None else value


def override(properties: Mapping[str, str], dynamic: Mapping[str, str]) -> dict[str, str]:
    """Dynamic configs on top of others: a key that is set also hides the other names of the same thing."""
    result = dict(properties)
    for name, value in dynamic.items():
        if not name.startswith("listener.name."):
            for synonym in broker_synonyms(name):
                result.pop(synonym, None)
        result[name] = value
    return result


def _with_both_ids(properties: Mapping[str, str]) -> dict[str, str]:
    """`broker.id` and `node.id` stand in for each other."""
    result = dict(properties)
    if "broker.id" in result:
        result.setdefault("node.id", result["broker.id"])
    elif "node.id" in result:
        result["broker.id"] = result["node.id"]
    return result
