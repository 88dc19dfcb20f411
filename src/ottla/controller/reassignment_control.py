"""Reassignments: begun, replaced, cancelled and listed (KIP-455). With the ISR they complete (`partition_change`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.controller.generated import Generated, check_size
from ottla.controller.leadership import Leadership
from ottla.controller.partition_change import Election, Wanted, change_partition
from ottla.controller.placement import check_assignment
from ottla.controller.reassignment import Reassignment
from ottla.controller.speculation import Speculation
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.images import PartitionImage, TopicImage
from ottla.metadata.records import MetadataRecord

if TYPE_CHECKING:
    from ottla.wire.messages.alter_partition_reassignments_request import (
        AlterPartitionReassignmentsRequest,
        ReassignablePartition,
    )
    from ottla.wire.messages.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
    from ottla.wire.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
    from ottla.wire.messages.list_partition_reassignments_response import (
        ListPartitionReassignmentsResponse,
        OngoingTopicReassignment,
    )


class ReassignmentControl:
    def __init__(self, state: Speculation, leadership: Leadership) -> None:
        self._state = state
        self._leadership = leadership

    def alter(self, request: AlterPartitionReassignmentsRequest) -> Generated[AlterPartitionReassignmentsResponse]:
        """Each partition succeeds or fails by itself; the records of those that succeed are one batch."""
        from ottla.wire.messages.alter_partition_reassignments_response import (
            AlterPartitionReassignmentsResponse,
            ReassignablePartitionResponse,
            ReassignableTopicResponse,
        )

        allow_factor_change = request.allow_replication_factor_change
        records: list[MetadataRecord] = []
        response = AlterPartitionReassignmentsResponse(
            error_message=None, allow_replication_factor_change=allow_factor_change
        )
        altered: set[tuple[str, int]] = set()
        for topic in request.topics:
            answer = ReassignableTopicResponse(name=topic.name)
            response.responses.append(answer)
            for asked in topic.partitions:
                result = ReassignablePartitionResponse(partition_index=asked.partition_index, error_message=None)
                answer.partitions.append(result)
                try:
                    if (topic.name, asked.partition_index) in altered:
                        raise KafkaError(ErrorCode.INVALID_REQUEST, "The request names the partition more than once.")
                    altered.add((topic.name, asked.partition_index))
                    record = self._alter(topic.name, asked, allow_factor_change)
                    if record is not None:
                        records.append(record)
                except KafkaError as error:
                    result.error_code, result.error_message = error.code, error.message
            check_size(records)
        return Generated(records, response)

    def _alter(self, name: str, asked: ReassignablePartition, allow_factor_change: bool) -> MetadataRecord | None:
        topic = self._state.image.topic(name)
        partition = None if topic is None else topic.partitions.get(asked.partition_index)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
        if partition is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' has no partition {asked.partition_index}."
            )
        if asked.replicas is None:
            return self._cancel(topic, asked.partition_index, partition)
        target = tuple(asked.replicas)
        check_assignment(asked.partition_index, target, self._state.image.cluster.brokers)
        factor = len(Reassignment.of(partition).target)
        if not allow_factor_change and len(target) != factor:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor of {name}-{asked.partition_index} is {factor}, and the request does not allow "
                f"to make it {len(target)}.",
            )
        wanted = Wanted(reassignment=Reassignment.towards(partition, target))
        rules = self._leadership.rules(partition, self._leadership.topic_rules(name))
        return change_partition(topic.topic_id, asked.partition_index, partition, rules, wanted)

    def _cancel(self, topic: TopicImage, partition_id: int, partition: PartitionImage) -> MetadataRecord | None:
        moving = Reassignment.of(partition)
        if not moving.in_progress:
            raise KafkaError(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{topic.name}-{partition_id} is not being reassigned."
            )
        topic_rules = self._leadership.topic_rules(topic.name)
        rules = self._leadership.rules(partition, topic_rules)
        isr = tuple(replica for replica in partition.isr if replica not in moving.adding)
        needed = min(topic_rules.min_insync_replicas, len(moving.original))
        if not topic_rules.unclean and len(isr) < min(needed, len(partition.isr)):
            # A24: those that are being added are what keeps acknowledged records safe now.
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The reassignment of {topic.name}-{partition_id} cannot be cancelled now: of its former replicas only "
                f"{len(isr)} are in sync, and the topic needs {needed}.",
            )
        if not isr and not any(rules.may_lead(replica) for replica in moving.original):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The reassignment of {topic.name}-{partition_id} cannot be cancelled now: none of its former replicas "
                f"is in sync, and none can be elected uncleanly.",
            )
        wanted = Wanted(
            election=Election.UNCLEAN if topic_rules.unclean else Election.ONLINE,
            isr=isr,
            reassignment=Reassignment(moving.original, (), ()),
        )
        return change_partition(topic.topic_id, partition_id, partition, rules, wanted)

    # What is going on.

    def list(self, request: ListPartitionReassignmentsRequest) -> Generated[ListPartitionReassignmentsResponse]:
        from ottla.wire.messages.list_partition_reassignments_response import ListPartitionReassignmentsResponse

        response = ListPartitionReassignmentsResponse(error_message=None)
        if request.topics is None:
            ongoing = [_ongoing(topic, topic.partitions) for topic in self._state.image.topics.by_name.values()]
        else:
            found = [(self._state.image.topic(asked.name), asked.partition_indexes) for asked in request.topics]
            ongoing = [_ongoing(topic, indexes) for topic, indexes in found if topic is not None]
        response.topics = [topic for topic in ongoing if topic.partitions]
        return Generated([], response)


def _ongoing(topic: TopicImage, partition_ids: Iterable[int]) -> OngoingTopicReassignment:
    from ottla.wire.messages.list_partition_reassignments_response import (
        OngoingPartitionReassignment,
        OngoingTopicReassignment,
    )

    return OngoingTopicReassignment(
        name=topic.name,
        partitions=[
            OngoingPartitionReassignment(
                partition_index=partition_id,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding_replicas),
                removing_replicas=list(partition.removing_replicas),
            )
            for partition_id in partition_ids
            if (partition := topic.partitions.get(partition_id)) is not None and Reassignment.of(partition).in_progress
        ],
    )
