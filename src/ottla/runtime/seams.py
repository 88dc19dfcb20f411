"""What a node asks of its surroundings. Each seam has a real side in this room and a simulated one in `sim`."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import Any, NamedTuple, Protocol, TypeVar

from ottla.errors import KafkaError

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class Clock(Protocol):
    """Two times, which fail in different ways: the wall clock may step, the monotonic one only drifts."""

    def wall_ms(self) -> int: ...

    def monotonic(self) -> float:
        """Seconds since some moment; the time of the event loop."""
        ...


class DiskError(KafkaError):
    """The disk refused a read, write or sync (KAFKA_STORAGE_ERROR); the replicas on it go offline."""

    @property
    def told(self) -> str:
        """For whoever starts a node: what is wrong, and what to do about it."""
        number = self.__cause__.errno if isinstance(self.__cause__, OSError) else None
        if number in (errno.EACCES, errno.EPERM, errno.EROFS):
            advice = "let this user read and write there"
        elif number in (errno.ENOSPC, errno.EDQUOT):
            advice = "make room on that disk"
        else:
            advice = "see that the disk is sound"
        return f"{self.message}: {advice}"


class File(Protocol):
    """One open file, read and written by position.

    Writes reach the page cache; only `sync`, which blocks, makes them durable. All may raise `DiskError`.
    """

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def read(self, position: int, size: int) -> bytes:
        """At most `size` bytes; fewer only at the end of the file."""
        ...

    def write(self, position: int, data: Buffer) -> None:
        """Write all of `data`."""
        ...

    def truncate(self, size: int) -> None: ...

    def preallocate(self, size: int) -> None:
        """Grow the file to `size` and reserve its blocks, as Kafka's `log.preallocate` does."""
        ...

    def cached(self, position: int, size: int) -> bool:
        """Can these bytes be sent without waiting for the device? A guess that may err towards yes."""
        ...

    def read_now(self, position: int, size: int) -> Buffer | None:
        """All of these bytes if they can be had without waiting for the device, else nothing."""
        ...

    def prefetch(self, position: int, size: int) -> None:
        """Bring these bytes into the page cache. Blocks: call it through `Offload`."""
        ...

    def write_back(self, position: int, size: int) -> None:
        """Have the device write these bytes now rather than all at once with the `sync` to come. May block."""
        ...

    def sync(self) -> None:
        """Make every write so far durable. Blocks: call it through `Offload` when a node is serving."""
        ...

    def close(self) -> None: ...


class FileSpan(NamedTuple):
    """A run of bytes of a file, which can go to a socket without passing through Python."""

    file: File
    position: int
    size: int


class Disk(Protocol):
    """A file system. Paths are plain strings joined with '/'. Names from `list` come sorted."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. Without `create` a missing file raises `FileNotFoundError`."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]: ...

    def make_dirs(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Replace `target` in one step. Durable only after `sync_dir` of the parent."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; no error if it is not there."""
        ...

    def remove_tree(self, path: str) -> None: ...

    def forget_pages(self, path: str) -> None:
        """Of a large file that is to be removed: have the system drop what it keeps of it in memory, little by little,
        for a removal does it at one go and holds up whoever needs the processor. Blocks for long; a hint at most."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make the directory's entries durable. Blocks."""
        ...

    def file_size(self, path: str) -> int: ...

    def read_file(self, path: str) -> bytes: ...

    def write_atomically(self, path: str, data: bytes) -> None:
        """Write `path`.tmp, sync it, rename it over `path`, sync the directory: old or new, never torn. Blocks."""
        ...

    def space(self, path: str) -> tuple[int, int]:
        """Total and usable bytes of the volume that holds `path`."""
        ...

    def lock(self, path: str) -> Callable[[], None]:
        """Take the lock file at `path` for this process and return what releases it; `BlockingIOError` if taken."""
        ...


class ConnectionHandler(Protocol):
    """The owner of one connection's bytes; the network calls it."""

    def connection_made(self, connection: Connection) -> None: ...

    def get_buffer(self) -> memoryview:
        """Where the next bytes are to be put; never empty."""
        ...

    def buffer_updated(self, size: int) -> None:
        """`size` bytes arrived in the buffer last given."""
        ...

    def write_blocked(self) -> None:
        """The peer does not read and the queue of unsent bytes has grown past its limit."""
        ...

    def write_resumed(self) -> None: ...

    def connection_lost(self) -> None:
        """Called once, however the connection ended."""
        ...


class Connection(Protocol):
    """One accepted or opened connection: an ordered stream out, with files sent without passing through Python."""

    @property
    def peer(self) -> tuple[str, int]: ...

    def write(self, data: Buffer, more: bool = False) -> None:
        """Send, or queue, `data`; `more` says that another write follows at once. The buffer must not change later."""
        ...

    def write_file_span(self, file: File, position: int, size: int) -> None:
        """Send `size` bytes of `file`, after everything written before (sendfile on plaintext sockets)."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Close once everything queued is sent."""
        ...

    def abort(self) -> None:
        """Close now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions:
    """How the sockets of a listener are made; 0 or less leaves a buffer to the operating system, which tunes it, and
    None to whoever makes the sockets."""

    backlog: int = 1024
    """Peers that may wait to be accepted."""
    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int = -1


DEFAULT_LISTEN_OPTIONS = ListenOptions()


class Listener(Protocol):
    """An address that is ours; peers that come before `start` wait in its backlog."""

    @property
    def address(self) -> tuple[str, int]: ...

    def start(self) -> None:
        """Take peers, from now on or again after `pause`."""
        ...

    def pause(self) -> None:
        """Take no more of them until `start` is called; they wait."""
        ...

    def close(self) -> None: ...


class Network(Protocol):
    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[], ConnectionHandler],
        options: ListenOptions = DEFAULT_LISTEN_OPTIONS,
    ) -> Listener:
        """Take `host`:`port` (port 0 picks a free one). Raises `OSError` when the address cannot be had."""
        ...

    async def connect(self, host: str, port: int, handler: ConnectionHandler) -> Connection:
        """Open a connection. Raises `OSError`."""
        ...


class WorkStopped(Exception):
    """Work that was done apart did not come to an end: it was stopped, or whoever did it died."""


class Apart(Protocol):
    """What work that is done apart may ask of whoever has it done."""

    def report(self, fact: object) -> None:
        """Tell the loop something before the work is over."""
        ...

    def spent(self, size: int) -> None:
        """`size` bytes were read or written: wait for as long as the rate that was agreed on asks for."""
        ...


class Offload(Protocol):
    """Work that would block the loop: it runs elsewhere and comes back as a result."""

    def run(self, work: Callable[[], T]) -> Awaitable[T]: ...

    def run_apart(
        self, work: Callable[[Apart], T], *, bytes_per_second: float, on_report: Callable[[Any], None]
    ) -> Awaitable[T]:
        """Long work, one at a time, which must not cost the loop its latency: it gets what the machine has to spare.

        `work` and what it tells and returns must be values that another process can be sent. Raises what the work
        raises, and `WorkStopped`.
        """
        ...

    def stop_apart(self) -> None:
        """End such work, if there is any, wherever it is; whoever waits for it hears `WorkStopped`."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """All the seams of one node."""

    clock: Clock
    disk: Disk
    network: Network
    random: Random
    offload: Offload
    secrets: Random = field(default_factory=SystemRandom)
    """Chance that nobody outside can predict, for nonces, salts and tokens."""
    ageing: Clock | None = None
    """By which sessions, transactions and records grow old, where a test moves that time ahead; None: by `clock`."""
