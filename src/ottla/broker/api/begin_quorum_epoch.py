"""BeginQuorumEpoch (key 53): a new leader of the quorum makes itself known."""

from __future__ import annotations

from ottla.broker.api.raft_request import answer
from ottla.broker.context import Context
from ottla.wire.messages.begin_quorum_epoch_request import BeginQuorumEpochRequest
from ottla.wire.messages.begin_quorum_epoch_response import BeginQuorumEpochResponse


async def handle(context: Context, request: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse:
    return await answer(context, request, BeginQuorumEpochResponse)
