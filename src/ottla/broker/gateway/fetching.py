"""Fetches of one client that wait at several leaders at once.

The first leader that has something ends the wait; what the others have been asked stays asked, and the client's next
fetch, if it asks them for the same, waits for those very answers. Clients get no fetch sessions (KIP-227) here: a
session would be of one leader, and the client sees one for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from ottla.errors import ErrorCode
from ottla.wire.message import Message
from ottla.wire.messages.fetch_request import FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData

Ask = Callable[[int, Message], "asyncio.Future[Message]"]

NO_SESSION, SESSIONLESS_EPOCH = 0, -1


def without_session(request: FetchRequest) -> ErrorCode:
    """Make it a fetch of its own. A client that goes on with a session has it from elsewhere: it is told to begin."""
    if request.session_id != NO_SESSION and request.session_epoch > 0:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    request.session_id, request.session_epoch = NO_SESSION, SESSIONLESS_EPOCH
    request.forgotten_topics_data = []
    request.rack_id = ""  # Nobody is nearer than the gateway.
    return ErrorCode.NONE


class Fetches:
    """One instance a client's connection."""

    def __init__(self) -> None:
        self._asked: dict[int, tuple[bytes, asyncio.Future[Message]]] = {}
        """By node: what it was asked last, and its answer, unless that has been passed on."""

    def start(self, parts: Mapping[int, Message], version: int, ask: Ask) -> dict[int, asyncio.Future[Message]]:
        """Ask each node for its part, unless it has been asked for just that."""
        started: dict[int, asyncio.Future[Message]] = {}
        for node, part in parts.items():
            wanted = part.encode(version)
            asked, answer = self._asked.get(node, (b"", None))
            if answer is None or asked != wanted:
                answer = ask(node, part)
                self._asked[node] = wanted, answer
            started[node] = answer
        return started

    async def finish(
        self, parts: Mapping[int, Message], answers: Mapping[int, asyncio.Future[Message]]
    ) -> FetchResponse:
        """As soon as one has something to tell, or all have nothing. Raises `PeerLost`."""
        waiting = set(answers.values())
        told = False
        while waiting and not told:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            told = any(_tells(each.result()) for each in done)
        response = FetchResponse()
        for node, answer in answers.items():
            if not answer.done():
                response.responses += _nothing_yet(parts[node])
                continue
            known = self._asked.get(node)
            if known is not None and known[1] is answer:
                del self._asked[node]
            found = answer.result()
            assert isinstance(found, FetchResponse)
            response.responses += found.responses
            response.error_code = response.error_code or found.error_code
            response.throttle_time_ms = max(response.throttle_time_ms, found.throttle_time_ms)
        return response


def _tells(answer: Message) -> bool:
    assert isinstance(answer, FetchResponse)
    return bool(answer.error_code) or any(
        partition.error_code or partition.records for topic in answer.responses for partition in topic.partitions
    )


def _nothing_yet(part: Message) -> list[FetchableTopicResponse]:
    assert isinstance(part, FetchRequest)
    return [_nothing_of(topic) for topic in part.topics]


def _nothing_of(topic: FetchTopic) -> FetchableTopicResponse:
    """Of partitions whose leader still waits. That there may be more is all that is known of their ends."""
    return FetchableTopicResponse(
        topic=topic.topic,
        topic_id=topic.topic_id,
        partitions=[
            PartitionData(partition_index=each.partition, high_watermark=each.fetch_offset + 1, records=b"")
            for each in topic.partitions
        ],
    )
