"""DescribeProducers (key 61): the producers that a partition's leader remembers.

A partition is described once, however often it is named: it may remember very many.
"""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.acls import Operation
from ottla.wire.messages.describe_producers_request import DescribeProducersRequest
from ottla.wire.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(context: Context, request: DescribeProducersRequest) -> DescribeProducersResponse:
    services = context.services
    response = DescribeProducersResponse()
    named: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        named.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    for name, indexes in named.items():
        answered = TopicResponse(name=name)
        response.topics.append(answered)
        may_read = context.may_topic(Operation.READ, name)
        for index in indexes:
            answer = PartitionResponse(partition_index=index)
            answered.partitions.append(answer)
            hosted = services.replicas.partition(name, index)
            try:
                if not may_read:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
                if hosted is None:
                    raise KafkaError(services.missing_partition(name, index))
                services.replicas.leader_or_refuse(hosted)
            except KafkaError as error:
                answer.error_code = error.code
                answer.error_message = error.message
                continue
            answer.active_producers = [
                ProducerState(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    last_sequence=producer.last_sequence,
                    last_timestamp=producer.last_timestamp,
                    coordinator_epoch=producer.coordinator_epoch,
                    current_txn_start_offset=producer.txn_first_offset,
                )
                for producer in hosted.log.producers.entries.values()
            ]
    return response
