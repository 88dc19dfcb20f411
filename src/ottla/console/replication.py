"""The state of one partition on all of its replicas, put together from what each of them says.

Pure. A replica that does not answer keeps what was last heard of it, marked so: what a picture shows of it is memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    node_id: int
    role: str
    """leader, follower, waiting or offline, by its own word; unknown where it was never heard."""
    answers: bool
    """Was this heard from the replica itself, or of it from the leader, just now?"""
    in_sync: bool
    log_start: int | None = None
    high_watermark: int | None = None
    log_end: int | None = None
    size_bytes: int | None = None
    leader_epoch: int | None = None
    epochs: tuple[tuple[int, int], ...] = ()
    """(epoch, first offset), rising."""
    caught_up_ms_ago: int | None = None
    """By the leader's word: when it last held everything that the leader held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    topic: str
    partition: int
    leader: int | None
    leader_epoch: int
    isr: tuple[int, ...]
    min_isr: int | None
    replicas: tuple[ReplicaState, ...]
    """In the order of the assignment."""

    @property
    def leading(self) -> ReplicaState | None:
        return next((each for each in self.replicas if each.node_id == self.leader and each.answers), None)

    @property
    def high_watermark(self) -> int | None:
        """The leader's; while there is none, the highest that a replica knows."""
        if self.leading is not None and self.leading.high_watermark is not None:
            return self.leading.high_watermark
        return max((each.high_watermark for each in self.replicas if each.high_watermark is not None), default=None)


def combine(
    topic: str,
    partition: int,
    replicas: Sequence[int],
    views: Mapping[int, Mapping[str, object]],
    before: PartitionState | None,
) -> PartitionState:
    """`views` are the answers of the nodes that answered (`broker/monitoring/replica_view`). The one with the newest
    epochs knows best who leads and who is in sync: a node that is cut off still tells what it last heard."""
    newest = max(
        views.values(), key=lambda view: (_int(view, "leader_epoch"), _int(view, "partition_epoch")), default=None
    )
    remembered = {each.node_id: each for each in before.replicas} if before is not None else {}
    if newest is None:
        states = [replace(each, answers=False) for each in remembered.values()] or [
            ReplicaState(node_id=node_id, role="unknown", answers=False, in_sync=False) for node_id in replicas
        ]
        return PartitionState(
            topic=topic,
            partition=partition,
            leader=None,
            leader_epoch=before.leader_epoch if before is not None else -1,
            isr=before.isr if before is not None else (),
            min_isr=before.min_isr if before is not None else None,
            replicas=tuple(states),
        )
    isr = tuple(_ints(newest, "isr"))
    leader = _int(newest, "leader")
    followers = _followers(views.get(leader))
    return PartitionState(
        topic=topic,
        partition=partition,
        leader=leader if leader >= 0 else None,
        leader_epoch=_int(newest, "leader_epoch"),
        isr=isr,
        min_isr=_int(newest, "min_isr"),
        replicas=tuple(
            _replica(node_id, views.get(node_id), remembered.get(node_id), node_id in isr, followers.get(node_id))
            for node_id in _ints(newest, "replicas")
        ),
    )


def _replica(
    node_id: int,
    view: Mapping[str, object] | None,
    before: ReplicaState | None,
    in_sync: bool,
    follower: Mapping[str, object] | None,
) -> ReplicaState:
    since = follower.get("ms_since_caught_up") if follower is not None else None
    caught_up_ms_ago = since if isinstance(since, int) else None
    if view is None:
        if before is None:
            before = ReplicaState(node_id=node_id, role="unknown", answers=False, in_sync=in_sync)
        return replace(before, answers=False, in_sync=in_sync, caught_up_ms_ago=caught_up_ms_ago)
    entries = view.get("epochs")
    return ReplicaState(
        node_id=node_id,
        role=str(view.get("role")),
        answers=True,
        in_sync=in_sync,
        log_start=_int(view, "log_start_offset"),
        high_watermark=_int(view, "high_watermark"),
        log_end=_int(view, "log_end_offset"),
        size_bytes=_int(view, "size_bytes"),
        leader_epoch=_int(view, "leader_epoch"),
        epochs=tuple(
            (_int(entry, "epoch"), _int(entry, "start_offset"))
            for entry in (entries if isinstance(entries, list) else [])
        ),
        caught_up_ms_ago=caught_up_ms_ago,
    )


def _followers(view: Mapping[str, object] | None) -> dict[int, Mapping[str, object]]:
    found = view.get("followers") if view is not None else None
    return {_int(each, "node_id"): each for each in (found if isinstance(found, list) else [])}


def _int(view: Mapping[str, object], key: str) -> int:
    value = view.get(key)
    return value if isinstance(value, int) else -1


def _ints(view: Mapping[str, object], key: str) -> list[int]:
    value = view.get(key)
    return [each for each in value if isinstance(each, int)] if isinstance(value, list) else []
