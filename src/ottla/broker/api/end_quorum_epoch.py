"""EndQuorumEpoch (key 54): the leader of the quorum steps down, and names who should follow."""

from __future__ import annotations

from ottla.broker.api.raft_request import answer
from ottla.broker.context import Context
from ottla.wire.messages.end_quorum_epoch_request import EndQuorumEpochRequest
from ottla.wire.messages.end_quorum_epoch_response import EndQuorumEpochResponse


async def handle(context: Context, request: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
    return await answer(context, request, EndQuorumEpochResponse)
