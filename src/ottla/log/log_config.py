"""The topic configs that a log obeys, parsed once: an append must not look anything up by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MAX_LONG = (1 << 63) - 1
MAX_INT = (1 << 31) - 1

ConfigValue = str | int | float | bool | None | Iterable[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Kafka's keys with Kafka's defaults; a negative retention is without limit."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    flush_messages: int = MAX_LONG
    flush_ms: int = MAX_LONG
    retention_bytes: int = -1
    retention_ms: int = 7 * 24 * 3600 * 1000
    file_delete_delay_ms: int = 60_000
    max_message_bytes: int = 1_048_588
    preallocate: bool = False
    delete: bool = True
    compact: bool = False
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = MAX_LONG
    message_timestamp_after_max_ms: int = 3_600_000
    compression_type: str = "producer"
    delete_retention_ms: int = 24 * 3600 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_LONG
    min_cleanable_dirty_ratio: float = 0.5

    @classmethod
    def from_values(cls, values: Mapping[str, ConfigValue]) -> LogConfig:
        """From typed values by Kafka's key; keys that the log does not use are passed over, missing ones are defaults.

        `internal.segment.bytes`, with which Kafka's own tests go below the floor of `segment.bytes`, wins over it.
        """
        chosen = {field: values[key] for key, field in _FIELD_OF_KEY.items() if key in values}
        if values.get("internal.segment.bytes") is not None:
            chosen["segment_bytes"] = values["internal.segment.bytes"]
        policy = values.get("cleanup.policy")
        if policy is not None:
            names = policy.split(",") if isinstance(policy, str) else list(policy)  # type: ignore[arg-type]
            stripped = {name.strip() for name in names}
            chosen["delete"] = "delete" in stripped
            chosen["compact"] = "compact" in stripped
        return cls(**chosen)  # type: ignore[arg-type]

    @property
    def roll_ms(self) -> int:
        """The age at which a segment is sealed: compaction waits for that, so its own limit counts too (KIP-354)."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms

    @property
    def max_offset_index_entries(self) -> int:
        return self.segment_index_bytes // 8

    @property
    def max_time_index_entries(self) -> int:
        """One slot stays free for the entry that sealing a segment adds."""
        return self.segment_index_bytes // 12 - 1


_FIELD_OF_KEY = {
    "segment.bytes": "segment_bytes",
    "segment.ms": "segment_ms",
    "segment.jitter.ms": "segment_jitter_ms",
    "segment.index.bytes": "segment_index_bytes",
    "index.interval.bytes": "index_interval_bytes",
    "flush.messages": "flush_messages",
    "flush.ms": "flush_ms",
    "retention.bytes": "retention_bytes",
    "retention.ms": "retention_ms",
    "file.delete.delay.ms": "file_delete_delay_ms",
    "max.message.bytes": "max_message_bytes",
    "preallocate": "preallocate",
    "message.timestamp.type": "message_timestamp_type",
    "message.timestamp.before.max.ms": "message_timestamp_before_max_ms",
    "message.timestamp.after.max.ms": "message_timestamp_after_max_ms",
    "compression.type": "compression_type",
    "delete.retention.ms": "delete_retention_ms",
    "min.compaction.lag.ms": "min_compaction_lag_ms",
    "max.compaction.lag.ms": "max_compaction_lag_ms",
    "min.cleanable.dirty.ratio": "min_cleanable_dirty_ratio",
}
