"""One client for each set of settings, which lives as long as its process, in Spark's driver and in its Python workers:
a micro-batch finds its connections open."""

from __future__ import annotations

import atexit
import os

from ottla.client.blocking import BlockingClient
from ottla.client.settings import ClientSettings

_clients: dict[tuple[int, ClientSettings], BlockingClient] = {}


def shared_client(settings: ClientSettings) -> BlockingClient:
    """The client of this process with these settings. A forked process has its own: sockets cannot be shared."""
    key = (os.getpid(), settings)
    if key not in _clients:
        _clients[key] = BlockingClient(settings)
        atexit.register(_clients[key].close)
    return _clients[key]
