"""The verbs of the stories about transactions: records under a transactional id, markers by hand, and what is left."""

from __future__ import annotations

from ottla.records import batches
from ottla.wire.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.describe_producers_response import DescribeProducersResponse, ProducerState
from ottla.wire.messages.fetch_response import PartitionData
from ottla.wire.messages.produce_response import PartitionProduceResponse, ProduceResponse
from ottla.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.wire.messages.write_txn_markers_response import WriteTxnMarkersResponse
from tests.behaviour.client import LATEST, READ_COMMITTED, Client, Topic, batch, produced

Placed = tuple[int, int]
"""Producer id and first offset of an aborted transaction."""


class TransactionalProducer:
    """Writes what it is told to, under one transactional id and one producer id."""

    def __init__(self, client: Client, topic: Topic, producer_id: int, transactional_id: str = "somebody") -> None:
        self.client = client
        self.topic = topic
        self.producer_id = producer_id
        self.transactional_id = transactional_id

    def send(
        self,
        sequence: int,
        count: int = 1,
        *,
        epoch: int = 0,
        partition: int = 0,
        version: int = 11,
        acks: int = -1,
        transactional: bool = True,
    ) -> PartitionProduceResponse:
        values = [b"%d.%d" % (self.producer_id, sequence + index) for index in range(count)]
        records = batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=epoch,
            sequence=sequence,
            transactional=transactional,
        )
        request = self.client.produce_request(self.topic, records, partition=partition, acks=acks)
        request.transactional_id = self.transactional_id
        return produced(self.client.call(request, ProduceResponse, version))

    def end(
        self,
        *,
        commit: bool,
        epoch: int = 0,
        partition: int = 0,
        coordinator_epoch: int = 0,
        transaction_version: int = 1,
        version: int = 2,
    ) -> int:
        """Write a marker, as the coordinator would; the partition's error code."""
        marker = self.marker(
            commit=commit,
            epoch=epoch,
            partitions=[partition],
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        ((code,),) = write_markers(self.client, marker, version=version).values()
        return code

    def marker(
        self,
        *,
        commit: bool,
        partitions: list[int],
        epoch: int = 0,
        coordinator_epoch: int = 0,
        transaction_version: int = 1,
    ) -> WritableTxnMarker:
        return WritableTxnMarker(
            producer_id=self.producer_id,
            producer_epoch=epoch,
            transaction_result=commit,
            topics=[WritableTxnMarkerTopic(name=self.topic.name, partition_indexes=partitions)],
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )

    def state(self, partition: int = 0) -> ProducerState | None:
        """What the partition's leader remembers of this producer."""
        request = DescribeProducersRequest(topics=[TopicRequest(name=self.topic.name, partition_indexes=[partition])])
        ((found,),) = (each.partitions for each in self.client.call(request, DescribeProducersResponse).topics)
        assert found.error_code == 0
        return next((each for each in found.active_producers if each.producer_id == self.producer_id), None)


def write_markers(client: Client, *markers: WritableTxnMarker, version: int = 2) -> dict[int, list[int]]:
    """The error codes by producer id, each partition's in the order of topics' names and indexes."""
    response = client.call(WriteTxnMarkersRequest(markers=list(markers)), WriteTxnMarkersResponse, version)
    return {
        result.producer_id: [
            each.error_code
            for topic in sorted(result.topics, key=lambda topic: topic.name)
            for each in sorted(topic.partitions, key=lambda each: each.partition_index)
        ]
        for result in response.markers
    }


def stable_offset(client: Client, topic: Topic, partition: int = 0) -> int:
    return client.list_offset(topic, LATEST, isolation=READ_COMMITTED, partition=partition).offset


def aborted_of(found: PartitionData) -> list[Placed]:
    assert found.aborted_transactions is not None
    return [(each.producer_id, each.first_offset) for each in found.aborted_transactions]


def committed_values(found: PartitionData) -> list[bytes | None]:
    """What a read-committed consumer keeps of an answer: as Kafka's consumer, it skips by the list and the markers."""
    from ottla.records import iterate, read_end_txn_marker

    assert found.aborted_transactions is not None
    pending = sorted((each.first_offset, each.producer_id) for each in found.aborted_transactions)
    aborting: set[int] = set()
    kept: list[bytes | None] = []
    for header, one in batches(found.records or b""):
        while pending and pending[0][0] <= header.last_offset:
            aborting.add(pending.pop(0)[1])
        if header.is_control:
            marker = read_end_txn_marker(next(iterate(one)))
            if marker is not None and not marker.commit:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            kept += [record.value for record in iterate(one)]
    return kept
