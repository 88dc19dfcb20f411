"""What clients were told, held against what the logs hold: the checks of Jepsen's Kafka workload.

Answers are checked as they arrive where the truth is known already (A23, A6), and all of them together at the end.
Every value is unique, so the history of a partition is linearizable in real time exactly if each offset has one value,
what was acknowledged is there, and of two writes of which one was answered before the other began, the later has the
higher offset.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from ottla.model import TopicPartition
from ottla.sim.checkers.ledger import Ledger
from ottla.sim.checkers.transaction_histories import check_transactions
from ottla.sim.checkers.violation import Violation
from ottla.sim.history import History, Outcome, Poll, Send


class HistoryChecker:
    def __init__(self, history: History, ledger_of: Callable[[TopicPartition], Ledger | None]) -> None:
        self._history = history
        self._ledger_of = ledger_of
        self._sends = 0
        self._polls = 0
        self._inner = 0
        self._pending: list[Send] = []
        self.on_poll: Callable[[Poll], None] = lambda poll: None
        """Is told of every answer to a consumer."""

    # While it runs.

    def after_step(self) -> None:
        """Look at the answers that came since the last look."""
        history = self._history
        if len(history.sends) > self._sends:
            self._pending += history.sends[self._sends :]
            self._sends = len(history.sends)
        if self._pending:
            answered = [send for send in self._pending if send.outcome is not Outcome.PENDING]
            if answered:
                self._pending = [send for send in self._pending if send.outcome is Outcome.PENDING]
                for send in answered:
                    self._on_answer(send)
        while self._polls < len(history.polls):
            self._on_poll(history.polls[self._polls])
            self._polls += 1
        while self._inner < len(history.inner):
            self._on_poll(history.inner[self._inner])
            self._inner += 1

    def _on_answer(self, send: Send) -> None:
        """A23: an answer to acks=all says that the batch is committed."""
        if send.outcome is not Outcome.OK or send.acks != -1:
            return
        ledger = self._ledger_of(send.place)
        if ledger is not None and ledger.end < send.offset + len(send.values):
            raise Violation(
                "A23",
                f"{send.client} was told that {send.values[0]!r} is at {send.offset} of {send.place}, but only "
                f"{ledger.end} is committed",
            )

    def _on_poll(self, poll: Poll) -> None:
        """A consumer sees what is committed, and nothing else."""
        self.on_poll(poll)
        ledger = self._ledger_of(poll.place)
        if ledger is None or not poll.reads:
            return
        last = poll.reads[-1]
        if last.offset >= ledger.end:
            raise Violation(
                "A6",
                f"{poll.client} read {last.value!r} at {last.offset} of {poll.place} from node {poll.node}, but "
                f"only {ledger.end} is committed",
            )

    # At the end.

    def at_end(self, *, may_lose: bool) -> None:
        """`may_lose`: more was broken than is promised to survive; then only contradictions count."""
        history = self._history
        if history.unexpected:
            raise Violation("H0", history.unexpected[0])
        places = sorted({send.place for send in history.sends} | set(history.final))
        for place in places:
            self._check(place, may_lose)
        self._check_end_offsets()
        check_transactions(history)

    def _check(self, place: TopicPartition, may_lose: bool) -> None:
        history = self._history
        sends = [send for send in history.sends if send.place == place]
        polls = [poll for poll in history.polls if poll.place == place]
        by_value = {value: (send, at) for send in sends for at, value in enumerate(send.values)}
        final = history.final.get(place)
        # H4: one offset, one value, whoever says so.
        at_offset: dict[int, tuple[bytes, str]] = {}

        def see(offset: int, value: bytes, who: str) -> None:
            known = at_offset.setdefault(offset, (value, who))
            if known[0] != value:
                raise Violation("H4", f"{place} at {offset}: {known[1]} saw {known[0]!r}, and {who} {value!r}")

        for poll in polls:
            for read in poll.reads:
                see(read.offset, read.value, poll.client)
        for read in final or ():
            see(read.offset, read.value, "the final reader")
        for send in sends:
            if send.outcome is Outcome.OK and send.acks == -1:
                for at, value in enumerate(send.values):
                    see(send.offset + at, value, f"{send.client} (told)")
        offsets_of: dict[bytes, list[int]] = {}
        for offset, (value, _) in sorted(at_offset.items()):
            offsets_of.setdefault(value, []).append(offset)
        for value, offsets in offsets_of.items():
            origin = by_value.get(value)
            if origin is None:
                raise Violation("H12", f"{place} at {offsets[0]} holds {value!r}, which nobody wrote")
            send = origin[0]
            if send.outcome is Outcome.FAILED:
                raise Violation("H1", f"{place} at {offsets[0]} holds {value!r}, whose write failed")
            if len(offsets) > 1 and (send.idempotent or not send.uncertain_attempts):
                raise Violation("H5", f"{place} holds {value!r} at {offsets}")
        self._check_sends(place, sends, by_value, polls)
        self._check_polls(place, polls)
        if final is None:
            return
        self._check_skips(place)
        held = {read.value for read in final}
        start = history.final_start.get(place, 0)
        last = final[-1].offset if final else -1
        for send in sends:
            if send.outcome is not Outcome.OK or send.acks != -1 or may_lose:
                continue
            for at, value in enumerate(send.values):
                offset = send.offset + at
                if offset >= start and value not in held:
                    name = "H2" if offset <= last else "H3"
                    raise Violation(name, f"{place}: {value!r} was acknowledged at {offset}, and is not there")
        if not may_lose:
            for poll in polls:
                for read in poll.reads:
                    if read.offset >= start and read.value not in held:
                        raise Violation(
                            "A6", f"{place}: {poll.client} read {read.value!r} at {read.offset}, and it is not there"
                        )

    def _check_sends(
        self,
        place: TopicPartition,
        sends: list[Send],
        by_value: dict[bytes, tuple[Send, int]],
        polls: list[Poll],
    ) -> None:
        """H8 and H12: offsets rise, for each client and in real time."""
        last: dict[str, Send] = {}
        for send in sends:
            if send.outcome is Outcome.OK and send.acks == -1:
                before = last.get(send.client)
                if before is not None and send.offset < before.offset + len(before.values):
                    raise Violation(
                        "H8",
                        f"{place}: {send.client} sent {before.values[0]!r}, told {before.offset}, and then "
                        f"{send.values[0]!r}, told {send.offset}",
                    )
                last[send.client] = send
        # Known offsets, in the order in which they came to be known; then each write against those before it.
        known: list[tuple[float, int, str]] = []
        for send in sends:
            if send.outcome is Outcome.OK and send.acks == -1:
                known.append((send.completed, send.offset + len(send.values) - 1, f"{send.client} was told"))
        for poll in polls:
            if poll.reads:
                known.append((poll.completed, poll.reads[-1].offset, f"{poll.client} had read"))
        known.sort()
        written = sorted(
            (send for send in sends if send.outcome is Outcome.OK and send.acks == -1), key=lambda send: send.invoked
        )
        at, highest, who = 0, -1, ""
        for send in written:
            while at < len(known) and known[at][0] < send.invoked:
                if known[at][1] > highest:
                    highest, who = known[at][1], known[at][2]
                at += 1
            if send.offset <= highest:
                raise Violation(
                    "H12",
                    f"{place}: {send.client} began to write {send.values[0]!r} at {send.invoked:.3f} and was "
                    f"told {send.offset}, though {who} of {highest} before",
                )
        for poll in polls:
            for read in poll.reads:
                origin = by_value.get(read.value)
                if origin is not None and poll.completed < origin[0].invoked:
                    raise Violation("H12", f"{place}: {read.value!r} was read before it was written")

    def _check_polls(self, place: TopicPartition, polls: list[Poll]) -> None:
        """H7: an assigned consumer sees every offset once, in order."""
        position: dict[str, int] = {}
        for poll in polls:
            for read in poll.reads:
                before = position.get(poll.client, -1)
                if read.offset <= before:
                    raise Violation("H7", f"{place}: {poll.client} read {read.offset} after {before}")
                position[poll.client] = read.offset

    def _check_skips(self, place: TopicPartition) -> None:
        """H7 and H6: between where a poll began and where it ended nothing is missing."""
        history = self._history
        start = history.final_start.get(place, 0)
        everything = history.final[place]
        committed = history.final_committed.get(place, everything)
        offsets = {
            isolated: [read.offset for read in (committed if isolated else everything)] for isolated in (False, True)
        }
        for poll in (*history.polls, *history.inner):
            if poll.place != place or poll.next <= max(start, poll.position):
                continue
            known = offsets[poll.read_committed]
            first, end = (bisect_left(known, offset) for offset in (max(start, poll.position), poll.next))
            seen = {read.offset for read in poll.reads}
            skipped = [offset for offset in known[first:end] if offset not in seen]
            if skipped:
                raise Violation(
                    "H7",
                    f"{place}: {poll.client} was answered from {poll.position} to {poll.next} by node {poll.node}, "
                    f"without {skipped[0]}",
                )

    def _check_end_offsets(self) -> None:
        """A10: the latest offset that a leader tells never falls, for one who knows its epoch."""
        for place in sorted({answer.place for answer in self._history.end_offsets}):
            answers = [answer for answer in self._history.end_offsets if answer.place == place]
            told = sorted(answers, key=lambda answer: answer.completed)
            at, highest = 0, -1
            for answer in sorted(answers, key=lambda answer: answer.invoked):
                while told[at].completed < answer.invoked:
                    highest = max(highest, told[at].offset)
                    at += 1
                if answer.offset < highest:
                    raise Violation(
                        "A10",
                        f"{answer.client} was told that {place} ends at {highest}, asked again, and was told "
                        f"{answer.offset} by node {answer.node}",
                    )
