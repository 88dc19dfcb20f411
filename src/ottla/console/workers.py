"""Threads that ask the cluster, so that the event loop of the pages never waits (`gateway/pool`)."""

from __future__ import annotations

from ottla.client.blocking import BlockingClient
from ottla.client.settings import ClientSettings
from ottla.errors import KafkaError
from ottla.gateway.pool import ClientPool

THREADS_MAX = 6


class Workers(ClientPool[BlockingClient]):
    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(lambda: BlockingClient(settings), THREADS_MAX, answers=(KafkaError,))
