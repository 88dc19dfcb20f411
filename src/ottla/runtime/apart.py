"""Work that is done apart: by a process of its own, which takes only what the machine has to spare.

The two sides speak in plain values over a pipe (`plain_values`): the work goes down, facts come up as they are found,
and at last the result or what went wrong. The process ends with its work, and with the one that started it, however
that ends. It is as modest as the system allows (`modesty`), works half of the time at most, and keeps to a rate.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from struct import Struct
from threading import Lock
from typing import IO, Any

from ottla.runtime.modesty import SLICE_S, make_modest, take_only_what_is_left
from ottla.runtime.plain_values import NotPlain, read_order, read_values, write_plain
from ottla.runtime.seams import Apart, WorkStopped

_START = "from ottla.runtime.apart import main; main()"

_REPORT, _RESULT, _ERROR = range(3)

_LENGTH = Struct(">I")

_STRETCH_S = 0.005
"""After so much work it rests for as long as it has worked: caches and memory are shared, whoever has the processor."""

_DEATH_SIGNAL_OPTION = 1


class WorkerProcess:
    """The side of whoever has the work done."""

    def __init__(self, work: Callable[[Apart], object], bytes_per_second: float) -> None:
        self._work = work
        self._bytes_per_second = bytes_per_second
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._lock = Lock()
        """Held to start the process or to stop it, whichever comes first."""

    def follow(self, on_report: Callable[[Any], None]) -> Any:
        """Start it, wait for the end, and pass on what is reported before. Blocks. Raises what the work raised, or
        `WorkStopped`."""
        order = _framed((os.getpid(), self._bytes_per_second, self._work))
        process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(order)
                process.stdin.flush()
            while True:
                kind, content = read_values(_read_frame(process.stdout))
                if kind == _REPORT:
                    on_report(content)
                elif kind == _RESULT:
                    return content
                else:
                    raise content
        except (EOFError, NotPlain):
            status = process.wait()
            raise WorkStopped("stopped" if self._stopped else f"its process ended with status {status}") from None
        finally:
            self.stop()
            process.wait()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()

    def stop(self) -> None:
        """From any thread."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopped:
                raise WorkStopped("stopped")
            # Inherits nothing but its pipe; what can be imported here can be imported there.
            self._process = process = subprocess.Popen(
                [sys.executable, "-c", _START],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
            # From here and not from there, so that its imports are modest, too.
            make_modest(process.pid)
            return process


class _PacedWork:
    """The side of whoever does the work."""

    def __init__(self, parent: int, bytes_per_second: float, output: IO[bytes]) -> None:
        self._parent = parent
        self._bytes_per_second = bytes_per_second
        self._output = output
        self._ready_s = self._resumed_s = time.monotonic()

    def report(self, fact: object) -> None:
        self.tell(_REPORT, fact)

    def spent(self, size: int) -> None:
        if os.getppid() != self._parent:
            # Nobody waits for this any more, and somebody else may be about to use the same files.
            os._exit(1)
        now_s = time.monotonic()
        self._ready_s = max(self._ready_s, now_s) + size / self._bytes_per_second
        worked_s = now_s - self._resumed_s
        if worked_s < _STRETCH_S and self._ready_s <= now_s:
            os.sched_yield()
            return
        time.sleep(max(self._ready_s - now_s, worked_s))
        self._resumed_s = time.monotonic()
        # Others' timers may have come to their end with ours. They wait for the slice that we have just been given, and
        # longer, for nobody looks again whose turn it is: unless we give it back.
        while time.monotonic() - self._resumed_s < SLICE_S:
            pass
        os.sched_yield()

    def tell(self, kind: int, content: object) -> None:
        self._output.write(_framed((kind, content)))
        self._output.flush()


def _framed(value: object) -> bytes:
    data = write_plain(value)
    return _LENGTH.pack(len(data)) + data


def _read_frame(stream: IO[bytes]) -> bytes:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (size,) = _LENGTH.unpack(head)
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def main() -> None:
    """What the process does."""
    _end_with_parent()
    # What the work prints by mistake must not come between the values.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The terminal's interrupt is for the node, which ends us.
    parent, bytes_per_second, work = read_order(_read_frame(sys.stdin.buffer))
    take_only_what_is_left()
    paced = _PacedWork(parent, bytes_per_second, output)
    paced.spent(0)
    try:
        result = work(paced)
    except Exception as error:
        try:
            paced.tell(_ERROR, error)
        except NotPlain:
            paced.tell(_ERROR, RuntimeError(f"{type(error).__name__}: {error}"))
    else:
        paced.tell(_RESULT, result)


def _end_with_parent() -> None:
    """Where the system knows of it."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_DEATH_SIGNAL_OPTION, signal.SIGKILL)
