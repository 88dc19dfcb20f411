"""The small values that go in and out of an append."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from ottla.model import NO_TIMESTAMP


class AppendOrigin(Enum):
    """Who wrote a batch, which decides how far it is trusted."""

    CLIENT = auto()
    COORDINATOR = auto()
    """A group's or a transaction's coordinator: producer epochs are checked, sequences are not."""
    RAFT = auto()
    """The leader of the metadata log."""


class AppendInfo(NamedTuple):
    """Where a batch landed."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int = NO_TIMESTAMP
    """Set if the topic stamps records itself, and for a duplicate: then it is the original's timestamp."""
    duplicate: bool = False
