"""What the machine asks and answers can be said in the versions that it may have to be said in."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.raft import requests, responses
from ottla.raft.checkpoint import SnapshotId
from ottla.raft.effects import SendRequest
from ottla.raft.leader import Leader
from ottla.raft.log_view import Diverging
from ottla.raft.roles import Resigned
from ottla.wire.message import Message
from tests.raft.stage import Stage, key
from tests.transcript import Command


def play(stage: Stage, *lines: str) -> None:
    for line in lines:
        name, *rest = line.split()
        words = [word for word in rest if "=" not in word]
        options = dict(word.split("=", 1) for word in rest if "=" in word)
        stage.execute(Command(0, name, words, options))


@pytest.fixture
def leader() -> Stage:
    stage = Stage()
    play(stage, "new 1:a voters=1:a,2:b,3:c", "log 1 1 1", "start epoch=4 voted=1:a", "reply 2 granted")
    assert isinstance(stage.machine.role, Leader)
    return stage


def round_trip(message: Message, version: int) -> Message:
    return type(message).decode(message.encode(version), version)


def test_requests_in_their_newest_version(leader: Stage) -> None:
    quorum = leader.machine._quorum
    resigned = Resigned(epoch=4, local_id=1, election_deadline_ms=0, successors=(key("2:b"), key("3:c")))
    for request in (
        requests.vote(quorum, key("2:b"), pre_vote=True),
        requests.vote(quorum, key("2:b"), pre_vote=False),
        requests.begin_quorum_epoch(quorum, key("2:b")),
        requests.fetch(quorum),
        requests.fetch_snapshot(quorum, SnapshotId(9, 3), 100),
        requests.update_voter(quorum),
        requests.add_voter(quorum),
        requests.remove_voter(quorum, key("2:b")),
        requests.api_versions(),
    ):
        decoded = round_trip(request, max(request.VERSIONS))
        assert decoded.encode(max(request.VERSIONS)) == request.encode(max(request.VERSIONS))
        assert issubclass(requests.response_class(request), Message)
    # The successors are ids in one version, and ids with directories in the other; both are filled in.
    ended = requests.end_quorum_epoch(quorum, resigned)
    for version in ended.VERSIONS:
        assert round_trip(ended, version).encode(version) == ended.encode(version)


def test_an_old_voter_can_be_asked_for_its_vote_but_not_in_advance(leader: Stage) -> None:
    quorum = leader.machine._quorum
    assert requests.vote(quorum, key("2:b"), pre_vote=False).encode(0)
    assert requests.begin_quorum_epoch(quorum, key("2:b")).encode(0)
    with pytest.raises(KafkaError, match="pre_vote"):
        requests.vote(quorum, key("2:b"), pre_vote=True).encode(1)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_responses_in_every_version(leader: Stage, role: str) -> None:
    if role == "follower":
        play(leader, "begin 2 epoch=5")
    quorum = leader.machine._quorum
    assert quorum.leader_endpoint is not None
    for version in range(3):
        assert round_trip(responses.vote(quorum, version, ErrorCode.NONE, granted=True), version)
    for version in range(2):
        assert round_trip(responses.begin_quorum_epoch(quorum, version, ErrorCode.NONE), version)
        assert round_trip(responses.end_quorum_epoch(quorum, version, ErrorCode.NONE), version)
        assert round_trip(responses.fetch_snapshot(quorum, version, snapshot=SnapshotId(9, 3), size=10), version)
    for version in range(12, 19):
        assert round_trip(responses.fetch(quorum, version, high_watermark=3), version)
        assert round_trip(responses.fetch(quorum, version, other=Diverging(epoch=2, end_offset=9)), version)
        assert round_trip(responses.fetch(quorum, version, other=SnapshotId(9, 3)), version)
    assert round_trip(responses.update_voter(quorum, ErrorCode.NONE), 0)


def test_effects_name_the_class_of_the_answer(leader: Stage) -> None:
    sent = leader.sent[3]
    assert isinstance(sent, SendRequest)
    assert sent.response.__name__ == type(sent.request).__name__.replace("Request", "Response")
