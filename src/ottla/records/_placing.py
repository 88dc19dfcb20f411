"""Where rows go, in numpy: what `_native` does where there is no compiler. All rows are hashed word by word in step.

Part of `_pure`, apart from it because numpy is loaded here, and a node does without that.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ottla.records._pure import BytesColumn
    from ottla.records.batch import Buffer

_SEED = 0x9747B28C
_M = 0x5BD1E995
_COUNT_MAX = (1 << 31) - 1


def place_keys(key: BytesColumn, count: int) -> bytes:
    offsets = np.frombuffer(key[0], np.int32)
    data = np.frombuffer(key[1], np.uint8)
    valid = None if key[2] is None else np.frombuffer(key[2], np.bool_)
    _check(count)
    rows = len(offsets) - 1 if valid is None else min(len(offsets) - 1, len(valid))
    starts, ends = offsets[:rows].astype(np.int64), offsets[1 : rows + 1].astype(np.int64)
    if valid is not None:
        valid = valid[:rows]
        starts, ends = np.where(valid, starts, 0), np.where(valid, ends, 0)
    if rows < 0 or (starts < 0).any() or (ends < starts).any() or (ends > len(data)).any():
        raise ValueError("the columns do not hold that row")
    placed = (_murmur2(data, starts, ends - starts) & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
    return (placed if valid is None else np.where(valid, placed, -1)).tobytes()


def part_rows(partitions: Buffer, count: int) -> list[tuple[int, bytes]]:
    placed = np.frombuffer(partitions, np.int64)
    _check(count)
    if ((placed < 0) | (placed >= count)).any():
        raise ValueError("the topic has no such partition")
    order = np.argsort(placed, kind="stable").astype(np.int64)
    ordered = placed[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1)).tolist()
    return [(int(ordered[start]), order[start:end].tobytes()) for start, end in pairwise([*starts, len(order)])]


def _check(count: int) -> None:
    if not 1 <= count <= _COUNT_MAX:
        raise ValueError("a topic has at least one partition, and at most 2^31 - 1")


def _murmur2(data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.uint32]:
    multiplier = np.uint32(_M)
    value = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    words = lengths >> 2
    # The longest first, so that those which still have words are always the first few.
    order = np.argsort(-words, kind="stable")
    remaining = len(order) - np.searchsorted(np.sort(words), np.arange(int(words.max(initial=0))), side="right")
    for step, active in enumerate(remaining.tolist()):
        rows = order[:active]
        at = starts[rows] + 4 * step
        word = _byte(data, at) | _byte(data, at + 1) << np.uint32(8)
        word |= _byte(data, at + 2) << np.uint32(16) | _byte(data, at + 3) << np.uint32(24)
        word *= multiplier
        word ^= word >> np.uint32(24)
        word *= multiplier
        value[rows] = value[rows] * multiplier ^ word
    tails = lengths & 3
    for missing, shift in ((3, 16), (2, 8), (1, 0)):
        rows = np.flatnonzero(tails >= missing)
        at = starts[rows] + (lengths[rows] & ~3) + (missing - 1)
        value[rows] ^= _byte(data, at) << np.uint32(shift)
    rows = np.flatnonzero(tails)
    value[rows] *= multiplier
    value ^= value >> np.uint32(13)
    value *= multiplier
    value ^= value >> np.uint32(15)
    return value


def _byte(data: NDArray[np.uint8], at: NDArray[np.int64]) -> NDArray[np.uint32]:
    return data[at].astype(np.uint32)
