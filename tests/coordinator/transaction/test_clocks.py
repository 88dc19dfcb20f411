"""Coordinators' wall clocks disagree, or are set: no transaction stays open longer for it, nor any id for good."""

from __future__ import annotations

from ottla.coordinator.transaction.settings import TransactionSettings
from ottla.coordinator.transaction.states import TransactionState
from tests.coordinator.transaction.stage import Stage
from tests.coordinator.transaction.test_expiry import EXPIRATION_MS, a_stage, expired, init
from tests.coordinator.transaction.test_finishing import TIMEOUT_MS, P, begin

LOOK_MS = 100
HOUR_MS = 3_600_000


def a_busy_stage() -> Stage:
    return Stage(settings=TransactionSettings(abort_interval_ms=LOOK_MS))


def state_of(stage: Stage, name: str) -> TransactionState:
    return stage.transaction(name).state


def test_a_transaction_that_began_by_a_clock_ahead_of_the_new_leaders_has_its_timeout_and_no_more() -> None:
    stage = a_busy_stage()
    begin(stage, "a")
    stage.set_clock(-HOUR_MS)
    stage.move()
    stage.tick(TIMEOUT_MS)
    assert state_of(stage, "a") is TransactionState.ONGOING
    stage.tick(LOOK_MS)
    assert state_of(stage, "a") is TransactionState.PREPARE_ABORT


def test_a_new_leader_whose_clock_agrees_gives_no_more_time_than_was_left() -> None:
    stage = a_busy_stage()
    begin(stage, "a")
    stage.tick(TIMEOUT_MS - LOOK_MS)
    stage.move()
    stage.tick(2 * LOOK_MS)
    assert state_of(stage, "a") is TransactionState.PREPARE_ABORT


def test_a_transaction_times_out_though_the_clock_goes_back_while_it_runs() -> None:
    stage = a_busy_stage()
    begin(stage, "a")
    stage.tick(LOOK_MS)
    stage.set_clock(-HOUR_MS)
    stage.tick(LOOK_MS + TIMEOUT_MS)
    assert state_of(stage, "a") is TransactionState.ONGOING
    stage.tick(LOOK_MS)
    assert state_of(stage, "a") is TransactionState.PREPARE_ABORT


def test_more_partitions_do_not_put_the_timeout_off() -> None:
    """Each record of a transaction tells of its beginning as the first leader saw it."""
    stage = a_busy_stage()
    begin(stage, "a")
    stage.set_clock(-HOUR_MS)
    stage.move()
    stage.tick(TIMEOUT_MS - LOOK_MS)
    began = stage.transaction("a")
    who = ("a", began.producer_id, began.producer_epoch)
    stage.do(lambda shard: shard.add_partitions(*who, [P._replace(partition=1)], 2, stage.now_ms))
    assert stage.transaction("a").start_ms == began.start_ms
    stage.tick(2 * LOOK_MS)
    assert state_of(stage, "a") is TransactionState.PREPARE_ABORT


def test_the_next_transaction_of_the_same_producer_has_a_timeout_of_its_own() -> None:
    stage = Stage(settings=TransactionSettings(abort_interval_ms=TIMEOUT_MS // 2))
    begin(stage, "a")
    stage.set_clock(-HOUR_MS)
    stage.move()
    stage.tick(TIMEOUT_MS)
    first = stage.transaction("a")
    who = ("a", first.producer_id, first.producer_epoch)
    identity = stage.do(lambda shard: shard.end_transaction(*who, True, 2, stage.now_ms))
    stage.finish()
    who = ("a", identity.producer_id, identity.producer_epoch)
    stage.do(lambda shard: shard.add_partitions(*who, [P], 2, stage.now_ms))
    stage.tick(TIMEOUT_MS)
    assert state_of(stage, "a") is TransactionState.ONGOING
    stage.tick(TIMEOUT_MS // 2)
    assert state_of(stage, "a") is TransactionState.PREPARE_ABORT


def test_an_id_that_was_written_by_a_clock_far_ahead_does_not_keep_others_from_expiring() -> None:
    stage = a_stage()
    stage.set_clock(1000 * EXPIRATION_MS)
    init(stage, "from the future")
    stage.set_clock(-1000 * EXPIRATION_MS)
    stage.move()
    init(stage, "a")
    stage.now_ms += EXPIRATION_MS
    assert expired(stage) == ["a"]
