"""What a partition machine asks its driver to do, or tells it has become true."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HighWatermarkAdvanced:
    """Everything before `offset` is committed: waiting producers and consumers may go on."""

    offset: int


Effect = HighWatermarkAdvanced
