"""Majorities, and which voter set is in force."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model import Uuid
from ottla.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterHistory, VoterSet

A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)


def voter_set(*ids: int, directory: Uuid = A) -> VoterSet:
    return VoterSet(Voter(ReplicaKey(id, directory), (VoterEndpoint("CONTROLLER", f"host{id}", 9093),)) for id in ids)


@pytest.mark.parametrize(("size", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_majorities(size: int, majority: int) -> None:
    assert voter_set(*range(1, size + 1)).majority == majority


@given(st.dictionaries(st.integers(1, 7), st.integers(-1, 50)), st.integers(1, 7))
def test_what_is_committed_is_on_a_majority_and_nothing_more_is(ends: dict[int, int], size: int) -> None:
    voters = voter_set(*range(1, size + 1))
    committed = voters.committed(ends)
    at_least = [ends.get(voter, -1) >= committed for voter in voters.ids]
    beyond = [ends.get(voter, -1) > committed for voter in voters.ids]
    assert sum(at_least) >= voters.majority
    assert sum(beyond) < voters.majority


def test_a_lost_disk_comes_back_as_another_replica() -> None:
    voters = voter_set(1)
    assert voters.is_only_voter(ReplicaKey(1, A))
    assert not voters.is_voter(ReplicaKey(1, B))
    assert voter_set(1, directory=Uuid(bytes(16))).is_voter(ReplicaKey(1, B)), (
        "a quorum by configuration knows no disks"
    )


def test_the_latest_set_in_the_log_is_in_force_and_goes_with_truncation() -> None:
    history = VoterHistory(voter_set(1))
    assert not history.in_log
    history.add(5, voter_set(1, 2))
    history.add(9, voter_set(1, 2, 3))
    assert history.latest == voter_set(1, 2, 3)
    assert [history.at(offset) for offset in (5, 6, 9, 10)] == [
        voter_set(1),
        voter_set(1, 2),
        voter_set(1, 2),
        voter_set(1, 2, 3),
    ]
    history.truncate_to(9)
    assert history.latest == voter_set(1, 2)
    history.truncate_to(0)
    assert history.latest == voter_set(1)
    assert not history.in_log


def test_a_record_of_voters_reads_back() -> None:
    voters = voter_set(3, 1, 2)
    assert voters.ids == (1, 2, 3)
    assert VoterSet.from_record(voters.to_record()) == voters


def test_voters_come_and_go_by_id_and_directory() -> None:
    one, two = ReplicaKey(1, Uuid(b"a" * 16)), ReplicaKey(2, Uuid(b"b" * 16))
    alone = VoterSet([Voter(one, ())])
    both = alone.with_voter(Voter(two, ()))
    assert both is not None
    assert both.ids == (1, 2)
    assert both.with_voter(Voter(ReplicaKey(2, Uuid(b"z" * 16)), ())) is None, "the id is taken"
    assert both.without(ReplicaKey(2, Uuid(b"z" * 16))) is None, "that is another replica"
    assert both.without(two) == alone
    assert alone.without(one) is None, "somebody has to be left"
    moved = both.with_updated(Voter(two, (VoterEndpoint("CONTROLLER", "elsewhere", 1),)))
    assert moved is not None
    assert moved.endpoints(2) == (VoterEndpoint("CONTROLLER", "elsewhere", 1),)
    assert both.with_updated(Voter(ReplicaKey(3), ())) is None


def test_a_history_knows_what_would_come_back() -> None:
    first, second, third = (VoterSet([Voter(ReplicaKey(node), ())]) for node in (1, 2, 3))
    history = VoterHistory(first)
    history.add(5, second)
    assert history.previous == first
    history.add(9, third)
    assert (history.previous, history.latest, history.latest_offset) == (second, third, 9)
    history.truncate_to(9)
    assert (history.previous, history.latest) == (first, second)
    # What was in force before a snapshot is not asked for again, but what is in force at its end is.
    history.add(12, third)
    history.forget_before(11)
    assert (history.at(11), history.at(13)) == (second, third)
    history.forget_before(20)
    assert history.at(20) == third
    # A snapshot that was fetched replaces all, and cannot be truncated away.
    history.restart(40, second)
    history.truncate_to(40)
    assert (history.latest, history.latest_offset, history.in_log) == (second, 39, True)
    history.restart(50, None)
    assert (history.latest, history.in_log) == (first, False)
