"""Takes proposals for other in-sync sets to the controller (AlterPartition), and its answers back.

The proposals of a turn go in one request, and one request is in flight at a time, so that of two proposals of a
partition the older cannot overtake the newer. A request is repeated until the controller answers it: only the leader
machine decides what an answer means, and whether a partition's proposal is to be made again. One that the metadata has
overtaken meanwhile is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.broker.hosted import HostedPartition
from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.registry import Registry
from ottla.model import Uuid
from ottla.partition import ProposeIsr

if TYPE_CHECKING:
    from ottla.broker.services import Services
    from ottla.wire.messages.alter_partition_request import AlterPartitionRequest
    from ottla.wire.messages.alter_partition_response import AlterPartitionResponse

_log = logging.getLogger(__name__)

RETRY_MS = 50
"""After what did not succeed. A controller is elected in less than a second, and nothing is lost by waiting."""


class IsrChanges:
    """One instance a node; driven by the replica manager."""

    def __init__(self, services: Services, registry: Registry) -> None:
        self._services = services
        self._unsent: dict[HostedPartition, ProposeIsr] = {}
        self._in_flight: dict[HostedPartition, ProposeIsr] = {}
        self._due = False
        """Will `_send` be called anyway: at the end of the turn, or after a pause?"""
        self._shrinks = registry.meter("kafka_server_replicamanager_isrshrinks")
        self._expands = registry.meter("kafka_server_replicamanager_isrexpands")
        self._failures = registry.meter("kafka_server_replicamanager_failedisrupdates")
        services.replicas.propose_isr = self.propose

    def propose(self, partition: HostedPartition, proposal: ProposeIsr) -> None:
        self._unsent[partition] = proposal
        if not self._in_flight and not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._due = False
        assert not self._in_flight
        unsent, self._unsent = self._unsent, {}
        self._in_flight = {
            partition: proposal
            for partition, proposal in unsent.items()
            if partition.leader is not None and partition.leader.pending is proposal
        }
        if self._in_flight:
            self._services.spawn_vital(self._ask())

    async def _ask(self) -> None:
        from ottla.wire.messages.alter_partition_response import AlterPartitionResponse

        services = self._services
        try:
            # One attempt: between two of them the metadata may have brought an end to some of the proposals.
            response = await services.controller.send(self._request(), AlterPartitionResponse, repeat=False)
            error = ErrorCode(response.error_code)
        except KafkaError as failure:
            response, error = AlterPartitionResponse(), failure.code
        if error is ErrorCode.NONE:
            self._on_answers(response)
        else:
            _log.debug("AlterPartition of %d partitions is tried again: %s", len(self._in_flight), error.name)
            for partition, proposal in self._in_flight.items():
                services.replicas.on_alter_partition_result(partition, proposal, error)
        asked, self._in_flight = self._in_flight, {}
        if self._unsent:
            self._due = True
            again = any(asked.get(partition) is proposal for partition, proposal in self._unsent.items())
            services.timers.after(RETRY_MS if again else 0, self._send)
        services.replicas.wake_fetches()

    def _request(self) -> AlterPartitionRequest:
        from ottla.wire.messages import alter_partition_request as wire

        services = self._services
        broker_epoch = services.control.broker_epoch
        request = wire.AlterPartitionRequest(broker_id=services.node_id, broker_epoch=broker_epoch)
        topics: dict[Uuid, wire.TopicData] = {}
        for partition, proposal in self._in_flight.items():
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = topics[partition.topic_id] = wire.TopicData(topic_id=partition.topic_id)
                request.topics.append(topic)
            topic.partitions.append(
                wire.PartitionData(
                    partition_index=partition.index,
                    leader_epoch=proposal.leader_epoch,
                    partition_epoch=proposal.partition_epoch,
                    new_isr_with_epochs=[
                        wire.BrokerState(
                            broker_id=member.replica_id,
                            broker_epoch=broker_epoch if member.replica_id == services.node_id else member.broker_epoch,
                        )
                        for member in proposal.isr
                    ],
                )
            )
        return request

    def _on_answers(self, response: AlterPartitionResponse) -> None:
        answers = {
            (topic.topic_id, answer.partition_index): answer for topic in response.topics for answer in topic.partitions
        }
        replicas = self._services.replicas
        for partition, proposal in self._in_flight.items():
            answer = answers.get((partition.topic_id, partition.index))
            if answer is None:
                error = ErrorCode.UNKNOWN_SERVER_ERROR
            else:
                error = ErrorCode(answer.error_code)
            if error is not ErrorCode.NONE:
                self._failures.value += 1
            elif proposal.joining:
                self._expands.value += 1
            else:
                self._shrinks.value += 1
            _log.debug("%s: the proposal of %s: %s", partition.topic_partition, proposal, error.name)
            replicas.on_alter_partition_result(partition, proposal, error)
