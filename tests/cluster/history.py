"""What clients saw of one partition while nodes came and went, and whether a single log can have shown it to them.

Every value is written once, by one producer, in the order of its number. `History` is told of writes as they begin, of
acknowledgements and of reads as they happen; it may be told by several threads. `complaints` are then the ways in which
no honest log could have behaved so:

* an acknowledged record is missing at the end, or is not where it was said to be;
* two values were seen at one offset, by whoever;
* one reader was shown an offset again, or a smaller one, or was led past one (nothing is ever removed from this log);
* an acknowledged write got an offset that is not above all that anybody knew of when it began (real time);
* values are out of order, or, where that was promised, there twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Lock

SHOWN = 5
"""Complaints of one kind that are worth reading."""


@dataclass(slots=True, kw_only=True)
class Acknowledgement:
    number: int
    offset: int
    """Negative if the producer was only told that it is there."""
    known_before: int
    """The greatest offset that anybody knew of when the write began."""


@dataclass(slots=True)
class History:
    once: bool
    """The producer was idempotent."""
    acknowledged: list[Acknowledgement] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)
    reads: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """By reader: offset and number."""
    _known: int = -1
    _lock: Lock = field(default_factory=Lock)

    # Facts, as they come.

    def on_write(self) -> int:
        """A write begins: what is known by now."""
        with self._lock:
            return self._known

    def on_acknowledged(self, number: int, offset: int, known_before: int) -> None:
        with self._lock:
            self.acknowledged.append(Acknowledgement(number=number, offset=offset, known_before=known_before))
            self._known = max(self._known, offset)

    def on_refused(self, number: int, why: str) -> None:
        """It may have happened all the same."""
        with self._lock:
            self.refused.append((number, why))

    def on_read(self, reader: str, offset: int, number: int) -> None:
        with self._lock:
            self.reads.setdefault(reader, []).append((offset, number))
            self._known = max(self._known, offset)

    # Judgement.

    def complaints(self, final: Sequence[tuple[int, int]]) -> list[str]:
        """`final` is everything that a new reader found in the end, offset and number."""
        at = dict(final)
        found: list[str] = []
        found += _some("the final reader stepped back", _steps_back(final))
        found += _some("the final reader was led past some", _gaps([(-1, -1), *final]))
        for reader, seen in self.reads.items():
            found += _some(f"{reader} stepped back", _steps_back(seen))
            found += _some(f"{reader} was led past some", _gaps(seen))
            changed = [(offset, number, at.get(offset)) for offset, number in seen if at.get(offset) != number]
            found += _some(f"{reader} saw what is not there in the end (offset, then, now)", changed)
        present = set(at.values())
        found += _some("acknowledged and lost", [ack for ack in self.acknowledged if ack.number not in present])
        placed = [ack for ack in self.acknowledged if ack.offset >= 0]
        found += _some(
            "acknowledged at an offset that holds something else",
            [(ack, at.get(ack.offset)) for ack in placed if at.get(ack.offset) != ack.number],
        )
        found += _some(
            "acknowledged below what was known before it began",
            [ack for ack in placed if ack.offset <= ack.known_before],
        )
        numbers = [number for _, number in final]
        first_seen = list(dict.fromkeys(numbers))
        found += _some("out of order", [pair for pair in pairwise(first_seen) if pair[0] > pair[1]])
        if self.once and len(numbers) != len(first_seen):
            twice = sorted({number for number in first_seen if numbers.count(number) > 1})
            found += _some("there more than once", twice)
        return found


def _steps_back(seen: Sequence[tuple[int, int]]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    return [(one, other) for one, other in pairwise(seen) if other[0] <= one[0]]


def _gaps(seen: Sequence[tuple[int, int]]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    return [(one, other) for one, other in pairwise(seen) if other[0] > one[0] + 1]


def _some(what: str, cases: Sequence[object]) -> list[str]:
    if not cases:
        return []
    return [f"{len(cases)} × {what}: {', '.join(map(str, cases[:SHOWN]))}"]
