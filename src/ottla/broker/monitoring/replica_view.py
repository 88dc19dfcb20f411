"""One replica as this node sees it, as JSON: for the console's picture of a partition, and for curl.

Holds what a client with a connection could ask for anyway, and nothing of any record.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ottla.partition.replica import NEVER

if TYPE_CHECKING:
    from ottla.broker.hosted import HostedPartition
    from ottla.partition.leader import PartitionLeader
    from ottla.partition.replica import FollowerProgress

EPOCHS_MAX = 16
"""The newest; older ones are far from where anything moves."""


def replica_page(node_id: int, partition: HostedPartition, now_ms: int) -> str:
    """`now_ms` is monotonic, as the times of followers are."""
    log, image, leader = partition.log, partition.image, partition.leader
    if partition.offline:
        role = "offline"
    elif leader is not None:
        role = "leader"
    elif partition.following is not None:
        role = "follower"
    else:
        role = "waiting"
    answer = {
        "node_id": node_id,
        "topic": partition.topic,
        "partition": partition.index,
        "role": role,
        "leader": image.leader,
        "leader_epoch": image.leader_epoch,
        "partition_epoch": image.partition_epoch,
        "replicas": image.replicas,
        "isr": image.isr,
        "elr": image.elr,
        "min_isr": partition.min_isr,
        "log_start_offset": log.log_start_offset,
        "high_watermark": log.high_watermark,
        "last_stable_offset": log.last_stable_offset,
        "log_end_offset": log.log_end_offset,
        "size_bytes": log.size_bytes(),
        "epochs": [{"epoch": epoch, "start_offset": start} for epoch, start in log.epochs.entries[-EPOCHS_MAX:]],
        "followers": [] if leader is None else _followers(leader, now_ms),
    }
    return json.dumps(answer, separators=(",", ":")) + "\n"


def _followers(leader: PartitionLeader, now_ms: int) -> list[dict[str, int | bool | None]]:
    return [
        {
            "node_id": node_id,
            "log_end_offset": None if progress.log_end < 0 else progress.log_end,
            "in_sync": node_id in leader.isr,
            "ms_since_caught_up": _since_caught_up(progress, now_ms),
        }
        for node_id, progress in leader.followers.items()
    ]


def _since_caught_up(progress: FollowerProgress, now_ms: int) -> int | None:
    return None if progress.caught_up_ms == NEVER else max(0, now_ms - progress.caught_up_ms)
