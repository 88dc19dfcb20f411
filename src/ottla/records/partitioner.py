"""Which partition a record goes to: Java's choice by the key's bytes, taking turns, or a function of the user's.

`murmur2` is what Apache Kafka's Java clients do by default, and librdkafka's under the name `murmur2_random`: the key's
hash decides, so that whoever writes a key, by whichever client, writes it to the same partition. Records without a key
go to any partition, a stretch of them to one and the next stretch to the next.

A partitioner works on whole columns (`ByteStrings`, as Arrow lays them out), by one compiled call where there is a key
(`place_keys`); numpy is loaded on use. Tools that send record by record ask `partition_of_key`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.records._hot import place_keys

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ottla.records._pure import BytesColumn

MURMUR2 = "murmur2"
ROUNDROBIN = "roundrobin"
LIBRDKAFKA_MURMUR2 = "murmur2_random"
"""What librdkafka calls Java's partitioner; its own default is another."""

STRETCH_ROWS = 512
"""Records without a key that go to one partition before the next has its turn: enough to be worth a batch, few enough
to spread a small micro-batch."""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


class ByteStrings(NamedTuple):
    """A column of byte strings: row r is `data[offsets[r]:offsets[r + 1]]`, or nothing where `valid[r]` is false."""

    offsets: NDArray[np.int32]
    data: NDArray[np.uint8]
    valid: NDArray[np.bool_] | None
    """None if every row has one."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, index: int) -> bytes | None:
        if self.valid is not None and not self.valid[index]:
            return None
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()

    def raw(self) -> BytesColumn:
        """The bytes that it is made of, for the compiled side."""
        valid = None if self.valid is None else bytes_of(self.valid)
        return bytes_of(self.offsets), bytes_of(self.data), valid


def bytes_of(array: NDArray[np.generic]) -> memoryview:
    """The array's bytes. (Before Python 3.12 no type says that an array is a buffer.)"""
    import numpy as np

    return np.ascontiguousarray(array).view(np.uint8).data


class Partitioner(Protocol):
    """Chooses for the rows of one task, call after call, among partitions 0 to `count` - 1 of one topic."""

    def __call__(self, topic: str, keys: ByteStrings | None, rows: int, count: int) -> NDArray[np.int64]:
        """The partition of each of the `rows`; `keys` is None if no row has one."""
        ...


def murmur2(data: bytes) -> int:
    """Java's murmur2 of a key, as an unsigned number of 32 bits."""
    length = len(data)
    value = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        value = value * _M & _MASK ^ word
    if length > whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15


def partition_of_key(key: bytes, count: int) -> int:
    """Where Java's producer sends a record with this key, in a topic of `count` partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % count


class Murmur2:
    """Java's choice. `turn` says with which partition the records without a key begin, so that tasks differ."""

    def __init__(self, turn: int = 0) -> None:
        self._turn = RoundRobin(turn, STRETCH_ROWS)

    def __call__(self, topic: str, keys: ByteStrings | None, rows: int, count: int) -> NDArray[np.int64]:
        import numpy as np

        if keys is None:
            return self._turn(topic, None, rows, count)
        chosen = np.frombuffer(place_keys(keys.raw(), count), np.int64)
        if keys.valid is None:
            return chosen
        without = np.flatnonzero(~keys.valid)
        chosen = chosen.copy()
        chosen[without] = self._turn(topic, None, len(without), count)
        return chosen


class RoundRobin:
    """All partitions in turn, `stretch` records each, whatever their keys."""

    def __init__(self, turn: int = 0, stretch: int = 1) -> None:
        self._begin = turn
        self._stretch = stretch
        self._next: dict[str, int] = {}

    def __call__(self, topic: str, keys: ByteStrings | None, rows: int, count: int) -> NDArray[np.int64]:
        import numpy as np

        first = self._next.get(topic, self._begin * self._stretch)
        self._next[topic] = (first + rows) % (count * self._stretch)
        return (np.arange(first, first + rows, dtype=np.int64) // self._stretch) % count


class ByFunction:
    """A function of the user's: `function(key, topic, partition_count)`, with the key as bytes or None."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._function = _loaded(name)

    def __call__(self, topic: str, keys: ByteStrings | None, rows: int, count: int) -> NDArray[np.int64]:
        import numpy as np

        function = self._function
        chosen = [
            _checked(function(None if keys is None else keys.row(row), topic, count), self._name, count)
            for row in range(rows)
        ]
        return np.array(chosen, dtype=np.int64)


def partitioner(name: str, turn: int = 0) -> Partitioner:
    """The partitioner of that name: `murmur2`, `roundrobin` or `module:function`. Raises `ValueError`."""
    if name == MURMUR2:
        return Murmur2(turn)
    if name == ROUNDROBIN:
        return RoundRobin(turn)
    return ByFunction(name)


def choosing_function(name: str, topic: str, count: int) -> Callable[[bytes | None], int]:
    """The user's `module:function` for whoever sends record by record to a topic of `count` partitions. Raises
    `ValueError`, at once or where it chooses a partition that is none."""
    function = _loaded(name)

    def choose(key: bytes | None) -> int:
        return _checked(function(key, topic, count), name, count)

    return choose


def _checked(partition: object, name: str, count: int) -> int:
    if not isinstance(partition, int) or not 0 <= partition < count:
        raise ValueError(
            f"The partitioner {name} chose {partition!r} for a topic of {count} partitions: it must return a number "
            f"from 0 to {count - 1}."
        )
    return partition


def _loaded(name: str) -> Callable[[bytes | None, str, int], object]:
    module, colon, function = name.partition(":")
    if not colon:
        raise ValueError(f"There is no partitioner {name!r}: choose {MURMUR2}, {ROUNDROBIN} or module:function.")
    try:
        found: object = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"The partitioner {name} cannot be loaded ({error}): it must be importable here.") from error
    if not callable(found):
        raise ValueError(f"The partitioner {name} is no function.")
    return found
