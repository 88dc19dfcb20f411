"""The seams between Ottla and the machine: clock, disk, network, chance, and work that leaves the event loop.

`seams` says what a node needs of its surroundings; the other modules are the real ones. The simulator has its own.
Nothing outside this room touches sockets, files, clocks, randomness or threads.
"""

from ottla.runtime.seams import (
    Apart,
    Clock,
    Connection,
    ConnectionHandler,
    Disk,
    DiskError,
    File,
    FileSpan,
    Listener,
    ListenOptions,
    Network,
    Offload,
    Runtime,
    WorkStopped,
)

__all__ = [
    "Apart",
    "Clock",
    "Connection",
    "ConnectionHandler",
    "Disk",
    "DiskError",
    "File",
    "FileSpan",
    "Listener",
    "ListenOptions",
    "Network",
    "Offload",
    "Runtime",
    "WorkStopped",
]
