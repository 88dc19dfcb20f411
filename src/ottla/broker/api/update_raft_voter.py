"""UpdateRaftVoter (key 82): a voter tells the leader where it is to be found now (KIP-853)."""

from __future__ import annotations

from ottla.broker.api.raft_request import answer
from ottla.broker.context import Context
from ottla.wire.messages.update_raft_voter_request import UpdateRaftVoterRequest
from ottla.wire.messages.update_raft_voter_response import UpdateRaftVoterResponse


async def handle(context: Context, request: UpdateRaftVoterRequest) -> UpdateRaftVoterResponse:
    return await answer(context, request, UpdateRaftVoterResponse)
