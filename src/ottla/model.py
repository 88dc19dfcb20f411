"""Names that every room shares: partitions, ids, and the sentinel values of Kafka's protocol."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple, NewType

Uuid = NewType("Uuid", bytes)
"""Sixteen raw bytes. Kept raw because topics are looked up by them for every partition of every fetch."""

TopicKey = str | Uuid
"""A topic as requests name it: by name in older versions, by id in newer ones (KIP-516)."""

ZERO_UUID = Uuid(bytes(16))
METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")
"""Kafka reserves the id with the value one for the metadata log."""

GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC, "__share_group_state"})

ANONYMOUS = "User:ANONYMOUS"
"""Who everybody is on a listener that asks for no name."""

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_OFFSET = -1
NO_LEADER_EPOCH = -1


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_to_text(value: Uuid) -> str:
    """The form that Kafka prints and stores in properties: base64 for URLs, without padding."""
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def uuid_from_text(text: str) -> Uuid:
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not an id: expected 22 characters of base64")
    return Uuid(raw)
