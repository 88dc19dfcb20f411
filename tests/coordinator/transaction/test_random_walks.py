"""The transaction coordinator in random histories: producers old and new, appends that fail, leaders that change.

After every step: every move is one of the table's (D15), no marker before its decision is committed and no completion
before every marker (D16), every epoch that is handed out is new (D17, D18), producer ids are given once (D20), and what
the coordinator knows is what the next leader would read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from ottla.coordinator.outcome import Outcome
from ottla.coordinator.stored import StoredRecord
from ottla.coordinator.transaction.effects import SendMarkers
from ottla.coordinator.transaction.settings import TransactionSettings
from ottla.coordinator.transaction.shard import Expected, Identity, TransactionShard
from ottla.coordinator.transaction.transaction import Transaction
from ottla.errors import ErrorCode
from ottla.model import TopicPartition
from ottla.wire.messages.transaction_log_key import TransactionLogKey
from ottla.wire.messages.transaction_log_value import TransactionLogValue
from tests.coordinator.transaction.stage import Stage, Ticket

NAMES = ("s", "t")
PARTITIONS = tuple(TopicPartition(topic, index) for topic in ("a", "b") for index in range(2))

LEGAL = {
    ("nothing", "Empty"),
    ("Empty", "Empty"),
    ("Empty", "Ongoing"),
    ("Empty", "PrepareAbort"),
    ("Empty", "nothing"),
    ("Ongoing", "Ongoing"),
    ("Ongoing", "PrepareCommit"),
    ("Ongoing", "PrepareAbort"),
    ("PrepareCommit", "CompleteCommit"),
    ("PrepareAbort", "CompleteAbort"),
    ("CompleteCommit", "Empty"),
    ("CompleteCommit", "Ongoing"),
    ("CompleteCommit", "PrepareAbort"),
    ("CompleteCommit", "nothing"),
    ("CompleteAbort", "Empty"),
    ("CompleteAbort", "Ongoing"),
    ("CompleteAbort", "PrepareAbort"),
    ("CompleteAbort", "nothing"),
}


@dataclass
class Producer:
    """A client with a transactional id. It knows what it was told, and may be long out of date."""

    name: str
    version: int
    producer_id: int = -1
    epoch: int = -1


@dataclass
class Asked:
    """A request that may come again at any later time."""

    producer: Producer
    what: str
    producer_id: int
    epoch: int
    partitions: frozenset[TopicPartition]
    expects: bool


@dataclass
class Walk:
    seed: int
    random: Random = field(init=False)
    stage: Stage = field(init=False)
    producers: list[Producer] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    waiting: list[tuple[Asked, Ticket, Transaction | None]] = field(default_factory=list)
    handed_out: dict[tuple[int, int], Producer] = field(default_factory=dict)
    marked: dict[tuple[str, int], set[TopicPartition]] = field(default_factory=dict)
    """By transactional id and offset of the decision: the partitions that reported their marker."""
    decisions_of: dict[int, int] = field(default_factory=dict)
    """By identity of the effect that asked for markers: the offset of the decision."""
    effects: list[SendMarkers] = field(default_factory=list)
    began_at_0: bool = False

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.stage = Stage(
            transaction_version=self.random.choice((0, 1, 2, 2, 2)),
            settings=TransactionSettings(id_expiration_ms=400_000, expire_interval_ms=60_000),
        )
        self.began_at_0 = self.stage.transaction_version == 0
        if self.random.random() < 0.3:
            self._near_the_end()

    def _near_the_end(self) -> None:
        """Start where epochs are about to run out."""
        for name in NAMES:
            producer_id = self.stage.ids.take()
            assert producer_id is not None
            known = Transaction(
                producer_id=producer_id,
                producer_epoch=32_760,
                timeout_ms=60_000,
                updated_ms=self.stage.now_ms,
                previous_producer_id=producer_id,
            )
            version = 0 if self.began_at_0 else 1
            record = StoredRecord(TransactionLogKey(transactional_id=name), known.to_value(version), version)
            self.stage.do(lambda shard, record=record: Outcome(records=[record]))  # type: ignore[misc]

    # Steps.

    def step(self) -> None:
        choices = (
            (self.begin, 2),
            (self.work, 10),
            (self.repeat, 3),
            (self.pretend, 1),
            (self.stage.commit, 6),
            (self.commit_some, 3),
            (self.stage.append, 4),
            (self.stage.fail, 2),
            (self.stage.give_up, 1),
            (self.move, 1),
            (self.mark, 8),
            (self.mark_again, 1),
            (self.pass_time, 2),
            (self.change_feature, 1),
        )
        (action,) = self.random.choices([each for each, _ in choices], [weight for _, weight in choices])
        action()
        self.hear()
        self.check()

    def begin(self) -> None:
        """Another producer, perhaps while the last one is still at work."""
        producer = Producer(self.random.choice(NAMES), self.random.choice((0, 2)))
        self.producers.append(producer)
        self.ask(Asked(producer, "init", -1, -1, frozenset(), expects=False))

    def work(self) -> None:
        if not self.producers:
            return
        producer = self.random.choice(self.producers[-4:])
        what = self.random.choice(("add", "add", "add", "verify", "commit", "commit", "abort", "init"))
        partitions = frozenset(self.random.sample(PARTITIONS, self.random.randint(0, 3)))
        expects = what == "init" and producer.producer_id >= 0 and self.random.random() < 0.7
        self.ask(Asked(producer, what, producer.producer_id, producer.epoch, partitions, expects))

    def repeat(self) -> None:
        """A request that was delayed, or is retried."""
        if self.asked:
            self.ask(self.random.choice(self.asked[-12:]))

    def pretend(self) -> None:
        """Somebody makes up who it is. What it is told is not for the others."""
        name = self.random.choice(NAMES)
        known = self.stage.shard.transactions.get(name)
        producer_id = self.random.choice((0, 1_000, 1_001, 1_002, 1 << 60) if known is None else (known.producer_id, 7))
        epoch = self.random.choice((-1, 0, 1, 32_765, 32_766, 32_767))
        what = self.random.choice(("add", "verify", "commit", "abort", "init"))
        partitions = frozenset(self.random.sample(PARTITIONS, 1))
        asked = Asked(Producer(name, self.random.choice((0, 2))), what, producer_id, epoch, partitions, expects=True)
        before = self.stage.shard.transactions.get(name)
        ticket = self.stage.ask(lambda shard: self.request(shard, asked))
        self.check_acts_on_its_own(asked, ticket, before)

    def ask(self, asked: Asked) -> None:
        self.asked.append(asked)
        before = self.stage.shard.transactions.get(asked.producer.name)
        ticket = self.stage.ask(lambda shard: self.request(shard, asked))
        self.check_acts_on_its_own(asked, ticket, before)
        self.waiting.append((asked, ticket, before))

    def request(self, shard: TransactionShard, asked: Asked) -> Outcome[object]:
        name, now_ms = asked.producer.name, self.stage.now_ms
        identity = (asked.producer_id, asked.epoch)
        outcome: Outcome[object]
        match asked.what:
            case "init":
                expected = Expected(*identity) if asked.expects else None
                outcome = shard.init_producer_id(name, 60_000, expected, now_ms)  # type: ignore[assignment]
            case "add":
                outcome = shard.add_partitions(name, *identity, asked.partitions, asked.producer.version, now_ms)  # type: ignore[assignment]
            case "verify":
                outcome = shard.verify_partitions(name, *identity, asked.partitions)  # type: ignore[assignment]
            case what:
                outcome = shard.end_transaction(name, *identity, what == "commit", asked.producer.version, now_ms)  # type: ignore[assignment]
        return outcome

    def commit_some(self) -> None:
        self.stage.commit(self.random.randint(self.stage.high_watermark, len(self.stage.log)))

    def move(self) -> None:
        uncommitted = len(self.stage.log) - self.stage.high_watermark
        self.stage.move(self.random.randint(0, uncommitted))

    def mark(self) -> None:
        if not self.stage.sending:
            return
        effect = self.random.choice(self.stage.sending)
        partitions = self.random.sample(effect.partitions, self.random.randint(1, len(effect.partitions)))
        self.report(effect, partitions)

    def mark_again(self) -> None:
        """Reported late: of any decision, and of any leadership."""
        if self.effects:
            effect = self.random.choice(self.effects)
            self.report(effect, list(effect.partitions), late=True)

    def report(self, effect: SendMarkers, partitions: list[TopicPartition], *, late: bool = False) -> None:
        if not late:
            decision = self.decisions_of[id(effect)]
            self.marked.setdefault((effect.transactional_id, decision), set()).update(partitions)
            self.stage.marked(effect, *partitions)
        elif not any(effect is each for each in self.stage.sending):
            self.stage.marked(effect, *partitions)

    def pass_time(self) -> None:
        self.stage.tick(self.random.choice((50, 5_000, 30_000, 100_000)))

    def change_feature(self) -> None:
        self.stage.set_feature(self.random.choice((1, 2)))

    # What producers hear.

    def hear(self) -> None:
        for asked, ticket, _ in self.waiting:
            if ticket.is_done and ticket.error is ErrorCode.NONE and isinstance(ticket.answer, Identity):
                self.hear_identity(asked, ticket.answer)
        self.waiting = [each for each in self.waiting if not each[1].is_done]
        for effect in self.stage.sending:
            if not any(effect is each for each in self.effects):
                self.effects.append(effect)
                self.decisions_of[id(effect)] = self.decision_of(effect)

    def hear_identity(self, asked: Asked, identity: Identity) -> None:
        if identity.error is not ErrorCode.NONE or identity.producer_id < 0:
            return
        pair = (identity.producer_id, identity.producer_epoch)
        holder = self.handed_out.get(pair)
        # D17: an epoch that somebody else has, is not handed out; a retry gets its own again.
        assert holder is None or holder is asked.producer, f"{pair} was handed out twice"
        self.handed_out[pair] = asked.producer
        assert identity.producer_epoch < 32_767, "the highest epoch is the coordinator's"
        asked.producer.producer_id, asked.producer.epoch = pair

    def decision_of(self, effect: SendMarkers) -> int:
        """D16: where the decision lies that markers are sent of; it is committed."""
        for offset in range(self.stage.high_watermark - 1, -1, -1):
            name, transaction = self.entry(offset)
            if name == effect.transactional_id:
                assert transaction is not None
                assert transaction.state.title == ("PrepareCommit" if effect.commit else "PrepareAbort")
                assert (transaction.producer_id, transaction.producer_epoch) == (
                    effect.producer_id,
                    effect.producer_epoch,
                )
                assert transaction.partitions == set(effect.partitions)
                return offset
        raise AssertionError("markers of a decision that is not committed")

    # What must hold.

    def entry(self, offset: int) -> tuple[str, Transaction | None]:
        record = self.stage.log[offset].decode()
        assert isinstance(record.key, TransactionLogKey)
        if record.value is None:
            return record.key.transactional_id, None
        assert isinstance(record.value, TransactionLogValue)
        return record.key.transactional_id, Transaction.from_value(record.value)

    def check_acts_on_its_own(self, asked: Asked, ticket: Ticket, before: Transaction | None) -> None:
        """D7: whatever changes anything names the very producer id and epoch of what it changes."""
        if ticket.outcome.records and asked.what != "init":
            assert before is not None
            assert (before.producer_id, before.producer_epoch) == (asked.producer_id, asked.epoch)

    def check(self) -> None:
        self.check_log()
        # C8: what is known is what the log says, and what is told is what of it is committed.
        known, read = self.stage.shard.transactions, self.stage.loaded().transactions
        assert self.as_written(known.items()) == self.as_written(read.items())
        assert self.as_written(known.committed_items()) == self.as_written(read.committed_items())

    def as_written(self, transactions: Iterator[tuple[str, Transaction]]) -> dict[str, Transaction]:
        """Without what no record says, or none of the version that this walk began with."""
        told = {name: replace(each, last_producer_epoch=-1) for name, each in transactions}
        if self.began_at_0:
            told = {
                name: replace(each, previous_producer_id=-1, next_producer_id=-1, client_version=0)
                for name, each in told.items()
            }
        return told

    def check_log(self) -> None:
        """The whole of it, since moves and failures may have changed any uncommitted part."""
        last: dict[str, tuple[int, Transaction]] = {}
        owners: dict[int, str] = {}
        for offset in range(len(self.stage.log)):
            name, transaction = self.entry(offset)
            before = last.get(name)
            was = "nothing" if before is None else before[1].state.title
            becomes = "nothing" if transaction is None else transaction.state.title
            assert (was, becomes) in LEGAL, f"D15: {name} went from {was} to {becomes}"
            if transaction is None:
                del last[name]
                continue
            if before is not None:
                self.check_move(name, *before, transaction)
            # D20
            assert owners.setdefault(transaction.producer_id, name) == name
            last[name] = (offset, transaction)

    def check_move(self, name: str, offset: int, before: Transaction, after: Transaction) -> None:
        same_id = before.producer_id == after.producer_id
        # D18: epochs rise, and a new producer id comes only when they have run out.
        assert after.producer_epoch >= before.producer_epoch if same_id else before.producer_epoch >= 32_766
        assert same_id or after.producer_epoch == 0
        if before.state.title.startswith("Prepare"):
            missing = before.partitions - self.marked.get((name, offset), set())
            assert not missing, f"D16: completed before {missing} had their markers"
        if before.state.title == "Ongoing":
            assert after.partitions >= before.partitions

    def finish(self) -> None:
        """L10: when everybody is gone, and time has passed, nothing is left open."""
        self.stage.commit()
        for _ in range(8):
            self.stage.tick(30_000)
            self.stage.commit()
            self.hear()
            for effect in list(self.stage.sending):
                self.report(effect, list(effect.partitions))
            self.stage.sending.clear()
            self.stage.tick(200)
            self.stage.commit()
        self.check()
        for transaction in self.stage.shard.transactions.values():
            assert transaction.state.title in ("Empty", "CompleteCommit", "CompleteAbort")


def walk(seed: int, steps: int) -> None:
    story = Walk(seed)
    for _ in range(steps):
        story.step()
    story.finish()


@pytest.mark.parametrize("seed", range(25))
def test_random_walk(seed: int) -> None:
    walk(seed, 120)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1_000, 1_400))
def test_long_random_walk(seed: int) -> None:
    walk(seed, 400)
