"""A stream's progress, told to a consumer group, so that the tools that everybody has show Spark's lag.

The group has no members: it holds offsets alone. Telling it costs a micro-batch nothing: a commit is sent, and its
answer read before the next one. Progress is for people to look at, and the query's own is in its checkpoint; so a
refusal is a line in the log, and no reason to stop.
"""

from __future__ import annotations

import logging
from collections import defaultdict

from ottla.client.blocking import CoordinatorKind, Pending
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID
from ottla.runtime.blocking import pause
from ottla.spark.source.cluster import Cluster
from ottla.spark.source.offsets import StreamOffset
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse

_LOG = logging.getLogger(__name__)

_LAST_TRIES = 10
_BETWEEN_TRIES_S = 0.2
_PATIENCE_MS = 5_000
"""What a micro-batch waits at most for a coordinator; the next one tries again."""


class GroupProgress:
    """Commits to one group; what was told last is told again if it did not arrive."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._group_id = cluster.options.group_id
        self._done: StreamOffset | None = None
        self._told: StreamOffset | None = None
        self._pending: Pending[OffsetCommitResponse] | None = None
        self._refused = False

    def tell(self, done: StreamOffset) -> None:
        """Everything before `done` has been processed."""
        if self._pending is not None:
            self._hear()
        if done.positions:
            self._done = done
            self._say()

    def close(self) -> None:
        """Reads the last answer, and says again what did not arrive."""
        for _ in range(_LAST_TRIES):
            if self._pending is not None:
                self._hear()
            if self._refused or self._done == self._told:
                return
            pause(_BETWEEN_TRIES_S)
            self._say()

    def _say(self) -> None:
        if not self._refused and self._done is not None and self._done != self._told:
            self._send(self._done)

    def _send(self, done: StreamOffset) -> None:
        topics: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
        for each, offset in done.positions.items():
            topics[each.topic].append(
                OffsetCommitRequestPartition(partition_index=each.partition, committed_offset=offset)
            )
        request = OffsetCommitRequest(
            group_id=self._group_id,
            topics=[
                OffsetCommitRequestTopic(name=name, topic_id=done.topic_ids.get(name, ZERO_UUID), partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        client = self._cluster.client
        # From version 10 on topics are named by their ids, which not every checkpoint has.
        max_version = 1000 if all(topic.topic_id != ZERO_UUID for topic in request.topics) else 9
        try:
            coordinator = client.persist(
                lambda: client.coordinator(CoordinatorKind.GROUP, self._group_id), timeout_ms=_PATIENCE_MS
            )
            self._pending = client.start(coordinator, request, OffsetCommitResponse, max_version=max_version)
            self._told = done
        except KafkaError as error:
            self._on_refusal(error)

    def _hear(self) -> None:
        pending, self._pending = self._pending, None
        assert pending is not None
        try:
            answer = self._cluster.client.finish(pending)
            code = next((each.error_code for topic in answer.topics for each in topic.partitions if each.error_code), 0)
            if code:
                raise KafkaError(ErrorCode(code))
        except KafkaError as error:
            self._on_refusal(error)

    def _on_refusal(self, error: KafkaError) -> None:
        self._told = None
        self._cluster.client.forget_coordinator(CoordinatorKind.GROUP, self._group_id)
        if not error.code.retriable:
            self._refused = True
            _LOG.warning(
                "The progress of the query cannot be committed to the group %s (%s); set commitProgress to false, or "
                "kafka.group.id to a group that may be used.",
                self._group_id,
                error,
            )
