"""A transaction that really hangs: records in a partition under a transactional id whose coordinator was never told.

Possible where partitions are not verified (`UNVERIFIED`), as with brokers before KIP-890: the partition waits for an
end that nobody will write.
"""

from __future__ import annotations

from tests.behaviour.client import Client, Topic
from tests.behaviour.marking import TransactionalProducer

UNVERIFIED = ("--set", "transaction.partition.verification.enable=false")


def hang(address: tuple[str, int], topic: str) -> int:
    """In partition 0 of a topic that exists; the producer id of who left it."""
    with Client(address) as client:
        producer_id = client.new_producer_id()
        producer = TransactionalProducer(client, Topic(topic), producer_id, "gone for ever")
        assert producer.send(0).error_code == 0
        return producer_id
