"""Decisions whose records went only partly into the log: what is there is finished all the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.coordinator.stored import TRANSACTION_KINDS, StoredRecord
from ottla.coordinator.transaction import shard as shard_module
from ottla.coordinator.transaction.effects import SendMarkers
from ottla.coordinator.transaction.settings import TransactionSettings
from ottla.coordinator.transaction.shard import ABORT_TIMER, COMPLETE_AGAIN_MS, FINISH_TIMER, NEXT_BATCH_MS
from ottla.coordinator.transaction.states import TransactionState
from ottla.errors import ErrorCode
from ottla.model import NO_PRODUCER_ID, TopicPartition
from ottla.wire.messages.transaction_log_key import TransactionLogKey
from tests.coordinator.transaction.stage import Entry, Stage

P = TopicPartition("p", 0)
TIMEOUT_MS = 1_000


def begin(stage: Stage, name: str) -> None:
    identity = stage.do(lambda shard: shard.init_producer_id(name, TIMEOUT_MS, None, stage.now_ms))
    stage.do(
        lambda shard: shard.add_partitions(name, identity.producer_id, identity.producer_epoch, [P], 2, stage.now_ms)
    )


def test_the_markers_of_aborts_that_were_written_are_sent_though_the_rest_was_refused() -> None:
    """The driver drops the effects of an outcome of which some records were refused."""
    stage = Stage()
    begin(stage, "a")
    begin(stage, "b")
    late_ms = stage.now_ms + TIMEOUT_MS + 1
    shard = stage.shard
    outcome = shard.on_timer(ABORT_TIMER, late_ms)
    assert len(outcome.records) == 2
    shard.timeline.begin(len(stage.log))
    shard.replay(outcome.records[0], -1, -1)
    told = shard.on_written(outcome.tag, ErrorCode.COORDINATOR_NOT_AVAILABLE, late_ms)
    assert [(effect.key, effect.delay_ms) for effect in told.effects] == [(FINISH_TIMER, COMPLETE_AGAIN_MS)]  # type: ignore[union-attr]
    again = shard.on_timer(FINISH_TIMER, late_ms)
    assert again.records == []
    assert [effect.transactional_id for effect in again.effects if isinstance(effect, SendMarkers)] == ["a"]
    assert again.effects[0] in outcome.effects


def test_a_new_leader_that_cannot_write_at_first_finishes_what_was_decided() -> None:
    stage = Stage()
    begin(stage, "a")
    begin(stage, "b")
    for name in ("a", "b"):
        decided = stage.transaction(name).prepared(True, 2, NO_PRODUCER_ID, stage.now_ms)
        if name == "b":
            decided = replace(decided, partitions=frozenset())  # It has nobody to tell, and is only to be completed.
        record = StoredRecord(TransactionLogKey(transactional_id=name), decided.to_value(1), 1)
        stage.log.append(Entry(*TRANSACTION_KINDS.encode(record)))
    stage.high_watermark = len(stage.log)
    stage.move()
    stage.fail()
    assert stage.sending == []
    stage.tick(COMPLETE_AGAIN_MS)
    stage.finish()
    assert {stage.transaction(name).state for name in ("a", "b")} == {TransactionState.COMPLETE_COMMIT}


def test_a_transaction_without_partitions_whose_end_was_undone_before_its_beginning_was_committed_times_out() -> None:
    """Its end needs no markers: it is complete in the newest state while the committed one is from before it."""
    stage = Stage()
    identity = stage.do(lambda shard: shard.init_producer_id("a", TIMEOUT_MS, None, stage.now_ms))
    who = ("a", identity.producer_id, identity.producer_epoch)
    stage.ask(lambda shard: shard.add_partitions(*who, [], 2, stage.now_ms))
    stage.append()
    stage.ask(lambda shard: shard.end_transaction(*who, False, 2, stage.now_ms))
    stage.tick(stage.settings.abort_interval_ms)
    stage.fail()
    stage.commit()
    begun = stage.shard.transactions.get("a")
    assert begun is not None
    assert begun.state is TransactionState.ONGOING
    stage.tick(TIMEOUT_MS + stage.settings.abort_interval_ms)
    stage.commit()
    ended = stage.shard.transactions.get("a")
    assert ended is not None
    assert ended.state is TransactionState.COMPLETE_ABORT


def test_more_timed_out_transactions_than_one_batch_takes_do_not_wait_for_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shard_module, "RECORDS_AT_ONCE_MAX", 2)
    interval_ms = 60_000
    stage = Stage(settings=TransactionSettings(abort_interval_ms=interval_ms))
    names = [f"a-{number}" for number in range(5)]
    for name in names:
        begin(stage, name)
    stage.tick(interval_ms)
    ongoing = []
    for _ in range(3):
        ongoing.append(sum(stage.transaction(name).state is TransactionState.ONGOING for name in names))
        stage.tick(NEXT_BATCH_MS)
    assert ongoing == [3, 1, 0]
