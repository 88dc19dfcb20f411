"""The registry beside a node: its port is open from the start, its process begins with the first connection.

    opened → waiting ⇄ serving → closed

Starting a node must not pay for a web server that nobody asks. So only a listening socket is opened; the first
connection to it starts `python -m ottla.gateway`, which inherits the socket and takes the connection up. If the process
dies, the next connection starts another.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import socket
import sys
from asyncio.subprocess import PIPE, Process

from ottla.errors import StartupError
from ottla.runtime.system import listening_socket

_log = logging.getLogger(__name__)

DEFAULT_ADDRESS = "127.0.0.1:8081"
OFF = "off"
PAUSE_S = 1.0
STOP_TIMEOUT_S = 5.0


def parse_address(text: str) -> tuple[str, int]:
    """`host:port`. Raises `StartupError`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise StartupError(f"--registry {text} is not of the form HOST:PORT: write 127.0.0.1:8081, or off.")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_installed() -> None:
    """Raises `StartupError` where the web server is missing."""
    if importlib.util.find_spec("uvicorn") is None:
        raise StartupError('The schema registry needs a web server: run `pip install "ottla[web]"`.')


def open_port(host: str, port: int, *, asked_for: bool) -> RegistryPort | None:
    """A port that was not asked for, but is there by default, may be missing: then something else has it, or the web
    server is not installed. Raises `StartupError` for one that was asked for."""
    try:
        check_installed()
        sock = listening_socket(host, port)
    except StartupError as error:
        if asked_for:
            raise
        _log.info("%s", error)
        return None
    except OSError as error:
        if asked_for:
            raise StartupError(
                f"Port {port} of {host} cannot be used for the schema registry ({error.strerror}): stop what listens "
                f"there, or choose another with --registry."
            ) from None
        _log.info("There is no schema registry: port %d of %s is taken.", port, host)
        return None
    return RegistryPort(sock, host)


class RegistryPort:
    def __init__(self, sock: socket.socket, host: str) -> None:
        self._socket = sock
        self._host = host
        self._bootstrap = ""
        self._process: Process | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._socket.getsockname()[1]}"

    def start(self, bootstrap: str) -> None:
        """From now on connections are served. On the running loop."""
        self._bootstrap = bootstrap
        self._wait()

    async def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        if self._serving is not None:
            self._serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._serving
        if self._process is not None:
            await _end(self._process)
        self.close()

    def close(self) -> None:
        self._socket.close()

    def _wait(self) -> None:
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._on_connection)

    def _on_connection(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._serving = asyncio.ensure_future(self._serve())

    async def _serve(self) -> None:
        descriptor = self._socket.fileno()
        arguments = ["--fd", str(descriptor), "--bootstrap", self._bootstrap]
        if is_loopback(self._host):
            arguments.append("--loopback")
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "ottla.gateway", *arguments, stdin=PIPE, pass_fds=(descriptor,)
            )
            status = await self._process.wait()
            self._process = None
            _log.warning("The schema registry ended with status %d; the next connection starts it again.", status)
        except OSError as error:
            _log.warning("The schema registry cannot be started: %s", error)
        await asyncio.sleep(PAUSE_S)  # One that cannot start should not keep the machine busy with trying.
        self._wait()


async def _end(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
        except TimeoutError:
            process.kill()
            await process.wait()
