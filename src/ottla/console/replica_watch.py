"""Partitions that somebody looks at: each is asked after twice a second, once for all who look."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from ottla.admin.replicas import ReplicaPicture, replica_picture
from ottla.client.blocking import BlockingClient
from ottla.console.nodes import Nodes
from ottla.console.poller import Poller
from ottla.console.replication import PartitionState, ReplicaState, combine
from ottla.console.workers import Workers
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.blocking import monotonic_s

PERIOD_S = 0.5
FORGOTTEN_S = 5.0
"""Unasked for so long, nobody looks any more."""
WATCHES_MAX = 50


class Watch:
    def __init__(self) -> None:
        self.state: PartitionState | None = None
        self.error: str | None = None
        self.asked_s = monotonic_s()


class ReplicaWatches:
    """Owned by the event loop."""

    def __init__(self, workers: Workers, nodes: Nodes, poller: Poller) -> None:
        self._workers = workers
        self._nodes = nodes
        self._poller = poller
        self._watches: dict[tuple[str, int], Watch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def look(self, topic: str, partition: int) -> Watch:
        """The newest state, and a promise that it goes on being asked for."""
        watch = self._watches.get((topic, partition))
        if watch is None:
            if len(self._watches) >= WATCHES_MAX:
                watch = Watch()
                watch.error = f"{WATCHES_MAX} partitions are watched already: close a page."
                return watch
            watch = self._watches[topic, partition] = Watch()
            task = asyncio.ensure_future(self._follow(topic, partition, watch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        watch.asked_s = monotonic_s()
        return watch

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _follow(self, topic: str, partition: int, watch: Watch) -> None:
        try:
            while monotonic_s() - watch.asked_s < FORGOTTEN_S:
                try:
                    watch.state = await self._ask(topic, partition, watch.state)
                    watch.error = None
                except KafkaError as error:
                    watch.error = error.message or error.code.name
                    if watch.state is not None:
                        watch.state = combine(topic, partition, (), {}, watch.state)
                await asyncio.sleep(PERIOD_S)
        finally:
            del self._watches[topic, partition]

    async def _ask(self, topic: str, partition: int, before: PartitionState | None) -> PartitionState:
        look = await self._poller.first()
        if look is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, self._poller.error)
        brokers = {broker.node: broker for broker in look.cluster.brokers}
        known = look.topics.get(topic)
        described = next((each for each in known.partitions if each.partition == partition), None) if known else None
        if described is None:
            if before is not None:
                return before
            return from_admin(await self._workers.ask(lambda client: replica_picture(client, topic, partition)))
        asked = [brokers[node] for node in described.replicas if node in brokers]
        if not all(self._nodes.is_stranger(broker) for broker in asked):
            answers = await asyncio.gather(
                *(
                    self._workers.run(lambda broker=broker: self._nodes.replica(broker, topic, partition))  # type: ignore[misc]
                    for broker in asked
                )
            )
            views: Mapping[int, Mapping[str, object]] = {
                broker.node: view for broker, view in zip(asked, answers, strict=True) if view is not None
            }
            if views:
                return combine(topic, partition, described.replicas, views, before)
        return from_admin(await self._workers.ask(lambda client: _picture(client, topic, partition)))


def _picture(client: BlockingClient, topic: str, partition: int) -> ReplicaPicture:
    return replica_picture(client, topic, partition)


def from_admin(found: ReplicaPicture) -> PartitionState:
    """What any Kafka cluster tells: log ends, who leads, who is in sync. A follower's own watermark and the epochs of
    the log are not told, so the leader's watermark stands for all."""
    partition = found.partition
    watermark = found.high_watermark
    return PartitionState(
        topic=partition.topic,
        partition=partition.partition,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        min_isr=None,
        replicas=tuple(
            ReplicaState(
                node_id=each.node,
                role="leader" if each.is_leader else "follower",
                answers=each.end_offset is not None,
                in_sync=each.in_sync,
                log_start=each.start_offset,
                high_watermark=(
                    None if watermark is None or each.end_offset is None else min(watermark, each.end_offset)
                ),
                log_end=each.end_offset,
                size_bytes=each.size_bytes,
                leader_epoch=each.leader_epoch,
            )
            for each in found.replicas
        ),
    )
