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
