"""TLS in front of a network: what arrives is what was sent, and nobody is mistaken for somebody else."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.runtime import Connection, ConnectionHandler
from ottla.runtime import tls as tls_module
from ottla.runtime.disk import SystemDisk
from ottla.runtime.network import SocketNetwork
from ottla.runtime.tls import BadKeyMaterial, Tls, TlsMaterial, TlsNetwork
from tests.certificates import Authority, Issued
from tests.hostile.mutation import mutate


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Issued:
    return authority.issue("server")


def material(issued: Issued | None = None, trust: Authority | None = None, **more: Any) -> TlsMaterial:
    values: dict[str, Any] = {}
    if issued is not None:
        values |= {"certificate_chain": issued.certificate.read_text(), "private_key": issued.key.read_text()}
    if trust is not None:
        values["trusted"] = trust.certificate.read_text()
    return TlsMaterial(**{**values, **more})


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if holds():
                return
            await asyncio.sleep(0.002)


class End:
    """One end: keeps what it hears, and can be told to do something when it hears it."""

    def __init__(self, on_data: Callable[[End], None] = lambda end: None) -> None:
        self.connection: Connection | None = None
        self.received = bytearray()
        self.lost = asyncio.Event()
        self.certificate: bytes | None = None
        self.blocked = 0
        self.resumed = asyncio.Event()
        self._on_data = on_data
        self._buffer = bytearray(5_000)

    def connection_made(self, connection: Connection) -> None:
        self.connection = connection

    def get_buffer(self) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, size: int) -> None:
        self.received += self._buffer[:size]
        if size:
            self._on_data(self)

    def write_blocked(self) -> None:
        self.blocked += 1
        self.resumed.clear()

    def write_resumed(self) -> None:
        self.resumed.set()

    def connection_lost(self) -> None:
        self.lost.set()

    def write(self, data: bytes) -> None:
        assert self.connection is not None
        self.connection.write(data)

    async def hears(self, size: int) -> bytes:
        await until(lambda: len(self.received) >= size or self.lost.is_set())
        return bytes(self.received)


@asynccontextmanager
async def listening(
    tls: Tls, on_data: Callable[[End], None] = lambda end: None
) -> AsyncIterator[tuple[int, list[End]]]:
    ends: list[End] = []

    def accept() -> End:
        ends.append(End(on_data))
        return ends[-1]

    def on_peer(handler: ConnectionHandler, certificate: bytes | None) -> None:
        assert isinstance(handler, End)
        handler.certificate = certificate

    listener = await TlsNetwork(SocketNetwork(), tls, on_peer).listen("127.0.0.1", 0, accept)
    listener.start()
    try:
        yield listener.address[1], ends
    finally:
        listener.close()
        for end in ends:
            if end.connection is not None:
                end.connection.abort()


async def connect(port: int, ours: TlsMaterial, host: str = "localhost") -> End:
    end = End()
    await TlsNetwork(SocketNetwork(), Tls(ours, server_side=False)).connect(host, port, end)
    return end


def echo(end: End) -> None:
    data, end.received = end.received, bytearray()
    end.write(bytes(data))


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_what_is_sent_arrives(authority: Authority, server: Issued, version: str) -> None:
    async with listening(Tls(material(server, protocols=(version,)), server_side=True), echo) as (port, ends):
        client = await connect(port, material(trust=authority))
        sent = bytes(range(256)) * 4_000
        client.write(sent)
        assert await client.hears(len(sent)) == sent
        assert ends[0].certificate is None
        assert client.connection is not None
        client.connection.close()
        async with asyncio.timeout(60):
            await ends[0].lost.wait()
            await client.lost.wait()


async def test_large_answers_are_encrypted_bit_by_bit(
    authority: Authority, server: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL keeps the memory that it once needed for as long as a connection lasts."""
    sizes: list[int] = []
    encrypt = tls_module.TlsConnection._encrypt

    def watched(connection: tls_module.TlsConnection, data: bytes) -> None:
        sizes.append(len(data))
        encrypt(connection, data)

    monkeypatch.setattr(tls_module.TlsConnection, "_encrypt", watched)
    sent = bytes(range(250)) * 12_000
    async with listening(Tls(material(server), server_side=True), lambda end: end.write(sent)) as (port, _):
        client = await connect(port, material(trust=authority))
        client.write(b"go")
        assert await client.hears(len(sent)) == sent
    assert sum(sizes) == len(sent) + 2
    assert max(sizes) <= tls_module.CHUNK_BYTES


async def test_files_are_sent_in_order_with_what_is_around_them(
    authority: Authority, server: Issued, tmp_path: Path
) -> None:
    content = bytes(range(251)) * 20_000
    (tmp_path / "file").write_bytes(content)
    file = SystemDisk().open(str(tmp_path / "file"))

    def send(end: End) -> None:
        assert end.connection is not None
        end.connection.write(b"before", True)
        end.connection.write_file_span(file, 1_000, len(content) - 1_000)
        end.connection.write(b"after")

    async with listening(Tls(material(server), server_side=True), send) as (port, ends):
        client = await connect(port, material(trust=authority))
        assert client.connection is not None
        client.connection.pause_reading()
        client.write(b"go")
        # Nobody reads, and there is more to send than sockets hold: the sender is told to wait, and later to go on.
        await until(lambda: bool(ends and ends[0].blocked))
        client.connection.resume_reading()
        wanted = b"before" + content[1_000:] + b"after"
        assert await client.hears(len(wanted)) == wanted
        async with asyncio.timeout(60):
            await ends[0].resumed.wait()
    file.close()


async def test_a_file_that_was_cut_short_ends_the_connection(
    authority: Authority, server: Issued, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100)
    file = SystemDisk().open(str(tmp_path / "file"))

    def send(end: End) -> None:
        assert end.connection is not None
        end.connection.write_file_span(file, 0, 200)

    async with listening(Tls(material(server), server_side=True), send) as (port, _):
        client = await connect(port, material(trust=authority))
        client.write(b"go")
        async with asyncio.timeout(60):
            await client.lost.wait()
    file.close()


async def test_a_handler_that_pauses_gets_nothing_meanwhile(authority: Authority, server: Issued) -> None:
    def pause(end: End) -> None:
        assert end.connection is not None
        end.connection.pause_reading()

    async with listening(Tls(material(server), server_side=True), pause) as (port, ends):
        client = await connect(port, material(trust=authority))
        client.write(b"x" * 40_000)
        await until(lambda: bool(ends[0].received))
        before = len(ends[0].received)
        assert before <= 5_000
        await asyncio.sleep(0.05)
        assert len(ends[0].received) == before
        async with asyncio.timeout(60):
            while len(ends[0].received) < 40_000:
                connection = ends[0].connection
                assert connection is not None
                connection.resume_reading()
                await asyncio.sleep(0)


async def test_a_client_shows_its_certificate(authority: Authority, server: Issued) -> None:
    ann = authority.issue("ann")
    asked = Tls(material(server, authority, peer_certificate="required"), server_side=True)
    async with listening(asked, echo) as (port, ends):
        client = await connect(port, material(ann, authority))
        client.write(b"hello")
        assert await client.hears(5) == b"hello"
        assert ends[0].certificate == ssl.PEM_cert_to_DER_cert(ann.certificate.read_text())
        nameless = await connect(port, material(trust=authority))
        # In TLS 1.3 the client is done before the server has seen that it showed nothing.
        async with asyncio.timeout(60):
            await nameless.lost.wait()
        stranger = Authority(ann.key.parent / "other").issue("stranger")
        unknown = await connect(port, material(stranger, authority))
        async with asyncio.timeout(60):
            await unknown.lost.wait()
        assert [end.certificate for end in ends[1:]] == [None, None]


async def test_a_server_that_nobody_vouches_for_is_not_spoken_to(
    authority: Authority, server: Issued, tmp_path: Path
) -> None:
    async with listening(Tls(material(server), server_side=True)) as (port, ends):
        with pytest.raises(ssl.SSLCertVerificationError, match=r"self-signed|unable to get local issuer"):
            await connect(port, material(trust=Authority(tmp_path, "other")))
        async with asyncio.timeout(60):
            await ends[0].lost.wait()


async def test_a_server_has_to_be_the_one_that_was_asked_for(authority: Authority) -> None:
    elsewhere = authority.issue("elsewhere", names="DNS:elsewhere.example")
    async with listening(Tls(material(elsewhere), server_side=True), echo) as (port, _):
        with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
            await connect(port, material(trust=authority))
        client = await connect(port, material(trust=authority, checks_host=False))
        client.write(b"hello")
        assert await client.hears(5) == b"hello"


async def test_versions_that_do_not_meet_do_not_connect(authority: Authority, server: Issued) -> None:
    async with listening(Tls(material(server, protocols=("TLSv1.3",)), server_side=True)) as (port, _):
        with pytest.raises(OSError):
            await connect(port, material(trust=authority, protocols=("TLSv1.2",)))


async def test_cipher_suites_are_those_that_were_chosen(authority: Authority, server: Issued) -> None:
    older, newer = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"
    for suites, version, cipher in (
        ((older,), "TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ((older, newer), "TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
    ):
        async with listening(Tls(material(server, cipher_suites=suites), server_side=True), echo) as (port, _):
            ours = ssl.create_default_context(cafile=str(authority.certificate))
            ours.maximum_version = ssl.TLSVersion.TLSv1_2
            _, writer = await asyncio.open_connection("localhost", port, ssl=ours, server_hostname="localhost")
            found: ssl.SSLObject = writer.get_extra_info("ssl_object")
            assert (found.version(), (found.cipher() or ("",))[0]) == (version, cipher)
            writer.close()
            await writer.wait_closed()
    async with listening(Tls(material(server, cipher_suites=(newer,)), server_side=True)) as (port, ends):
        # The library would take a stronger suite of TLS 1.3; it was not chosen, so the connection is refused.
        client = await connect(port, material(trust=authority))
        async with asyncio.timeout(60):
            await client.lost.wait()
            await ends[0].lost.wait()


async def test_new_material_counts_for_the_next_connection(authority: Authority, server: Issued) -> None:
    tls = Tls(material(server), server_side=True)
    async with listening(tls, echo) as (port, _):
        before = await connect(port, material(trust=authority))
        other = Authority(server.key.parent / "next")
        tls.replace(material(other.issue("server")))
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(port, material(trust=authority))
        after = await connect(port, material(trust=other))
        for client in (before, after):
            client.write(b"hello")
            assert await client.hears(5) == b"hello"
        with pytest.raises(BadKeyMaterial):
            tls.replace(material(server, private_key="no key"))
        assert (await connect(port, material(trust=other))).connection is not None


async def test_whoever_does_not_speak_tls_is_hung_up_on(server: Issued, monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(Tls(material(server), server_side=True), echo) as (port, ends):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\0\0\0\x20" + b"x" * 32)
        async with asyncio.timeout(60):
            assert len(await reader.read()) <= 7  # An alert at most.
            await ends[0].lost.wait()
        writer.close()
        assert ends[0].received == b""
        monkeypatch.setattr(tls_module, "HANDSHAKE_SECONDS_MAX", 0.05)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()


async def test_spoilt_handshakes_harm_nobody_else(authority: Authority, server: Issued) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello_of = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        hello_of.do_handshake()
    hello, chance = outgoing.read(), Random(1)
    async with listening(Tls(material(server), server_side=True), echo) as (port, ends):
        beside = await connect(port, material(trust=authority))
        for _ in range(200):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(mutate(hello, chance, [hello]))
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        async with asyncio.timeout(60):
            for end in ends[1:]:
                await end.lost.wait()
        assert not any(end.received for end in ends)
        beside.write(b"hello")
        assert await beside.hears(5) == b"hello"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"certificate_chain": ""}, "needs a certificate"),
        ({"private_key": ""}, "cannot be used"),
        ({"certificate_chain": "nonsense"}, "cannot be used"),
        ({"trusted": "nonsense"}, "cannot be read"),
        ({"peer_certificate": "required"}, "no trust store"),
        ({"protocols": ("TLSv1.1",)}, "TLSv1.1 is not served"),
        ({"protocols": ()}, "not served"),
        ({"cipher_suites": ("TLS_RSA_WITH_NOTHING",)}, "none of the cipher suites"),
        ({"cipher_suites": ("TLS_AES_128_GCM_SHA256",), "protocols": ("TLSv1.2",)}, "not enabled"),
    ],
)
def test_material_that_cannot_be_used_is_refused(server: Issued, change: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadKeyMaterial, match=reason):
        Tls(replace(material(server), **change), server_side=True)


def test_a_key_with_a_password_needs_it(server: Issued, tmp_path: Path) -> None:
    locked = tmp_path / "locked.key"
    subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-in", server.key, "-out", locked, "-passout", "pass:hush"], check=True
    )
    ours = replace(material(server), private_key=locked.read_text(), key_password="hush")
    Tls(ours, server_side=True)
    for wrong in ("", "loud"):
        with pytest.raises(BadKeyMaterial):
            Tls(replace(ours, key_password=wrong), server_side=True)
