"""A transaction that is decided and has not reached its partitions: what its producer hears, and what readers see.

EndTxn is answered when the decision is committed, and the markers follow (§5.8, 62 to 65 and 73). The node runs in this
process, and its markers are held back, so that nothing is complete before the test says so.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.coordinators.marker_sender import MarkerSender
from ottla.errors import ErrorCode
from ottla.runtime.disk import SystemDisk
from ottla.runtime.system import free_ports
from ottla.wire.messages.produce_response import ProduceResponse
from tests.behaviour.client import READ_COMMITTED, Client, Topic, batch, eventually, produced
from tests.behaviour.held_disk import HOST, node_on
from tests.behaviour.marking import committed_values, stable_offset
from tests.behaviour.transactions import V1, V2, Transactional, only

pytestmark = pytest.mark.ottla_only

BUSY, INVALID = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


class Markers:
    """Those of one node, which wait."""

    def __init__(self) -> None:
        self._opened = threading.Event()

    def go_on(self) -> None:
        self._opened.set()

    @contextmanager
    def held(self) -> Iterator[None]:
        send = MarkerSender._send

        def held_back(sender: MarkerSender, job: Any, partitions: Any) -> None:
            if self._opened.is_set():
                send(sender, job, partitions)
            else:
                sender._put_off({job: set(partitions)})

        with pytest.MonkeyPatch.context() as patches:
            patches.setattr(MarkerSender, "_send", held_back)
            yield


@pytest.fixture
def markers() -> Markers:
    return Markers()


@pytest.fixture
def held_client(markers: Markers, tmp_path: Path) -> Iterator[Client]:
    with (
        markers.held(),
        node_on(SystemDisk(), tmp_path / "data", SETTINGS) as address,
        Client(address) as connected,
    ):
        yield connected


def write(producer: Transactional, topic: Topic, version: int, value: bytes = b"v") -> ErrorCode:
    """The first batch of a transaction, by the rules of V1 or V2."""
    if version == V1:
        added = only(producer.add(topic))
        if added is not ErrorCode.NONE:
            return added
    records = batch(
        value, producer_id=producer.producer_id, producer_epoch=producer.epoch, sequence=0, transactional=True
    )
    request = producer.client.produce_request(topic, records)
    request.transactional_id = producer.transactional_id
    number = 11 if version == V1 else 13
    return ErrorCode(produced(producer.client.call(request, ProduceResponse, number)).error_code)


def seen(client: Client, topic: Topic) -> list[bytes | None]:
    """By a reader of committed records."""
    return committed_values(client.fetch(topic, 0, isolation=READ_COMMITTED))


def decided(client: Client, topic: Topic, version: int, *, commit: bool = True) -> tuple[Transactional, Transactional]:
    """Who ended the transaction, as it was, and as it is from then on."""
    producer = Transactional.begun(client)
    assert write(producer, topic, version) is ErrorCode.NONE
    answer = producer.end(commit=commit, version=version)
    assert answer.error_code == 0
    if version == V1:
        return producer, producer
    assert answer.producer_epoch == producer.epoch + 1
    return producer, producer.as_producer(answer.producer_id, answer.producer_epoch)


@pytest.mark.parametrize("version", [V1, V2])
def test_a_reader_may_be_behind_an_end_that_was_answered(held_client: Client, markers: Markers, version: int) -> None:
    topic = held_client.create_topic("orders")
    producer, _ = decided(held_client, topic, version)
    assert producer.state == "PrepareCommit"
    assert (stable_offset(held_client, topic), seen(held_client, topic)) == (0, [])
    markers.go_on()
    assert producer.settle() == "CompleteCommit"
    assert (stable_offset(held_client, topic), seen(held_client, topic)) == (2, [b"v"])


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [V1, V2])
def test_the_end_that_is_under_way_may_be_asked_for_again_and_no_other(
    held_client: Client, markers: Markers, version: int, commit: bool
) -> None:
    producer, _ = decided(held_client, held_client.create_topic("orders"), version, commit=commit)
    assert producer.end(commit=commit, version=version).error_code == BUSY
    assert producer.end(commit=not commit, version=version).error_code == INVALID
    markers.go_on()
    assert producer.settle() == ("CompleteCommit" if commit else "CompleteAbort")
    assert producer.end(commit=commit, version=version).error_code == 0
    assert producer.end(commit=not commit, version=version).error_code == INVALID


@pytest.mark.parametrize("version", [V1, V2])
def test_the_next_transaction_waits_for_the_markers(held_client: Client, markers: Markers, version: int) -> None:
    topic = held_client.create_topic("orders")
    _, producer = decided(held_client, topic, version)
    other = held_client.create_topic("others")
    assert only(producer.add(other)) is BUSY
    assert producer.add_offsets("g") is BUSY
    assert write(producer, other, version) is BUSY
    assert producer.init().error_code == BUSY
    assert producer.init(producer_id=producer.producer_id, epoch=producer.epoch).error_code == BUSY
    markers.go_on()
    producer.settle()
    assert eventually(lambda: write(producer, other, version), lambda code: code is not BUSY) is ErrorCode.NONE


@pytest.mark.parametrize("commit", [True, False])
def test_the_next_coordinator_sends_the_markers(tmp_path: Path, commit: bool) -> None:
    ports = free_ports(HOST, 2)
    markers = Markers()
    with (
        markers.held(),
        node_on(SystemDisk(), tmp_path / "data", SETTINGS, ports=ports) as address,
        Client(address) as client,
    ):
        topic = client.create_topic("orders")
        producer, _ = decided(client, topic, V2, commit=commit)
    with (
        node_on(SystemDisk(), tmp_path / "data", SETTINGS, ports=ports, is_new=False) as address,
        Client(address) as client,
    ):
        again = Transactional(client, producer.transactional_id)
        again.find_coordinator()
        assert again.settle() == ("CompleteCommit" if commit else "CompleteAbort")
        eventually(lambda: stable_offset(client, topic), lambda offset: offset == 2)
        assert seen(client, topic) == ([b"v"] if commit else [])
