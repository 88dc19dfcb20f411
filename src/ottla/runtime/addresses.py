"""Can an address be listened on? Asked before anything depends on it, and told apart when it cannot."""

from __future__ import annotations

import errno
import socket


def try_address(host: str, port: int) -> None:
    """Raises `OSError` where nobody could listen just now; port 0 asks of the host alone."""
    try:
        infos = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except UnicodeError:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
    family, _, _, _, address = infos[0]
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)


def is_no_address(error: OSError) -> bool:
    """Is it the host that is wrong, and no port of it would do?"""
    return isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
