"""RemoveRaftVoter (key 81): a voter of the quorum is one no more (KIP-853)."""

from __future__ import annotations

from ottla.broker.api.raft_request import answer
from ottla.broker.context import Context
from ottla.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from ottla.wire.messages.remove_raft_voter_response import RemoveRaftVoterResponse


async def handle(context: Context, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    return await answer(context, request, RemoveRaftVoterResponse)
