"""What `ottla up` makes sure of before it writes anything: a start that is refused leaves all as it was.

Nodes lock their directories when they start, each for itself. Until then much is written for them, so it is asked first
whether anybody holds the locks, and whether the ports are free. The directory of a cluster has a lock besides, which
belongs to the command for as long as it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ottla.errors import StartupError
from ottla.log import files
from ottla.log.log_directory import in_use
from ottla.runtime import Disk, DiskError
from ottla.runtime.addresses import is_no_address, try_address


def check_unused(disk: Disk, directories: Iterable[str]) -> None:
    """Raise `StartupError` if a node runs in one of them. They are neither made nor kept."""
    for directory in directories:
        lock = f"{directory}/{files.LOCK}"
        if disk.exists(lock):
            try:
                disk.lock(lock)()
            except BlockingIOError:
                raise in_use(directory) from None


def hold(disk: Disk, data: str) -> None:
    """Take the directory of a cluster until this process ends. Raises `StartupError`."""
    disk.make_dirs(data)
    try:
        disk.lock(f"{data}/{files.LOCK}")
    except BlockingIOError:
        raise StartupError(
            f"{data} is in use by another `ottla up`: stop that one, or choose another directory with --data."
        ) from None


def check_address(host: str, port: int, *, whose: str = "", advice: str = "or choose another port") -> None:
    """Raise `StartupError` unless it can be listened on. `whose` port it is stands before the sentence, and `advice` is
    what there is to do besides stopping who has it."""
    try:
        try_address(host, port)
    except OSError as error:
        if is_no_address(error):
            raise no_address(host, error) from None
        raise StartupError(
            f"{whose}Port {port} of {host or 'this machine'} cannot be used ({error.strerror}): stop what listens "
            f"there, {advice}."
        ) from None


def no_address(host: str, error: OSError) -> StartupError:
    return StartupError(
        f"{host} cannot be listened on ({error.strerror}): choose an address of this machine with --host."
    )


@contextmanager
def explained() -> Iterator[None]:
    """Around what is read and written below --data before there is a node."""
    try:
        yield
    except DiskError as error:
        raise StartupError(
            f"{error.message}: choose another directory with --data, or let this user read and write there."
        ) from error
