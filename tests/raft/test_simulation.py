"""Quorums of 1, 3 and 5 under faults, seed by seed; and broken machines, to see that the checks would notice."""

from __future__ import annotations

from collections import Counter

import pytest

from ottla.raft import answering, hearing, roles, voter_changes
from ottla.raft.effects import Effect
from ottla.raft.leader import Leader
from ottla.raft.log_view import Diverging, RaftLog
from ottla.raft.quorum import Quorum
from ottla.raft.voters import ReplicaKey
from tests.raft.simulated_replica import Replica, SimulatedLog
from tests.raft.simulation import Simulation, Violated

HAPPENS = ("crash", "stop", "pause", "partition", "resign", "election", "truncation", "snapshot", "install", "voters")


def simulate(seeds: range, size: int, *, kraft_version: int = 1, disk_loss: bool = False) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        simulation = Simulation(seed, quorum=size, kraft_version=kraft_version, disk_loss=disk_loss)
        simulation.run()
        counts += simulation.counts
        counts["committed"] += len(simulation.committed)
    return counts


@pytest.mark.slow
def test_three_voters_stay_safe_and_find_each_other_again() -> None:
    counts = simulate(range(100), 3)
    assert all(counts[kind] > 10 for kind in HAPPENS), counts
    assert counts["committed"] > 2_000


def test_five_voters() -> None:
    counts = simulate(range(1_000, 1_015), 5)
    assert counts["committed"] > 300


def test_one_voter_that_others_join_and_leave() -> None:
    counts = simulate(range(2_000, 2_050), 1)
    assert counts["voters"] > 50
    assert counts["committed"] > 1_000


def test_voters_by_configuration() -> None:
    counts = simulate(range(3_000, 3_015), 3, kraft_version=0)
    assert counts["committed"] > 300


def test_a_voter_that_lost_its_disk_is_another_until_it_is_added_again() -> None:
    counts = simulate(range(4_000, 4_020), 3, disk_loss=True)
    assert counts["disk lost"] > 5


@pytest.mark.long
@pytest.mark.parametrize("size", [1, 3, 5])
def test_many_seeds(size: int) -> None:
    simulate(range(10_000, 11_000), size)


@pytest.mark.long
def test_many_seeds_of_other_kinds() -> None:
    simulate(range(20_000, 20_300), 3, kraft_version=0)
    simulate(range(30_000, 30_300), 3, disk_loss=True)
    simulate(range(40_000, 40_100), 5, disk_loss=True)


def test_a_seed_is_a_story_that_does_not_change() -> None:
    """The same seed gives the same run."""
    first, second = Simulation(7), Simulation(7)
    first.run()
    second.run()
    assert (first.counts, first.committed, first.roles()) == (second.counts, second.committed, second.roles())


# Broken on purpose.


def caught(seeds: int, size: int = 3) -> str:
    """What the first seed says that notices."""
    for seed in range(seeds):
        try:
            Simulation(seed, quorum=size).run()
        except Violated as violated:
            return str(violated)
    pytest.fail(f"{seeds} seeds found nothing wrong")


def test_a_vote_that_is_not_durable_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def vote_without_promise(self: Quorum, candidate: ReplicaKey, now_ms: int) -> None:
        assert isinstance(self.role, roles.Unattached | roles.Prospective)
        self.role.voted = candidate

    monkeypatch.setattr(Quorum, "add_vote", vote_without_promise)
    assert "B2" in caught(20)


def test_an_answer_that_overtakes_its_promise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    take_effects = Quorum.take_effects

    def answers_first(self: Quorum) -> list[Effect]:
        return sorted(take_effects(self), key=lambda effect: type(effect).__name__ != "Respond")

    monkeypatch.setattr(Quorum, "take_effects", answers_first)
    assert "B2" in caught(20)


def test_an_older_epoch_that_is_committed_by_counting_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(self: Leader) -> int | None:
        ends = {id: state.end_offset for id, state in self.replicas.items() if state.end_offset is not None}
        committed = self.voters.committed(ends)
        if committed <= (self.high_watermark or 0):
            return None
        self.high_watermark = committed
        return committed

    monkeypatch.setattr(Leader, "advance", count)
    assert "B8" in caught(60)


def test_two_voter_changes_at_a_time_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voter_changes, "voters_are_committed", lambda quorum, role: role.high_watermark is not None)
    monkeypatch.setattr(voter_changes, "_obstacle", lambda quorum, role, now_ms: None)
    assert "B13" in caught(60)


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 5])
def test_a_vote_for_a_shorter_log_is_noticed(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    for role in (roles.Unattached, roles.Prospective):
        may_grant = role.may_grant

        def grant(
            self: object, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool, may_grant: object = may_grant
        ) -> bool:
            assert callable(may_grant)
            return bool(may_grant(self, candidate, up_to_date=True, pre_vote=pre_vote))

        monkeypatch.setattr(role, "may_grant", grant)
    # The machine itself refuses to truncate what it knows to be committed; the checks must do without.
    monkeypatch.setattr(hearing.Hearing, "_check_is_uncommitted", lambda self, offset, role: None)
    assert any(f"B{n}" in notice for notice in [caught(100, size)] for n in (4, 5, 9))


def test_truncation_below_the_high_watermark_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_far(log: RaftLog, diverging: Diverging) -> int:
        return max(log.log_start_offset, diverging.end_offset - 4)

    monkeypatch.setattr(hearing, "truncation_offset", too_far)
    monkeypatch.setattr(hearing.Hearing, "_check_is_uncommitted", lambda self, offset, role: None)
    assert "B9" in caught(60)


def test_a_follower_that_does_not_flush_what_it_claims_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def claim(self: Replica) -> None:
        self.unblock(self.running.on_fetched_appended(self.log.log_end_offset, self.world.now_ms))

    monkeypatch.setattr(Replica, "_on_fetched_synced", claim)
    assert "B6" in caught(20)


def test_a_follower_that_compares_offsets_alone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What diverges is never found without the epochs (KIP-101)."""
    monkeypatch.setattr(answering, "compare", lambda log, offset, epoch: None)
    monkeypatch.setattr(SimulatedLog, "read", lambda self, offset: tuple(self.entries[max(0, offset - self.start) :]))
    assert caught(60)
