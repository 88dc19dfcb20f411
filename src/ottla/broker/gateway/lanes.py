"""One client's connections to the nodes of the cluster: each its own, since requests must be answered in their order,
and since what a client has to wait for should keep no other waiting.

Closed with the client's connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.gateway.speaking import introduction
from ottla.broker.node_lines import address_of
from ottla.client.network_peer import NetworkPeers
from ottla.client.peer import Peer, PeerLost
from ottla.errors import ErrorCode
from ottla.wire.apis import APIS
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.broker.connection import ClientConnection
    from ottla.broker.services import Services

TIMEOUT_MS = 60_000
"""Beyond what the request itself may wait for."""
JOIN_GROUP, SYNC_GROUP = 11, 14
REBALANCE_MS_MAX = 1_800_000
"""Joining takes as long as the slowest member takes; that is the group's affair, and its coordinator ends it."""


class Lanes:
    def __init__(self, services: Services, connection: ClientConnection, client_id: str) -> None:
        peers = services.peers
        self._services = services
        # Known by the client's own names, so that its rights and its quotas count, and the nodes' logs tell of it.
        self._peers = NetworkPeers(
            peers.network,
            peers.timers,
            client_id,
            login=peers.login,
            offload=peers.offload,
            pause_ms=peers.pause_ms,
            introduction=introduction(services.config, connection),
        )
        self._by_node: dict[int, tuple[tuple[str, int], Peer]] = {}
        self._closed = False

    async def ask(self, node: int, request: Message, version: int, is_ours: Callable[[], bool]) -> Message:
        """The answer of a node, or of this one in its place where it cannot be reached: that it is not the leader.

        Raises `PeerLost` if it is by now (`is_ours`): nobody knows whether the request was carried out before."""
        assert request.API_KEY is not None
        response = APIS[request.API_KEY].response
        timeout_ms = _patience_ms(request)
        here = self._services.node_id
        peer = self._peer(node)
        if peer is not None and node != here:
            try:
                return await peer.send(request, response, timeout_ms=timeout_ms, max_version=version)
            except PeerLost:
                if self._closed or is_ours():
                    raise
        own = self._peer(here)
        if own is None:
            raise PeerLost(ErrorCode.NETWORK_EXCEPTION, "this node is fenced")
        return await own.send(request, response, timeout_ms=timeout_ms, max_version=version)

    def _peer(self, node: int) -> Peer | None:
        """None while the node cannot be reached."""
        address = address_of(self._services, node)
        if address is None or self._closed:
            return None
        known = self._by_node.get(node)
        if known is not None and known[0] == address:
            return known[1]
        if known is not None:
            known[1].close()
        peer = self._peers.at(*address)
        self._by_node[node] = address, peer
        return peer

    def close(self) -> None:
        self._closed = True
        for _, peer in self._by_node.values():
            peer.close()


def _patience_ms(request: Message) -> int:
    if request.API_KEY in (JOIN_GROUP, SYNC_GROUP):
        return REBALANCE_MS_MAX
    waited: int = getattr(request, "max_wait_ms", 0) or getattr(request, "timeout_ms", 0)
    return TIMEOUT_MS + max(0, waited)
