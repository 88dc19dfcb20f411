"""The end of a simulation that has proved something wrong."""

from __future__ import annotations


class Violation(Exception):
    """`invariant` is broken."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant
        self.message = message
