"""Incremental fetch sessions (KIP-227): a reader names its partitions once, and is then told only what is new."""

from __future__ import annotations

import time
from random import Random

import pytest

from ottla.broker.fetching.fetch_sessions import EVICTION_MS, FetchSession, FetchSessions
from ottla.broker.fetching.follower_sessions import FollowerSession
from ottla.errors import ErrorCode
from ottla.wire.fetch_codec import Wanted
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.wire.messages.fetch_response import FetchResponse, PartitionData
from tests.behaviour.client import Client, Topic, records_of, values_of
from tests.behaviour.conftest import StartNode

NEW = 0
NONE = -1


def ask(
    client: Client,
    topic: Topic,
    wanted: dict[int, int],
    *,
    session: tuple[int, int] = (0, NONE),
    forget: list[int] | None = None,
    version: int = 18,
    max_wait_ms: int = 0,
    max_bytes: int = 1 << 20,
) -> FetchResponse:
    """One fetch: `wanted` gives the offset for each partition, `session` the session's id and epoch."""
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in wanted.items()
    ]
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=partitions)] if partitions else [],
        forgotten_topics_data=[ForgottenTopic(topic=topic.name, topic_id=topic.topic_id, partitions=forget)]
        if forget
        else [],
    )
    return client.call(request, FetchResponse, version)


def told(response: FetchResponse) -> dict[int, PartitionData]:
    assert response.error_code == 0
    return {each.partition_index: each for topic in response.responses for each in topic.partitions}


@pytest.fixture
def wide(client: Client, name: str) -> Topic:
    """A topic of three partitions with one record in each."""
    topic = client.create_topic(name, 3)
    for partition in range(3):
        client.append(topic, b"first", partition=partition)
    return topic


@pytest.mark.parametrize("version", [7, 11, 12, 13, 18])
def test_a_full_request_opens_a_session_and_names_every_partition(client: Client, wide: Topic, version: int) -> None:
    response = ask(client, wide, {0: 0, 1: 1, 2: 1}, session=(0, NEW), version=version)
    assert response.session_id > 0
    found = told(response)
    assert set(found) == {0, 1, 2}
    assert values_of(found[0]) == [b"first"]


def test_no_session_is_opened_for_one_who_wants_none(client: Client, wide: Topic) -> None:
    response = ask(client, wide, {0: 0}, session=(0, NONE))
    assert response.session_id == 0
    assert values_of(told(response)[0]) == [b"first"]


def test_an_incremental_answer_holds_only_what_is_new(client: Client, wide: Topic) -> None:
    session = ask(client, wide, {0: 1, 1: 1, 2: 1}, session=(0, NEW)).session_id
    assert told(ask(client, wide, {}, session=(session, 1))) == {}
    client.append(wide, b"second", partition=1)
    found = told(ask(client, wide, {}, session=(session, 2)))
    assert {index: values_of(each) for index, each in found.items()} == {1: [b"second"]}
    assert found[1].high_watermark == 2
    # The offset moves only when the reader says so.
    assert set(told(ask(client, wide, {}, session=(session, 3)))) == {1}
    assert told(ask(client, wide, {1: 2}, session=(session, 4))) == {}


def test_a_session_adds_and_forgets_partitions(client: Client, wide: Topic) -> None:
    session = ask(client, wide, {0: 1}, session=(0, NEW)).session_id
    assert values_of(told(ask(client, wide, {1: 0}, session=(session, 1)))[1]) == [b"first"]
    client.append(wide, b"second", partition=0)
    client.append(wide, b"second", partition=1)
    assert set(told(ask(client, wide, {}, session=(session, 2), forget=[1]))) == {0}


def test_a_partition_is_named_when_its_log_start_moves(client: Client, wide: Topic) -> None:
    session = ask(client, wide, {0: 1, 1: 1}, session=(0, NEW)).session_id
    assert client.delete_records(wide, 1).error_code == 0
    found = told(ask(client, wide, {}, session=(session, 1)))
    assert set(found) == {0}
    assert found[0].log_start_offset == 1
    assert records_of(found[0]) == []


def test_a_partition_is_named_as_long_as_it_is_in_error_and_once_after(client: Client, wide: Topic) -> None:
    session = ask(client, wide, {0: 5, 1: 1}, session=(0, NEW)).session_id
    for epoch in (1, 2):
        found = told(ask(client, wide, {}, session=(session, epoch)))
        assert {index: each.error_code for index, each in found.items()} == {0: ErrorCode.OFFSET_OUT_OF_RANGE}
    cleared = told(ask(client, wide, {0: 1}, session=(session, 3)))
    assert {index: each.error_code for index, each in cleared.items()} == {0: 0}
    assert told(ask(client, wide, {}, session=(session, 4))) == {}


def test_a_session_that_nobody_has_is_not_found(client: Client, wide: Topic) -> None:
    response = ask(client, wide, {}, session=(0x7123_4567, 1))
    assert (response.error_code, response.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert response.responses == []


@pytest.mark.parametrize("epoch", [2, 3, 100])
def test_an_epoch_out_of_turn_is_refused(client: Client, wide: Topic, epoch: int) -> None:
    session = ask(client, wide, {0: 1}, session=(0, NEW)).session_id
    response = ask(client, wide, {}, session=(session, epoch))
    assert (response.error_code, response.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    assert response.responses == []
    # The session is none the worse.
    assert ask(client, wide, {}, session=(session, 1)).error_code == 0


def test_an_epoch_is_used_once(client: Client, wide: Topic) -> None:
    session = ask(client, wide, {0: 1}, session=(0, NEW)).session_id
    assert ask(client, wide, {}, session=(session, 1)).error_code == 0
    assert ask(client, wide, {}, session=(session, 1)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize(("opened", "used"), [(12, 13), (13, 12), (18, 7)])
def test_a_session_keeps_to_names_or_to_ids(client: Client, wide: Topic, opened: int, used: int) -> None:
    session = ask(client, wide, {0: 1}, session=(0, NEW), version=opened).session_id
    response = ask(client, wide, {}, session=(session, 1), version=used)
    assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


@pytest.mark.parametrize("epoch", [NEW, NONE])
def test_a_full_request_closes_the_session_it_names(client: Client, wide: Topic, epoch: int) -> None:
    session = ask(client, wide, {0: 1}, session=(0, NEW)).session_id
    response = ask(client, wide, {0: 0}, session=(session, epoch))
    assert values_of(told(response)[0]) == [b"first"]
    assert (response.session_id > 0) == (epoch == NEW)
    assert response.session_id != session
    assert ask(client, wide, {}, session=(session, 1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_that_forgets_its_last_partition_is_closed(client: Client, wide: Topic) -> None:
    session = ask(client, wide, {0: 1}, session=(0, NEW)).session_id
    response = ask(client, wide, {}, session=(session, 1), forget=[0])
    assert (response.error_code, response.session_id) == (0, 0)
    assert ask(client, wide, {}, session=(session, 2)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_may_begin_with_nothing(client: Client, wide: Topic) -> None:
    session = ask(client, wide, {}, session=(0, NEW)).session_id
    assert session > 0
    assert values_of(told(ask(client, wide, {0: 0}, session=(session, 1)))[0]) == [b"first"]


def test_a_session_outlives_its_connection(client: Client, wide: Topic) -> None:
    session = ask(client, wide, {0: 1}, session=(0, NEW)).session_id
    with client.another() as returned:
        assert ask(returned, wide, {}, session=(session, 1)).error_code == 0


def test_a_long_poll_in_a_session_is_woken_by_any_of_its_partitions(client: Client, wide: Topic) -> None:
    session = ask(client, wide, {0: 1, 1: 1, 2: 1}, session=(0, NEW)).session_id
    with client.another() as reader:
        request = FetchRequest(max_wait_ms=60_000, min_bytes=1, session_id=session, session_epoch=1)
        began = time.monotonic()
        correlation_id = reader.send(request, 18)
        assert reader.is_silent(0.1)
        client.append(wide, b"second", partition=2)
        found = told(reader.receive(FetchResponse, 18, correlation_id))
        assert {index: values_of(each) for index, each in found.items()} == {2: [b"second"]}
        assert time.monotonic() - began < 30


def test_a_busy_partition_does_not_starve_the_others(client: Client, wide: Topic) -> None:
    """The limit lets only one batch through; whoever was served goes to the back of the line."""
    session = ask(client, wide, {0: 0, 1: 0, 2: 0}, session=(0, NEW), max_bytes=1).session_id
    served = [
        [
            index
            for index, each in told(ask(client, wide, {}, session=(session, epoch), max_bytes=1)).items()
            if each.records
        ]
        for epoch in range(1, 7)
    ]
    assert all(len(each) == 1 for each in served)
    assert {each[0] for each in served[:3]} == {0, 1, 2}
    assert served[:3] == served[3:]


def test_a_deleted_topic_is_an_error_in_a_session_and_its_successor_is_another_topic(client: Client, name: str) -> None:
    """The session was opened with the id of a topic that is deleted and created again under its name."""
    topic = client.create_topic(name)
    client.append(topic, b"old")
    session = ask(client, topic, {0: 0}, session=(0, NEW)).session_id
    client.delete_topic(topic)
    found = told(ask(client, topic, {}, session=(session, 1)))
    # Kafka's session remembers the name that the id had; to the reader, both say that its metadata is old.
    assert found[0].error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    successor = client.create_topic(name)
    client.append(successor, b"new")
    found = told(ask(client, topic, {}, session=(session, 2)))
    assert found[0].error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)
    assert not found[0].records


def test_with_no_room_for_sessions_everybody_fetches_in_full(start_node: StartNode, name: str) -> None:
    node = start_node({"max.incremental.fetch.session.cache.slots": "0"})
    with Client((node.host, node.port)) as client:
        topic = client.create_topic(name)
        client.append(topic, b"first")
        response = ask(client, topic, {0: 0}, session=(0, NEW))
        assert (response.error_code, response.session_id) == (0, 0)
        assert values_of(told(response)[0]) == [b"first"]


# What only two thousand million requests, or two minutes, would show on the wire.


@pytest.mark.ottla_only
def test_the_epoch_after_the_last_is_one_and_never_zero() -> None:
    session = FetchSession(7, by_id=True, now_ms=0)
    session.epoch = 0x7FFF_FFFF
    session.advance_epoch()
    assert session.epoch == 1


@pytest.mark.ottla_only
def test_a_full_cache_refuses_the_young_and_gives_up_the_idle() -> None:
    sessions = FetchSessions(2, Random(1), 1_000)

    def open_session(now_ms: int, *, privileged: bool = False, size: int = 1) -> FetchSession | None:
        partitions = [Wanted("t", index, 0, 1) for index in range(size)]
        kind = FollowerSession if privileged else FetchSession
        return sessions.create(kind, partitions, by_id=False, now_ms=now_ms)

    first, second = open_session(0), open_session(1)
    assert first is not None
    assert second is not None
    assert open_session(2) is None
    # A follower is worth more than a consumer, at once; a larger session than a smaller one, after its time.
    assert open_session(3, privileged=True) is not None
    with pytest.raises(Exception, match="FETCH_SESSION_ID_NOT_FOUND"):
        sessions.resume(first.session_id, 1, by_id=False, now_ms=4)
    sessions.resume(second.session_id, 1, by_id=False, now_ms=5)
    assert open_session(6, size=5) is None
    assert open_session(5 + EVICTION_MS + 1) is not None
    assert len(sessions) == 2
    assert sessions.evictions == 2
