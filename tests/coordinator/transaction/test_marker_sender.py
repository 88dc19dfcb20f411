"""Decisions on their way to the leaders of other nodes: together, again and again, and not longer than need be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.broker.coordinators.marker_sender import MarkerSender
from ottla.broker.services import Services
from ottla.client.peer import PeerLost, Peers
from ottla.coordinator.outcome import Outcome
from ottla.coordinator.transaction.effects import SendMarkers
from ottla.errors import ErrorCode, Malformed
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.images import MetadataImage
from ottla.model import TopicPartition
from ottla.wire.message import Message
from ottla.wire.messages.write_txn_markers_request import WriteTxnMarkersRequest
from ottla.wire.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

US = 1
Written = tuple[int, int, str, list[TopicPartition]]
"""Producer id and epoch, what was decided, and where."""


class Node:
    """Another node, which answers when it is told to."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.asked: list[tuple[WriteTxnMarkersRequest, asyncio.Future[WriteTxnMarkersResponse]]] = []
        self.closed = False

    async def send(
        self, request: Message, response: type[Message], *, timeout_ms: int, max_version: int = 1000
    ) -> Message:
        assert isinstance(request, WriteTxnMarkersRequest)
        answer: asyncio.Future[WriteTxnMarkersResponse] = asyncio.get_running_loop().create_future()
        self.asked.append((request, answer))
        return await answer

    def close(self) -> None:
        self.closed = True
        for _, answer in self.asked:
            if not answer.done():
                answer.set_exception(PeerLost(ErrorCode.NETWORK_EXCEPTION, "was closed"))

    def written(self) -> list[Written]:
        """What the oldest request that waits asks for."""
        request, _ = self.asked[0]
        return [
            (
                marker.producer_id,
                marker.producer_epoch,
                "commit" if marker.transaction_result else "abort",
                [TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes],
            )
            for marker in request.markers
        ]

    def answer(self, **codes: ErrorCode) -> None:
        """NONE of every partition of which nothing else is said, by `topic_partition`."""
        request, answer = self.asked.pop(0)
        answer.set_result(
            WriteTxnMarkersResponse(
                markers=[
                    WritableTxnMarkerResult(
                        producer_id=marker.producer_id,
                        topics=[
                            WritableTxnMarkerTopicResult(
                                name=topic.name,
                                partitions=[
                                    WritableTxnMarkerPartitionResult(
                                        partition_index=index,
                                        error_code=codes.get(f"{topic.name}_{index}", ErrorCode.NONE),
                                    )
                                    for index in topic.partition_indexes
                                ],
                            )
                            for topic in marker.topics
                        ],
                    )
                    for marker in request.markers
                ]
            )
        )

    def hang_up(self) -> None:
        _, answer = self.asked.pop(0)
        answer.set_exception(PeerLost(ErrorCode.NETWORK_EXCEPTION, "hung up"))


def decision(
    name: str, producer_id: int, *partitions: TopicPartition, commit: bool = True, epoch: int = 4
) -> SendMarkers:
    return SendMarkers(
        transactional_id=name,
        producer_id=producer_id,
        producer_epoch=7,
        commit=commit,
        partitions=partitions,
        coordinator_epoch=epoch,
        transaction_version=2,
    )


class Surroundings:
    """What a marker sender sees of its node: who leads what, who is alive, time, and its coordinators."""

    def __init__(self) -> None:
        self.leaders: dict[TopicPartition, int] = {}
        self.fenced: set[int] = set()
        self.nodes = {node_id: Node(node_id) for node_id in (2, 3)}
        self.reported: list[tuple[str, list[TopicPartition]]] = []
        self.due: list[Callable[[], None]] = []
        self.now_s = 1_000.0
        self.pause_ms = 0.0
        """Until the last that is due."""
        self.tasks: list[asyncio.Task[None]] = []
        self.bugs: list[BaseException] = []
        services = SimpleNamespace(
            node_id=US,
            image=SimpleNamespace(partition=self.partition, broker=self.broker),
            config=SimpleNamespace(inter_broker_listener_name="PLAINTEXT", get_int=lambda name: 30_000),
            clock=SimpleNamespace(monotonic=lambda: self.now_s),
            timers=SimpleNamespace(after=self.after),
            transactions=SimpleNamespace(write=self.write),
            spawn=self.spawn,
            on_bug=self.bugs.append,
        )
        self.sender = MarkerSender(cast("Services", services), cast("Peers", SimpleNamespace(at=self.at)))

    def partition(self, topic: str, index: int) -> object:
        leader = self.leaders.get(TopicPartition(topic, index))
        return None if leader is None else SimpleNamespace(leader=leader)

    def broker(self, broker_id: int) -> object:
        if broker_id not in self.nodes:
            return None
        endpoint = SimpleNamespace(host="node", port=broker_id)
        return SimpleNamespace(fenced=broker_id in self.fenced, endpoint=lambda listener: endpoint)

    def at(self, host: str, port: int) -> Node:
        if self.nodes[port].closed:
            self.nodes[port] = Node(port)
        return self.nodes[port]

    def after(self, delay_ms: float, call: Callable[[], None]) -> object:
        self.due.append(call)
        self.pause_ms = delay_ms
        return SimpleNamespace(cancel=lambda: self.due.remove(call))

    def write(self, name: str, operation: Callable[[object, int], Outcome[None]]) -> None:
        def on_markers_written(sent: SendMarkers, partitions: set[TopicPartition], now_ms: int) -> Outcome[None]:
            assert sent.transactional_id == name
            self.reported.append((name, sorted(partitions)))
            return Outcome()

        operation(SimpleNamespace(on_markers_written=on_markers_written), 0)

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    # What tests do.

    async def decide(
        self, name: str, producer_id: int, *partitions: TopicPartition, commit: bool = True, epoch: int = 4
    ) -> None:
        self.sender.carry_out(0, epoch, decision(name, producer_id, *partitions, commit=commit, epoch=epoch))
        await self.settle()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def wait(self) -> None:
        """Until what was put off is tried again."""
        self.now_s += self.pause_ms / 1000 + 0.001
        due, self.due = self.due, []
        for call in due:
            call()
        await self.settle()

    async def publish(self) -> None:
        image = SimpleNamespace(broker=self.broker)
        self.sender.on_metadata(cast("MetadataImage", image), cast("MetadataDelta", None), 0)
        await self.settle()


A, B, C = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("c", 0)


@pytest.fixture
def surroundings() -> Surroundings:
    made = Surroundings()
    made.leaders = {A: 2, B: 2, C: 3}
    return made


async def test_each_leader_is_told_of_its_own_partitions(surroundings: Surroundings) -> None:
    await surroundings.decide("t", 10, A, B, C)
    assert surroundings.nodes[2].written() == [(10, 7, "commit", [A, B])]
    assert surroundings.nodes[3].written() == [(10, 7, "commit", [C])]
    (marker,) = surroundings.nodes[3].asked[0][0].markers
    assert (marker.coordinator_epoch, marker.transaction_version) == (4, 2)
    surroundings.nodes[3].answer()
    await surroundings.settle()
    assert surroundings.reported == [("t", [C])]
    surroundings.nodes[2].answer()
    await surroundings.settle()
    assert surroundings.reported == [("t", [C]), ("t", [A, B])]


async def test_what_comes_up_while_a_node_is_busy_shares_its_next_request(surroundings: Surroundings) -> None:
    await surroundings.decide("t", 10, A)
    await surroundings.decide("u", 11, B, commit=False)
    await surroundings.decide("v", 12, A)
    node = surroundings.nodes[2]
    assert len(node.asked) == 1
    node.answer()
    await surroundings.settle()
    assert node.written() == [(11, 7, "abort", [B]), (12, 7, "commit", [A])]
    # Of one producer one decision at a time: answers are told apart by its id.
    await surroundings.decide("v", 12, B)
    await surroundings.decide("v", 12, A, commit=False)
    node.answer()
    await surroundings.settle()
    assert node.written() == [(12, 7, "commit", [B])]
    node.answer()
    await surroundings.settle()
    assert node.written() == [(12, 7, "abort", [A])]


async def test_a_marker_follows_its_partition_to_the_next_leader(surroundings: Surroundings) -> None:
    await surroundings.decide("t", 10, A, B)
    surroundings.leaders[A] = 3
    surroundings.nodes[2].answer(a_0=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await surroundings.settle()
    assert surroundings.reported == [("t", [B])]
    await surroundings.wait()
    assert surroundings.nodes[3].written() == [(10, 7, "commit", [A])]
    # Nobody answers there; and then nobody leads.
    surroundings.nodes[3].hang_up()
    await surroundings.settle()
    surroundings.leaders[A] = -1
    await surroundings.wait()
    await surroundings.wait()
    assert surroundings.nodes[3].asked == []
    surroundings.leaders[A] = 2
    await surroundings.wait()
    surroundings.nodes[2].answer()
    await surroundings.settle()
    assert surroundings.reported == [("t", [B]), ("t", [A])]
    assert surroundings.due == []


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR]
)
async def test_a_refused_marker_is_sent_again(surroundings: Surroundings, code: ErrorCode) -> None:
    await surroundings.decide("t", 10, A)
    for _ in range(3):
        surroundings.nodes[2].answer(a_0=code)
        await surroundings.settle()
        assert surroundings.reported == []
        await surroundings.wait()
    surroundings.nodes[2].answer()
    await surroundings.settle()
    assert surroundings.reported == [("t", [A])]


async def test_very_many_that_have_to_wait_are_tried_less_often(surroundings: Surroundings) -> None:
    surroundings.fenced = {2}
    for number in range(2_000):
        surroundings.sender.carry_out(0, 4, decision(f"t{number}", number, A))
    assert surroundings.pause_ms == 100
    await surroundings.wait()
    # All were tried; the next time is after 400 ms, of which 100 have passed when somebody looks.
    assert surroundings.pause_ms == 100
    await surroundings.wait()
    assert surroundings.pause_ms == pytest.approx(300, abs=5)
    surroundings.fenced = set()
    assert not surroundings.nodes[2].asked
    await surroundings.wait()
    assert len(surroundings.nodes[2].written()) == 2_000
    surroundings.nodes[2].answer()
    await surroundings.settle()
    # One alone need not wait for so long.
    surroundings.fenced = {2}
    await surroundings.decide("alone", 9_999, A)
    surroundings.fenced = set()
    assert surroundings.pause_ms == 100
    await surroundings.wait()
    assert len(surroundings.nodes[2].written()) == 1


async def test_a_request_that_fails_in_any_way_is_sent_again(surroundings: Surroundings) -> None:
    await surroundings.decide("t", 10, A, B)
    await surroundings.decide("u", 11, A)
    _, answer = surroundings.nodes[2].asked.pop(0)
    answer.set_exception(Malformed("it cannot be read"))
    await surroundings.settle()
    assert surroundings.nodes[2].written() == [(11, 7, "commit", [A])]
    surroundings.nodes[2].answer()
    await surroundings.wait()
    assert surroundings.nodes[2].written() == [(10, 7, "commit", [A, B])]
    surroundings.nodes[2].answer()
    await surroundings.settle()
    assert surroundings.reported == [("u", [A]), ("t", [A, B])]
    assert len(surroundings.bugs) == 1


async def test_a_topic_that_is_gone_and_a_later_epoch_need_no_marker(surroundings: Surroundings) -> None:
    await surroundings.decide("t", 10, A, TopicPartition("gone", 0))
    assert surroundings.reported == [("t", [TopicPartition("gone", 0)])]
    surroundings.nodes[2].answer(a_0=ErrorCode.INVALID_PRODUCER_EPOCH)
    await surroundings.settle()
    assert surroundings.reported[1:] == [("t", [A])]


async def test_whoever_does_not_coordinate_any_more_sends_nothing_more(surroundings: Surroundings) -> None:
    await surroundings.decide("t", 10, A, B)
    surroundings.nodes[2].answer(a_0=ErrorCode.REQUEST_TIMED_OUT, b_0=ErrorCode.REQUEST_TIMED_OUT)
    await surroundings.settle()
    surroundings.sender.on_unloaded(0)
    await surroundings.wait()
    assert surroundings.nodes[2].asked == []
    # It leads again, in a later epoch, and is told anew. Of the old decisions nothing is left.
    await surroundings.decide("t", 10, A, epoch=6)
    (marker,) = surroundings.nodes[2].asked[0][0].markers
    assert marker.coordinator_epoch == 6
    surroundings.nodes[2].answer(a_0=ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    await surroundings.settle()
    assert surroundings.due == []
    assert surroundings.reported == []


async def test_nobody_waits_for_a_node_that_is_fenced(surroundings: Surroundings) -> None:
    await surroundings.decide("t", 10, A)
    await surroundings.decide("u", 11, A)
    surroundings.fenced.add(2)
    surroundings.leaders[A] = 3
    await surroundings.publish()
    await surroundings.wait()
    assert sorted(surroundings.nodes[3].written()) == [(10, 7, "commit", [A]), (11, 7, "commit", [A])]
    surroundings.nodes[3].answer()
    await surroundings.settle()
    assert sorted(surroundings.reported) == [("t", [A]), ("u", [A])]


async def test_closing_ends_what_is_under_way(surroundings: Surroundings) -> None:
    await surroundings.decide("t", 10, A)
    surroundings.leaders[C] = -1
    await surroundings.decide("u", 11, C)
    surroundings.sender.close()
    await surroundings.settle()
    assert all(task.done() for task in surroundings.tasks)
    assert surroundings.due == []
