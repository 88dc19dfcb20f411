"""Who asks the controller for something, as far as the answer depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Requester(Protocol):
    @property
    def principal(self) -> str:
        """Of the form `type:name`."""
        ...

    def may_describe_configs(self, topic: str) -> bool:
        """May the configs of a topic that was just created be shown?"""
        ...


@dataclass(frozen=True, slots=True)
class AnyRequester:
    """May do everything: the node itself, and everybody while there is no authorizer."""

    principal: str = "User:ANONYMOUS"

    def may_describe_configs(self, topic: str) -> bool:
        return True


ANYBODY = AnyRequester()
