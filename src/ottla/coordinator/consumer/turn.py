"""What one request or timer brings about, gathered while it is thought through.

Thinking may end in a refusal, and then nothing has happened: so also what no record carries (a classic group that is
dissolved, a timer that is known to run) changes by `when_decided`, with the outcome and not before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from ottla.coordinator.outcome import AnyEffect, CancelTimer, Outcome, SetTimer
from ottla.coordinator.stored import StoredRecord

R = TypeVar("R")

PART = "consumer"
SESSION, REBALANCE, JOIN, SYNC, REGEX = "session", "rebalance", "join", "sync", "regex"
"""The kinds of timer: a member that is not heard of; that does not give up partitions; a classic one that does not join
again, or does not ask for its assignment; and a group's regular expressions."""


def everything(topic: str) -> bool:
    return True


@dataclass(slots=True, kw_only=True)
class Turn:
    now_ms: int
    may_describe: Callable[[str], bool] = everything
    """The topics that whoever asks may know of: a regular expression finds no others."""
    records: list[StoredRecord] = field(default_factory=list)
    effects: list[AnyEffect] = field(default_factory=list)
    _changes: list[Callable[[], Iterable[AnyEffect] | None]] = field(default_factory=list)

    def when_decided(self, change: Callable[[], Iterable[AnyEffect] | None]) -> None:
        """Change soft state so when there is an outcome; what `change` returns are effects of it."""
        self._changes.append(change)

    def set_timer(self, kind: str, group_id: str, member_id: str, delay_ms: int) -> None:
        self.effects.append(SetTimer(key=(PART, kind, group_id, member_id), delay_ms=delay_ms))

    def cancel_timer(self, kind: str, group_id: str, member_id: str) -> None:
        self.effects.append(CancelTimer(key=(PART, kind, group_id, member_id)))

    def outcome(self, response: R | None = None) -> Outcome[R]:
        """The end of the turn: nothing raises any more."""
        for change in self._changes:
            self.effects += change() or ()
        return Outcome(response=response, records=self.records, effects=self.effects)
