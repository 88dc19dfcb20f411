"""Asking over HTTP with a secret in hand: it goes to the address that was configured, and nowhere else."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from http.client import HTTPMessage
    from typing import IO
    from urllib.request import OpenerDirector, Request

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def is_safe(url: str) -> bool:
    """Does nobody on the way hear, or change, what is asked there? It is a file, encrypted, or on this machine."""
    parts = urlsplit(url)
    return parts.scheme in ("file", "https") or (parts.scheme == "http" and parts.hostname in _LOOPBACK)


@cache
def safe_opener() -> OpenerDirector:
    """Asks where it is told to, and is sent nowhere else."""
    from urllib.request import HTTPRedirectHandler, build_opener

    class Stay(HTTPRedirectHandler):
        def redirect_request(
            self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
        ) -> None:
            """None: the redirection is the answer, and an error."""

    return build_opener(Stay)
