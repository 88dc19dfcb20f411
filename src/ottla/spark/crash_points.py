"""Where tests kill what writes: every step of a write has a name, and the process can be told to end at one of them.

`OTTLA_SINK_CRASH=step` ends every process that reaches the step, as if the machine had lost it.
`OTTLA_SINK_CRASH=@file` does it once: the file, when there is one, names the step, and the first process to reach it
takes the file away and dies; if the name ends with "!", so does all of its session, Spark's driver with its processes.
Read here and nowhere else.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

VARIABLE = "OTTLA_SINK_CRASH"


def reached(step: str) -> None:
    wanted = os.environ.get(VARIABLE)
    if wanted is None:
        return
    if wanted.startswith("@"):
        plan = Path(wanted[1:])
        try:
            wanted = plan.read_text()
            if wanted.rstrip("!") == step:
                plan.unlink()
        except FileNotFoundError:
            return  # No plan, or another process was quicker.
    if wanted.rstrip("!") != step:
        return
    if wanted.endswith("!"):
        _end_session()
    os.kill(os.getpid(), signal.SIGKILL)


def _end_session() -> None:
    session = os.getsid(0)
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with suppress(OSError):
                if os.getsid(int(entry)) == session:
                    os.kill(int(entry), signal.SIGKILL)
