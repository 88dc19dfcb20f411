"""New ids for topics, directories, clusters and incarnations."""

from __future__ import annotations

from random import Random

from ottla.model import Uuid

_DASH = 62
"""The value of '-' in the alphabet of `uuid_to_text`."""


def random_uuid(random: Random) -> Uuid:
    """A random id (version 4), never one whose text begins with a dash: Kafka's tools take that for an option."""
    while True:
        raw = bytearray(random.randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if raw[0] >> 2 != _DASH:
            return Uuid(bytes(raw))
