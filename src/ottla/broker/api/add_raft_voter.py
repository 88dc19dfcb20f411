"""AddRaftVoter (key 80): a controller that watches the quorum becomes one of its voters (KIP-853)."""

from __future__ import annotations

from ottla.broker.api.raft_request import answer
from ottla.broker.context import Context
from ottla.wire.messages.add_raft_voter_request import AddRaftVoterRequest
from ottla.wire.messages.add_raft_voter_response import AddRaftVoterResponse


async def handle(context: Context, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    return await answer(context, request, AddRaftVoterResponse)
