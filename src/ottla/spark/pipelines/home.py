"""A pipeline's home: the directory of what it leaves behind.

`checkpoint/` is Spark's own, where the stream stands; `status.json` is what `ottla pipeline status` shows, replaced
whole after every batch; `failure.log` is all that is known of the last failure; `runs` counts the batch runs that have
finished: one that broke off comes again under its number; `id` is made once, so that a home which was lost and made
anew is known as another; `lock` is held, with the runner's process id in it, for as long as it runs.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import IO
from uuid import uuid4

from ottla.spark.pipelines.definition import PipelineError

DEFAULT_ROOT = Path("ottla-pipelines")

_LOOKS = 40
_BETWEEN_LOOKS_S = 0.05


class State(Enum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"
    KILLED = "killed"
    """Its last word was that it runs, and no process holds its lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The last word of a runner."""

    state: State = State.STARTING
    batch: int = -1
    rows: int = 0
    """Read by this run."""
    rows_per_second: float = 0.0
    lag: dict[str, int] = field(default_factory=dict)
    """What is still to be read, by partition."""
    error: str = ""
    at: float = 0.0

    @property
    def lag_in_all(self) -> int:
        return sum(self.lag.values())


@dataclass(frozen=True, slots=True)
class Home:
    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Ours while it lasts. Raises `PipelineError` if another process runs this pipeline."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / "lock", "a+", encoding="ascii") as lock:
            self._take(lock)
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def _take(self, lock: IO[str]) -> None:
        """Who only looks whether it runs has the lock too, for a moment."""
        for looks_left in reversed(range(_LOOKS)):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                runner = self.runner()
            if runner is not None or not looks_left:
                raise PipelineError(
                    f"{self.name} runs already (process {runner or 'unknown'}): stop it first, with "
                    f"`ottla pipeline stop {self.name}`."
                )
            time.sleep(_BETWEEN_LOOKS_S)

    def runner(self) -> int | None:
        """The process that runs it now."""
        try:
            with open(self.path / "lock", "r+", encoding="ascii") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return int(lock.read() or 0) or None
                return None
        except FileNotFoundError:
            return None

    def identity(self) -> str:
        """Of this home and no other, whatever the name. To be asked for while it is held."""
        path = self.path / "id"
        if not path.exists():
            unfinished = self.path / "id.new"
            unfinished.write_text(uuid4().hex)
            unfinished.replace(path)
        return path.read_text()

    def runs(self) -> int:
        """How many runs that are not streams have finished."""
        try:
            return int((self.path / "runs").read_text())
        except FileNotFoundError:
            return 0

    def count_run(self) -> None:
        unfinished = self.path / "runs.new"
        unfinished.write_text(str(self.runs() + 1))
        unfinished.replace(self.path / "runs")

    def write_status(self, status: Status) -> None:
        unfinished = self.path / "status.json.new"
        unfinished.write_text(json.dumps({**asdict(status), "state": status.state.value, "at": time.time()}))
        unfinished.replace(self.path / "status.json")

    def write_failure(self, account: str) -> Path:
        """What is known of a failure; where it was written."""
        path = self.path / "failure.log"
        path.write_text(account)
        return path

    def read_status(self) -> Status:
        """Raises `PipelineError` if no such pipeline has run."""
        try:
            said = json.loads((self.path / "status.json").read_text())
        except (FileNotFoundError, ValueError):
            raise PipelineError(f"No pipeline {self.name} has run here: {self.path} holds no status.") from None
        status = Status(**{**said, "state": State(said["state"])})
        if status.state in (State.STARTING, State.RUNNING) and self.runner() is None:
            return replace(status, state=State.KILLED)
        return status


def homes(root: Path) -> list[Home]:
    """All that have run under `root`, by name."""
    return [Home(path.parent) for path in sorted(root.glob("*/status.json"))]
