"""What the requests of the quorum have in common: the raft machine answers them, each in its turn.

Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch of the metadata log, FetchSnapshot and UpdateRaftVoter come from other
nodes; AddRaftVoter and RemoveRaftVoter from people. A request may wait for a disk (a vote is durable before it is told)
or for news (a fetch of a quiet log).
"""

from __future__ import annotations

from typing import TypeVar

from ottla.broker.context import Context
from ottla.errors import KafkaError
from ottla.wire.message import Message

M = TypeVar("M", bound=Message)


async def answer(context: Context, request: Message, response: type[M]) -> M:
    """What the machine of this node says."""
    try:
        answered = await context.services.control.raft.request(request, context.api_version)
    except KafkaError as error:
        return refused(response, error)
    assert isinstance(answered, response), f"{type(request).__name__} is not answered by {response.__name__}"
    return answered


def refused(response: type[M], error: KafkaError) -> M:
    """All of these responses have a code for the whole; some have a sentence too."""
    answer = response()
    for name, value in (("error_code", error.code), ("error_message", error.message)):
        if hasattr(answer, name):
            setattr(answer, name, value)
    return answer
