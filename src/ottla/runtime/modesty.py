"""A process that takes only what others leave: the lowest priority for processor and disk, as far as Linux goes.

Linux may schedule sessions before it looks at their processes (`sched_autogroup_enabled`), and then one that is idle in
its session is not idle towards others; and whoever has just got the processor keeps it for a slice, whoever else wants
it meanwhile. So a modest process has a session of its own, which is as modest, and the shortest slice there is.
Elsewhere it is merely nice.
"""

from __future__ import annotations

import contextlib
import os
import sys
from functools import cache
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SLICE_S = 0.0001
"""The shortest that Linux grants (since 6.12; before that the wish has no effect)."""

_NICEST = 19
_NICE_WHILE_STARTING = 10
"""Of the session. On a machine without a moment to spare the nicest would take ten seconds to start an interpreter."""
_MACHINE = os.uname().machine
_SCHEDULING_CALL = {"x86_64": 314, "aarch64": 274}.get(_MACHINE)
_DISK_PRIORITY_CALL = {"x86_64": 251, "aarch64": 30}.get(_MACHINE)
_DISK_PRIORITY_OF_PROCESS = 1
_DISK_PRIORITY_IDLE = 3 << 13
_ATTRIBUTES = Struct("=IIQiIQQQII")
"""`struct sched_attr`: its size, policy, flags, niceness, priority, slice in nanoseconds, and what is for others."""


@cache
def _system_call() -> Callable[..., int]:
    import ctypes

    return ctypes.CDLL(None).syscall


def make_modest(process_id: int) -> None:
    """Of a process that leads a session of its own."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process_id, _NICEST)
        if sys.platform != "linux":
            return
        if _SCHEDULING_CALL is not None:
            # First, for whoever is idle may not ask for it any more.
            attributes = _ATTRIBUTES.pack(
                _ATTRIBUTES.size, os.SCHED_OTHER, 0, _NICEST, 0, round(SLICE_S * 1e9), 0, 0, 0, 0
            )
            _system_call()(_SCHEDULING_CALL, process_id, attributes, 0)
        os.sched_setscheduler(process_id, os.SCHED_IDLE, os.sched_param(0))
        _set_session(process_id, _NICE_WHILE_STARTING)


def take_only_what_is_left() -> None:
    """Of this process, which is modest already, and now begins with what may take long."""
    with contextlib.suppress(OSError):
        if sys.platform != "linux":
            return
        if _DISK_PRIORITY_CALL is not None:
            _system_call()(_DISK_PRIORITY_CALL, _DISK_PRIORITY_OF_PROCESS, 0, _DISK_PRIORITY_IDLE)
        _set_session(os.getpid(), _NICEST)


def _set_session(process_id: int, nice: int) -> None:
    Path(f"/proc/{process_id}/autogroup").write_text(str(nice))
