"""What outlives a micro-batch: Spark calls the sink anew for each, mostly in the same few processes."""

from __future__ import annotations

import os
from functools import cached_property

from ottla.client.settings import ClientSettings
from ottla.spark.clients import shared_client
from ottla.spark.sink.coordination import Coordination
from ottla.spark.sink.decision_log import DecisionLog


class Connections:
    """One cluster, as one process and one thread know it."""

    def __init__(self, settings: ClientSettings) -> None:
        self.client = shared_client(settings)
        self._logs: dict[str, DecisionLog] = {}

    @cached_property
    def coordination(self) -> Coordination:
        return Coordination(self.client)

    def decisions(self, topic: str) -> DecisionLog:
        if topic not in self._logs:
            self._logs[topic] = DecisionLog(self.client, self.coordination, topic)
        return self._logs[topic]


_connections: dict[tuple[int, ClientSettings], Connections] = {}


def connections(settings: ClientSettings) -> Connections:
    """Those of this process: after a fork the child has its own."""
    key = os.getpid(), settings
    if key not in _connections:
        _connections[key] = Connections(settings)
    return _connections[key]
