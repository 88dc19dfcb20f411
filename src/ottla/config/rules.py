"""What must hold between the keys of a node, beyond the rule of each: Kafka's own checks, in Kafka's order.

Driven by `NodeConfig`, which no one gets to see unless all of this holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.key import InvalidConfig
from ottla.config.listeners import NONROUTABLE

if TYPE_CHECKING:
    from ottla.config.node import NodeConfig

BUILT_IN_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

_ASSIGNORS = {
    "group.consumer.assignors": ("uniform", "range"),
    "group.share.assignors": ("simple",),
}
_ASSIGNOR_PACKAGE = "org.apache.kafka.coordinator.group.assignor."

_WORDS = {">=": "greater than or equal to", "<=": "less than or equal to", "<": "less than"}


def check(config: NodeConfig) -> None:
    """Raise `InvalidConfig` for the first rule that is broken."""
    if config.get_int("broker.id") != config.node_id:
        raise InvalidConfig("You must set `node.id` to the same value as `broker.id`.")
    _check_logs(config)
    _check_replication(config)
    _check_quorum(config)
    _check_listeners(config)
    _check_connections(config)
    _check_groups(config)
    _check_security(config)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InvalidConfig(message)


def _check_logs(config: NodeConfig) -> None:
    _require(config.log_roll_ms >= 1, "log.roll.ms must be greater than or equal to 1")
    _require(config.log_roll_jitter_ms >= 0, "log.roll.jitter.ms must be greater than or equal to 0")
    _require(
        config.log_retention_ms >= 1 or config.log_retention_ms == -1,
        "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
    )
    threads = config.get_int("log.cleaner.threads")
    _require(threads > 0, "log.cleaner.threads must be at least 1")
    _require(
        config.get_int("log.cleaner.dedupe.buffer.size") // threads > 1024 * 1024,
        "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
    )
    missing = [path for path in config.get_list("cordoned.log.dirs") if path != "*" and path not in config.log_dirs]
    _require(
        not missing,
        "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
        f"Missing entries : {', '.join(missing)}",
    )


def _check_replication(config: NodeConfig) -> None:
    wait_ms = config.get_int("replica.fetch.wait.max.ms")
    _require(
        wait_ms <= config.get_int("replica.socket.timeout.ms"),
        "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary "
        "socket timeouts",
    )
    _require(
        wait_ms <= config.get_int("replica.lag.time.max.ms"),
        "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms to prevent "
        "frequent changes in ISR",
    )


def _check_quorum(config: NodeConfig) -> None:
    voters = {voter.id for voter in config.voters}
    _require(
        bool(voters or config.bootstrap_controllers),
        "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap "
        "controllers or controller.quorum.voters must contain a parseable set of controllers.",
    )
    shown = f"controller.quorum.voters={sorted(voters)}"
    if config.is_controller:
        _require(
            not voters or config.node_id in voters,
            f"If process.roles contains the 'controller' role, the node id {config.node_id} must be included in the "
            f"set of voters {shown}",
        )
    else:
        _require(
            config.node_id not in voters,
            f"If process.roles contains just the 'broker' role, the node id {config.node_id} must not be included in "
            f"the set of voters {shown}",
        )


def _check_listeners(config: NodeConfig) -> None:
    names = {listener.name for listener in config.listeners}
    if config.is_controller:
        _check_controller_listeners(config, names)
    else:
        _require(
            not config.controller_listeners,
            "controller.listener.names must not contain a value appearing in the 'listeners' configuration when "
            "running KRaft with just the broker role",
        )
        for name in config.controller_listener_names:
            _require(
                name in config.security_protocols,
                f"Controller listener with name {name} defined in controller.listener.names not found in "
                "listener.security.protocol.map (an explicit security mapping for each controller listener is "
                "required if listener.security.protocol.map is non-empty, or if there are security protocols other "
                "than PLAINTEXT in use)",
            )
    if config.is_broker:
        _check_broker_listeners(config, names)
    routable = all(
        listener.host != NONROUTABLE
        for listener in (*config.advertised_broker_listeners, *config.advertised_controller_listeners)
    )
    _require(
        routable,
        "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.",
    )
    _check_gateways(config, names)
    for entry in config.get_list("early.start.listeners"):
        _require(
            entry.upper() in names or entry.upper() in config.controller_listener_names,
            f"early.start.listeners contains listener {entry}, but this is not contained in listeners or "
            "controller.listener.names",
        )


def _check_controller_listeners(config: NodeConfig, names: set[str]) -> None:
    if not config.is_broker:
        _require(
            len(config.controller_listeners) == len(config.listeners),
            "The listeners config must only contain KRaft controller listeners from controller.listener.names when "
            "process.roles=controller",
        )
    _require(
        bool(config.advertised_controller_listeners),
        "controller.listener.names must contain at least one value appearing in the 'listeners' configuration when "
        "running the KRaft controller role",
    )
    _require(
        names.issuperset(config.controller_listener_names),
        "controller.listener.names must only contain values appearing in the 'listeners' configuration when running "
        "the KRaft controller role",
    )


def _check_broker_listeners(config: NodeConfig, names: set[str]) -> None:
    advertised = [listener.name for listener in config.advertised_broker_listeners]
    _require(
        bool(advertised),
        "There must be at least one broker advertised listener. "
        "Perhaps all listeners appear in controller.listener.names?",
    )
    inter_broker = config.inter_broker_listener_name
    if config["inter.broker.listener.name"] is not None:
        _require(
            "security.inter.broker.protocol" not in config.properties,
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
        )
        _require(
            inter_broker in config.security_protocols,
            f"Listener with name {inter_broker} defined in inter.broker.listener.name not found in "
            "listener.security.protocol.map.",
        )
    _require(
        inter_broker in advertised,
        "inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid options based "
        f"on currently configured listeners are {','.join(advertised)}",
    )
    _require(
        names.issuperset(advertised),
        "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. Found "
        f"{','.join(advertised)}. The valid options based on the current configuration are "
        f"{','.join(listener.name for listener in config.listeners)}",
    )


def _check_gateways(config: NodeConfig, names: set[str]) -> None:
    key = "ottla.gateway.listeners"
    for name in sorted(config.gateway_listeners):
        _require(name in names, f"{key} names {name}, which is none of the node's listeners.")
        _require(
            name != config.inter_broker_listener_name and name not in config.controller_listener_names,
            f"{key} names {name}, over which the nodes speak to each other: give the gateway a listener of its own.",
        )


def _check_connections(config: NodeConfig) -> None:
    queued = config.get_int("queued.max.request.bytes")
    _require(
        queued <= 0 or queued >= config.get_int("socket.request.max.bytes"),
        "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
    )
    limits = config.connection_limits
    if config.get_int("max.connections.per.ip") == 0:
        _require(
            bool(limits),
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
        )
    idle_ms = config.get_int("connections.max.idle.ms")
    delay_ms = config.get_int("connection.failed.authentication.delay.ms")
    _require(
        idle_ms < 0 or delay_ms < idle_ms,
        f"connection.failed.authentication.delay.ms={delay_ms} should always be less than "
        f"connections.max.idle.ms={idle_ms} to prevent failed authentication responses from timing out",
    )


def _check_groups(config: NodeConfig) -> None:
    _require(
        "classic" in config.get_list("group.coordinator.rebalance.protocols"),
        "group.coordinator.rebalance.protocols: Disabling the 'classic' protocol is not supported.",
    )
    for key, built_in in _ASSIGNORS.items():
        classes = {f"{_ASSIGNOR_PACKAGE}{name.capitalize()}Assignor" for name in built_in}
        for name in config.get_list(key):
            _require(
                name in built_in or name in classes,
                f"{key}: Class {name} cannot be found; there are {', '.join(built_in)}",
            )
    for key in ("offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec"):
        codec = config.get_int(key)
        _require(0 <= codec <= 4, f"{key}: Unknown compression type id: {codec}")
    for kind in ("consumer", "share", "streams"):
        for what in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
            _check_bounds(config, f"group.{kind}", what)
        _compare(config, f"group.{kind}.heartbeat.interval.ms", "<", f"group.{kind}.session.timeout.ms")
    for what in ("delivery.count.limit", "record.lock.duration.ms", "partition.max.record.locks"):
        _check_bounds(config, "group.share", what)
    _compare(config, "group.share.max.share.sessions", ">=", "group.share.max.size")
    _compare(config, "group.streams.num.standby.replicas", "<=", "group.streams.max.standby.replicas")


def _check_bounds(config: NodeConfig, prefix: str, what: str) -> None:
    """The least and the most that groups may be given, and the broker's own choice between them."""
    least, own, most = f"{prefix}.min.{what}", f"{prefix}.{what}", f"{prefix}.max.{what}"
    _compare(config, most, ">=", least)
    _compare(config, own, ">=", least)
    _compare(config, own, "<=", most)


def _compare(config: NodeConfig, left: str, relation: str, right: str) -> None:
    a, b = config.get_int(left), config.get_int(right)
    holds = a >= b if relation == ">=" else a <= b if relation == "<=" else a < b
    _require(holds, f"{left} must be {_WORDS[relation]} {right}")


def _check_security(config: NodeConfig) -> None:
    # No value names code to load, and a verifier that is named but missing must not be skipped in silence.
    authorizer = config.get_text("authorizer.class.name")
    _require(
        authorizer in ("", BUILT_IN_AUTHORIZER),
        f"authorizer.class.name: Class {authorizer} cannot be found; there is {BUILT_IN_AUTHORIZER}",
    )
    if not config.is_broker:
        return
    protocol = config.security_protocols.get(config.inter_broker_listener_name, "")
    if protocol.startswith("SASL"):
        enabled = config.listener_value(config.inter_broker_listener_name, "sasl.enabled.mechanisms")
        assert isinstance(enabled, tuple)
        _require(
            config.get_text("sasl.mechanism.inter.broker.protocol") in enabled,
            "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms when SASL is used for "
            "inter-broker communication",
        )
