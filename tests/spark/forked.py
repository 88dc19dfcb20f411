"""Runs a function in a forked process, as Spark runs the pieces of a write in processes of its own, and may kill it.

Quick, since nothing is imported again: a whole micro-batch takes some milliseconds, so that every step can be tried.
"""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections.abc import Callable
from typing import TypeVar

from ottla.spark.crash_points import VARIABLE

T = TypeVar("T")


class Died(Exception):
    """The process was killed at the step that it was told to die at."""


class Raised(Exception):
    """The function raised; what it said is in the message."""


def in_process(function: Callable[[], T], *, die_at: str | None = None) -> T:
    """What `function` returns in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            os.environ.pop(VARIABLE, None)
            if die_at is not None:
                os.environ[VARIABLE] = die_at
            try:
                answer: tuple[bool, object] = True, function()
            except BaseException as error:
                answer = False, f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
            with os.fdopen(writing, "wb") as stream:
                stream.write(pickle.dumps(answer))
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        data = stream.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        raise Died(die_at)
    assert status == 0, f"the child ended with status {status}"
    succeeded, value = pickle.loads(data)
    if not succeeded:
        raise Raised(value)
    result: T = value
    return result
