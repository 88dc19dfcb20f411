"""What the sink reads from its log of decisions: batches in, what is decided out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar, cast

import pytest

from ottla.client.blocking import BlockingClient, PartitionInfo, TopicInfo
from ottla.client.settings import ClientSettings
from ottla.errors import KafkaError
from ottla.model import ZERO_UUID
from ottla.records import Record
from ottla.records.batch import BatchHeader
from ottla.records.control import ControlType, control_key
from ottla.spark.sink.coordination import Coordination
from ottla.spark.sink.decision_log import DecisionLog, DecisionsView, decision_from_json, decision_to_json
from ottla.spark.sink.two_phase import Claim, Decision, Staged
from ottla.wire.message import Message
from ottla.wire.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.messages.list_offsets_request import ListOffsetsRequest
from ottla.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

M = TypeVar("M", bound=Message)

FIRST = Claim(1, 0)


def header(producer_id: int, *, transactional: bool = True, control: bool = False) -> BatchHeader:
    attributes = (0x10 if transactional else 0) | (0x20 if control else 0)
    return BatchHeader(0, 0, 0, 2, 0, attributes, 0, 0, 0, producer_id, 0, 0, 1)


def marker(kind: ControlType) -> list[Record]:
    return [Record(0, 0, control_key(kind), b"\0\0\0\0\0\0")]


def decision(batch_id: int, claim: Claim = FIRST, *, forsaken: bool = False) -> Decision:
    staged = (Staged("ottla/s/a", 5, 6, 1), Staged("ottla/s/b", 7, 8, 2))
    return Decision(sink="s", query_id="q", batch_id=batch_id, claim=claim, staged=staged, forsaken=forsaken)


def record(key: str, value: bytes | None, timestamp: int = 0) -> Record:
    return Record(0, timestamp, key.encode(), value)


def test_a_decision_reads_back() -> None:
    assert decision_from_json("s", decision_to_json(decision(3))) == decision(3)


def test_a_decision_counts_when_its_transaction_is_committed() -> None:
    view = DecisionsView()
    view.on_batch(header(1), [record("s", decision_to_json(decision(1)))])
    assert view.of("s", 0).own is None
    view.on_batch(header(2), [record("s", decision_to_json(decision(9)))])
    view.on_batch(header(1, control=True), marker(ControlType.COMMIT))
    own = view.of("s", 0).own
    assert own is not None
    assert (own.decision.batch_id, own.completed) == (1, False)
    view.on_batch(header(2, control=True), marker(ControlType.ABORT))
    assert view.of("s", 0).own == own
    view.on_batch(header(-1, transactional=False), [record("s/completed", b"[1, 0]")])
    assert view.of("s", 0).own == own._replace(completed=True)
    view.on_batch(header(3), [record("s", decision_to_json(decision(2, Claim(1, 1))))])
    view.on_batch(header(3, control=True), marker(ControlType.COMMIT))
    newest = view.of("s", 0).own
    assert newest is not None
    assert (newest.decision.batch_id, newest.completed) == (2, False), "completed was the one before"


def test_a_forsaken_decision_is_anybodys_after_a_while() -> None:
    view = DecisionsView()
    view.on_batch(header(-1, transactional=False), [record("s", decision_to_json(decision(0, forsaken=True)), 1000)])
    assert view.of("another", 2000).forsaken == ()
    assert view.of("another", 60_000).forsaken == (decision(0, forsaken=True),)
    view.on_batch(header(-1, transactional=False), [record("s", None), record("s/completed", None)])
    assert view.of("another", 60_000).forsaken == ()


class Leader(BlockingClient):
    """Has no records, but tells of these ends one after the other, and of the last for ever."""

    def __init__(self, ends: list[int], patience_ms: int) -> None:
        given = {"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": str(patience_ms)}
        super().__init__(ClientSettings.parse(given))
        self._ends = ends
        self.fetches = 0

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, ZERO_UUID, {0: PartitionInfo(1, 0)}) for name in names or ()}

    def ask(self, node_id: int, request: Message, response: type[M], **_: object) -> M:
        if isinstance(request, ListOffsetsRequest):
            end = self._ends.pop(0) if len(self._ends) > 1 else self._ends[0]
            found = ListOffsetsPartitionResponse(partition_index=0, offset=end)
            answer: Message = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])
        else:
            self.fetches += 1
            assert self.fetches < 100, "it asks for ever"
            data = PartitionData(partition_index=0, log_start_offset=0, records=b"")
            answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])
        return cast(M, answer)


def test_a_leader_that_has_lost_what_was_told_of_is_asked_again_where_it_ends() -> None:
    leader = Leader([5, 5, 0], patience_ms=60_000)
    assert DecisionLog(leader, Coordination(leader), "t").read("s").own is None
    assert leader.fetches == 2


def test_a_leader_that_never_gives_what_it_tells_of_is_an_error() -> None:
    leader = Leader([5], patience_ms=300)
    with pytest.raises(KafkaError, match="t gives nothing from offset 0 on"):
        DecisionLog(leader, Coordination(leader), "t").read("s")
