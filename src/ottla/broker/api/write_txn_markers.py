"""WriteTxnMarkers (key 27): a transaction's coordinator ends it in the partitions that this node leads."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.broker.bounds.client_quotas import waive
from ottla.broker.context import Context
from ottla.broker.transactions import transaction_markers
from ottla.broker.transactions.transaction_markers import Codes, Marker
from ottla.errors import ErrorCode
from ottla.metadata.acls import Operation
from ottla.model import TopicPartition
from ottla.wire.messages.write_txn_markers_request import WritableTxnMarker, WriteTxnMarkersRequest
from ottla.wire.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from ottla.broker.services import Services


Markers = list[tuple[Marker, list[TopicPartition]]]


def handle(
    context: Context, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Awaitable[WriteTxnMarkersResponse]:
    markers = [(_marker(each), _partitions(each)) for each in request.markers]
    if not context.silently.may_cluster(Operation.ALTER) and not context.may_cluster(Operation.CLUSTER_ACTION):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return _respond(markers, [dict.fromkeys(partitions, code) for _, partitions in markers])
    waive(context.services)
    return _write(context.services, markers)


async def _write(services: Services, markers: Markers) -> WriteTxnMarkersResponse:
    return _respond(markers, await transaction_markers.write(services, markers))


def _respond(markers: Markers, results: list[Codes]) -> WriteTxnMarkersResponse:
    # As in Kafka, what concerns one producer is told together.
    by_producer: dict[int, Codes] = {}
    for (marker, _), codes in zip(markers, results, strict=True):
        if codes:
            by_producer.setdefault(marker.producer_id, {}).update(codes)
    response = WriteTxnMarkersResponse()
    for producer_id, codes in by_producer.items():
        topics: dict[str, WritableTxnMarkerTopicResult] = {}
        for (topic, index), code in codes.items():
            answered = topics.setdefault(topic, WritableTxnMarkerTopicResult(name=topic))
            answered.partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
        response.markers.append(WritableTxnMarkerResult(producer_id=producer_id, topics=list(topics.values())))
    return response


def _marker(wire: WritableTxnMarker) -> Marker:
    return Marker(
        producer_id=wire.producer_id,
        producer_epoch=wire.producer_epoch,
        coordinator_epoch=wire.coordinator_epoch,
        commit=wire.transaction_result,
        transaction_version=wire.transaction_version,
    )


def _partitions(wire: WritableTxnMarker) -> list[TopicPartition]:
    named = (TopicPartition(topic.name, index) for topic in wire.topics for index in topic.partition_indexes)
    return list(dict.fromkeys(named))
