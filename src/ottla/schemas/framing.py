"""How a record names its schema: a zero byte and the id in four bytes, in front of the encoded value.

The format of Confluent's serializers.
"""

from __future__ import annotations

from struct import Struct

MAGIC = 0
PREFIX = Struct(">bi")
PREFIX_BYTES = PREFIX.size


def prefix(schema_id: int) -> bytes:
    return PREFIX.pack(MAGIC, schema_id)
