"""`python -m ottla.gateway`: schemas and records on a socket that is open already, for the node that started it.

    --fd N                  the listening socket, inherited
    --bootstrap HOST:PORT   the cluster
    --loopback              nobody but this machine can reach the socket

It lives as long as its standard input: a node that dies takes it along.
"""

from __future__ import annotations

import logging
import sys

from ottla.client.settings import ClientSettings
from ottla.gateway.server import serve_gateway
from ottla.runtime.logs import log_handler
from ottla.runtime.system import adopted_socket, run


def main(arguments: list[str]) -> None:
    descriptor = int(arguments[arguments.index("--fd") + 1])
    bootstrap = arguments[arguments.index("--bootstrap") + 1]
    logging.basicConfig(handlers=[log_handler("gateway")])
    settings = ClientSettings.parse(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "ottla-registry",
            "retry.backoff.ms": "20",
            "default.api.timeout.ms": "15000",
            "request.timeout.ms": "10000",
        }
    )
    sock = adopted_socket(descriptor)
    run(serve_gateway(sock, settings, loopback="--loopback" in arguments, users={}, leashed=True))


if __name__ == "__main__":
    main(sys.argv[1:])
