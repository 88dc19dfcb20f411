"""Finding inputs: spoil what is known, and keep what went a way that nothing went before.

Two engines. `atheris`, where it is installed, is libFuzzer with Python's bytecode instrumented. Else our own: slower,
for it follows the interpreter line by line, but it needs nothing, and it sees into the decoders that are compiled at
run time. Both begin with the same seeds and leave what they found in one directory.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, NamedTuple

from tests.hostile.mutation import mutate

from .seeds import seeds
from .targets import TARGETS, Target

INPUT_BYTES_MAX = 4096
INPUT_SECONDS_MAX = 5.0
"""Of processor time: no input of so few bytes may cost that much."""


_DONE = re.compile(r"Done (\d+) (?:runs|in)")


class Found(NamedTuple):
    """A way in which a decoder broke its word."""

    target: str
    data: bytes
    error: BaseException


class TooSlow(Exception):
    pass


class Coverage:
    """Which lines were reached from which, in our own code and in what it compiles."""

    def __init__(self) -> None:
        self.known: set[tuple[int, int, int]] = set()
        self._now: set[tuple[int, int, int]] = set()
        self._ours: dict[int, bool] = {}

    def run(self, target: Target, data: bytes) -> bool:
        """Did it go a new way? Raises what `target` raises."""
        self._now = set()
        sys.settrace(self._enter)
        try:
            target.try_input(data)
        finally:
            sys.settrace(None)
            new = not self._now <= self.known
            self.known |= self._now
        return new

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        ours = self._ours.get(id(code))
        if ours is None:
            name = code.co_filename
            ours = self._ours[id(code)] = "/ottla/" in name or "/fuzz/" in name or name.endswith("decoder>")
        if not ours:
            return None
        identity, before, reached = id(code), 0, self._now

        def follow(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal before
            line = frame.f_lineno
            reached.add((identity, before, line))
            before = line
            return follow

        return follow


def replay(name: str, inputs: list[bytes]) -> Found | None:
    return next((found for data in inputs if (found := _try(name, TARGETS[name], data)) is not None), None)


def spoil(name: str, *, seed: int, count: int) -> Found | None:
    """Without looking where they go: `count` spoilt inputs, always the same ones."""
    chance = Random(f"{name}/{seed}")
    corpus = seeds(name)
    for _ in range(count):
        found = _try(name, TARGETS[name], mutate(chance.choice(corpus), chance, corpus)[:INPUT_BYTES_MAX])
        if found is not None:
            return found
    return None


def explore(name: str, *, seed: int, seconds: float, into: Path) -> tuple[int, int, list[Found]]:
    """For so long; how many inputs were tried, how many of them were new, and what went wrong."""
    target, chance, coverage = TARGETS[name], Random(f"{name}/{seed}"), Coverage()
    corpus: list[bytes] = []
    broken: dict[tuple[type[BaseException], int], Found] = {}
    tried = new = 0
    deadline = time.monotonic() + seconds
    waiting = seeds(name)
    while waiting or time.monotonic() < deadline:
        from_seed = bool(waiting)
        data = waiting.pop() if waiting else mutate(_pick(corpus, chance), chance, corpus)[:INPUT_BYTES_MAX]
        tried += 1
        began_s = time.process_time()
        try:
            is_new = coverage.run(target, data)
            if time.process_time() - began_s > INPUT_SECONDS_MAX:
                raise TooSlow(f"{len(data)} bytes took more than {INPUT_SECONDS_MAX} s")
        except Exception as error:
            broken.setdefault((type(error), _line_of(error)), Found(name, data, error))
            continue
        if is_new or not corpus:
            corpus.append(data)
            if not from_seed:
                new += 1
                _keep(into / name, data)
    return tried, new, list(broken.values())


def explore_with_atheris(name: str, *, seconds: float, into: Path) -> tuple[int, int]:
    """In a process of its own, since libFuzzer ends the one it runs in; its exit status, and how many were tried."""
    begin = into / f"{name}.seeds"
    for data in seeds(name):
        _keep(begin, data)
    kept = into / name
    kept.mkdir(parents=True, exist_ok=True)
    tried = 0
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "tools.fuzz.libfuzzer", name, str(kept), str(begin)),
            *(f"-max_total_time={int(seconds)}", f"-max_len={INPUT_BYTES_MAX}", "-rss_limit_mb=1024"),
            *(f"-timeout={int(INPUT_SECONDS_MAX)}", f"-artifact_prefix={into}/{name}-broken-"),
        ],
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            sys.stderr.write(line)
            if done := _DONE.match(line):
                tried = int(done[1])
    return process.returncode, tried


def distil(name: str, *, found: Path, bytes_max: int) -> list[bytes]:
    """Of what runs have found for a target, the smallest inputs that together go every way the seeds do not."""
    target, coverage = TARGETS[name], Coverage()
    for data in seeds(name):
        coverage.run(target, data)
    kept: list[bytes] = []
    for data in sorted((path.read_bytes() for path in (found / name).glob("*")), key=len):
        if sum(map(len, kept)) + len(data) > bytes_max:
            break
        if coverage.run(target, data):
            kept.append(data)
    return kept


def _pick(corpus: list[bytes], chance: Random) -> bytes:
    """Mostly one of the newest, which nobody has built upon yet."""
    if chance.random() < 0.3:
        return corpus[-1 - min(len(corpus) - 1, int(chance.expovariate(0.2)))]
    return chance.choice(corpus)


def _try(name: str, target: Target, data: bytes) -> Found | None:
    began_s = time.process_time()
    try:
        target.try_input(data)
        if time.process_time() - began_s > INPUT_SECONDS_MAX:
            raise TooSlow(f"{len(data)} bytes took more than {INPUT_SECONDS_MAX} s")
    except Exception as error:
        return Found(name, data, error)
    return None


def _line_of(error: BaseException) -> int:
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at.tb_lineno if at is not None else 0


def _keep(directory: Path, data: bytes) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
