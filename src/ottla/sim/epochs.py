"""Producers whose epochs run out within a simulation (D18), and not after thirty thousand transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ottla.coordinator.transaction import shard, transaction
from ottla.log import producers
from ottla.sim.mutation import Patches


@contextmanager
def few_epochs(epochs: int | None) -> Iterator[None]:
    """As long as it lasts, a producer id has so many epochs for clients, and one more for its coordinator."""
    with ExitStack() as stack:
        patches = Patches(stack)
        if epochs is not None:
            patches.replace(transaction, "EPOCH_MAX", epochs)
            patches.replace(shard, "EPOCH_MAX", epochs)
            patches.replace(producers, "MAX_EPOCH", epochs)
        yield


def epoch_max() -> int:
    """The last epoch, which is no client's."""
    return transaction.EPOCH_MAX
