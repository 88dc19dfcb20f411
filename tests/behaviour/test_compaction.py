"""Compacted topics as a reader sees them: offsets stay what they are, whatever is gone. invariants §5.10, 93 and 94."""

from __future__ import annotations

import pytest

from tests.behaviour.client import EARLIEST, LATEST, Client, Topic, batch, eventually, records_of
from tests.behaviour.conftest import StartNode
from tests.behaviour.test_leader_epochs import topic_called

SETTINGS = {"log.cleaner.backoff.ms": "100"}


def compacted_topic(client: Client, name: str, delete_retention_ms: int = 86_400_000) -> Topic:
    """One whose segments are closed and compacted as soon as may be."""
    return client.create_topic(
        name,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        segment_ms="50",
        delete_retention_ms=str(delete_retention_ms),
    )


def put(client: Client, topic: Topic, key: bytes, value: bytes | None) -> int:
    answer = client.produce(topic, batch(value, key=key))
    assert answer.error_code == 0, answer.error_code
    return answer.base_offset


def kept(client: Client, topic: Topic) -> dict[int, tuple[bytes | None, bytes | None]]:
    """What is there before the records that only make others old enough."""
    records = [record for record in client.read_all(topic) if record.key != b"filler"]
    return {record.offset: (record.key, record.value) for record in records}


def compacted(client: Client, topic: Topic, expected: set[int]) -> dict[int, tuple[bytes | None, bytes | None]]:
    """Write on, so that segments are closed and may be compacted, until only these are left."""

    def look() -> dict[int, tuple[bytes | None, bytes | None]]:
        put(client, topic, b"filler", b"x")
        return kept(client, topic)

    return eventually(look, lambda found: set(found) == expected)


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_offsets_stay_what_they_are(start_node: StartNode, name: str, ending: str) -> None:
    node = start_node(SETTINGS)
    with Client((node.host, node.port)) as client:
        topic = compacted_topic(client, name)
        for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None)):
            put(client, topic, key, value)
        # The tombstone stays for a day, so that every reader learns of it.
        assert compacted(client, topic, {2, 3}) == {2: (b"a", b"2"), 3: (b"b", None)}
        # Who asks for what is gone gets what follows.
        assert next(record.offset for record in records_of(client.fetch(topic, 0))) == 2
        assert client.list_offset(topic, EARLIEST).offset == 0
        end = client.list_offset(topic, LATEST).offset
    if ending == "stop":
        node.stop()
    else:
        node.kill()
    node.spawn()
    node.wait_ready()
    with Client((node.host, node.port)) as client:
        again = topic_called(client, name)
        assert client.list_offset(again, LATEST).offset == end
        assert client.list_offset(again, EARLIEST).offset == 0
        assert kept(client, again) == {2: (b"a", b"2"), 3: (b"b", None)}
        assert put(client, again, b"a", b"3") == end
    node.stop()


def test_a_tombstone_goes_after_its_time(start_node: StartNode, name: str) -> None:
    node = start_node(SETTINGS)
    with Client((node.host, node.port)) as client:
        topic = compacted_topic(client, name, delete_retention_ms=100)
        put(client, topic, b"a", b"1")
        put(client, topic, b"a", None)
        put(client, topic, b"b", b"1")
        compacted(client, topic, {2})
        assert client.list_offset(topic, EARLIEST).offset == 0
    node.stop()
