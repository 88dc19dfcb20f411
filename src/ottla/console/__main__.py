"""`python -m ottla.console`: the console on a socket that is open already, for the node that started this process.

    --fd N                  the listening socket, inherited
    --bootstrap HOST:PORT   the cluster
    --registry URL[,URL]    where schemas are, if anywhere
    --loopback              nobody but this machine can reach the socket

It lives as long as its standard input: a node that dies takes it along.
"""

from __future__ import annotations

import logging
import sys

from ottla.client.registry import RegistrySettings
from ottla.client.settings import ClientSettings
from ottla.console.server import serve_console
from ottla.console.timeouts import TIMEOUTS
from ottla.runtime.logs import log_handler
from ottla.runtime.system import adopted_socket, run


def main(arguments: list[str]) -> None:
    def option(name: str) -> str:
        return arguments[arguments.index(name) + 1]

    logging.basicConfig(handlers=[log_handler("console")])
    settings = ClientSettings.parse({**TIMEOUTS, "bootstrap.servers": option("--bootstrap")})
    run(
        serve_console(
            adopted_socket(int(option("--fd"))),
            settings,
            loopback="--loopback" in arguments,
            users={},
            registry=RegistrySettings.parse(option("--registry")) if "--registry" in arguments else None,
            leashed=True,
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
