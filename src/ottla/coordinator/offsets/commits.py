"""Commits of offsets: who may, what is refused, and the records that they become."""

from __future__ import annotations

from typing import NamedTuple

from ottla.coordinator.groups import Group, PartitionCheck, Shared
from ottla.coordinator.offsets.codec import NEVER, CommittedOffset, encode_key, encode_value
from ottla.coordinator.outcome import AnyEffect, Outcome
from ottla.coordinator.stored import AnyRecord, EncodedRecord
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID
from ottla.wire.messages.offset_commit_request import OffsetCommitRequest
from ottla.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from ottla.wire.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

DEFAULT_RETENTION = -1
FIRST_VERSION_WITH_NOT_FOUND = 9
"""Older clients of OffsetCommit do not know GROUP_ID_NOT_FOUND."""


def _record(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> EncodedRecord:
    place = (group_id, topic, partition)
    return EncodedRecord(encode_key(group_id, topic, partition), encode_value(committed), place)


class Admitted(NamedTuple):
    """A commit that may be made."""

    check: PartitionCheck | None
    """Is asked of each partition, if there is one."""
    effects: list[AnyEffect]


class Commits:
    __slots__ = ("_metadata_size_max", "_shared")

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._metadata_size_max = shared.config.get_int("offset.metadata.max.bytes")

    def admit(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation: int, api_version: int
    ) -> Admitted:
        """May this member commit offsets of the group? Raises `KafkaError` if not."""
        group = self._shared.groups.group(group_id)
        if group is None:
            if generation >= 0:
                raise KafkaError(
                    ErrorCode.GROUP_ID_NOT_FOUND
                    if api_version >= FIRST_VERSION_WITH_NOT_FOUND
                    else ErrorCode.ILLEGAL_GENERATION
                )
            return Admitted(None, [])
        check = group.check_offset_commit(member_id, group_instance_id, generation, False, api_version)
        return Admitted(check, [*group.on_offset_commit(member_id)])

    def commit(self, request: OffsetCommitRequest, api_version: int, now_ms: int) -> Outcome[OffsetCommitResponse]:
        """Each topic of the request has its name and its id, and exists. Raises `KafkaError` for the whole request."""
        check, effects = self.admit(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            api_version,
        )
        retention_ms = request.retention_time_ms
        expire_timestamp_ms = NEVER if retention_ms == DEFAULT_RETENTION else now_ms + retention_ms
        response = OffsetCommitResponse()
        records: list[AnyRecord] = []
        for topic in request.topics:
            answer = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
            response.topics.append(answer)
            for wanted in topic.partitions:
                index = wanted.partition_index
                metadata = wanted.committed_metadata or ""
                if self._is_too_large(metadata):
                    error = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    error = ErrorCode.NONE
                    if check is not None:
                        check(topic.name, topic.topic_id, index)
                    committed = CommittedOffset(
                        wanted.committed_offset,
                        wanted.committed_leader_epoch,
                        metadata,
                        now_ms,
                        expire_timestamp_ms,
                        topic.topic_id,
                    )
                    records.append(_record(request.group_id, topic.name, index, committed))
                answer.partitions.append(OffsetCommitResponsePartition(partition_index=index, error_code=error))
        self._shared.tally.offset_commits.value += len(records)
        return Outcome(response, records, effects)

    def commit_transactional(
        self, request: TxnOffsetCommitRequest, api_version: int, now_ms: int
    ) -> Outcome[TxnOffsetCommitResponse]:
        """As `commit`, for a transaction: the records are staged until its marker. Producers expect ILLEGAL_GENERATION
        where a consumer of KIP-848 would hear of a stale epoch."""
        try:
            return self._commit_transactional(request, api_version, now_ms)
        except KafkaError as error:
            if error.code == ErrorCode.STALE_MEMBER_EPOCH:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION) from None
            raise

    def _commit_transactional(
        self, request: TxnOffsetCommitRequest, api_version: int, now_ms: int
    ) -> Outcome[TxnOffsetCommitResponse]:
        group = self._shared.groups.group(request.group_id)
        check = self._check_transactional(group, request, api_version)
        response = TxnOffsetCommitResponse()
        records: list[AnyRecord] = []
        for topic in request.topics:
            answer = TxnOffsetCommitResponseTopic(name=topic.name)
            response.topics.append(answer)
            known = self._shared.image.topic(topic.name)
            topic_id = ZERO_UUID if known is None else known.topic_id
            if check is not None and known is None:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
            for wanted in topic.partitions:
                index = wanted.partition_index
                metadata = wanted.committed_metadata or ""
                if self._is_too_large(metadata):
                    error = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    error = ErrorCode.NONE
                    if check is not None:
                        check(topic.name, topic_id, index)
                    # Kafka does not write the topic's id here.
                    committed = CommittedOffset(
                        wanted.committed_offset, wanted.committed_leader_epoch, metadata, now_ms
                    )
                    records.append(_record(request.group_id, topic.name, index, committed))
                answer.partitions.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=error))
        self._shared.tally.offset_commits.value += len(records)
        return Outcome(response, records)

    def _check_transactional(
        self, group: Group | None, request: TxnOffsetCommitRequest, api_version: int
    ) -> PartitionCheck | None:
        if group is not None:
            return group.check_offset_commit(
                request.member_id, request.group_instance_id, request.generation_id, True, api_version
            )
        if request.generation_id >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return None

    def _is_too_large(self, metadata: str) -> bool:
        """The limit counts what Java calls characters: units of UTF-16."""
        size_max = self._metadata_size_max
        if len(metadata) * 2 <= size_max:
            return False
        return len(metadata.encode("utf-16-le", "surrogatepass")) // 2 > size_max
