"""TLS over any `Network`: the same seam, with everything that passes encrypted.

`TlsNetwork` stands in front of another network and puts a `TlsConnection` between its connections and their handlers:
to the socket it is the handler, to the handler it is the connection. Nothing else knows of TLS. The ssl module works on
memory here, never on sockets, so that the connection below keeps its order, its queue and its back-pressure.

Key material comes as PEM text (`TlsMaterial`); `Tls.replace` puts new material in force for the connections to come.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from ottla.errors import KafkaError
from ottla.runtime.seams import (
    DEFAULT_LISTEN_OPTIONS,
    Buffer,
    Connection,
    ConnectionHandler,
    File,
    Listener,
    ListenOptions,
    Network,
)

HANDSHAKE_SECONDS_MAX = 30.0
"""For a peer to prove that it speaks TLS; whoever is slower is cut off."""

CHUNK_BYTES = 64 * 1024
"""How much is encrypted, or decrypted, at once: sendfile cannot encrypt, so the bytes of files do pass through here. So
few stay in the processor's cache from one step to the next; and the memory between two steps, which OpenSSL keeps for
as long as the connection lasts, stays small."""

PROTOCOLS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_RECEIVED = memoryview(bytearray(CHUNK_BYTES))
"""Where encrypted bytes arrive. One is enough for all: they are handed on before anybody else receives."""


class BadKeyMaterial(Exception):
    """A certificate, key or cipher that cannot be used; the message is one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsMaterial:
    """What one side of TLS connections needs: all of it PEM text."""

    certificate_chain: str = ""
    """Our own certificate first; empty for a client that shows none."""
    private_key: str = ""
    key_password: str = ""
    trusted: str = ""
    """Whose signatures count; a client without any trusts whom the operating system trusts."""
    peer_certificate: str = "none"
    """Must clients show a certificate: `required`, `requested` or `none`. Servers always must."""
    protocols: tuple[str, ...] = tuple(PROTOCOLS)
    cipher_suites: tuple[str, ...] = ()
    """By their names in the standards; none for the library's choice."""
    checks_host: bool = True
    """Must a server's certificate name the host that was asked for?"""


class Tls:
    """The contexts of one side, made of the newest material that was any good."""

    def __init__(self, material: TlsMaterial, *, server_side: bool) -> None:
        self._server_side = server_side
        self._material = material
        self._context = _context(material, server_side)

    @property
    def material(self) -> TlsMaterial:
        return self._material

    def replace(self, material: TlsMaterial) -> None:
        """From the next connection on. Raises `BadKeyMaterial`; then the old material stays."""
        self._context = _context(material, self._server_side)
        self._material = material

    def begin(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, host: str) -> ssl.SSLObject:
        name = None if self._server_side else host
        return self._context.wrap_bio(incoming, outgoing, server_side=self._server_side, server_hostname=name)

    def accepts_cipher(self, connection: ssl.SSLObject) -> bool:
        """The suites of TLS 1.3 cannot be chosen beforehand, so a choice of them is enforced afterwards."""
        suites = self._material.cipher_suites
        cipher = connection.cipher()
        return not suites or connection.version() != "TLSv1.3" or cipher is None or cipher[0] in suites


def _context(material: TlsMaterial, server_side: bool) -> ssl.SSLContext:
    unknown = [name for name in material.protocols if name not in PROTOCOLS]
    if unknown or not material.protocols:
        raise BadKeyMaterial(f"TLS version {', '.join(unknown) or 'none'} is not served: use TLSv1.2, TLSv1.3 or both")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
    versions = sorted(PROTOCOLS[name] for name in material.protocols)
    _choose_ciphers(context, material, versions)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if server_side:
        context.verify_mode = {
            "none": ssl.CERT_NONE,
            "requested": ssl.CERT_OPTIONAL,
            "required": ssl.CERT_REQUIRED,
        }[material.peer_certificate]
        if context.verify_mode is not ssl.CERT_NONE and not material.trusted:
            raise BadKeyMaterial("clients are asked for certificates, but no trust store says whose count")
        if not material.certificate_chain:
            raise BadKeyMaterial("a server needs a certificate and its private key")
    else:
        context.check_hostname = material.checks_host
    if material.trusted:
        try:
            context.load_verify_locations(cadata=material.trusted)
        except (ssl.SSLError, ValueError) as error:
            raise BadKeyMaterial(f"the trusted certificates cannot be read ({_reason(error)})") from None
    elif not server_side:
        context.load_default_certs()
    if material.certificate_chain:
        _load_own(context, material)
    return context


def _choose_ciphers(context: ssl.SSLContext, material: TlsMaterial, versions: list[ssl.TLSVersion]) -> None:
    if material.cipher_suites:
        older = [_openssl_name(name) for name in material.cipher_suites if "_WITH_" in name]
        if not older:
            versions = [version for version in versions if version is ssl.TLSVersion.TLSv1_3]
        elif len(older) == len(material.cipher_suites):
            versions = [version for version in versions if version is ssl.TLSVersion.TLSv1_2]
        if older:
            try:
                context.set_ciphers(":".join(older))
            except ssl.SSLError:
                raise BadKeyMaterial(f"none of the cipher suites {', '.join(older)} is known here") from None
    if not versions:
        raise BadKeyMaterial("the cipher suites belong to TLS versions that are not enabled")
    context.minimum_version, context.maximum_version = versions[0], versions[-1]


def _openssl_name(suite: str) -> str:
    """The name that OpenSSL has for a suite of TLS 1.2: TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 is
    ECDHE-RSA-AES256-GCM-SHA384 there."""
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC_SHA", "_SHA")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    prefix = "" if exchange == "RSA" else f"{exchange}_"
    return f"{prefix}{cipher}".replace("_", "-")


def _load_own(context: ssl.SSLContext, material: TlsMaterial) -> None:
    """The ssl module reads keys from files alone, so they are lent one that is in memory and has no name."""
    descriptor = os.memfd_create("key-material")
    try:
        os.write(descriptor, f"{material.private_key}\n{material.certificate_chain}\n".encode())
        # An empty password rather than none: else OpenSSL would ask for it on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=material.key_password)
    except (ssl.SSLError, ValueError, OSError) as error:
        raise BadKeyMaterial(f"the certificate and its private key cannot be used ({_reason(error)})") from None
    finally:
        os.close(descriptor)


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error) or type(error).__name__


@dataclass(slots=True)
class _Span:
    """What is left to send of a file."""

    file: File
    position: int
    size: int


class TlsConnection:
    """One encrypted connection. States: shaking hands → open → closing (the queue drains) → closed.

    A server's handler hears of the connection at once, so that it is counted from the start; a client's when it may
    write, which is when the server has proved who it is.
    """

    def __init__(
        self,
        tls: Tls,
        handler: ConnectionHandler,
        *,
        host: str = "",
        on_peer: Callable[[ConnectionHandler, bytes | None], None] | None = None,
        server_side: bool,
    ) -> None:
        self._tls = tls
        self._handler = handler
        self._on_peer = on_peer
        self._server_side = server_side
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl = tls.begin(self._incoming, self._outgoing, host)
        self._below: Connection | None = None
        self._queue: deque[memoryview | _Span] = deque()
        self._is_open = False
        self._paused = False
        self._blocked = False
        self._closing = False
        self._closed = False
        self._refusal: OSError | None = None
        loop = asyncio.get_running_loop()
        self._loop = loop
        self.opened: asyncio.Future[None] = loop.create_future()
        """Done when the handshake is; fails with it."""
        self.opened.add_done_callback(_retrieve)
        self._deadline = loop.call_later(HANDSHAKE_SECONDS_MAX, self._on_deadline)

    # The handler's side.

    @property
    def peer(self) -> tuple[str, int]:
        assert self._below is not None
        return self._below.peer

    def write(self, data: Buffer, more: bool = False) -> None:
        if self._closing or self._closed:
            return
        assert self._is_open, "nothing is written before the handshake is over"
        if self._queue or self._blocked:
            self._queue.append(memoryview(data))
            return
        if len(data) <= CHUNK_BYTES:
            self._encrypt(data)
            if not more:
                self._flush()
        else:
            self._queue.append(memoryview(data))
            self._drain()

    def write_file_span(self, file: File, position: int, size: int) -> None:
        if self._closing or self._closed:
            return
        self._queue.append(_Span(file, position, size))
        self._drain()

    def pause_reading(self) -> None:
        self._paused = True
        if self._below is not None:
            self._below.pause_reading()

    def resume_reading(self) -> None:
        if not self._paused or self._closed:
            return
        self._paused = False
        assert self._below is not None
        self._below.resume_reading()
        if self._incoming.pending or self._ssl.pending():
            self._loop.call_soon(self._read)

    def close(self) -> None:
        if self._closed or self._closing:
            return
        self._closing = True
        if not self._queue:
            self._say_goodbye()

    def abort(self) -> None:
        self._deadline.cancel()
        if self._below is not None:
            self._below.abort()

    # The network's side.

    def connection_made(self, connection: Connection) -> None:
        self._below = connection
        if self._server_side:
            self._handler.connection_made(self)
        if not self._closing and not self._closed:
            self._shake_hands()

    def get_buffer(self) -> memoryview:
        return _RECEIVED

    def buffer_updated(self, size: int) -> None:
        self._incoming.write(_RECEIVED[:size])
        if not self._is_open:
            self._shake_hands()
        if self._is_open:
            self._read()

    def write_blocked(self) -> None:
        self._blocked = True
        if self._is_open and not self._closing:
            self._handler.write_blocked()

    def write_resumed(self) -> None:
        self._blocked = False
        self._drain()
        if not self._blocked and self._is_open and not self._closing and not self._closed:
            self._handler.write_resumed()

    def connection_lost(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._deadline.cancel()
        self._queue.clear()
        told = self._server_side or self._is_open
        if not self.opened.done():
            self.opened.set_exception(self._refusal or ConnectionResetError("the peer hung up in the TLS handshake"))
        if told:
            self._handler.connection_lost()

    # Between the two.

    def _shake_hands(self) -> None:
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except (ssl.SSLError, ValueError) as error:
            self._refuse(error if isinstance(error, OSError) else OSError(str(error)))
            return
        if not self._tls.accepts_cipher(self._ssl):
            self._refuse(OSError("the peer chose a cipher suite that is not enabled"))
            return
        self._deadline.cancel()
        self._is_open = True
        self._flush()
        if self._on_peer is not None:
            self._on_peer(self._handler, self._ssl.getpeercert(binary_form=True))
        if not self._server_side:
            self._handler.connection_made(self)
        if not self.opened.done():
            self.opened.set_result(None)

    def _refuse(self, error: OSError) -> None:
        """The peer is told why by an alert, and then it is over."""
        self._refusal = error
        self._closing = True
        self._flush()
        assert self._below is not None
        self._below.close()

    def _on_deadline(self) -> None:
        self._refusal = TimeoutError("the TLS handshake took too long")
        self.abort()

    def _read(self) -> None:
        """Hand on what has been decrypted, until there is no more or the handler wants a pause."""
        handler, incoming, connection = self._handler, self._incoming, self._ssl
        over = False
        while not over and not self._paused and not self._closing and not self._closed:
            if not incoming.pending and not connection.pending():
                break
            buffer = handler.get_buffer()
            filled, room = 0, len(buffer)
            try:
                # A record at a time, but the handler looks at all of them at once.
                while filled < room and (incoming.pending or connection.pending()):
                    size = cast(int, connection.read(room - filled, buffer[filled:]))
                    if not size:
                        over = True  # The peer said goodbye.
                        break
                    filled += size
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                over = True
            handler.buffer_updated(filled)  # Also if it is nothing, which gives the buffer back.
            if not filled:
                break
        if over:
            self.abort()
        elif self._outgoing.pending and not self._closed:
            self._flush()

    def _encrypt(self, data: Buffer) -> None:
        try:
            self._ssl.write(data)
        except ssl.SSLError:
            self.abort()

    def _flush(self) -> None:
        if self._outgoing.pending and not self._closed:
            assert self._below is not None
            self._below.write(self._outgoing.read())

    def _drain(self) -> None:
        """Encrypt and send what is queued, as long as the peer takes it."""
        queue = self._queue
        while queue and not self._blocked and not self._closed:
            item = queue[0]
            if isinstance(item, _Span):
                try:
                    data = item.file.read(item.position, min(item.size, CHUNK_BYTES))
                except KafkaError:
                    data = b""
                if not data:
                    # The file was cut short under us; the length is promised already, so the stream cannot go on.
                    self.abort()
                    return
                item.position += len(data)
                item.size -= len(data)
                if not item.size:
                    queue.popleft()
                self._encrypt(data)
            elif len(item) > CHUNK_BYTES:
                queue[0] = item[CHUNK_BYTES:]
                self._encrypt(item[:CHUNK_BYTES])
            else:
                queue.popleft()
                self._encrypt(item)
            self._flush()
        if self._closing and not queue and not self._closed:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        if self._is_open:
            # The peer's own goodbye is not waited for.
            with contextlib.suppress(ssl.SSLError):
                self._ssl.unwrap()
        self._flush()
        if self._below is not None:
            self._below.close()


def _retrieve(opened: asyncio.Future[None]) -> None:
    """A server's handshake that fails is nobody's to await."""
    if not opened.cancelled():
        opened.exception()


class TlsNetwork:
    """`below`, encrypted. `on_peer` hears each peer's certificate (DER; None where it showed none) before its bytes."""

    def __init__(
        self,
        below: Network,
        tls: Tls,
        on_peer: Callable[[ConnectionHandler, bytes | None], None] | None = None,
    ) -> None:
        self._below = below
        self._tls = tls
        self._on_peer = on_peer

    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[], ConnectionHandler],
        options: ListenOptions = DEFAULT_LISTEN_OPTIONS,
    ) -> Listener:
        def accept_encrypted() -> ConnectionHandler:
            return TlsConnection(self._tls, accept(), on_peer=self._on_peer, server_side=True)

        return await self._below.listen(host, port, accept_encrypted, options)

    async def connect(self, host: str, port: int, handler: ConnectionHandler) -> Connection:
        connection = TlsConnection(self._tls, handler, host=host, on_peer=self._on_peer, server_side=False)
        try:
            await self._below.connect(host, port, connection)
            await connection.opened
        except BaseException:
            connection.abort()
            raise
        return connection
