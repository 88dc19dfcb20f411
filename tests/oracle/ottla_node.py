"""One Ottla node as a user starts it: the installed `ottla up`, its `ready:` line, and SIGTERM.

Owns the process. It keeps to what the command promises (free ports by `--port 0`, one ready line, status 0 after
SIGTERM), so that these promises are tested each time a node is used. Driven by the oracle tests and by the benchmarks.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

_READY = re.compile(rb"^ready: ([^\s:]+):(\d+)\S* in ([0-9.]+) s", re.MULTILINE)


class OttlaFailed(RuntimeError):
    """The node did not start, or did not end, as `ottla up` promises; the message holds what it printed."""


def ottla_command() -> list[str]:
    """The `ottla` of this interpreter's environment; its module, where no script is installed."""
    script = Path(sys.executable).with_name("ottla")
    return [str(script)] if script.exists() else [sys.executable, "-m", "ottla.cli"]


class OttlaNode:
    """`ottla up` on a free port (or on `port`), with its data and its output under `directory`."""

    def __init__(
        self,
        directory: Path,
        *,
        overrides: Mapping[str, str] | None = None,
        command: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        port: int = 0,
    ) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.log_file = directory / "ottla.log"
        self.host = "127.0.0.1"
        self.port = port
        self._output = directory / "ottla.out"
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._log_dir: Path | None = None
        settings = [part for key, value in (overrides or {}).items() for part in ("--set", f"{key}={value}")]
        self._command = [*(command or ottla_command()), "up", "--port", str(port), "--data", str(self.data), *settings]
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def log_dir(self) -> Path:
        """The directory that holds the partitions: the one with Kafka's `meta.properties`."""
        if self._log_dir is None:
            self._log_dir = next(self.data.rglob("meta.properties")).parent
        return self._log_dir

    def spawn(self) -> None:
        """Start the process and return at once."""
        assert self._process is None, "already started"
        with open(self._output, "wb") as out, open(self.log_file, "ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=True,
                env=self._environment,
            )

    def wait_ready(self, timeout: float = 60) -> None:
        """Wait for the ready line and learn the port from it."""
        process = self._process
        assert process is not None, "not started"
        deadline = time.monotonic() + timeout
        while (ready := _READY.search(self._output.read_bytes())) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise OttlaFailed(
                    f"{' '.join(self._command)}: no ready line (status {process.returncode})\n{self.printed()}"
                )
            time.sleep(0.005)
        self.host, self.port = ready[1].decode(), int(ready[2])

    def start(self) -> Self:
        self.spawn()
        self.wait_ready()
        return self

    def stop(self, timeout: float = 60) -> int:
        """Shut down cleanly by SIGTERM; a status other than 0 is a failure."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            self._kill(process)
            raise OttlaFailed(
                f"the node {process.pid} did not end within {timeout} s of SIGTERM\n{self.printed()}"
            ) from None
        if status != 0:
            raise OttlaFailed(f"the node {process.pid} ended with status {status} after SIGTERM\n{self.printed()}")
        return status

    def kill(self) -> None:
        """End the node at once, as kill -9 does."""
        process, self._process = self._process, None
        if process is not None:
            self._kill(process)

    def printed(self) -> str:
        """The last of what the node printed."""
        files = [file for file in (self._output, self.log_file) if file.exists()]
        return "\n".join(file.read_text(errors="replace")[-4000:] for file in files)

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
