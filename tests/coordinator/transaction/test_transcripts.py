"""The transaction coordinator, in dialogues: see transcripts/*.txt.

coordinator feature=2          a first leader on an empty log; `transaction.version`, max_timeout=…, expiration=…
init t                         InitProducerId; timeout=60000, as=1000/3 who the producer thinks it is; 2pc, keep
add t as=1000/0 p=a-0,a-1      AddPartitionsToTxn; v=1 for a client of version 1
verify t as=1000/0 p=a-0       the question of a partition (KIP-890)
end t as=1000/0 commit|abort   EndTxn; v=1 for a client of version 1
hold                           appends are not committed any more, until …
commit                         … this, or …
fail                           … this: none of them was written
markers t                      every partition has the oldest marker that was asked for t; p=… if only some have
late t                         the markers that were written last are reported once more
ids 0                          how many producer ids are left
epoch t 32766                  a record with that epoch, as if there had been so many before
feature 1
tick 60000                     time goes by
move                           another leader loads the log
show t                         what is known of t; `committed` for what is told of it
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.coordinator.stored import StoredRecord
from ottla.coordinator.transaction.effects import SendMarkers
from ottla.coordinator.transaction.settings import TransactionSettings
from ottla.coordinator.transaction.shard import Expected, Identity
from ottla.coordinator.transaction.transaction import Transaction
from ottla.errors import ErrorCode
from ottla.model import TopicPartition
from ottla.wire.messages.transaction_log_key import TransactionLogKey
from ottla.wire.messages.transaction_log_value import TransactionLogValue
from tests.coordinator.transaction.stage import Stage, Ticket
from tests.transcript import Command, run, transcripts


class Dialogue:
    """Carries out the commands of a transcript on one stage."""

    def __init__(self) -> None:
        self._stage = Stage()
        self._holding = False
        self._held: list[Ticket] = []
        self._told = 0
        """How many entries of the log have been shown."""
        self._sent: list[SendMarkers] = []
        """Markers that have been shown."""
        self._written: dict[str, SendMarkers] = {}

    def execute(self, command: Command) -> list[str]:
        stage = self._stage
        said: list[str] = []
        match command.name:
            case "coordinator":
                self._stage = Stage(
                    transaction_version=command.integer("feature", 2),
                    settings=TransactionSettings(
                        timeout_ms_max=command.integer("max_timeout", 900_000),
                        id_expiration_ms=command.integer("expiration", 604_800_000),
                    ),
                )
                self._told, self._sent = 0, []
                return ["leads"]
            case "hold":
                self._holding = True
            case "commit" | "fail":
                self._holding = False
                stage.commit() if command.name == "commit" else stage.fail()
                said = [_answer(ticket) for ticket in self._held]
                self._held = []
            case "markers":
                sent = next(each for each in stage.sending if each.transactional_id == command.words[0])
                partitions = _partitions(command) or set(sent.partitions)
                if "p" not in command.options:
                    stage.sending.remove(sent)
                self._written[sent.transactional_id] = sent
                said = self._asked(stage.marked(sent, *partitions), tell=False)
            case "late":
                said = self._asked(stage.marked(self._written[command.words[0]]), tell=False)
            case "ids":
                stage.ids.left = int(command.words[0])
            case "epoch":
                stage.ask(lambda shard: _with_epoch(stage, command.words[0], int(command.words[1])))
                stage.commit()
            case "feature":
                stage.set_feature(int(command.words[0]))
            case "tick":
                stage.tick(int(command.words[0]))
                if not self._holding:
                    stage.commit()
            case "move":
                stage.move()
                self._sent = []
                if not self._holding:
                    stage.commit()
            case "show":
                return [self._shown(command)]
            case _:
                said = self._asked(self._request(command))
        return said + self._news()

    def _request(self, command: Command) -> Ticket:
        stage, name = self._stage, command.words[0]
        now_ms = stage.now_ms
        identity = _identity(command)
        version = 0 if command.options.get("v") == "1" else 2
        match command.name:
            case "init":
                return stage.ask(
                    lambda shard: shard.init_producer_id(
                        "" if name == "nothing" else name,
                        command.integer("timeout", 60_000),
                        None if identity is None else Expected(*identity),
                        now_ms,
                        two_phase_commit="2pc" in command.words,
                        keep_prepared="keep" in command.words,
                    )
                )
            case "add":
                assert identity is not None
                return stage.ask(
                    lambda shard: shard.add_partitions(name, *identity, _partitions(command), version, now_ms)
                )
            case "verify":
                assert identity is not None
                return stage.ask(lambda shard: shard.verify_partitions(name, *identity, sorted(_partitions(command))))
            case "end":
                assert identity is not None
                commit = "commit" in command.words
                return stage.ask(lambda shard: shard.end_transaction(name, *identity, commit, version, now_ms))
        raise AssertionError(f"line {command.line}: {command.name}?")

    def _asked(self, ticket: Ticket, *, tell: bool = True) -> list[str]:
        if self._holding and not ticket.is_done:
            if tell:
                self._held.append(ticket)
            return ["waits"] if tell else []
        self._stage.commit()
        return [_answer(ticket)] if tell else []

    def _news(self) -> list[str]:
        """Records and effects since the last command."""
        stage = self._stage
        self._told = min(self._told, len(stage.log))
        lines = []
        for entry in stage.log[self._told :]:
            record = entry.decode()
            assert isinstance(record.key, TransactionLogKey)
            lines.append(f"record {record.key.transactional_id}: {_record(record)}")
        self._told = len(stage.log)
        for sent in stage.sending:
            if not any(sent is each for each in self._sent):
                self._sent.append(sent)
                what = "commit" if sent.commit else "abort"
                where = ",".join(map(str, sent.partitions))
                lines.append(
                    f"send {what} {sent.producer_id}/{sent.producer_epoch} to {where} coordinator_epoch="
                    f"{sent.coordinator_epoch} version={sent.transaction_version}"
                )
        return lines

    def _shown(self, command: Command) -> str:
        shard, name = self._stage.shard, command.words[0]
        known = shard.describe(name) if "committed" in command.words else shard.transactions.get(name)
        return "unknown" if known is None else _told(known)


def _with_epoch(stage: Stage, name: str, epoch: int) -> Any:
    from dataclasses import replace

    from ottla.coordinator.outcome import Outcome

    known = replace(stage.transaction(name), producer_epoch=epoch)
    return Outcome(records=[StoredRecord(TransactionLogKey(transactional_id=name), known.to_value(1), 1)])


def _identity(command: Command) -> tuple[int, int] | None:
    text = command.options.get("as")
    if text is None:
        return None
    producer_id, _, epoch = text.partition("/")
    return int(producer_id), int(epoch)


def _partitions(command: Command) -> set[TopicPartition]:
    names = [name.rpartition("-") for name in command.options.get("p", "").split(",") if name]
    return {TopicPartition(topic, int(index)) for topic, _, index in names}


def _answer(ticket: Ticket) -> str:
    if ticket.error is not ErrorCode.NONE:
        return f"{ticket.error.name} (not written)"
    match ticket.answer:
        case Identity(error=ErrorCode.NONE) as identity:
            return f"ok {identity.producer_id}/{identity.producer_epoch}"
        case Identity(error=error):
            return error.name
        case ErrorCode() as code:
            return "ok" if code is ErrorCode.NONE else code.name
        case dict() as codes:
            return " ".join(f"{partition}={code.name}" for partition, code in codes.items())
    return "ok"


def _record(record: StoredRecord) -> str:
    if record.value is None:
        return "gone"
    assert isinstance(record.value, TransactionLogValue)
    return f"v{record.version} {_told(Transaction.from_value(record.value))}"


def _told(transaction: Transaction) -> str:
    parts = [f"{transaction.state.title} {transaction.producer_id}/{transaction.producer_epoch}"]
    if transaction.last_producer_epoch != -1:
        parts.append(f"last={transaction.last_producer_epoch}")
    if transaction.previous_producer_id not in (-1, transaction.producer_id):
        parts.append(f"previous={transaction.previous_producer_id}")
    if transaction.next_producer_id != -1:
        parts.append(f"next={transaction.next_producer_id}")
    if transaction.partitions:
        parts.append(",".join(map(str, sorted(transaction.partitions))))
    if transaction.start_ms != -1:
        parts.append(f"began={transaction.start_ms}")
    return " ".join(parts)


@pytest.mark.parametrize("path", transcripts(Path(__file__).parent / "transcripts"), ids=lambda path: path.stem)
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    run(path, Dialogue().execute, request.config)
