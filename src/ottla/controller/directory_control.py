"""AssignReplicasToDirs (KIP-858): a broker says where it has put its replicas, or that one is lost.

A replica is lost if it lacks committed records (`partition/standing.py`): it is no candidate until it has caught up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.cluster_control import ClusterControl
from ottla.controller.generated import Generated
from ottla.controller.leadership import Leadership
from ottla.controller.partition_change import Election, Wanted, change_partition
from ottla.controller.speculation import Speculation
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import has_directory_assignment
from ottla.metadata.images import LOST_DIRECTORY, BrokerRegistration, PartitionImage
from ottla.metadata.records import MetadataRecord
from ottla.model import Uuid

if TYPE_CHECKING:
    from ottla.wire.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
    from ottla.wire.messages.assign_replicas_to_dirs_response import AssignReplicasToDirsResponse


class DirectoryControl:
    def __init__(self, state: Speculation, cluster: ClusterControl, leadership: Leadership) -> None:
        self._state = state
        self._cluster = cluster
        self._leadership = leadership

    def assign(self, request: AssignReplicasToDirsRequest) -> Generated[AssignReplicasToDirsResponse]:
        from ottla.wire.messages.assign_replicas_to_dirs_response import (
            AssignReplicasToDirsResponse,
            DirectoryData,
            PartitionData,
            TopicData,
        )

        if not has_directory_assignment(self._state.image.features.metadata_version):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "The cluster's metadata.version is older than directory assignments."
            )
        broker = self._cluster.check_epoch(request.broker_id, request.broker_epoch)
        records: list[MetadataRecord] = []
        response = AssignReplicasToDirsResponse()
        # Where a request names a replica twice, the directory that it names last is the one.
        last = {
            (topic.topic_id, partition.partition_index): directory.id
            for directory in request.directories
            for topic in directory.topics
            for partition in topic.partitions
        }
        for directory in request.directories:
            answer = DirectoryData(id=directory.id)
            response.directories.append(answer)
            for topic in directory.topics:
                result = TopicData(topic_id=topic.topic_id)
                answer.topics.append(result)
                for partition in topic.partitions:
                    index = partition.partition_index
                    if last[topic.topic_id, index] == directory.id:
                        code, record = self._assign(broker, topic.topic_id, index, directory.id)
                        if record is not None:
                            records.append(record)
                    else:
                        code = ErrorCode.NONE
                    result.partitions.append(PartitionData(partition_index=index, error_code=code))
        return Generated(records, response)

    def _assign(
        self, broker: BrokerRegistration, topic_id: Uuid, partition_id: int, directory: Uuid
    ) -> tuple[ErrorCode, MetadataRecord | None]:
        topic = self._state.image.topic_by_id(topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID, None
        partition = topic.partitions.get(partition_id)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        if broker.broker_id not in partition.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, None
        topic_rules = self._leadership.topic_rules(topic.name)
        known = partition
        if directory == LOST_DIRECTORY or partition.is_lost(broker.broker_id):
            # One that is not lost any more may be the one that is waited for; if all are lost now, nobody is.
            known = _placed(partition, broker.broker_id, directory)
        if broker.has_online(directory):
            rules = self._leadership.rules(known, topic_rules)
            wanted = Wanted(directories={broker.broker_id: directory})
        else:
            # It says where the replica was when the disk failed, or that it is of no use.
            def is_active(replica: int) -> bool:
                return replica != broker.broker_id and self._leadership.is_active(replica)

            rules = self._leadership.rules(known, topic_rules, is_active)
            wanted = Wanted(
                election=Election.UNCLEAN if topic_rules.unclean else Election.ONLINE,
                isr=tuple(replica for replica in partition.isr if replica != broker.broker_id),
                directories={broker.broker_id: directory},
                unclean_shutdown=broker.broker_id if directory == LOST_DIRECTORY else None,
            )
        return ErrorCode.NONE, change_partition(topic_id, partition_id, partition, rules, wanted)


def _placed(partition: PartitionImage, replica: int, directory: Uuid) -> PartitionImage:
    directories = zip(partition.replicas, partition.directories, strict=True)
    return partition._replace(directories=tuple(directory if each == replica else at for each, at in directories))
