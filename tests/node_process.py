"""A real node in a process of its own, as a user starts it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
READY = re.compile(r"ready: (\S+) in [\d.]+ s")


class NodeProcess:
    """`ottla up`, running. Its standard error goes to a file beside its data."""

    def __init__(self, process: subprocess.Popen[str], bootstrap: str, log: Path) -> None:
        self.process = process
        self.bootstrap = bootstrap
        self._log = log

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.bootstrap.partition(":")
        return host, int(port)

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        return self._log.read_text()

    def complaints(self) -> list[str]:
        """What it says on standard error, but for where its registry and its console are."""
        return [line for line in self.log().splitlines() if not line.startswith(("schemas: ", "console: "))]

    def kill(self) -> None:
        self.process.kill()
        self.wait()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        status = self.process.wait(60)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return status


def start_node(
    directory: Path,
    *arguments: str,
    port: int = 0,
    environment: dict[str, str] | None = None,
    under: Sequence[str] = (),
    module: str = "ottla.cli",
) -> NodeProcess:
    """`under` is a command that runs the node in its own place, such as a tracer; `module` is the program."""
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / "stderr.txt"
    with log.open("a") as stderr:
        process = subprocess.Popen(
            [
                *under,
                sys.executable,
                "-m",
                module,
                "up",
                "--port",
                str(port),
                "--data",
                str(directory / "data"),
                *arguments,
            ],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, **(environment or {})},
            cwd=ROOT if module.startswith("tests.") else None,
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = READY.fullmatch(line.strip())
    if found is None:
        process.kill()
        process.wait()
        process.stdout.close()
        raise AssertionError(f"the node said {line!r} and then:\n{log.read_text()}")
    return NodeProcess(process, found[1], log)


@contextmanager
def running_node(directory: Path, *arguments: str, port: int = 0, module: str = "ottla.cli") -> Iterator[NodeProcess]:
    """A node that is stopped afterwards, and must then have stopped cleanly and without a complaint."""
    node = start_node(directory, *arguments, port=port, module=module)
    try:
        yield node
    except BaseException:
        node.kill()
        print(node.log())
        raise
    finally:
        if node.process.poll() is None:
            status = node.stop()
            assert status == 0, f"status {status}, and:\n{node.log()}"
        else:
            node.wait()
    assert "Traceback" not in node.log(), node.log()
