"""What the checker of groups notices, from records as they become committed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from ottla.coordinator.consumer import records
from ottla.sim import view
from ottla.sim.checkers.group_work import unmet
from ottla.sim.checkers.looks import LookChecker
from ottla.sim.checkers.silence import check_silence
from ottla.sim.checkers.violation import Violation
from ottla.sim.cluster import Machine
from ottla.sim.history import Commit, Look, Outcome, Owned
from tests.sim.group_log import PLACES, TOPIC, A, B, C, Log, Z, joined, member, offset, tombstone


@pytest.fixture
def log() -> Log:
    return Log()


def test_offsets_fall_only_after_they_expired(log: Log) -> None:
    log.write(offset(5, A))
    log.write(tombstone())
    log.write(offset(3, B))
    with pytest.raises(Violation, match="C14"):
        log.write(offset(2, C))


def test_staged_offsets_take_effect_with_their_marker(log: Log) -> None:
    log.write(offset(5, A))
    log.write(offset(7, B), producer_id=1)
    assert B not in log.checker.took_effect
    log.mark(1, commit=True)
    log.write(offset(9, C), producer_id=1)
    log.mark(1, commit=False)
    assert log.checker.took_effect == {A, B}


def test_what_is_staged_does_not_expire(log: Log) -> None:
    log.write(offset(5, A))
    log.write(offset(7, B), producer_id=1)
    with pytest.raises(Violation, match="C12"):
        log.write(tombstone())


def test_a_partition_has_one_owner_until_it_is_given_up(log: Log) -> None:
    log.write(member("m1", 3, 0, 1))
    log.write(member("m1", 3, 0, revoking=(1,)))
    with pytest.raises(Violation, match="C1"):
        log.write(member("m2", 4, 1))


def test_the_epoch_of_a_member_does_not_fall(log: Log) -> None:
    log.write(member("m1", 4, 0))
    with pytest.raises(Violation, match="C5"):
        log.write(member("m1", 3, 0))


def test_a_group_that_was_deleted_counts_from_the_beginning(log: Log) -> None:
    log.write(joined("m1"), member("m1", 4, 0))
    log.write(*records.no_group("g", ["m1"], []))
    log.write(joined("m1"), member("m1", 2, 0))


def test_a_member_in_the_epoch_of_its_target_has_nothing_else(log: Log) -> None:
    log.write(records.target("g", "m1", {TOPIC: (0,)}), records.target_epoch("g", 2, 0))
    with pytest.raises(Violation, match="C3"):
        log.write(member("m1", 2, 0, 1))


def test_what_is_acknowledged_is_committed(log: Log) -> None:
    log.write(offset(5, A))
    commit = Commit(group_id="g", name=A, offsets={PLACES[0]: 5}, invoked=1.0, outcome=Outcome.OK)
    log.history.commits.append(commit)
    log.checker.on_answers()
    log.history.commits.append(Commit(group_id="g", name=B, offsets={}, invoked=1.0, outcome=Outcome.OK))
    with pytest.raises(Violation, match="C9"):
        log.checker.on_answers()


def test_members_are_told_what_was_written(log: Log) -> None:
    log.write(member("m1", 4, 0))
    log.history.owned.append(Owned("g", "m1", 4, frozenset({0})))
    log.checker.on_answers()
    log.history.owned.append(Owned("g", "m1", 4, frozenset({0, 1})))
    with pytest.raises(Violation, match="C1"):
        log.checker.on_answers()


def test_who_commits_is_a_member(log: Log) -> None:
    log.write(joined("m1"), member("m1", 3, 0))
    log.write(offset(5, "m1:3:1"))
    with pytest.raises(Violation, match="C7"):
        log.write(offset(6, "m2:3:1"))


def test_an_instance_id_is_one_members(log: Log) -> None:
    log.write(joined("m1", instance_id="i"), joined("m2", instance_id="j"))
    assert log.checker.replaced == 0
    with pytest.raises(Violation, match="C13"):
        log.write(joined("m3", instance_id="i"))


def test_what_a_group_is_subscribed_to_is_all_shared_out(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = SimpleNamespace(topic_id=TOPIC, partitions={0: None, 1: None})
    image = SimpleNamespace(topic=lambda name: topic if name == "orders" else None)
    monkeypatch.setattr(view, "newest_image", lambda cluster: image)
    log.write(joined("m1"), records.target("g", "m1", {TOPIC: (0, 1)}), records.target_epoch("g", 1, 0))
    with pytest.raises(Violation, match="C2"):
        log.write(records.target("g", "m1", {TOPIC: (1,)}))


def test_a_staged_offset_is_not_told(log: Log) -> None:
    log.write(offset(5, A))
    log.write(offset(7, B), producer_id=1)
    look = Look(group_id="g", topic="orders", stable=False, node="n1", invoked=1.0, completed=1.1, found={0: (5, A)})
    log.history.looks.append(look)
    log.checker.on_answers()
    assert log.checker.looks.while_staged == 1
    log.history.looks.append(
        Look(group_id="g", topic="orders", stable=False, node="n1", invoked=1.0, completed=1.1, found={0: (7, B)})
    )
    with pytest.raises(Violation, match="C10"):
        log.checker.on_answers()


@pytest.mark.parametrize("decided", [False, True])
def test_stable_offsets_are_those_of_nobodys_transaction(
    log: Log, decided: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LookChecker, "_leader_epoch", lambda self, node, partition: 3)
    log.write(offset(5, A))
    log.write(offset(7, B), producer_id=1)
    look = Look(group_id="g", topic="orders", stable=True, node="n1", invoked=1.0)
    log.history.looks.append(look)
    log.checker.on_answers()
    if decided:
        log.mark(1, commit=False)
    look.found[0], look.completed = (5, A), 1.1
    if decided:
        log.checker.on_answers()
    else:
        with pytest.raises(Violation, match="C10"):
            log.checker.on_answers()


@pytest.mark.parametrize("leader", [None, SimpleNamespace(leader_epoch=4)])
def test_who_does_not_lead_does_not_coordinate(leader: object, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = SimpleNamespace(leader=SimpleNamespace(leader_epoch=3), topic_partition=PLACES[0])
    served = SimpleNamespace(partition=partition, leader_epoch=3)
    monkeypatch.setattr(view, "served_shards", lambda machine: [served])
    machine = cast(Machine, SimpleNamespace(name="n1"))
    check_silence(machine)
    partition.leader = leader
    with pytest.raises(Violation, match="C15"):
        check_silence(machine)


def test_what_is_committed_with_its_end_was_true_for_a_while(log: Log) -> None:
    """A high watermark that was held back passes much at once."""
    log.write(joined("m1"), member("m1", 4, 0), *records.no_member("g", "m1"))
    log.history.owned.append(Owned("g", "m1", 4, frozenset({0})))
    log.checker.on_answers()


def test_an_offset_may_expire_after_the_last_look(log: Log) -> None:
    log.write(offset(5, A))
    log.history.looks.append(Look(group_id="g", topic="orders", stable=True, node="n1", invoked=0.0, completed=0.1))
    log.history.final_offsets["g"] = {0: (4, Z)}
    with pytest.raises(Violation, match="C8"):
        log.checker.at_end()
    log.history.final_offsets["g"] = {0: (5, A)}
    log.checker.at_end()
    log.write(tombstone())
    log.checker.at_end()


def test_a_group_has_converged_when_all_is_shared_out() -> None:
    assert not unmet({"g": [("m1", True, {PLACES[0]}), ("m2", True, {PLACES[1]})]}, PLACES)
    assert unmet({"g": [("m1", True, {PLACES[0]}), ("m2", False, {PLACES[1]})]}, PLACES)
    assert unmet({"g": [("m1", True, {PLACES[0]}), ("m2", True, {PLACES[0]})]}, PLACES)
