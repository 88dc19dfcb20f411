"""The sink's two phases as a dialogue: what is asked for next, given what has come of it (tests/spark/two_phase/)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.spark.sink.two_phase import (
    Claim,
    Committing,
    Decision,
    DecisionsRead,
    Done,
    Effect,
    EndTransactions,
    Failed,
    FenceOrphans,
    FindOrphans,
    Opening,
    RecordCompletion,
    RecordDecision,
    Recorded,
    Staged,
    TakeClaim,
    Undoing,
)
from tests.transcript import Command, run, transcripts

HERE = Path(__file__).parent / "two_phase"


def staged(names: str) -> tuple[Staged, ...]:
    return tuple(Staged(name, 100 + number, 0) for number, name in enumerate(filter(None, names.split(","))))


def claim(text: str) -> Claim:
    producer_id, _, epoch = text.partition(".")
    return Claim(int(producer_id), int(epoch))


def told(effect: Effect) -> str:
    if isinstance(effect, TakeClaim):
        return f"TakeClaim expected={'.'.join(map(str, effect.expected))}" if effect.expected else "TakeClaim"
    if isinstance(effect, EndTransactions):
        names = ",".join(each.transactional_id for each in effect.staged)
        return f"EndTransactions {'commit' if effect.commit else 'abort'} {names}".rstrip()
    if isinstance(effect, FindOrphans):
        return f"FindOrphans claim={'.'.join(map(str, effect.claim))}{' briefly' if effect.briefly else ''}"
    if isinstance(effect, FenceOrphans):
        return f"FenceOrphans {','.join(each.transactional_id for each in effect.orphans)}"
    if isinstance(effect, RecordDecision | RecordCompletion):
        return f"{type(effect).__name__} {effect.decision.sink} batch={effect.decision.batch_id}"
    if isinstance(effect, Failed):
        return f"Failed: {effect.reason}"
    if isinstance(effect, Done) and effect.recorded is not None:
        return f"Done batch={effect.recorded.decision.batch_id}"
    return type(effect).__name__


class Stage:
    """Plays a transcript: one machine at a time."""

    def __init__(self) -> None:
        self.machine: Opening | Committing | Undoing = Opening()

    def execute(self, command: Command) -> list[str]:
        return [told(self.answer(command))]

    def answer(self, command: Command) -> Effect:
        machine = self.machine
        match command.name:
            case "open":
                last = command.options.get("last")
                self.machine = Opening(
                    fail_on_lost="accept-loss" not in command.words,
                    last_claim=None if last is None else claim(last),
                )
                return self.machine.start()
            case "commit":
                self.machine = Committing(
                    decision=self.decision(command),
                    fail_on_lost="accept-loss" not in command.words,
                    sweep_due="repeated" in command.words,
                )
                return self.machine.start()
            case "undo":
                self.machine = Undoing(
                    claim=claim(command.options["claim"]), staged=staged(command.options.get("staged", ""))
                )
                return self.machine.start()
            case "claimed":
                assert not isinstance(machine, Committing)
                return machine.on_claimed(claim(command.words[0]))
            case "superseded":
                assert not isinstance(machine, Opening)
                return machine.on_superseded()
            case "read":
                assert not isinstance(machine, Committing)
                own = None
                if "batch" in command.options:
                    own = Recorded(self.decision(command), "completed" in command.words)
                forsaken: tuple[Decision, ...] = ()
                if "forsaken" in command.options:
                    theirs = command.options["forsaken"]
                    forsaken = (self.decision(command, sink="another", names=theirs, forsaken=True),)
                return machine.on_read(DecisionsRead(own, forsaken))
            case "looked":
                assert isinstance(machine, Committing)
                return machine.on_looked(staged(command.options.get("gone", "")))
            case "recorded":
                assert isinstance(machine, Committing)
                return machine.on_recorded()
            case "ended":
                return machine.on_ended(staged(command.options.get("lost", "")))
            case "completed":
                return machine.on_completed()
            case "found":
                return machine.on_found(staged(command.options.get("open", "")))
            case "fenced":
                return machine.on_fenced()
        raise AssertionError(f"line {command.line}: there is no {command.name}")

    def decision(
        self, command: Command, *, sink: str = "orders", names: str | None = None, forsaken: bool = False
    ) -> Decision:
        return Decision(
            sink=sink,
            query_id="q",
            batch_id=command.integer("batch", 0),
            claim=claim(command.options.get("claim", "1.0")),
            forsaken=forsaken,
            staged=staged(command.options.get("staged", "") if names is None else names),
        )


@pytest.mark.parametrize("path", transcripts(HERE), ids=lambda path: path.stem)
def test_transcript(path: Path, pytestconfig: pytest.Config) -> None:
    run(path, Stage().execute, pytestconfig)
