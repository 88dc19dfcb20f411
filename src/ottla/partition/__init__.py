"""The replication machines of one partition: pure, driven by `broker/replica_manager`.

Facts come in as arguments (`on_log_end`), consequences go out as effects. These machines never see a log: what a
replica holds is told to them as offsets.
"""

from ottla.partition.effects import Effect, HighWatermarkAdvanced
from ottla.partition.leader import PartitionLeader

__all__ = ["Effect", "HighWatermarkAdvanced", "PartitionLeader"]
