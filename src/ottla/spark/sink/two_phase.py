"""The sink's commit in two phases, without I/O: what the driver does next, given what has come of it so far.

Theory of operation. Every task of a micro-batch writes its rows in a transaction of its own and leaves it open
(`Staged`). The driver then records one `Decision`, which names them all, and commits them. So that a batch is never
part committed and part aborted, three rules hold:

1. *Only who holds the claim decides.* A claim is a producer epoch of the sink's own transactional id, and the decision
   is a record written in a transaction of that epoch. Whoever claims next fences the one before: its decision is from
   then on either committed, and will be seen, or will never be.
2. *Nothing is committed before its decision is*, and everything after. To commit again what is committed does no harm,
   so anybody may finish what was decided.
3. *Nothing is aborted but by a holder of the claim that has read that it was not decided*, or by one who has lost the
   claim, has read the same, and aborts what it alone could have decided on.

Two attempts at one task, be they speculative, repeated or left over from a driver that is gone, never meet: each writes
in a transaction of a name that no other process uses (`staging.py`), and the decision names one of them. What the
others have staged nobody commits: they are *orphans*, and hold up readers of committed records until they are aborted.
What is open under the sink's name while the claim is ours was begun under it or an earlier one, and is an orphan unless
we decide on it; so orphans are found while the claim is ours, and may be aborted at any time after, each by its own
producer id and epoch. No rule rests on that: an orphan that nobody finds is left to its timeout.

The transaction's timeout is the one thing outside these rules: the coordinator aborts by the clock. Before it decides,
the driver looks whether all transactions are still open; after the decision, one that is not is told as lost.

Three machines, one for each occasion on which Spark calls the driver's side. Each answers a fact (`on_…`) with effects
and ends with `Done` or `Failed`. Driven by `driver.py`, which carries them out one after the other.

    Opening     TakeClaim → ReadDecisions → [EndTransactions → RecordCompletion]* → [FindOrphans → FenceOrphans] → Done
    Committing  LookAt → [FindOrphans] → RecordDecision → EndTransactions → RecordCompletion → [FenceOrphans] → Done
    Undoing     TakeClaim → ReadDecisions → EndTransactions → [RecordCompletion] → [FindOrphans → FenceOrphans] → Done
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Claim(NamedTuple):
    """The right to decide: an epoch of the producer that the sink's transactional id stands for."""

    producer_id: int
    producer_epoch: int

    def follows(self, other: Claim) -> bool:
        """Is it certainly the later one? Epochs rise; when they run out there is another id, and no telling."""
        return self.producer_id == other.producer_id and self.producer_epoch > other.producer_epoch


class Staged(NamedTuple):
    """A transaction that a task has left open, with everything it was to write."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator: int = -1
    """The broker that coordinated it last: where to ask first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is recorded: these transactions, and no others, are the batch."""

    sink: str
    query_id: str
    """Which query counts the batches; the checkpoint's. Empty for a batch write."""
    batch_id: int
    claim: Claim
    forsaken: bool = False
    """Is it of a sink that nobody opens again, such as that of one batch write? Then any other may finish it."""
    staged: tuple[Staged, ...]


class Recorded(NamedTuple):
    """The newest decision of a sink, and whether all its transactions are known to be committed."""

    decision: Decision
    completed: bool


class DecisionsRead(NamedTuple):
    own: Recorded | None
    forsaken: tuple[Decision, ...] = ()
    """Decisions of others that nobody seems to finish."""


# Effects.


@dataclass(frozen=True, slots=True)
class TakeClaim:
    """Fence whoever has it. With `expected`, only if that is the newest: `on_superseded` if it is not."""

    expected: Claim | None = None


@dataclass(frozen=True, slots=True)
class ReadDecisions:
    """All there are, once nothing in the log is undecided."""


@dataclass(frozen=True, slots=True)
class LookAt:
    """Are these transactions still open?"""

    staged: tuple[Staged, ...]


@dataclass(frozen=True, slots=True)
class RecordDecision:
    decision: Decision


@dataclass(frozen=True, slots=True)
class EndTransactions:
    """By producer id and epoch, until each has ended; `on_ended` tells those that had ended the other way."""

    staged: tuple[Staged, ...]
    commit: bool


@dataclass(frozen=True, slots=True)
class RecordCompletion:
    decision: Decision


@dataclass(frozen=True, slots=True)
class FindOrphans:
    """What is open under the sink's name? To be told only if `claim` is still the newest after it was looked at."""

    claim: Claim
    briefly: bool = False
    """Does a batch wait for it that needs it not?"""


@dataclass(frozen=True, slots=True)
class FenceOrphans:
    """Abort exactly these, and fence whoever might go on writing in them."""

    orphans: tuple[Staged, ...]


@dataclass(frozen=True, slots=True)
class Done:
    recorded: Recorded | None = None
    """The newest decision, as far as it was read."""


@dataclass(frozen=True, slots=True)
class Failed:
    reason: str


Effect = (
    TakeClaim
    | ReadDecisions
    | LookAt
    | RecordDecision
    | EndTransactions
    | RecordCompletion
    | FindOrphans
    | FenceOrphans
    | Done
    | Failed
)


def lost_sentence(decision: Decision, lost: Sequence[Staged]) -> str:
    names = ", ".join(staged.transactional_id for staged in lost[:3])
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    return (
        f"Batch {decision.batch_id} of the sink {decision.sink} was decided, but {len(lost)} of its "
        f"{len(decision.staged)} transactions had timed out before they could be committed ({names}{more}): their rows "
        f"are not in the topic, the others' are. Raise kafka.transaction.timeout.ms, and set "
        f"failOnLostTransaction=false for one run to go on without them."
    )


@dataclass(slots=True, kw_only=True)
class Opening:
    """Before the tasks of a batch begin: take the claim, finish what was decided, abort what was not.

    claiming → reading → finishing (each decision that is not completed) → finding → fencing → done
    """

    fail_on_lost: bool = True
    """Is a transaction that timed out after its decision an error? If not, it is given up."""
    last_claim: Claim | None = None
    """That of the batch before, where the driver knows it: if that one's decision is the newest, nothing has happened
    in between, and orphans are not to be expected."""
    claim: Claim | None = None
    recorded: Recorded | None = None
    _unfinished: list[Decision] = field(default_factory=list)

    def start(self) -> Effect:
        return TakeClaim()

    def on_claimed(self, claim: Claim) -> Effect:
        self.claim = claim
        return ReadDecisions()

    def on_read(self, read: DecisionsRead) -> Effect:
        self.recorded = read.own
        if read.own is not None and not read.own.completed:
            self._unfinished.append(read.own.decision)
        self._unfinished.extend(read.forsaken)
        return self._next()

    def on_ended(self, lost: Sequence[Staged]) -> Effect:
        decision = self._unfinished[0]
        if lost and self.fail_on_lost and not decision.forsaken:
            return Failed(lost_sentence(decision, lost))
        return RecordCompletion(decision)

    def on_completed(self) -> Effect:
        decision = self._unfinished.pop(0)
        if self.recorded is not None and decision is self.recorded.decision:
            self.recorded = Recorded(decision, True)
        return self._next()

    def on_found(self, orphans: Sequence[Staged]) -> Effect:
        return FenceOrphans(tuple(orphans)) if orphans else self.on_fenced()

    def on_fenced(self) -> Effect:
        return Done(self.recorded)

    def _next(self) -> Effect:
        if self._unfinished:
            return EndTransactions(self._unfinished[0].staged, commit=True)
        if self._continues():
            return Done(self.recorded)
        assert self.claim is not None
        return FindOrphans(self.claim)

    def _continues(self) -> bool:
        """Does this batch follow the one before?"""
        return self.recorded is not None and self.recorded.decision.claim == self.last_claim


@dataclass(slots=True, kw_only=True)
class Committing:
    """After all tasks of a batch have staged: decide, then commit.

    looking → finding, if it is due → deciding → ending → completing → fencing → done

    There may be no batch after this one to find its orphans. They are found before the decision, which only the holder
    of the claim can record, and aborted when nothing else is left to be done.

    An error before the decision is recorded means that the batch is not committed, and Spark has it undone (`Undoing`,
    which looks whether that is true). After it there is only one error left: a transaction that timed out.
    """

    decision: Decision
    fail_on_lost: bool = True
    sweep_due: bool = False
    """Are orphans to be expected, since a task was tried again, or is it simply time to look for them?"""
    _orphans: tuple[Staged, ...] = ()

    def start(self) -> Effect:
        if self.decision.staged:
            return LookAt(self.decision.staged)
        return self._find()  # Not a row: to write that again would do no harm, so it needs no decision.

    def on_looked(self, not_open: Sequence[Staged]) -> Effect:
        if not_open:
            return Failed(
                f"Batch {self.decision.batch_id} of the sink {self.decision.sink} is not written: {len(not_open)} of "
                f"its {len(self.decision.staged)} transactions are not open any more ({not_open[0].transactional_id}). "
                f"If the tasks took longer than kafka.transaction.timeout.ms, raise it."
            )
        return self._find()

    def on_found(self, orphans: Sequence[Staged]) -> Effect:
        """All that is open: what is ours among it, too."""
        ours = {staged.transactional_id for staged in self.decision.staged}
        self._orphans = tuple(each for each in orphans if each.transactional_id not in ours)
        return self._decide()

    def on_superseded(self) -> Effect:
        return Failed(
            f"Another query has taken over the sink {self.decision.sink} while batch {self.decision.batch_id} was "
            f"written: stop one of them, or give each its own sinkId and checkpoint."
        )

    def on_recorded(self) -> Effect:
        return EndTransactions(self.decision.staged, commit=True)

    def on_ended(self, lost: Sequence[Staged]) -> Effect:
        if lost and self.fail_on_lost:
            return Failed(lost_sentence(self.decision, lost))
        return RecordCompletion(self.decision)

    def on_completed(self) -> Effect:
        return FenceOrphans(self._orphans) if self._orphans else self.on_fenced()

    def on_fenced(self) -> Effect:
        return Done(Recorded(self.decision, True)) if self.decision.staged else Done()

    def _find(self) -> Effect:
        return FindOrphans(self.decision.claim, briefly=True) if self.sweep_due else self._decide()

    def _decide(self) -> Effect:
        return RecordDecision(self.decision) if self.decision.staged else self.on_completed()


@dataclass(slots=True, kw_only=True)
class Undoing:
    """After a batch has failed, perhaps within `Committing` and perhaps after its decision.

    claiming → reading → decided? → ending (commit) → completing → finding, if the claim is still ours → fencing → done
                         else     → ending (abort)               → finding, if the claim is still ours → fencing → done
    """

    claim: Claim
    """That of the batch, which its decision would carry."""
    staged: tuple[Staged, ...]
    _held: Claim | None = None
    """What we hold now; None if somebody else goes on with the sink."""
    _decision: Decision | None = None

    def start(self) -> Effect:
        return TakeClaim(expected=self.claim)

    def on_claimed(self, claim: Claim) -> Effect:
        self._held = claim
        return ReadDecisions()

    def on_superseded(self) -> Effect:
        """Somebody else goes on with the sink. Nobody can decide for us any more, and what is not ours is theirs."""
        return ReadDecisions()

    def on_read(self, read: DecisionsRead) -> Effect:
        own = read.own
        if own is not None and own.decision.claim == self.claim:
            self._decision = own.decision
            return self._find() if own.completed else EndTransactions(own.decision.staged, commit=True)
        return EndTransactions(self.staged, commit=False)

    def on_ended(self, lost: Sequence[Staged]) -> Effect:
        if self._decision is not None:
            return Failed(lost_sentence(self._decision, lost)) if lost else RecordCompletion(self._decision)
        return self._find()

    def on_completed(self) -> Effect:
        return self._find()

    def on_found(self, orphans: Sequence[Staged]) -> Effect:
        return FenceOrphans(tuple(orphans)) if orphans else self.on_fenced()

    def on_fenced(self) -> Effect:
        return Done(None if self._decision is None else Recorded(self._decision, True))

    def _find(self) -> Effect:
        return self.on_fenced() if self._held is None else FindOrphans(self._held)
