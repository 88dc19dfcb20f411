"""Pages of records from a real node: one after another they show everything once, and nothing that was aborted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.client.blocking import BlockingClient
from ottla.client.settings import ClientSettings
from ottla.console.producing import Draft, parse_headers, produce
from ottla.console.reading import Matches, read_back, read_forward, read_one
from ottla.errors import ErrorCode, KafkaError
from tests.console.conftest import Stage

pytestmark = pytest.mark.slow

RECORDS = 120


@pytest.fixture
def client(stage: Stage) -> Iterator[BlockingClient]:
    with BlockingClient(ClientSettings.parse({"bootstrap.servers": stage.node.bootstrap})) as client:
        yield client


def walk_forward(client: BlockingClient, limit: int, matches: Matches | None = None) -> list[bytes | None]:
    at, found = {0: 0, 1: 0}, []
    while True:
        page = read_forward(client, "orders", at, limit=limit, matches=matches)
        found += [each.record.key for each in page.records]
        if page.newer == at:
            return found
        at = page.newer


def walk_back(client: BlockingClient, limit: int, matches: Matches | None = None) -> list[bytes | None]:
    before: dict[int, int | None] = {0: None, 1: None}
    found: list[bytes | None] = []
    while True:
        page = read_back(client, "orders", before, limit=limit, matches=matches)
        found = [each.record.key for each in page.records] + found
        if page.older == before:
            return found
        before = {**page.older}


@pytest.mark.parametrize("limit", [1, 7, 50, 1000])
def test_pages_show_everything_once_in_either_direction(client: BlockingClient, limit: int) -> None:
    expected = [f"customer-{number}".encode() for number in range(RECORDS)]
    assert walk_forward(client, limit) == expected
    assert walk_back(client, limit) == expected


def test_a_filter_leaves_out_and_loses_nothing(client: BlockingClient) -> None:
    expected = [f"customer-{number}".encode() for number in range(RECORDS) if number % 10 == 3]
    for walk in (walk_forward, walk_back):
        assert walk(client, 4, lambda each: (each.record.key or b"").endswith(b"3")) == expected


def test_what_was_aborted_is_shown_only_to_who_asks(stage: Stage, client: BlockingClient) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": stage.node.bootstrap})
    admin.create_topics([NewTopic("decided", 1)])["decided"].result(60)
    producer = Producer({"bootstrap.servers": stage.node.bootstrap, "transactional.id": "console-test"})
    producer.init_transactions(60)
    for kept in (True, False, True):
        producer.begin_transaction()
        producer.produce("decided", "kept" if kept else "taken back")
        assert producer.flush(60) == 0
        producer.commit_transaction(60) if kept else producer.abort_transaction(60)
    for committed, expected in ((True, [b"kept", b"kept"]), (False, [b"kept", b"taken back", b"kept"])):
        page = read_back(client, "decided", {0: None}, limit=10, committed=committed)
        assert [each.record.value for each in page.records] == expected


def test_a_record_by_hand_goes_where_its_key_belongs(client: BlockingClient) -> None:
    headers = tuple(parse_headers("a: 1\n\n b : x:y\n"))
    assert headers == (("a", b"1"), ("b", b"x:y"))
    done = produce(client, Draft(topic="written", partition=None, key=b"k", value=None, headers=headers))
    record = read_one(client, "written", done.partition, done.offset)
    assert record is not None
    assert (record.key, record.value, record.headers) == (b"k", None, headers)
    assert read_one(client, "written", 0, 1 << 40) is None
    with pytest.raises(ValueError, match="name: value"):
        parse_headers("no colon")
    with pytest.raises(KafkaError) as refused:
        produce(client, Draft(topic="nowhere", partition=None, key=b"k", value=b""))
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
