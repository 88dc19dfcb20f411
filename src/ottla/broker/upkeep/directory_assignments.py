"""Tells the controller in which directory this broker has put each of its replicas (KIP-858).

A broker with several directories chooses one when it hosts a partition, and only the metadata's own entry lets the
controller give a failed disk's partitions, and no others, to other replicas. Told of every publication after it was
acted upon; what differs between the log's place and the metadata's word for it is sent, in one request at a time, until
the controller has taken it or the metadata no longer asks. A replica that lacks committed records, and that the
controller might elect, is said to be lost (`partition/standing.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.hosted import HostedPartition
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import has_directory_assignment
from ottla.metadata.images import LOST_DIRECTORY, MetadataImage, PartitionImage
from ottla.model import TopicPartition, Uuid

if TYPE_CHECKING:
    from ottla.broker.services import Services
    from ottla.metadata.delta import MetadataDelta
    from ottla.wire.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest

RETRY_MS = 500
REQUEST_PARTITIONS_MAX = 2250
"""As many as Kafka's brokers put in one request."""

Replica = tuple[Uuid, int]
"""Topic id and partition."""


class DirectoryAssignments:
    """One instance a node."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._wanted: dict[Replica, Uuid] = {}
        """What the controller is to be told, as far as is known; in the order in which it came up."""
        self._busy = False
        """Is a request under way, or another try due?"""
        self.promised: Callable[[TopicPartition], Uuid | None] = lambda partition: None
        """The directory that a replica is about to move to: the controller hears of it first."""
        self._waiting: asyncio.Future[None] | None = None
        services.replicas.lacking.on_lacking = self.look_again

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta, offset: int) -> None:
        if not has_directory_assignment(image.features.metadata_version):
            return
        changes = delta.local_changes(self._services.node_id)
        for change in (*changes.leaders, *changes.followers):
            hosted = self._services.replicas.partition(change.topic, change.partition)
            self._look(hosted, (change.topic_id, change.partition), change.after)
        for _, topic_id, index in changes.deleted:
            self._wanted.pop((topic_id, index), None)
        self._begin()

    def look_again(self, hosted: HostedPartition) -> None:
        """The replica is about to move to another directory, or is not any more; or it lacks something; or its log was
        made after its metadata had come."""
        if has_directory_assignment(self._services.image.features.metadata_version):
            self._look(hosted, (hosted.topic_id, hosted.index), hosted.image)
            self._begin()

    def _look(self, hosted: HostedPartition | None, replica: Replica, image: PartitionImage) -> None:
        directory = None if hosted is None else self._directory_of(hosted)
        if directory is not None and image.directory_of(self._services.node_id) != directory:
            self._wanted[replica] = directory
        else:
            self._wanted.pop(replica, None)

    async def losses_told(self) -> None:
        """Returns when the controller knows of every replica here that it is not to elect. Raises `KafkaError` if it
        takes this broker for another's former self."""
        while LOST_DIRECTORY in self._wanted.values():
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting

    def _begin(self) -> None:
        if self._wanted and not self._busy:
            self._busy = True
            self._services.timers.after(0, self._send)

    def _directory_of(self, hosted: HostedPartition) -> Uuid | None:
        """Where the log really is, or is about to be."""
        if self._services.replicas.lacking.is_to_be_told(hosted):
            return LOST_DIRECTORY
        promised = self.promised(hosted.topic_partition)
        if promised is not None:
            return promised
        services = self._services
        properties = services.logs.directories[services.parent_dir(hosted.log)].properties
        return None if properties is None else properties.directory_id

    def _send(self) -> None:
        if self._wanted:
            self._services.spawn(self._tell())
        else:
            self._busy = False

    async def _tell(self) -> None:
        from ottla.wire.messages.assign_replicas_to_dirs_response import AssignReplicasToDirsResponse

        services = self._services
        sent = dict(list(self._wanted.items())[:REQUEST_PARTITIONS_MAX])
        code = ErrorCode.BROKER_ID_NOT_REGISTERED
        try:
            # Without an epoch, this broker is not registered yet.
            if services.control.broker_epoch >= 0:
                response = await services.controller.send(self._request(sent), AssignReplicasToDirsResponse)
                code = ErrorCode(response.error_code)
        except KafkaError as error:
            code = error.code  # There is no controller just now, or it has another of our name.
        failed = code is not ErrorCode.NONE
        if not failed:
            # A replica that the controller does not know, or not here, is one that newer metadata takes away.
            for replica, directory in sent.items():
                if self._wanted.get(replica) == directory:
                    del self._wanted[replica]
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            if code is ErrorCode.STALE_BROKER_EPOCH:
                waiting.set_exception(KafkaError(code))
            else:
                waiting.set_result(None)
        services.timers.after(RETRY_MS if failed else 0, self._send)

    def _request(self, sent: dict[Replica, Uuid]) -> AssignReplicasToDirsRequest:
        from ottla.wire.messages.assign_replicas_to_dirs_request import (
            AssignReplicasToDirsRequest,
            DirectoryData,
            PartitionData,
            TopicData,
        )

        directories: dict[Uuid, DirectoryData] = {}
        topics: dict[tuple[Uuid, Uuid], TopicData] = {}
        for (topic_id, index), directory_id in sent.items():
            directory = directories.get(directory_id)
            if directory is None:
                directory = directories[directory_id] = DirectoryData(id=directory_id)
            topic = topics.get((directory_id, topic_id))
            if topic is None:
                topic = topics[directory_id, topic_id] = TopicData(topic_id=topic_id)
                directory.topics.append(topic)
            topic.partitions.append(PartitionData(partition_index=index))
        return AssignReplicasToDirsRequest(
            broker_id=self._services.node_id,
            broker_epoch=self._services.control.broker_epoch,
            directories=list(directories.values()),
        )
