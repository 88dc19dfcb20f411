"""What the controller is configured with."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config.node import NodeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    node_id: int
    cluster_id: str
    session_timeout_ms: int
    """`broker.session.timeout.ms`"""

    default_partitions: int
    default_replication_factor: int
    partitions_max: int
    """`ottla.partitions.max`"""

    delete_topic_enable: bool
    idle_interval_ms: int
    """`metadata.max.idle.interval.ms`; 0 for never."""

    balances_leaders: bool
    """`auto.leader.rebalance.enable`"""

    balance_interval_ms: int
    """`leader.imbalance.check.interval.seconds`"""

    unclean_election_interval_ms: int
    """`unclean.leader.election.interval.ms`"""

    token_secret: str | None
    """`delegation.token.secret.key`; there are no delegation tokens without it."""

    token_max_lifetime_ms: int
    """`delegation.token.max.lifetime.ms`"""

    token_expiry_ms: int
    """`delegation.token.expiry.time.ms`"""

    token_check_interval_ms: int
    """`delegation.token.expiry.check.interval.ms`"""

    has_authorizer: bool
    """`authorizer.class.name`: is there one who would obey access control entries?"""

    @classmethod
    def from_config(cls, config: NodeConfig, cluster_id: str) -> ControllerSettings:
        return cls(
            node_id=config.node_id,
            cluster_id=cluster_id,
            session_timeout_ms=config.get_int("broker.session.timeout.ms"),
            default_partitions=config.get_int("num.partitions"),
            default_replication_factor=config.get_int("default.replication.factor"),
            partitions_max=config.get_int("ottla.partitions.max"),
            delete_topic_enable=config.get_bool("delete.topic.enable"),
            idle_interval_ms=config.get_int("metadata.max.idle.interval.ms"),
            balances_leaders=config.get_bool("auto.leader.rebalance.enable"),
            balance_interval_ms=config.get_int("leader.imbalance.check.interval.seconds") * 1000,
            token_secret=config.find_text("delegation.token.secret.key"),
            token_max_lifetime_ms=config.get_int("delegation.token.max.lifetime.ms"),
            token_expiry_ms=config.get_int("delegation.token.expiry.time.ms"),
            token_check_interval_ms=config.get_int("delegation.token.expiry.check.interval.ms"),
            has_authorizer=config.has_authorizer,
            unclean_election_interval_ms=config.get_int("unclean.leader.election.interval.ms"),
        )
