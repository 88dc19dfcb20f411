"""What a mutation is, and how it is put into the real classes and taken out again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    name: str
    what: str
    breaks: tuple[str, ...]
    """The invariants, any of which may be the first to show it."""
    apply: Callable[[Patches], None]
    seeds: int = 20
    """Within so many seeds it must have been caught."""
    nodes: int | None = None
    """So many are enough to show it; where the seed is to choose, none is said."""
    with_groups: bool = False
    """Does it show only where there are groups and transactions?"""
    with_compaction: bool = False
    """Does it show only where there is a compacted topic?"""
    with_fleeting: bool = False
    """Does it show only where a topic is deleted and created again?"""
    with_forgetting: bool = False
    """Does it show only where producers are soon forgotten?"""
    kinds: tuple[str, ...] | None = None
    """The kinds of fault that can show it, where it takes several of them within a moment: no others, and often."""


class Patches:
    """Replaces attributes and puts them back."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def replace(self, owner: Any, name: str, value: Any) -> Any:
        """Set `owner.name`; what was there before."""
        before = owner.__dict__[name] if name in getattr(owner, "__dict__", {}) else getattr(owner, name)
        setattr(owner, name, value)
        self._stack.callback(setattr, owner, name, before)
        return before
