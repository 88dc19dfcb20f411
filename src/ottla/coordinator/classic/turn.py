"""What one request, timer or finished append brings about, gathered while it is thought through."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from ottla.coordinator.outcome import Answer, AnyEffect, CancelTimer, Outcome, SetTimer
from ottla.coordinator.stored import StoredRecord
from ottla.wire.message import Message

R = TypeVar("R")


@dataclass(slots=True, kw_only=True)
class Turn:
    now_ms: int
    records: list[StoredRecord] = field(default_factory=list)
    effects: list[AnyEffect] = field(default_factory=list)
    tag: object = None
    urgent: bool = False

    def answer(self, token: int, response: Message) -> None:
        self.effects.append(Answer(token=token, response=response))

    def set_timer(self, key: tuple[str, ...], delay_ms: int) -> None:
        self.effects.append(SetTimer(key=key, delay_ms=delay_ms))

    def cancel_timer(self, key: tuple[str, ...]) -> None:
        self.effects.append(CancelTimer(key=key))

    def outcome(self, response: R | None = None) -> Outcome[R]:
        return Outcome(response, self.records, self.effects, self.tag, True, self.urgent)
