"""What is served over HTTP beside a node, registry and console: a port is open from the start, its process begins with
the first connection.

    opened → waiting ⇄ serving → closed

Starting a node must not pay for a web server that nobody asks. So only a listening socket is opened; the first
connection to it starts `python -m ottla.gateway` or `ottla.console`, which inherits the socket and takes the connection
up. If the process dies, the next connection starts another.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import socket
import sys
from asyncio.subprocess import PIPE, Process
from typing import NamedTuple

from ottla.errors import StartupError
from ottla.runtime.system import listening_socket

_log = logging.getLogger(__name__)

DEFAULT_ADDRESS = "127.0.0.1:8081"
CONSOLE_HOST = "127.0.0.1"
CONSOLE_PORT = 8080
OFF = "off"
PAUSE_S = 1.0
STOP_TIMEOUT_S = 5.0


class Service(NamedTuple):
    name: str
    module: str
    """What is run for it."""
    package: str
    """What must be installed for it, with the extra `web`."""
    option: str
    """That chooses another port."""


REGISTRY = Service("schema registry", "ottla.gateway", "uvicorn", "--registry")
CONSOLE = Service("console", "ottla.console", "nicegui", "--console-port")


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


def is_installed(service: Service = REGISTRY) -> bool:
    return importlib.util.find_spec(service.package) is not None


def check_installed(service: Service = REGISTRY) -> None:
    """Raises `StartupError` where the web server is missing."""
    if not is_installed(service):
        raise StartupError(f'The {service.name} needs a web server: run `pip install "ottla[web]"`.')


def open_port(
    host: str, port: int, *, asked_for: bool, service: Service = REGISTRY, arguments: tuple[str, ...] = ()
) -> ServicePort | None:
    """A port that was not asked for, but is there by default, may be missing: then something else has it, or the web
    server is not installed. Raises `StartupError` for one that was asked for. `arguments` are for the process."""
    try:
        check_installed(service)
        sock = listening_socket(host, port)
    except StartupError as error:
        if asked_for:
            raise
        _log.info("%s", error)
        return None
    except OSError as error:
        if asked_for:
            raise StartupError(
                f"Port {port} of {host} cannot be used for the {service.name} ({error.strerror}): stop what listens "
                f"there, or choose another with {service.option}."
            ) from None
        _log.info("There is no %s: port %d of %s is taken.", service.name, port, host)
        return None
    return ServicePort(sock, host, service, arguments)


def open_console(
    wanted: int | None, *, free_port: bool, registry_url: str | None, notes: list[str]
) -> ServicePort | None:
    """On the port that was asked for, or on the usual one, which somebody may have: then there is a note. Where clients
    are served on a free port, so is the console, unless a port was asked for."""
    port = wanted if wanted is not None else 0 if free_port else CONSOLE_PORT
    arguments = ("--registry", registry_url) if registry_url is not None else ()
    found = open_port(CONSOLE_HOST, port, asked_for=wanted is not None, service=CONSOLE, arguments=arguments)
    if found is None and is_installed(CONSOLE):
        notes.append(note_taken(port, "there is no console", "--console-port"))
    return found


def note_taken(port: int, lack: str, option: str) -> str:
    """Of a port that was not asked for: the node goes on without, and the person is to know why."""
    return f"ottla: port {port} is taken, so {lack}: choose another with {option}."


class ServicePort:
    def __init__(self, sock: socket.socket, host: str, service: Service, arguments: tuple[str, ...] = ()) -> None:
        self._socket = sock
        self._host = host
        self._service = service
        self._arguments = arguments
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
        arguments = ["--fd", str(descriptor), "--bootstrap", self._bootstrap, *self._arguments]
        if is_loopback(self._host):
            arguments.append("--loopback")
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", self._service.module, *arguments, stdin=PIPE, pass_fds=(descriptor,)
            )
            status = await self._process.wait()
            self._process = None
            name = self._service.name
            _log.warning("The %s ended with status %d; the next connection starts it again.", name, status)
        except OSError as error:
            _log.warning("The %s cannot be started: %s", self._service.name, error)
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
