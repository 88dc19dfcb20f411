"""The hash over a group's topics that tells whether its target is still of today (KIP-1101).

It covers, for each topic that exists: id, name, number of partitions, and the racks of each partition's replicas. Kafka
stores it in ConsumerGroupMetadata, so that it must come out the same here: otherwise every group would be rebalanced
when its coordinator moves between a node of ours and one of Kafka's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache

from ottla.coordinator.consumer.xxh3 import xxh3_64
from ottla.metadata.images import ClusterImage, MetadataImage, TopicImage

_MAGIC = b"\x00"
_INT = struct.Struct("<i")
_LONG = struct.Struct("<Q")
_TWO_LONGS = struct.Struct(">QQ")


def topic_hash(topic: TopicImage, cluster: ClusterImage) -> int:
    high, low = _TWO_LONGS.unpack(topic.topic_id)
    count = len(topic.partitions)
    parts = [_MAGIC, _LONG.pack(high), _LONG.pack(low), _text(topic.name), _INT.pack(count)]
    known: dict[tuple[int, ...], bytes] = {}
    for index in range(count):
        parts.append(_INT.pack(index))
        partition = topic.partitions.get(index)
        if partition is not None:
            racks = known.get(partition.replicas)
            if racks is None:
                racks = known[partition.replicas] = _racks(partition.replicas, cluster)
            parts.append(racks)
    return xxh3_64(b"".join(parts))


def _racks(replicas: tuple[int, ...], cluster: ClusterImage) -> bytes:
    found = (cluster.brokers.get(replica) for replica in replicas)
    racks = sorted((broker.rack for broker in found if broker is not None and broker.rack is not None), key=_utf16)
    return b"".join(_INT.pack(len(_utf16(rack)) // 2) + _text(rack) for rack in racks)


def _utf16(text: str) -> bytes:
    """Java orders text by these units."""
    return text.encode("utf-16-be", "surrogatepass")


def _text(text: str) -> bytes:
    units = text.encode("utf-16-le", "surrogatepass")
    return units + _INT.pack(len(units) // 2)


@lru_cache(maxsize=256)
def _signed_hash(topic_hashes: bytes) -> int:
    """Remembered: whoever joins a group asks for it, and the topics are the same as before."""
    unsigned = xxh3_64(topic_hashes)
    return unsigned - (1 << 64) if unsigned >> 63 else unsigned


class TopicHashes:
    """The hashes of topics, each kept until its topic is another."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, tuple[TopicImage, int]] = {}

    def of_group(self, topics: Iterable[str], image: MetadataImage) -> int:
        """As stored: a signed number, 0 if none of the topics exists."""
        parts = []
        for name in sorted(topics, key=_utf16):
            topic = image.topic(name)
            if topic is None:
                self._known.pop(name, None)
                continue
            known = self._known.get(name)
            if known is None or known[0] is not topic:
                known = self._known[name] = (topic, topic_hash(topic, image.cluster))
            parts.append(_LONG.pack(known[1]))
        if not parts:
            return 0
        return _signed_hash(b"".join(parts))
