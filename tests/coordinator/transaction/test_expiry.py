"""Transactional ids that nobody has used for long are forgotten, at the cost of those and not of all."""

from __future__ import annotations

import pytest

from ottla.coordinator.transaction.settings import TransactionSettings
from ottla.coordinator.transaction.shard import EXPIRE_TIMER
from ottla.errors import ErrorCode
from tests.coordinator.transaction.stage import Stage
from tests.coordinator.transaction.test_finishing import begin

EXPIRATION_MS = 400_000


def a_stage() -> Stage:
    return Stage(settings=TransactionSettings(id_expiration_ms=EXPIRATION_MS, expire_interval_ms=60_000))


def init(stage: Stage, name: str) -> None:
    identity = stage.do(lambda shard: shard.init_producer_id(name, 1_000, None, stage.now_ms))
    assert identity.error is ErrorCode.NONE


def expired(stage: Stage) -> list[str]:
    before = set(stage.shard.transactions)
    stage.do(lambda shard: shard.on_timer(EXPIRE_TIMER, stage.now_ms))
    return sorted(before - set(stage.shard.transactions))


def test_only_what_is_old_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = a_stage()
    for name in ("a", "b"):
        init(stage, name)
    stage.now_ms += EXPIRATION_MS - 1
    for number in range(500):
        init(stage, f"young-{number}")
    init(stage, "b")
    assert expired(stage) == []
    stage.now_ms += 1
    looks: list[str] = []
    map_type = type(stage.shard.transactions)
    found = map_type.get

    def get(self: object, key: str, default: object = None) -> object:
        looks.append(key)
        return found(self, key, default)  # type: ignore[arg-type]

    monkeypatch.setattr(map_type, "get", get)
    assert expired(stage) == ["a"]
    assert looks == ["a", "young-0"]


def test_what_is_under_way_does_not_keep_others_from_expiring() -> None:
    stage = a_stage()
    begin(stage, "ongoing")
    init(stage, "idle")
    stage.now_ms += EXPIRATION_MS
    assert expired(stage) == ["idle"]
    stage.finish()


def test_an_expiry_that_could_not_be_written_is_tried_again() -> None:
    stage = a_stage()
    init(stage, "a")
    stage.now_ms += EXPIRATION_MS
    stage.ask(lambda shard: shard.on_timer(EXPIRE_TIMER, stage.now_ms))
    stage.fail()
    assert expired(stage) == ["a"]
    assert expired(stage) == []
    assert not stage.shard._by_age


def test_a_new_leader_knows_the_order_from_the_log() -> None:
    stage = a_stage()
    for name in ("a", "b", "c"):
        init(stage, name)
        stage.now_ms += 1_000
    init(stage, "a")
    stage.move()
    stage.now_ms += EXPIRATION_MS - 1_000
    assert expired(stage) == ["b", "c"]
