"""HTTP by hand: bytes over a socket, for requests that no library would send."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit


def say(url: str, *pieces: bytes) -> bytes:
    """These bytes on a connection of their own, and what comes back until the other side is done or has hung up."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=60) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
        except OSError:
            pass  # It has heard enough.
        heard = b""
        try:
            while data := connection.recv(1 << 16):
                heard += data
        except OSError:
            pass
        return heard


def status(answer: bytes) -> int:
    """0 if there was none."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def get(path: bytes, *headers: bytes, host: bytes = b"localhost") -> bytes:
    return b"GET " + path + b" HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n" + b"".join(headers) + b"\r\n"


def post(path: bytes, *headers: bytes) -> bytes:
    head = (b"POST " + path + b" HTTP/1.1", b"Host: localhost", b"Content-Type: application/json", *headers)
    return b"\r\n".join((*head, b"Connection: close", b"", b""))
