"""What a shard answers when it is asked or told something: records to write, a response, and effects.

The driver replays the records, appends them as one batch, and lets the response and every `Answer` leave when the batch
is committed. An outcome without records still waits for what was written before it: a response must not tell of state
that may yet be undone. Timers are set and cancelled at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ottla.coordinator.stored import AnyRecord, StoredRecord
from ottla.wire.message import Message

R = TypeVar("R")


# Values, like all that shards give away. Those that nearly every request brings about are not `frozen`, which would
# double what they cost.


@dataclass(slots=True, kw_only=True)
class Answer:
    """A request that waited, `token`, is answered now."""

    token: int
    response: Message


@dataclass(slots=True, kw_only=True)
class SetTimer:
    """Call `on_timer(key)` after `delay_ms`. One timer a key: an earlier one is forgotten."""

    key: tuple[str, ...]
    delay_ms: int


@dataclass(slots=True, kw_only=True)
class CancelTimer:
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Effect:
    """What only one kind of shard asks for (a transaction's markers, for one) derives from this, and is carried out
    when the records of its outcome are committed."""


AnyEffect = Answer | SetTimer | CancelTimer | Effect


@dataclass(slots=True)
class Outcome(Generic[R]):
    response: R | None = None
    """None: the request waits, and an `Answer` with its token follows some time."""
    records: list[StoredRecord] | list[AnyRecord] = field(default_factory=list)
    effects: list[AnyEffect] = field(default_factory=list)
    tag: object = None
    """If set, `on_written(tag, error)` tells the shard how the append of the records ended: when they are committed, or
    when it has failed. For a shard of groups: a tuple whose first element names the part, as in timers' keys."""
    atomic: bool = True
    """Must the records lie in one batch? If they need not (an expiry of many offsets), they may be any number."""
    urgent: bool = False
    """Do others wait for the records already? Then they are appended at once, and not with the rest of the turn's."""
