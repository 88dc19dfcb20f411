"""What a process does with memory that it has freed: for those that move megabytes from buffer to buffer, as Spark's
tasks do. The C library asks the system for every large buffer and gives it back at once; each time the system hands out
zeroed pages one by one, which costs more than the copies that are made into them.
"""

from __future__ import annotations

from functools import cache

KEPT_BYTES_MAX = 256 * 1024 * 1024
_LARGE_BYTES = 32 * 1024 * 1024
"""The most that glibc lets its heap hold in one piece."""
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


@cache
def keep_freed_memory() -> None:
    """From now on, for the whole process: what is freed is kept for what is allocated next, up to a limit. Only glibc
    can be told so; elsewhere nothing changes."""
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
    mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
