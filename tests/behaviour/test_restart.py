"""A node that stops, or is killed, comes back with everything that was written to it."""

from __future__ import annotations

import threading

import pytest

from ottla.errors import ErrorCode
from ottla.records import CompressionType
from tests.behaviour.client import EARLIEST, LATEST, Client, batch, eventually
from tests.behaviour.conftest import StartNode
from tests.behaviour.test_leader_epochs import topic_called

LARGE = bytes(600_000)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_restart_keeps_everything(start_node: StartNode, name: str, ending: str) -> None:
    node = start_node({})
    values = [b"%d" % index for index in range(30)]
    with Client((node.host, node.port)) as client:
        topic = client.create_topic(name, 2, segment_bytes=str(1 << 20), max_message_bytes="700000")
        for index, value in enumerate(values):
            codec = list(CompressionType)[index % 5]
            assert client.produce(topic, batch(value, compression=codec)).base_offset == index
        for _ in range(3):
            client.append(topic, LARGE, partition=1)
        assert client.delete_records(topic, 10).low_watermark == 10
        gone = client.create_topic(f"{name}-gone")
        client.append(gone, b"gone")
        client.delete_topic(gone)
        acks_zero = client.create_topic(f"{name}-quiet")
        client.send(client.produce_request(acks_zero, batch(b"quiet"), acks=0), 13)
        eventually(lambda: client.list_offset(acks_zero, LATEST).offset, lambda offset: offset == 1)
    if ending == "stop":
        node.stop()
    else:
        node.kill()
    node.spawn()
    node.wait_ready()
    with Client((node.host, node.port)) as client:
        again = topic_called(client, name)
        assert again.topic_id == topic.topic_id
        assert client.list_offset(again, LATEST).offset == 30
        assert client.list_offset(again, LATEST, partition=1).offset == 3
        assert [record.value for record in client.read_all(again, offset=10)] == values[10:]
        assert [record.value for record in client.read_all(again, partition=1)] == [LARGE] * 3
        assert [record.value for record in client.read_all(topic_called(client, f"{name}-quiet"))] == [b"quiet"]
        assert client.describe_topic(gone.name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # Its configs came back with it.
        assert client.produce(again, batch(bytes(800_000))).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert client.append(again, b"next") == 30
        if ending == "stop":
            # A start that was moved by a request is kept by a clean stop; by a kill, if its checkpoint was due.
            assert client.list_offset(again, EARLIEST).offset == 10


@pytest.mark.slow
def test_a_kill_in_the_middle_of_writing_loses_nothing_acknowledged(start_node: StartNode, name: str) -> None:
    node = start_node({})
    acknowledged: list[int] = []
    started = threading.Event()

    def write() -> None:
        with Client((node.host, node.port)) as writer:
            topic = writer.create_topic(name)
            try:
                while True:
                    acknowledged.append(writer.append(topic, b"%d" % len(acknowledged)))
                    if len(acknowledged) == 200:
                        started.set()
            except (EOFError, OSError):
                return

    writer = threading.Thread(target=write)
    writer.start()
    assert started.wait(30)
    node.kill()
    writer.join()
    node.spawn()
    node.wait_ready()
    with Client((node.host, node.port)) as client:
        records = client.read_all(topic_called(client, name))
    assert [record.offset for record in records] == list(range(len(records)))
    assert [record.value for record in records] == [b"%d" % index for index in range(len(records))]
    assert acknowledged == list(range(len(acknowledged)))
    # One more may have been written than was acknowledged, and no fewer.
    assert len(acknowledged) <= len(records) <= len(acknowledged) + 1
