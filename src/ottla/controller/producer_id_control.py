"""Producer ids, given out in blocks: no id is ever given twice, even if a block is lost with its broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.cluster_control import ClusterControl
from ottla.controller.generated import Generated
from ottla.controller.speculation import Speculation
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.records import MetadataRecord

if TYPE_CHECKING:
    from ottla.wire.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
    from ottla.wire.messages.allocate_producer_ids_response import AllocateProducerIdsResponse

BLOCK_SIZE = 1000
_INT64_MAX = (1 << 63) - 1


class ProducerIdControl:
    def __init__(self, state: Speculation, cluster: ClusterControl) -> None:
        self._state = state
        self._cluster = cluster

    def allocate(self, request: AllocateProducerIdsRequest) -> Generated[AllocateProducerIdsResponse]:
        from ottla.wire.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
        from ottla.wire.messages.producer_ids_record import ProducerIdsRecord

        self._cluster.check_epoch(request.broker_id, request.broker_epoch)
        first = max(self._state.image.next_producer_id, 0)
        if first > _INT64_MAX - BLOCK_SIZE:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been given out.")
        record = ProducerIdsRecord(
            broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_SIZE
        )
        response = AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)
        return Generated([MetadataRecord(record, 0)], response)
