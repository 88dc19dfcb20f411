"""The quorum-state file, byte for byte as Apache Kafka 4.3.1 writes it."""

from __future__ import annotations

import pytest

from ottla.errors import StartupError
from ottla.model import uuid_from_text
from ottla.raft.election import ElectionState, decode_quorum_state, encode_quorum_state
from ottla.raft.voters import ReplicaKey

LEADER = b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
STATIC = (
    b'{"clusterId":"","leaderId":-1,"leaderEpoch":4,"votedId":2,"appliedOffset":0,'
    b'"currentVoters":[{"voterId":1},{"voterId":2},{"voterId":3}],"data_version":0}'
)


def test_a_leader_is_written_as_kafka_writes_it() -> None:
    state = ElectionState(epoch=2, leader_id=1)
    assert encode_quorum_state(state, kraft_version=1, voter_ids=(1,)) == LEADER
    assert decode_quorum_state(LEADER, "quorum-state") == state


def test_a_vote_names_the_directory_of_the_candidate() -> None:
    state = ElectionState(epoch=9, voted=ReplicaKey(3, uuid_from_text("M7SJc-RSRxG5rpmI1j7tPw")))
    written = encode_quorum_state(state, kraft_version=1, voter_ids=())
    assert b'"votedId":3,"votedDirectoryId":"M7SJc-RSRxG5rpmI1j7tPw"' in written
    assert decode_quorum_state(written, "quorum-state") == state


def test_a_quorum_without_directory_ids_has_the_older_form() -> None:
    state = ElectionState(epoch=4, voted=ReplicaKey(2))
    assert encode_quorum_state(state, kraft_version=0, voter_ids=(1, 2, 3)) == STATIC
    assert decode_quorum_state(STATIC, "quorum-state") == state


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", LEADER[:-1], LEADER.replace(b"2", b'"x"'), LEADER.replace(b"AAAA", b"A", 1)]
    + [LEADER.replace(b'Epoch":2', b'Epoch":' + value) for value in (b"-1", b"-9999", b"2.5", b"true", b"2147483648")]
    + [LEADER.replace(b'leaderId":1', b'leaderId":-2'), LEADER.replace(b'_version":1', b'_version":"1"')]
    + [LEADER.replace(b'_version":1', b'_version":-1'), b"[" * 200_000],
    ids=lambda data: repr(data[:120]),
)
def test_a_damaged_file_stops_the_start(data: bytes) -> None:
    with pytest.raises(StartupError, match="quorum-state is damaged") as refusal:
        decode_quorum_state(data, "quorum-state")
    assert "(it is not what a node writes): restore it from a backup, or " in str(refusal.value)


def test_a_newer_file_stops_the_start() -> None:
    with pytest.raises(StartupError, match="was written by a newer release, as version 2: use that release"):
        decode_quorum_state(LEADER.replace(b'"data_version":1', b'"data_version":2'), "quorum-state")
