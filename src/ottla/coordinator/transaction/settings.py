"""What the transaction coordinator is configured with."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config.node import NodeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    timeout_ms_max: int = 900_000
    """`transaction.max.timeout.ms`"""
    id_expiration_ms: int = 604_800_000
    """`transactional.id.expiration.ms`"""
    abort_interval_ms: int = 10_000
    """`transaction.abort.timed.out.transaction.cleanup.interval.ms`"""
    expire_interval_ms: int = 3_600_000
    """`transaction.remove.expired.transaction.cleanup.interval.ms`"""
    two_phase_commit: bool = False
    """`transaction.two.phase.commit.enable`"""

    @classmethod
    def from_config(cls, config: NodeConfig) -> TransactionSettings:
        return cls(
            timeout_ms_max=config.get_int("transaction.max.timeout.ms"),
            id_expiration_ms=config.get_int("transactional.id.expiration.ms"),
            abort_interval_ms=config.get_int("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            expire_interval_ms=config.get_int("transaction.remove.expired.transaction.cleanup.interval.ms"),
            two_phase_commit=config.get_bool("transaction.two.phase.commit.enable"),
        )
