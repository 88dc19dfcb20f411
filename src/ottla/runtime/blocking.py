"""A connection for programs without an event loop: Spark's tasks, and tools that ask one thing after another.

Owns the socket, TLS, the files and the clock of the blocking client (`client/blocking.py`). Every call on a connection
has a limit in time; what goes wrong on the way is an `OSError`, and a peer that hangs up is a read of nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

_JOINED_BYTES_MAX = 64 * 1024
"""To copy less than that is cheaper than to tell the system where each piece is."""

_PIECES_MAX = 512
"""In one call: systems take 1,024 at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """What a client needs to know before it speaks TLS. Certificates and keys are PEM, as files or as text."""

    trusted_file: str | None = None
    trusted_text: str | None = None
    """With neither, the certificate authorities of the machine are trusted."""
    certificate_file: str | None = None
    """The client's own chain, with its key in the same file unless `key_file` names another."""
    key_file: str | None = None
    certificate_text: str | None = None
    key_text: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    verify_certificate: bool = True
    verify_host: bool = True
    ciphers: str | None = None
    minimum: str = "TLSv1.2"
    maximum: str = "TLSv1.3"

    def context(self) -> ssl.SSLContext:
        """Raises `OSError` or `ssl.SSLError` where a file is missing or holds something else."""
        import ssl

        versions = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version, context.maximum_version = versions[self.minimum], versions[self.maximum]
        context.check_hostname = self.verify_certificate and self.verify_host
        context.verify_mode = ssl.CERT_REQUIRED if self.verify_certificate else ssl.CERT_NONE
        for path in (self.trusted_file, self.certificate_file, self.key_file):
            if path is not None:
                open(path, "rb").close()  # The library does not say which one it could not read.
        if self.trusted_file is not None or self.trusted_text is not None:
            context.load_verify_locations(cafile=self.trusted_file, cadata=self.trusted_text)
        else:
            context.load_default_certs()
        if self.ciphers is not None:
            context.set_ciphers(self.ciphers)
        if self.certificate_text is not None:
            with _as_file(f"{self.certificate_text}\n{self.key_text or ''}\n") as path:
                context.load_cert_chain(path, password=self.key_password or "")
        elif self.certificate_file is not None:
            context.load_cert_chain(self.certificate_file, self.key_file, password=self.key_password or "")
        return context


@contextlib.contextmanager
def _as_file(text: str) -> Iterator[str]:
    """The library reads own certificates from files alone: one that nobody else may read, gone right afterwards."""
    descriptor, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        yield path
    finally:
        os.unlink(path)


class BlockingStream:
    """One connection. After any error it is of no use but to be closed."""

    def __init__(self, host: str, port: int, *, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        connected = socket.create_connection((host, port), timeout=timeout_s)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = connected if tls is None else tls.wrap_socket(connected, server_hostname=host)
        except BaseException:
            connected.close()
            raise
        self._is_tls = tls is not None

    def write(self, pieces: Sequence[bytes | memoryview], timeout_s: float) -> None:
        """Sends them one behind the other, long ones from where they are. Raises `TimeoutError`."""
        if self._is_tls or sum(map(len, pieces)) < _JOINED_BYTES_MAX:
            self._socket.settimeout(max(timeout_s, 0.001))
            self._socket.sendall(b"".join(pieces))
            return
        deadline_s = time.monotonic() + timeout_s
        left = deque([memoryview(piece) for piece in pieces])
        while left:
            self._socket.settimeout(max(deadline_s - time.monotonic(), 0.001))
            sent = self._socket.sendmsg(islice(left, _PIECES_MAX))
            while left and sent >= len(left[0]):
                sent -= len(left.popleft())
            if sent:
                left[0] = left[0][sent:]

    def read_into(self, buffer: memoryview, timeout_s: float) -> int:
        """How many bytes came, at least one; 0 if the peer hung up. Raises `TimeoutError`."""
        self._socket.settimeout(max(timeout_s, 0.001))
        return self._socket.recv_into(buffer)

    def has_something(self) -> bool:
        """Has anything come that was not read?"""
        import select

        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return bool(waiting.poll(0))

    def is_quiet(self) -> bool:
        """Does it stand, with nothing to read? So it should be when nothing was asked."""
        try:
            self._socket.settimeout(0)
            if self._is_tls:
                self._socket.recv(1)  # Takes in what TLS itself sends between two answers.
            else:
                self._socket.recv(1, socket.MSG_PEEK)
        except OSError as error:
            import ssl

            return isinstance(error, BlockingIOError | ssl.SSLWantReadError)
        return False

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()


def read_file(path: str, size_max: int) -> bytes:
    """The beginning of a small file. Raises `OSError`."""
    with open(path, "rb") as file:
        return file.read(size_max)


def monotonic_s() -> float:
    return time.monotonic()


def pause(seconds: float) -> None:
    time.sleep(seconds)


def nonce() -> str:
    """Text that nobody can guess."""
    import secrets

    return secrets.token_urlsafe(24)
