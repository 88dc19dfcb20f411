"""What this process uses of its machine."""

from __future__ import annotations

import os
import resource
from typing import NamedTuple

_STATM = "/proc/self/statm"
_DESCRIPTORS = "/proc/self/fd"


class Usage(NamedTuple):
    cpu_seconds: float
    """Of all threads, in the system's name too."""
    resident_bytes: int
    open_files: int
    """-1 where the system does not tell."""
    open_files_max: int


def process_usage() -> Usage:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Usage(used.ru_utime + used.ru_stime, _resident_bytes(), _open_files(), _open_files_max())


def _resident_bytes() -> int:
    try:
        with open(_STATM, "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return -1


def _open_files() -> int:
    try:
        return len(os.listdir(_DESCRIPTORS))
    except OSError:
        return -1


def _open_files_max() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
