"""Where tests kill the sink: every step of a write has a name, and the process can be told to end at one of them.

`OTTLA_SINK_CRASH=step` ends the process, as if the machine had lost it, when that step is reached;
`OTTLA_SINK_CRASH=step@file` does so once, in the first process to create the file; `step@file!` ends the whole session,
Spark's driver with all its processes. Read here and nowhere else.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

VARIABLE = "OTTLA_SINK_CRASH"


def reached(step: str) -> None:
    wanted = os.environ.get(VARIABLE)
    if wanted is None:
        return
    name, _, marker = wanted.partition("@")
    if name != step:
        return
    if marker:
        try:
            os.close(os.open(marker.removesuffix("!"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
    if marker.endswith("!"):
        _end_session()
    os.kill(os.getpid(), signal.SIGKILL)


def _end_session() -> None:
    session = os.getsid(0)
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with suppress(OSError):
                if os.getsid(int(entry)) == session:
                    os.kill(int(entry), signal.SIGKILL)
