"""A regular expression, and the topics that it matched when they were last searched."""

from __future__ import annotations

from typing import NamedTuple


class ResolvedRegex(NamedTuple):
    topics: frozenset[str]
    version: int = -1
    """Of the metadata that was searched."""
    timestamp_ms: int = -1


NEVER_RESOLVED = ResolvedRegex(frozenset())
