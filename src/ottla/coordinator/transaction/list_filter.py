"""Which transactions ListTransactions asks for (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ottla.coordinator.transaction.states import STATES_BY_TITLE, TransactionState
from ottla.coordinator.transaction.transaction import Transaction
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.list_transactions_request import ListTransactionsRequest


@dataclass(frozen=True, slots=True)
class ListFilter:
    """An empty set, a negative duration and no pattern ask for everything."""

    states: frozenset[TransactionState | None]
    """None stands for what is not the name of a state, and which no transaction is in."""
    producer_ids: frozenset[int]
    running_ms: int
    matches: Callable[[str], object] | None
    """Of the transactional id as a whole."""

    @classmethod
    def from_request(cls, request: ListTransactionsRequest) -> ListFilter:
        return cls(
            states=frozenset(STATES_BY_TITLE.get(title) for title in request.state_filters),
            producer_ids=frozenset(request.producer_id_filters),
            running_ms=request.duration_filter,
            matches=_compiled(request.transactional_id_pattern) if request.transactional_id_pattern else None,
        )

    def includes(self, transactional_id: str, transaction: Transaction, now_ms: int) -> bool:
        return (
            (not self.producer_ids or transaction.producer_id in self.producer_ids)
            and (not self.states or transaction.state in self.states)
            and (self.running_ms < 0 or now_ms - transaction.start_ms > self.running_ms)
            and (self.matches is None or self.matches(transactional_id) is not None)
        )


def unknown_titles(request: ListTransactionsRequest) -> list[str]:
    return [title for title in dict.fromkeys(request.state_filters) if title not in STATES_BY_TITLE]


def _compiled(pattern: str) -> Callable[[str], object]:
    import re2  # Here, because few nodes ever see a pattern.

    options = re2.Options()
    options.log_errors = False
    try:
        matches: Callable[[str], object] = re2.compile(pattern, options).fullmatch
    except (ValueError, re2.error) as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION) from error
    return matches
