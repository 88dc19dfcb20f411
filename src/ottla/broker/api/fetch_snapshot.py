"""FetchSnapshot (key 59): a node that is far behind reads a snapshot of the metadata, piece by piece (KIP-630)."""

from __future__ import annotations

from ottla.broker.api.raft_request import answer
from ottla.broker.context import Context
from ottla.wire.messages.fetch_snapshot_request import FetchSnapshotRequest
from ottla.wire.messages.fetch_snapshot_response import FetchSnapshotResponse


async def handle(context: Context, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    return await answer(context, request, FetchSnapshotResponse)
