"""Who asks the controller for something, as far as the answer depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ottla.model import ANONYMOUS


class Requester(Protocol):
    @property
    def principal(self) -> str:
        """Of the form `type:name`."""
        ...

    def may_describe_configs(self, topic: str) -> bool:
        """May the configs of a topic that was just created be shown?"""
        ...

    def charge(self, partitions: int) -> None:
        """So many are about to be made or deleted. Raises `KafkaError` with THROTTLING_QUOTA_EXCEEDED if that is too
        much at present (KIP-599)."""
        ...

    @property
    def throttle_ms(self) -> int:
        """For how long the requester has to be quiet after what it was charged with."""
        ...


@dataclass(frozen=True, slots=True)
class AnyRequester:
    """May do everything: the node itself, and everybody while there is no authorizer."""

    principal: str = ANONYMOUS

    @property
    def throttle_ms(self) -> int:
        return 0

    def may_describe_configs(self, topic: str) -> bool:
        return True

    def charge(self, partitions: int) -> None:
        pass


ANYBODY = AnyRequester()
