"""What a partition machine asks its driver to do, or tells it has become true."""

from __future__ import annotations

from typing import NamedTuple


class HighWatermarkAdvanced(NamedTuple):
    """Everything before `offset` is committed: waiting producers and consumers may go on.

    A tuple, since nearly every append makes one.
    """

    offset: int


Effect = HighWatermarkAdvanced
