"""E10 as a client sees it: in the end, the last value that was acknowledged for a key is what its readers find.

Each key of a compacted topic has one writer, which writes one after the other. What came to no certain end may be there
or not, and may have come late. A key whose last write is a tombstone may be gone altogether, or be there as it was
before, if the tombstone's time was over when a replica that was behind had not seen it yet: so it is in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.model import TopicPartition
from ottla.sim.checkers.violation import Violation
from ottla.sim.history import History, Outcome, Send
from ottla.sim.producing import keyed


@dataclass(slots=True)
class _Key:
    last: bytes | None = None
    """The last value that is certain; None for a tombstone."""
    written: bool = False
    """Is any write of it certain?"""
    possible: list[bytes | None] = field(default_factory=list)
    """The values of those that are not."""
    earlier: list[bytes | None] = field(default_factory=list)
    """What was certain before."""


def check_survivors(history: History, revived: Callable[[TopicPartition], set[bytes]]) -> None:
    """`history` is of the compacted partitions alone; `revived` tells which keys outlasted their tombstones."""
    if history.unexpected:
        raise Violation("H0", history.unexpected[0])
    for place, reads in history.final_committed.items():
        found = {read.key: read.value or None for read in reads}
        outlasting = revived(place)
        keys: dict[bytes, _Key] = {}
        for send in history.sends:
            if send.place == place:
                _take(keys, send)
        for name in found:
            if name not in keys:
                raise Violation("E10", f"{place} has the key {name!r}, which nobody wrote")
        for name, key in keys.items():
            value = found.get(name)
            allowed = [*key.possible, *([key.last] if key.written else [None])]
            if name in outlasting and key.last is None:
                allowed += key.earlier
            if value not in allowed:
                raise Violation(
                    "E10", f"{place} has {value!r} for {name!r}, whose last value was {key.last!r} ({key.possible})"
                )


def _take(keys: dict[bytes, _Key], send: Send) -> None:
    transaction = send.transaction
    outcomes = {send.outcome} if transaction is None else {send.outcome, transaction.outcome}
    for value in send.values:
        name, content = keyed(value)
        key = keys.setdefault(name, _Key())
        if outcomes == {Outcome.OK}:
            key.earlier.append(key.last)
            key.last, key.written = content, True
        elif Outcome.FAILED not in outcomes:
            key.possible.append(content)
