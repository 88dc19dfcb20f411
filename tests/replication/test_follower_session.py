"""The follower's side of a fetch session (KIP-227)."""

from __future__ import annotations

from ottla.broker.replication.session import FetchSession, PartitionKey
from ottla.errors import ErrorCode
from ottla.model import Uuid
from ottla.wire.messages.fetch_request import FetchPartition
from ottla.wire.messages.fetch_response import FetchResponse

TOPIC, OTHER = Uuid(bytes(15) + b"\x01"), Uuid(bytes(15) + b"\x02")


def put(session: FetchSession, index: int, topic: Uuid = TOPIC) -> None:
    session.put(PartitionKey(topic, index), FetchPartition(partition=index))


def ask(session: FetchSession) -> tuple[int, int, list[int], list[int], int]:
    """Session id, epoch, partitions named and forgotten, and the attempt."""
    request = session.next_request()
    named = [partition.partition for topic in request.topics for partition in topic.partitions]
    forgotten = [index for topic in request.forgotten for index in topic.partitions]
    return request.session_id, request.epoch, named, forgotten, request.attempt


def test_everything_first_and_then_what_changed() -> None:
    session = FetchSession()
    put(session, 0)
    put(session, 1)
    assert ask(session) == (0, 0, [0, 1], [], 0)
    assert session.on_response(0, FetchResponse(session_id=9))
    assert ask(session) == (9, 1, [], [], 0)
    put(session, 1)
    put(session, 2, OTHER)
    session.drop(PartitionKey(TOPIC, 0))
    assert session.on_response(0, FetchResponse(session_id=9))
    assert ask(session) == (9, 2, [1, 2], [0], 0)
    assert ask(session) == (9, 3, [], [], 0), "a second one may follow before the first is answered"


def test_what_was_dropped_and_put_again_is_not_forgotten() -> None:
    session = FetchSession()
    put(session, 0)
    put(session, 1)
    ask(session)
    session.on_response(0, FetchResponse(session_id=9))
    session.drop(PartitionKey(TOPIC, 0))
    put(session, 0)
    session.drop(PartitionKey(TOPIC, 5))
    assert ask(session) == (9, 1, [0], [], 0)
    assert len(session) == 2


def test_a_leader_without_room_is_always_told_everything() -> None:
    session = FetchSession()
    put(session, 0)
    put(session, 1)
    ask(session)
    session.on_response(0, FetchResponse(session_id=0))
    put(session, 0)
    assert ask(session) == (0, 0, [1, 0], [], 0), "what was just served goes to the back"


def test_errors_begin_a_new_session() -> None:
    session = FetchSession()
    put(session, 0)
    ask(session)
    session.on_response(0, FetchResponse(session_id=9))
    ask(session)
    assert not session.on_response(0, FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH))
    assert ask(session) == (9, 0, [0], [], 1), "the old one is ended by name"
    session.on_response(1, FetchResponse(session_id=10))
    ask(session)
    assert not session.on_response(1, FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    assert ask(session) == (0, 0, [0], [], 2)
    session.on_response(2, FetchResponse(session_id=11))
    ask(session)
    assert not session.on_response(2, FetchResponse(error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR))
    assert ask(session) == (11, 0, [0], [], 3)
    session.on_lost(3)
    assert ask(session) == (11, 0, [0], [], 4)


def test_the_answer_to_an_earlier_attempt_is_nothing_to_this_one() -> None:
    session = FetchSession()
    put(session, 0)
    ask(session)
    session.on_response(0, FetchResponse(session_id=9))
    ask(session)
    ask(session)
    session.on_lost(0)
    session.on_lost(0)
    assert not session.on_response(0, FetchResponse(session_id=9))
    assert ask(session) == (9, 0, [0], [], 1)


def test_a_session_put_out_in_passing_still_answers() -> None:
    session = FetchSession()
    put(session, 0)
    ask(session)
    session.on_response(0, FetchResponse(session_id=9))
    ask(session)
    assert session.on_response(0, FetchResponse(session_id=0))
    assert ask(session)[:3] == (0, 0, [0])


def test_epochs_wrap_to_one() -> None:
    session = FetchSession()
    put(session, 0)
    ask(session)
    session.on_response(0, FetchResponse(session_id=9))
    session.epoch = (1 << 31) - 1
    ask(session)
    assert session.epoch == 1
