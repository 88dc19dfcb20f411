"""AlterPartition: a leader asks for another ISR (KIP-497), and the controller decides.

The leader proposes; the controller holds what was decided, and refuses whatever does not follow from it. The order of
the checks is part of the protocol, for the leader takes each code differently: some say that it must wait for metadata,
one that it asked somebody who no longer leads the quorum, one that it may take its proposal back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.cluster_control import ClusterControl
from ottla.controller.generated import Generated
from ottla.controller.leadership import Leadership, TopicRules
from ottla.controller.partition_change import Election, Wanted, change_partition
from ottla.controller.speculation import Speculation
from ottla.errors import ErrorCode
from ottla.metadata.delta import NO_LEADER_CHANGE, merge_partition_change
from ottla.metadata.features import partition_record_version
from ottla.metadata.images import LEADER_RECOVERED, LEADER_RECOVERING, PartitionImage, TopicImage
from ottla.metadata.records import MetadataRecord

if TYPE_CHECKING:
    from ottla.wire.messages.alter_partition_request import AlterPartitionRequest
    from ottla.wire.messages.alter_partition_request import PartitionData as Proposal
    from ottla.wire.messages.alter_partition_response import AlterPartitionResponse, PartitionData

ANY_EPOCH = -1
"""In place of a member's broker epoch: the leader does not know it, and the check is left out."""


class AlterPartitionControl:
    def __init__(self, state: Speculation, cluster: ClusterControl, leadership: Leadership) -> None:
        self._state = state
        self._cluster = cluster
        self._leadership = leadership

    def alter_partition(self, request: AlterPartitionRequest) -> Generated[AlterPartitionResponse]:
        from ottla.wire.messages.alter_partition_response import AlterPartitionResponse, PartitionData, TopicData

        self._cluster.check_epoch(request.broker_id, request.broker_epoch)
        records: list[MetadataRecord] = []
        response = AlterPartitionResponse()
        altered: set[tuple[bytes, int]] = set()
        for asked in request.topics:
            answer = TopicData(topic_id=asked.topic_id)
            response.topics.append(answer)
            topic = self._state.image.topic_by_id(asked.topic_id)
            if topic is None:
                answer.partitions = [
                    PartitionData(partition_index=proposal.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
                    for proposal in asked.partitions
                ]
                continue
            rules = self._leadership.topic_rules(topic.name)
            for proposal in asked.partitions:
                key = (asked.topic_id, proposal.partition_index)
                if key in altered:
                    # Its first proposal has raised the partition epoch, though the image does not show it yet.
                    result = PartitionData(
                        partition_index=proposal.partition_index, error_code=ErrorCode.INVALID_UPDATE_VERSION
                    )
                else:
                    result, record = self._alter(request.broker_id, topic, rules, proposal)
                    if record is not None:
                        altered.add(key)
                        records.append(record)
                answer.partitions.append(result)
        return Generated(records, response)

    def _alter(
        self, broker_id: int, topic: TopicImage, topic_rules: TopicRules, proposal: Proposal
    ) -> tuple[PartitionData, MetadataRecord | None]:
        from ottla.wire.messages.alter_partition_response import PartitionData
        from ottla.wire.messages.partition_change_record import PartitionChangeRecord

        result = PartitionData(partition_index=proposal.partition_index)
        partition = topic.partitions.get(proposal.partition_index)
        members = _members(proposal)
        result.error_code = self._check(broker_id, partition, proposal, members)
        if result.error_code == ErrorCode.INELIGIBLE_REPLICA and partition is not None:
            return result, self._end_partition_epoch(topic, proposal.partition_index, partition)
        if result.error_code != ErrorCode.NONE or partition is None:
            return result, None
        record = change_partition(
            topic.topic_id,
            proposal.partition_index,
            partition,
            self._leadership.rules(partition, topic_rules),
            Wanted(
                election=Election.UNCLEAN if topic_rules.unclean else Election.ONLINE,
                isr=tuple(member for member, _ in members),
                recovery_state=proposal.leader_recovery_state,
            ),
        )
        if record is not None:
            change = record.message
            assert isinstance(change, PartitionChangeRecord)
            partition = merge_partition_change(partition, change)
            if change.leader not in (broker_id, NO_LEADER_CHANGE):
                # The ISR completed a reassignment that takes the leader away. Accepted, and yet an error: the sender
                # must wait for metadata.
                result.error_code = ErrorCode.NEW_LEADER_ELECTED
                return result, record
        result.leader_id = partition.leader
        result.leader_epoch = partition.leader_epoch
        result.isr = list(partition.isr)
        result.leader_recovery_state = partition.leader_recovery_state
        result.partition_epoch = partition.partition_epoch
        return result, record

    def _end_partition_epoch(
        self, topic: TopicImage, partition_index: int, partition: PartitionImage
    ) -> MetadataRecord:
        """A change that changes nothing but the partition epoch, so that a refusal is final.

        The leader takes its proposal back when it hears of it, and counts the member no more. But it may have asked
        more than once, and a copy that was given up may come late: to this controller when the broker is eligible
        again, or to the next one, which does not know of the refusal. The copy names the old partition epoch, and is
        refused for that, whoever gets it and whenever.
        """
        from ottla.wire.messages.partition_change_record import PartitionChangeRecord

        record = PartitionChangeRecord(partition_id=partition_index, topic_id=topic.topic_id, isr=list(partition.isr))
        return MetadataRecord(record, partition_record_version(self._state.image.features.metadata_version))

    def _check(
        self, broker_id: int, partition: PartitionImage | None, proposal: Proposal, members: list[tuple[int, int]]
    ) -> ErrorCode:
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if proposal.leader_epoch > partition.leader_epoch or proposal.partition_epoch > partition.partition_epoch:
            # The leader knows of decisions that this controller does not: another one must have made them.
            return ErrorCode.NOT_CONTROLLER
        if proposal.leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if broker_id != partition.leader:
            return ErrorCode.INVALID_REQUEST
        if proposal.partition_epoch < partition.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        isr = [member for member, _ in members]
        if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas) or partition.leader not in isr:
            return ErrorCode.INVALID_REQUEST
        recovery = proposal.leader_recovery_state
        if recovery not in (LEADER_RECOVERED, LEADER_RECOVERING):
            return ErrorCode.INVALID_REQUEST
        if recovery == LEADER_RECOVERING and (len(isr) > 1 or partition.leader_recovery_state != LEADER_RECOVERING):
            return ErrorCode.INVALID_REQUEST
        if not all(self._eligible(member, epoch) for member, epoch in members):
            return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.NONE

    def _eligible(self, member: int, epoch: int) -> bool:
        """KIP-841, and KIP-903: the incarnation that caught up must be the one that is registered now (A18)."""
        broker = self._state.image.broker(member)
        return broker is not None and broker.active and epoch in (ANY_EPOCH, broker.epoch)


def _members(proposal: Proposal) -> list[tuple[int, int]]:
    """The members of the ISR that is proposed, with their broker epochs, which version 2 does not have."""
    if proposal.new_isr_with_epochs:
        return [(member.broker_id, member.broker_epoch) for member in proposal.new_isr_with_epochs]
    return [(member, ANY_EPOCH) for member in proposal.new_isr]
