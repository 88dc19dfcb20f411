"""The load generators `rawload.c` (records) and `rawgroups.c` (groups): compiled at first use into `.cache`, called as
a process each, their JSON parsed."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.oracle.apache_kafka import REPOSITORY

_HERE = Path(__file__).parent
_SHARED = _HERE / "raw.h"
_OF_GROUPS = frozenset({"commit", "assign", "classic", "consumer"})
"""The modes of `rawgroups`; all others are `rawload`'s."""
CACHE = REPOSITORY / ".cache" / "bench"


class LoadFailed(RuntimeError):
    """The generator could not be built, or the server did not serve it; the message says why."""


@cache
def binary(name: str = "rawload") -> Path:
    """The compiled generator; another source or compiler flag makes another file."""
    flags = ["-O2", "-march=native", "-std=gnu17", "-Wall", "-Wextra"]
    source = _HERE / f"{name}.c"
    parts = (source.read_bytes(), _SHARED.read_bytes(), " ".join(flags).encode())
    target = CACHE / f"{name}-{hashlib.sha256(b''.join(parts)).hexdigest()[:16]}"
    if not target.exists():
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            raise LoadFailed("no C compiler was found: the load generator needs gcc")
        CACHE.mkdir(parents=True, exist_ok=True)
        scratch = target.with_suffix(".new")
        command = [compiler, *flags, "-o", str(scratch), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise LoadFailed(f"{source.name} does not compile:\n{done.stderr}")
        scratch.rename(target)
    return target


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """The shape of a produced batch: so many records of so many bytes, about `target` bytes in all."""

    size: int
    records: int

    @classmethod
    def filling(cls, target: int, size: int) -> Batches:
        """As many records of `size` bytes as a batch of `target` bytes holds (61 bytes are its header)."""
        overhead = 8 if size < 1000 else 10
        return cls(size=size, records=max(1, (target - 61) // (size + overhead)))

    def options(self) -> dict[str, float]:
        return {"records": self.records, "size": self.size}


def run(mode: str, *, timeout: float = 60, **options: float | str) -> dict[str, float]:
    """One call of a generator; `max_bytes=5` becomes `max-bytes=5`."""
    arguments = [f"{key.replace('_', '-')}={value}" for key, value in options.items()]
    return _call([mode, *arguments], timeout)


def evict(files: Sequence[Path]) -> tuple[int, int]:
    """Write files back and drop them from the page cache; bytes in all, and bytes that stayed resident."""
    answer = _call(["evict", *map(str, files)], 120)
    return int(answer["bytes"]), int(answer["resident_bytes"])


def _call(arguments: Sequence[str], timeout: float) -> dict[str, float]:
    name = "rawgroups" if arguments[0] in _OF_GROUPS else "rawload"
    command = [str(binary(name)), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"{name} {' '.join(arguments[:8])}: no end after {timeout} s") from None
    if done.returncode != 0:
        raise LoadFailed(f"{name} {' '.join(arguments[:8])}: {done.stderr.strip()}")
    parsed: dict[str, float] = json.loads(done.stdout)
    return parsed


@contextmanager
def sink() -> Iterator[int]:
    """A server that does nothing but answer; its port."""
    process = subprocess.Popen([str(binary()), "sink"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(json.loads(process.stdout.readline())["port"])
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def ceiling() -> dict[str, float]:
    """What the generator reaches against the sink, the best of three: no server can be measured above it."""
    large, small = Batches.filling(65536, 1024).options(), Batches.filling(16384, 1024).options()
    one: dict[str, float] = {"records": 1, "size": 100}
    with sink() as port:
        common = {"port": port, "bare": 1, "seconds": 0.5}

        def best(mode: str, figure: str, **options: float) -> float:
            return max(run(mode, **common, **options)[figure] for _ in range(3))

        paced = [run("produce", **common, **one, rate=1000)["p50_ms"] for _ in range(3)]
        return {
            "produce 64 KB, MB/s": best("produce", "mb_s", **large),
            "produce 16 KB, MB/s": best("produce", "mb_s", **small),
            "one-record requests/s": best("produce", "requests_s", **one),
            "one-record requests/s, 8 connections": best("produce", "requests_s", connections=8, **one),
            "fetch, MB/s": best("fetch", "mb_s"),
            "p50 at 1,000 requests/s, ms": min(paced),
        }
