"""What a partition machine asks its driver to do, or tells it has become true."""

from __future__ import annotations

from typing import NamedTuple


class HighWatermarkAdvanced(NamedTuple):
    """Everything before `offset` is committed: waiting producers and consumers may go on.

    A tuple, since nearly every append makes one.
    """

    offset: int


class IsrMember(NamedTuple):
    replica_id: int
    broker_epoch: int
    """That of its last fetch, so that the controller can tell a broker which has restarted since (KIP-903); -1 if it
    has not said. The leader's own is filled in by whoever sends the proposal."""


class ProposeIsr(NamedTuple):
    """Ask the controller for another in-sync set (AlterPartition), and tell the machine what it answers."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]
    joining: tuple[int, ...] = ()
    leaving: tuple[int, ...] = ()


Effect = HighWatermarkAdvanced | ProposeIsr
