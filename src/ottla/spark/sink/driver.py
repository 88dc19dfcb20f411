"""The driver's side of the exactly-once sink: carries out what the machines of `two_phase` ask for, one by one.

`open_sink` before the tasks begin, `commit` when all have staged, `undo` when the batch has failed. Spark calls each in
whichever process it likes: what they know of one another is what is handed over (`handover`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.blocking import monotonic_s
from ottla.spark.crash_points import reached
from ottla.spark.sink.connections import Connections, connections
from ottla.spark.sink.coordination import is_fencing
from ottla.spark.sink.decision_log import claim_id, task_prefix
from ottla.spark.sink.handover import OpenSink, SinkError, TaskResult
from ottla.spark.sink.options import SinkOptions
from ottla.spark.sink.two_phase import (
    Claim,
    Committing,
    Decision,
    Done,
    Effect,
    EndTransactions,
    Failed,
    FenceOrphans,
    FindOrphans,
    LookAt,
    Opening,
    ReadDecisions,
    RecordCompletion,
    RecordDecision,
    Staged,
    TakeClaim,
    Undoing,
)

_LOG = logging.getLogger(__name__)

CLAIM_TIMEOUT_MS = 60_000
"""How long the coordinator waits for the end of a decision's transaction, whose two requests follow one another."""

SWEEP_INTERVAL_S = 10.0
"""How often a process that commits looks for orphans though no task tells of another attempt."""

BRIEFLY_MS = 2_000

Machine = Opening | Committing | Undoing


_claims: dict[str, Claim] = {}
"""By sink, the one this process took last. To forget it costs a look for orphans."""
_swept_s: dict[str, float] = {}
"""By sink, when this process committed and looked for orphans last."""


def open_sink(options: SinkOptions, sink: str, *, forsaken: bool = False) -> OpenSink:
    """Takes the sink over, finishes what was decided there, and aborts what was not."""
    machine = Opening(fail_on_lost=options.fail_on_lost, last_claim=_claims.get(sink))
    done = _run(machine, sink, options)
    assert machine.claim is not None
    if not forsaken:  # Else it is not opened again.
        _claims[sink] = machine.claim
    decided = None if done.recorded is None else (done.recorded.decision.query_id, done.recorded.decision.batch_id)
    return OpenSink(sink=sink, claim=machine.claim, forsaken=forsaken, decided=decided)


def commit(options: SinkOptions, results: Sequence[TaskResult]) -> None:
    """Decides on the batch and commits it."""
    if not results or results[0].skipped:
        return
    first = results[0]
    decision = Decision(
        sink=first.opened.sink,
        query_id=first.query_id,
        batch_id=first.batch_id,
        claim=first.opened.claim,
        forsaken=first.opened.forsaken,
        staged=tuple(result.staged for result in results if result.staged is not None),
    )
    machine = Committing(
        decision=decision,
        fail_on_lost=options.fail_on_lost,
        sweep_due=_sweep_is_due(decision, any(result.repeated for result in results)),
    )
    _run(machine, decision.sink, options)


def _sweep_is_due(decision: Decision, repeated: bool) -> bool:
    """Not every attempt shows in the results: where a stage is run again, its tasks count from 0."""
    if decision.forsaken:
        return True  # Nobody looks after it.
    now_s = monotonic_s()
    swept_s = _swept_s.get(decision.sink)
    due = repeated or swept_s is None or now_s - swept_s > SWEEP_INTERVAL_S
    if due:
        _swept_s[decision.sink] = now_s
    return due


def undo(options: SinkOptions, results: Sequence[TaskResult], opened: OpenSink | None = None) -> None:
    """Aborts what a failed batch has staged, unless it was decided after all. Who does not know what was `opened`, and
    has no result that tells it, leaves what there is to the next who opens the sink, or to its timeout."""
    if opened is None:
        if not results:
            return
        opened = results[0].opened
    staged = tuple(result.staged for result in results if result.staged is not None)
    _run(Undoing(claim=opened.claim, staged=staged), opened.sink, options)


def _run(machine: Machine, sink: str, options: SinkOptions) -> Done:
    driver = _Driver(connections(options.client), sink, options)
    effect = machine.start()
    while not isinstance(effect, Done):
        if isinstance(effect, Failed):
            raise SinkError(effect.reason)
        step = f"{type(machine).__name__}-{type(effect).__name__}"
        reached(f"before-{step}")
        effect = driver.carry_out(machine, effect)
        reached(f"after-{step}")
    return effect


class _Driver:
    def __init__(self, to: Connections, sink: str, options: SinkOptions) -> None:
        self._coordination = to.coordination
        self._log = to.decisions(options.decision_topic)
        self._sink = sink
        self._timeout_ms = options.transaction_timeout_ms
        self._producer_id: int | None = None

    def carry_out(self, machine: Machine, effect: Effect) -> Effect:
        """What the machine says to what came of it. Which machine asks for what is in its table of moves."""
        if isinstance(effect, TakeClaim):
            assert not isinstance(machine, Committing)
            return self._claim(machine, effect)
        if isinstance(effect, ReadDecisions):
            assert not isinstance(machine, Committing)
            return machine.on_read(self._log.read(self._sink, resolved=self._producer_id))
        if isinstance(effect, LookAt):
            assert isinstance(machine, Committing)
            return machine.on_looked(self._coordination.not_open(effect.staged))
        if isinstance(effect, RecordDecision):
            assert isinstance(machine, Committing)
            return self._record(machine, effect.decision)
        if isinstance(effect, EndTransactions):
            return machine.on_ended(self._coordination.end_all(effect.staged, effect.commit))
        if isinstance(effect, RecordCompletion):
            self._log.record_completion(effect.decision)
            return machine.on_completed()
        if isinstance(effect, FindOrphans):
            return machine.on_found(self._find(effect))
        assert isinstance(effect, FenceOrphans)
        return self._fence(machine, effect)

    def _claim(self, machine: Opening | Undoing, effect: TakeClaim) -> Effect:
        self._producer_id = None if effect.expected is None else effect.expected.producer_id
        try:
            claim = self._coordination.init(claim_id(self._sink), CLAIM_TIMEOUT_MS, effect.expected)
        except KafkaError as error:
            if effect.expected is None or not is_fencing(error):
                raise
            assert isinstance(machine, Undoing)
            return machine.on_superseded()
        return machine.on_claimed(claim)

    def _find(self, effect: FindOrphans) -> list[Staged]:
        try:
            found = self._coordination.open_under(task_prefix(self._sink), BRIEFLY_MS if effect.briefly else None)
            return found if self._coordination.is_newest(claim_id(self._sink), effect.claim) else []
        except KafkaError as error:
            _LOG.warning(
                "What attempts that died have left open under the sink %s cannot be found (%s): readers of committed "
                "records may wait for it, until the sink is opened again or kafka.transaction.timeout.ms is over.",
                self._sink,
                error,
            )
            return []

    def _fence(self, machine: Machine, effect: FenceOrphans) -> Effect:
        try:
            self._coordination.abort_orphans(effect.orphans, self._timeout_ms)
        except KafkaError as error:
            _LOG.warning(
                "What attempts that died have left open under the sink %s cannot all be aborted (%s): readers of "
                "committed records may wait for it, until the sink is opened again or kafka.transaction.timeout.ms is "
                "over.",
                self._sink,
                error,
            )
        return machine.on_fenced()

    def _record(self, machine: Committing, decision: Decision) -> Effect:
        try:
            self._log.record(decision)
        except KafkaError as error:
            if is_fencing(error) or error.code is ErrorCode.TRANSACTION_ABORTABLE:
                return machine.on_superseded()
            raise
        return machine.on_recorded()
