"""Columns as Arrow lays them out, for tests that do not need Arrow."""

from __future__ import annotations

import numpy as np

from ottla.records.partitioner import ByteStrings


def strings(rows: list[bytes | None]) -> ByteStrings:
    offsets = np.cumsum([0, *(len(row or b"") for row in rows)]).astype(np.int32)
    valid = np.array([row is not None for row in rows], dtype=np.bool_)
    data = np.frombuffer(b"".join(row or b"" for row in rows), np.uint8)
    return ByteStrings(offsets, data, None if valid.all() else valid)
