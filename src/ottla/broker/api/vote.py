"""Vote (key 52): a candidate of the quorum asks for this node's vote, or whether it would get it (KIP-996)."""

from __future__ import annotations

from ottla.broker.api.raft_request import answer
from ottla.broker.context import Context
from ottla.wire.messages.vote_request import VoteRequest
from ottla.wire.messages.vote_response import VoteResponse


async def handle(context: Context, request: VoteRequest) -> VoteResponse:
    return await answer(context, request, VoteResponse)
