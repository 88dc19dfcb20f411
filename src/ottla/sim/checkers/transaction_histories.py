"""What transactions read while they were open: H6, H9 and H10 of Jepsen's Kafka workload.

All of them read what is committed, and nothing else. Writes are not isolated from each other in Kafka's model, so only
edges from a write to who read it count: a cycle of those says that two transactions have seen each other's end before
their own (G1c).
"""

from __future__ import annotations

from ottla.model import TopicPartition
from ottla.sim.checkers.violation import Violation
from ottla.sim.history import History, Txn


def check_transactions(history: History) -> None:
    writers = {
        value: transaction
        for transaction in history.transactions
        for send in transaction.sends
        for value in send.values
    }
    for transaction in history.transactions:
        _check_order(transaction)
        for poll in transaction.polls:
            for read in poll.reads:
                if writers.get(read.value) is transaction:
                    raise Violation(
                        "H9", f"{_name(transaction)} read {read.value!r} at {read.offset} of {poll.place}: its own"
                    )
    _check_cycles(history.transactions, writers)


def _check_order(transaction: Txn) -> None:
    """H6: within one transaction, polls of a partition follow each other without a gap or a step back."""
    next_offsets: dict[TopicPartition, int] = {}
    for poll in transaction.polls:
        expected = next_offsets.get(poll.place, poll.position)
        first = poll.reads[0].offset if poll.reads else poll.position
        if poll.position != expected or first < expected:
            what = "stepped back" if min(poll.position, first) < expected else "skipped"
            raise Violation(
                "H6",
                f"{_name(transaction)} {what} in {poll.place}: it had got to {expected}, and was answered from "
                f"{min(poll.position, first)} on",
            )
        next_offsets[poll.place] = poll.next


def _check_cycles(transactions: list[Txn], writers: dict[bytes, Txn]) -> None:
    """H10: who reads from whom has no cycles. Walks backwards from each reader to those it read from."""
    sources: dict[int, dict[int, Txn]] = {}
    for transaction in transactions:
        found = sources[id(transaction)] = {}
        for poll in transaction.polls:
            for read in poll.reads:
                writer = writers.get(read.value)
                if writer is not None:
                    found[id(writer)] = writer
    done: set[int] = set()
    for transaction in transactions:
        if id(transaction) in done:
            continue
        path = [transaction]
        on_path = {id(transaction)}
        waiting = [list(sources[id(transaction)].values())]
        while path:
            if not waiting[-1]:
                waiting.pop()
                last = path.pop()
                on_path.discard(id(last))
                done.add(id(last))
                continue
            writer = waiting[-1].pop()
            if id(writer) in on_path:
                start = next(at for at, each in enumerate(path) if each is writer)
                raise Violation("H10", "each read from the next: " + ", ".join(map(_name, path[start:])))
            if id(writer) not in done:
                path.append(writer)
                on_path.add(id(writer))
                waiting.append(list(sources[id(writer)].values()))


def _name(transaction: Txn) -> str:
    return f"{transaction.transactional_id} (producer {transaction.producer_id}, {transaction.producer_epoch})"
