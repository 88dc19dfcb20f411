"""The states of a transaction, and the moves between them. There are no others.

    Empty            ─► Empty           a new epoch is handed out
                     ─► Ongoing         partitions are added
    Ongoing          ─► Ongoing         more partitions are added
                     ─► PrepareCommit   EndTxn(commit)
                     ─► PrepareAbort    EndTxn(abort), a timeout, or a new producer with the same transactional id
    PrepareCommit    ─► CompleteCommit  every partition has its marker
    PrepareAbort     ─► CompleteAbort   every partition has its marker
    Complete…        ─► Empty           a new epoch is handed out
                     ─► Ongoing         the next transaction begins
    Empty, Complete… ─► PrepareAbort    EndTxn(abort) of a transaction that nothing was added to, under version 2
                     ─► Dead            the transactional id has expired: its record is a tombstone

A transaction that is prepared has been decided: from there it goes one way, whoever asks.
"""

from __future__ import annotations

from enum import IntEnum


class TransactionState(IntEnum):
    """The numbers are those of the records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7
    """Never written, and never seen: Kafka's name for the moment between the fencing of a producer and the abort of its
    transaction, which are one step here. ListTransactions accepts it as a filter."""

    @property
    def title(self) -> str:
        """As DescribeTransactions and ListTransactions say it."""
        return _TITLES[self]


_TITLES = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.PREPARE_COMMIT: "PrepareCommit",
    TransactionState.PREPARE_ABORT: "PrepareAbort",
    TransactionState.COMPLETE_COMMIT: "CompleteCommit",
    TransactionState.COMPLETE_ABORT: "CompleteAbort",
    TransactionState.DEAD: "Dead",
    TransactionState.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}

STATES_BY_TITLE = {title: state for state, title in _TITLES.items()}

PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
COMPLETE = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
IDLE = COMPLETE | {TransactionState.EMPTY}
"""No transaction is open, so that the transactional id may expire."""

_FROM_IDLE = frozenset(
    {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.DEAD}
)

MOVES: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: _FROM_IDLE,
    TransactionState.ONGOING: PREPARED | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.COMPLETE_COMMIT}),
    TransactionState.PREPARE_ABORT: frozenset({TransactionState.COMPLETE_ABORT}),
    TransactionState.COMPLETE_COMMIT: _FROM_IDLE,
    TransactionState.COMPLETE_ABORT: _FROM_IDLE,
    TransactionState.DEAD: frozenset(),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset(),
}
