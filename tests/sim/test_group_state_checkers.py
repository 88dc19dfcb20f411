"""What is noticed of groups as their members see them, as coordinators have them in mind, and as a replay has them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from ottla.coordinator.classic.group import ClassicGroup, GroupState
from ottla.coordinator.classic.group import Member as ClassicMember
from ottla.coordinator.consumer import records
from ottla.coordinator.consumer.member import Member
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.stored import AnyRecord, EncodedRecord
from ottla.sim import view
from ottla.sim.checkers.generations import GenerationChecker
from ottla.sim.checkers.served_groups import check_shard
from ottla.sim.checkers.violation import Violation
from ottla.sim.cluster import Machine
from ottla.sim.history import Belief, History
from tests.sim.group_log import TOPIC, A, B, Log, generation, joined, member, offset, plan, tombstone


@pytest.fixture
def log() -> Log:
    return Log()


# C1: what members believe.


def believes(
    log: Log, client: str, *partitions: int, member_id: str = "", epoch: int = 3, static: bool = False
) -> None:
    log.history.beliefs["g", client] = Belief(member_id or client, epoch, frozenset(partitions), static)
    log.history.belief_changes += 1
    log.checker.after_step()


def test_two_members_do_not_take_one_partition_for_their_own(log: Log) -> None:
    log.write(joined("m1"), joined("m2"))
    believes(log, "m1", 0)
    believes(log, "m2", 1)
    with pytest.raises(Violation, match=r"C1: .*each takes 0 for its own"):
        believes(log, "m2", 0, 1)


def test_who_is_no_member_may_believe_what_he_likes(log: Log) -> None:
    log.write(joined("m1"), joined("m2"))
    believes(log, "m1", 0)
    log.write(*records.no_member("g", "m1"))
    believes(log, "m2", 0)
    with pytest.raises(Violation, match="C1"):
        log.write(joined("m1"))


def test_a_classic_member_of_an_old_generation_still_has_what_it_had(log: Log) -> None:
    """If the next generation began without asking for it back, two have it."""
    shares: dict[str, tuple[int, ...]] = {"m1": (0,), "m2": (1,)}
    log.history.plans += [plan(3, "m1", shares), plan(4, "m2", {"m1": (), "m2": (0, 1)})]
    log.write(generation(3, "m1", shares))
    believes(log, "m1", 0)
    believes(log, "m2", 1)
    log.write(generation(4, "m2", {"m1": (), "m2": (0, 1)}))
    with pytest.raises(Violation, match="C1"):
        believes(log, "m2", 0, 1, epoch=4)


def test_a_static_member_may_not_have_heard_of_a_generation(log: Log) -> None:
    shares: dict[str, tuple[int, ...]] = {"m1": (0,), "m2": (1,)}
    log.history.plans += [plan(3, "m1", shares), plan(4, "m2", {"m1": (), "m2": (0, 1)})]
    log.write(generation(3, "m1", shares, static="m1"))
    believes(log, "m1", 0, static=True)
    log.write(generation(4, "m2", {"m1": (), "m2": (0, 1)}, static="m1"))
    believes(log, "m2", 0, 1, epoch=4)
    with pytest.raises(Violation, match="C1"):
        believes(log, "m1", 0, epoch=4, static=True)


# C7: who commits.


def test_a_classic_member_commits_in_its_generation(log: Log) -> None:
    log.history.plans.append(plan(3, "m1", {"m1": (0,)}))
    log.write(generation(3, "m1", {"m1": (0,)}))
    log.write(offset(5, "m1:3:1"))
    with pytest.raises(Violation, match="C7"):
        log.write(offset(6, "m1:2:2"))


@pytest.mark.parametrize("producer_id", [-1, 7])
def test_a_member_commits_in_its_epoch_or_in_one_since_when_it_has_the_partition(log: Log, producer_id: int) -> None:
    log.write(joined("m1"), member("m1", 2, 0), records.current("g", _held_since(2, 4)))
    log.write(offset(5, "m1:4:1"), producer_id=producer_id)
    log.write(offset(6, "m1:2:2"), producer_id=producer_id)
    with pytest.raises(Violation, match="C7"):
        log.write(offset(7, "m1:1:3"), producer_id=producer_id)


def _held_since(since: int, epoch: int) -> Member:
    return Member(member_id="m1", epoch=epoch, assigned={TOPIC: {0: since}})


def test_nobodys_commit_is_for_groups_without_members(log: Log) -> None:
    log.write(offset(5, A))
    log.write(joined("m1"))
    with pytest.raises(Violation, match="C7"):
        log.write(offset(6, B))


def test_a_member_does_not_commit_where_there_is_no_group(log: Log) -> None:
    with pytest.raises(Violation, match="C7"):
        log.write(offset(5, "m1:3:1"))


# C6: generations.


def test_a_generation_is_shared_out_by_its_leader(log: Log) -> None:
    log.history.plans.append(plan(3, "m1", {"m1": (0,), "m2": (1,)}))
    log.write(generation(3, "m1", {"m1": (0,), "m2": (1,)}))
    log.history.plans += [plan(4, "m1", {"m1": (0,), "m2": (1,)}), plan(4, "m2", {"m1": (1,), "m2": (0,)})]
    with pytest.raises(Violation, match=r"C6: .*its leader m1 sent"):
        log.write(generation(4, "m1", {"m1": (), "m2": (0,)}))


def test_two_plans_are_not_mixed(log: Log) -> None:
    log.history.plans += [plan(3, "m1", {"m1": (0,), "m2": (1,)}), plan(3, "m1", {"m1": (1,), "m2": (0,)})]
    with pytest.raises(Violation, match="C6"):
        log.write(generation(3, "m1", {"m1": (0,), "m2": ()}))


def test_a_generation_is_written_again_only_for_another_of_the_same_instance(log: Log) -> None:
    log.history.plans.append(plan(3, "m1", {"m1": (0,), "m2": (1,)}))
    log.write(generation(3, "m1", {"m1": (0,), "m2": (1,)}, static="m2"))
    log.write(generation(3, "m1", {"m1": (0,), "m3": (1,)}, static="m3"))
    with pytest.raises(Violation, match=r"C6: .*by another plan"):
        log.write(generation(3, "m1", {"m1": (0, 1), "m3": ()}, static="m3"))


def test_generations_do_not_fall(log: Log) -> None:
    log.history.plans += [plan(3, "m1", {"m1": (0,)}), plan(2, "m1", {"m1": (0,)})]
    log.write(generation(3, "m1", {"m1": (0,)}))
    with pytest.raises(Violation, match="C6"):
        log.write(generation(2, "m1", {"m1": (0,)}))


class Coordinator:
    """A shard with one classic group, as far as it can be watched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, checker: GenerationChecker) -> None:
        self.group = ClassicGroup(group_id="g", state=GroupState.STABLE, generation=3)
        self.served = SimpleNamespace(
            partition=SimpleNamespace(index=0),
            leader_epoch=0,
            next_offset=10,
            shard=SimpleNamespace(classic=SimpleNamespace(_live={"g": self.group})),
        )
        monkeypatch.setattr(view, "served_groups", lambda machine: [self.served])
        self._checker = checker
        self._machine = cast(Machine, SimpleNamespace(id=1, name="n1"))
        self.look()

    def look(self) -> list[int]:
        return list(self._checker.watch(self._machine))

    def has(self, *members: str) -> None:
        self.group.members.clear()
        self.group.members.update({member: cast(ClassicMember, None) for member in members})

    def becomes(self, state: GroupState, generation: int, next_offset: int = 10) -> None:
        self.group.state, self.group.generation, self.served.next_offset = state, generation, next_offset
        self.look()


def test_a_join_phase_ends_with_the_next_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator(monkeypatch, GenerationChecker(History()))
    coordinator.becomes(GroupState.PREPARING_REBALANCE, 3)
    coordinator.becomes(GroupState.COMPLETING_REBALANCE, 4)
    coordinator.becomes(GroupState.PREPARING_REBALANCE, 4)
    with pytest.raises(Violation, match="C6"):
        coordinator.becomes(GroupState.COMPLETING_REBALANCE, 4)


def test_no_generation_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator(monkeypatch, GenerationChecker(History()))
    coordinator.becomes(GroupState.PREPARING_REBALANCE, 3)
    with pytest.raises(Violation, match="C6"):
        coordinator.becomes(GroupState.COMPLETING_REBALANCE, 5)


def test_a_node_that_stood_still_notices_at_once_that_all_went_and_another_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The generation without members is one, too."""
    coordinator = Coordinator(monkeypatch, GenerationChecker(History()))
    coordinator.has("a")
    coordinator.becomes(GroupState.STABLE, 3)
    coordinator.has("b")
    coordinator.becomes(GroupState.COMPLETING_REBALANCE, 5)
    coordinator.has("b", "c")
    with pytest.raises(Violation, match="C6"):
        coordinator.becomes(GroupState.COMPLETING_REBALANCE, 7)


def test_each_shard_that_comes_to_be_served_is_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checker = GenerationChecker(History())
    coordinator = Coordinator(monkeypatch, checker)
    assert coordinator.look() == []
    coordinator.served = SimpleNamespace(**vars(coordinator.served))
    assert coordinator.look() == [0]
    assert checker.loads == 2


# C12: while a group rebalances.


def test_nothing_expires_while_a_group_rebalances(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator(monkeypatch, log.checker.generations)
    coordinator.becomes(GroupState.EMPTY, 3, next_offset=1)
    log.write(offset(5, A))
    log.write(tombstone())
    coordinator.becomes(GroupState.PREPARING_REBALANCE, 3, next_offset=2)
    coordinator.becomes(GroupState.PREPARING_REBALANCE, 3, next_offset=3)
    with pytest.raises(Violation, match="C12"):
        log.write(tombstone())


def test_what_could_not_be_written_was_never_decided_on(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator(monkeypatch, log.checker.generations)
    coordinator.becomes(GroupState.PREPARING_REBALANCE, 3, next_offset=0)
    coordinator.becomes(GroupState.PREPARING_REBALANCE, 3, next_offset=2)
    coordinator.becomes(GroupState.EMPTY, 4, next_offset=0)
    log.write(tombstone())


# C8: what is served.


def shard_of(log: Log, *replayed: tuple[AnyRecord, int]) -> GroupShard:
    """A shard to which these records, each with its producer's id, came one after the other."""
    config = log.checker._cluster.brokers[0].config
    shard = GroupShard.empty(lambda: config)
    for at, (record, producer_id) in enumerate(replayed):
        shard.timeline.begin(at)
        shard.replay(record, producer_id, 0)
    shard.timeline.commit(len(replayed))
    return shard


def test_a_coordinator_knows_what_transactions_have_staged(log: Log) -> None:
    log.write(offset(5, A))
    log.write(offset(7, B), producer_id=1)
    known = [(offset(5, A), -1), (offset(7, B), 1)]
    check_shard("n1", shard_of(log, *known), log.checker.shadows[0])
    with pytest.raises(Violation, match=r"C8: .*nothing of producer 1"):
        check_shard("n1", shard_of(log, *known[:1]), log.checker.shadows[0])
    with pytest.raises(Violation, match=r"C8: .*staged by producer 1"):
        check_shard("n1", shard_of(log, known[0], (offset(8, B), 1)), log.checker.shadows[0])
    with pytest.raises(Violation, match=r"C8: .*staged by producer 2"):
        check_shard("n1", shard_of(log, *known, (offset(9, B), 2)), log.checker.shadows[0])


def test_a_coordinator_knows_offsets_and_no_others(log: Log) -> None:
    log.write(offset(5, A))
    check_shard("n1", shard_of(log, (offset(5, A), -1)), log.checker.shadows[0])
    with pytest.raises(Violation, match="C8"):
        check_shard("n1", shard_of(log, (offset(6, A), -1)), log.checker.shadows[0])
    other = EncodedRecord(offset(5, A).key.replace(b"orders", b"prices"), offset(5, A).value)
    with pytest.raises(Violation, match=r"C8: .*prices"):
        check_shard("n1", shard_of(log, (offset(5, A), -1), (other, -1)), log.checker.shadows[0])


def test_a_coordinator_knows_classic_groups(log: Log) -> None:
    log.history.plans.append(plan(3, "m1", {"m1": (0,)}))
    log.write(generation(3, "m1", {"m1": (0,)}))
    shard = shard_of(log, (generation(3, "m1", {"m1": (0,)}), -1))
    check_shard("n1", shard, log.checker.shadows[0])
    live = shard.classic.group("g")
    assert live is not None
    live.members["m1"].assignment = b""
    with pytest.raises(Violation, match="C8: n1 has g as"):
        check_shard("n1", shard, log.checker.shadows[0])
    with pytest.raises(Violation, match="C8: n1 has the classic groups"):
        check_shard("n1", shard_of(log), log.checker.shadows[0])


def test_a_coordinator_knows_groups_of_the_new_protocol_and_no_others(log: Log) -> None:
    log.write(joined("m1"), member("m1", 3, 0))
    known = [(joined("m1"), -1), (member("m1", 3, 0), -1)]
    check_shard("n1", shard_of(log, *known), log.checker.shadows[0])
    with pytest.raises(Violation, match=r"C8: .*with the members"):
        check_shard("n1", shard_of(log, known[0], (member("m1", 2, 0), -1)), log.checker.shadows[0])
    with pytest.raises(Violation, match=r"C8: .*with the targets"):
        check_shard("n1", shard_of(log, *known, (records.target("g", "m1", {TOPIC: (0,)}), -1)), log.checker.shadows[0])
    log.write(*records.no_group("g", ["m1"], []))
    with pytest.raises(Violation, match="C8: n1 knows"):
        check_shard("n1", shard_of(log, *known), log.checker.shadows[0])
