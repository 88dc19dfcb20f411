"""Where tests kill the sink: every step of a write has a name, and the process can be told to end at one of them.

`OTTLA_SINK_CRASH=step` ends the process, as if the machine had lost it, when that step is reached;
`OTTLA_SINK_CRASH=step@file` does so once, the first process to create the file. Read here and nowhere else.
"""

from __future__ import annotations

import os
import signal

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
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
    os.kill(os.getpid(), signal.SIGKILL)
