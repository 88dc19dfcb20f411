"""How long the console waits for a cluster: shorter than a client that works, since a person looks at the page."""

from __future__ import annotations

TIMEOUTS = {
    "client.id": "ottla-console",
    "request.timeout.ms": "5000",
    "default.api.timeout.ms": "10000",
    "socket.connection.setup.timeout.ms": "3000",
}
