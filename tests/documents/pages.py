"""Pages whose commands are run: what a person would type, in order, and what is shown below it must come out.

Of a page the fenced blocks `console` count. A line that begins with `$` is typed into a shell; the lines below are what
it prints on standard output (and, of `ottla up`, on standard error too: what Spark and librdkafka have to say there is
theirs). `…` stands for anything within a line, and a line that is nothing else for any lines. A
block `python` that begins with a comment that is a file's name is saved under that name.

Nothing that runs here uses the ports that the page names: `ottla up` gets free ones, and in all that is typed and
printed later they are exchanged for those of the page. `ottla up` stays until the page is done. `pip install` is not
run: what it would install is checked by name.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

ROOT = Path(__file__).parents[2]
PATIENCE_S = 240.0
ADDRESS = "127.0.0.1"

_FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SHOWN_PORT = re.compile(rf"{re.escape(ADDRESS)}:(\d+)")
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

_OTTLA = """\
#!/bin/sh
# `ottla` of this tree, on ports that are free.
case "$1" in
up) shift; exec "{python}" -m ottla.cli up --port 0 "$@" ;;
esac
exec "{python}" -m ottla.cli "$@"
"""
_PYTHON = '#!/bin/sh\nexec "{python}" "$@"\n'


class Typed(NamedTuple):
    command: str
    expected: list[str]


class Saved(NamedTuple):
    name: str
    text: str


def parts(page: str) -> Iterator[Typed | Saved]:
    """What is to be done, in the order of the page."""
    for language, text in _FENCE.findall(page):
        if language == "python" and (named := re.match(r"# (\w+\.py)\n", text)):
            yield Saved(named[1], text)
        if language == "console":
            yield from _typed(text)


def _typed(block: str) -> Iterator[Typed]:
    command, expected = "", list[str]()
    for line in block.splitlines():
        if command.endswith("\\"):
            command = f"{command[:-1]}{line.strip()}"
        elif line.startswith("$ "):
            if command:
                yield Typed(command, expected)
            command, expected = line[2:], []
        else:
            assert command, f"the block shows {line!r} before anything is typed"
            expected.append(line)
    if command:
        yield Typed(command, expected)


def matches(expected: list[str], actual: list[str]) -> bool:
    pattern = ""
    for line in expected:
        if line.strip() == "…":
            pattern += r"(?:[^\n]*\n)*"
        else:
            pattern += "[^\n]*".join(re.escape(piece) for piece in line.rstrip().split("…")) + r"[^\S\n]*\n"
    return re.fullmatch(pattern, "".join(f"{line.rstrip()}\n" for line in actual)) is not None


@dataclass
class Terminal:
    """Where a page is typed in."""

    directory: Path
    ports: dict[str, str] = field(default_factory=dict)
    """The page's → the real ones."""
    _running: list[tuple[subprocess.Popen[str], threading.Thread]] = field(default_factory=list)
    """With whoever listens to what it says later, lest it should have to wait."""

    def __post_init__(self) -> None:
        tools = self.directory / "bin"
        tools.mkdir(parents=True)
        for name, text in (("ottla", _OTTLA), ("python", _PYTHON)):
            (tools / name).write_text(text.format(python=sys.executable))
            (tools / name).chmod(0o755)
        self.here = self.directory / "here"
        self.here.mkdir()
        (self.here / "examples").symlink_to(ROOT / "examples")

    def follow(self, page: str) -> None:
        for part in parts(page):
            if isinstance(part, Saved):
                (self.here / part.name).write_text(self._real(part.text))
            elif part.command.startswith("pip install "):
                check_requirement(part.command)
            elif part.command.startswith("ottla up"):
                self._start(part)
            else:
                self._run(part)

    def _run(self, part: Typed) -> None:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", self._real(part.command)],
            cwd=self.here,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        printed = self._as_shown(done.stdout)
        assert done.returncode == 0, f"`{part.command}` ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        assert matches(part.expected, printed), f"{_difference(part, printed)}\nand aside\n{done.stderr}"

    def _start(self, part: Typed) -> None:
        """Until it has said all that the page shows, in whatever order its two streams come."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {self._real(part.command)}"],
            cwd=self.here,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        printed = _first_lines(process, process.stdout, len(part.expected))
        listener = threading.Thread(target=process.stdout.read)
        listener.start()
        self._running.append((process, listener))
        for line in part.expected:
            pattern = _SHOWN_PORT.sub(lambda found: f"{ADDRESS}:<{found[1]}>", line)
            pattern = re.sub(r"<(\d+)>", r"(?P<p\1>\\d+)", re.escape(pattern).replace("…", ".*"))
            found = next((each for said in printed if (each := re.fullmatch(pattern, said.strip()))), None)
            assert found is not None, _difference(part, printed)
            self.ports.update({name.removeprefix("p"): port for name, port in found.groupdict().items()})

    def stop(self) -> None:
        for process, _ in self._running:
            process.send_signal(signal.SIGINT)
        for process, listener in self._running:
            process.wait(60)
            listener.join(60)
            assert process.stdout is not None
            process.stdout.close()

    def _environment(self) -> dict[str, str]:
        config = self.directory / "config.toml"
        environment = {
            **os.environ,
            "PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}".rstrip(":"),
            "PYTHONUTF8": "1",
            "OTTLA_CONFIG": str(config),
            "COLUMNS": "110",
        }
        if "9092" in self.ports:
            bootstrap = self._real(f"{ADDRESS}:9092")
            environment["BOOTSTRAP"] = bootstrap  # What the examples go by.
            config.write_text(f'current = "page"\n[profiles.page]\n"bootstrap.servers" = "{bootstrap}"\n')
        return environment

    def _real(self, text: str) -> str:
        return _SHOWN_PORT.sub(lambda found: f"{ADDRESS}:{self.ports.get(found[1], found[1])}", text)

    def _as_shown(self, text: str) -> list[str]:
        shown = {real: port for port, real in self.ports.items()}
        back = _SHOWN_PORT.sub(lambda found: f"{ADDRESS}:{shown.get(found[1], found[1])}", _COLOUR.sub("", text))
        return back.splitlines()


@contextmanager
def terminal(directory: Path) -> Iterator[Terminal]:
    opened = Terminal(directory)
    try:
        yield opened
    finally:
        opened.stop()


def check_requirement(command: str) -> None:
    """That `pip install -e ".[web]"` asks for something that there is."""
    found = re.fullmatch(r"""pip install (?:-e )?['"]?(?:ottla|\.)(?:\[(\w+(?:,\w+)*)\])?['"]?""", command)
    assert found is not None, f"nobody knows what {command!r} installs"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set((found[1] or "web").split(",")) <= set(extras)


def _first_lines(process: subprocess.Popen[str], stream: IO[str], count: int) -> list[str]:
    """So many, or fewer if it ends before."""
    overdue = threading.Timer(PATIENCE_S, process.kill)
    overdue.start()
    try:
        return [line for line in (stream.readline() for _ in range(count)) if line]
    finally:
        overdue.cancel()


def _difference(part: Typed, printed: list[str]) -> str:
    return "\n".join([f"`{part.command}` should have printed", *part.expected, "and printed", *printed])
